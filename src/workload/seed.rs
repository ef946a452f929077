//! Where randomness comes from: one suite seed, and for every request a seed of its own that depends on nothing but its place.
use rand_pcg::Pcg64Mcg;
use sha2::{Digest, Sha256};

/// Most requests of a plan: a request seed has 31 bits, since servers read it as a signed 32-bit number.
pub const MAX_REQUESTS: u64 = 1 << 31;

const MASK: u32 = (1 << 31) - 1;

/// The sampler seed of request number `packed` under the suite seed.
///
/// `packed = (cell · repeats + repeat) · slots + slot`, `slots` the most requests of any cell in one repeat, warm-up after the
/// measured ones. For one suite seed the map is a bijection of 31-bit numbers, so two requests of a run never share a seed: each
/// of the four rounds adds a key, multiplies by an odd number and xors the number with its own upper bits, all modulo 2³¹, and
/// each of these can be undone. Every arm asks the same request with the same seed, and a second attempt repeats it.
pub fn request_seed(suite_seed: u64, packed: u32) -> u32 {
    debug_assert!(packed <= MASK, "more than 31 bits of requests");
    let mut x = packed & MASK;
    for (key, factor, shift) in rounds(suite_seed) {
        x = x.wrapping_add(key) & MASK;
        x = x.wrapping_mul(factor) & MASK;
        x ^= x >> shift;
    }
    x
}

/// Key, odd factor and shift of each round.
fn rounds(suite_seed: u64) -> [(u32, u32, u32); 4] {
    let digest = Sha256::digest([b"inferlab request seed ".as_slice(), &suite_seed.to_le_bytes()].concat());
    let word = |n: usize| u32::from_le_bytes([digest[4 * n], digest[4 * n + 1], digest[4 * n + 2], digest[4 * n + 3]]);
    let shifts = [15, 16, 13, 17];
    std::array::from_fn(|n| (word(2 * n) & MASK, (word(2 * n + 1) & MASK) | 1, shifts[n]))
}

/// A generator for one purpose: the same parts give the same numbers, and different parts unrelated ones.
pub fn stream(suite_seed: u64, purpose: &str, parts: &[&[u8]]) -> Pcg64Mcg {
    let mut hash = Sha256::new();
    hash.update(suite_seed.to_le_bytes());
    for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut state = [0; 16];
    state.copy_from_slice(&digest[..16]);
    Pcg64Mcg::new(u128::from_le_bytes(state))
}

/// A number below `bound`. Written out because a draw must stay the same when a library changes how it draws.
pub(crate) fn below(rng: &mut Pcg64Mcg, bound: u32) -> u32 {
    use rand::Rng;
    // Multiply and shift: the bias is below 2⁻³² for every bound.
    u32::try_from((u128::from(rng.next_u64()) * u128::from(bound)) >> 64).expect("below a 32-bit bound")
}

/// A permutation of `0..n`.
pub(crate) fn permutation(rng: &mut Pcg64Mcg, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for last in (1..n).rev() {
        let bound = u32::try_from(last + 1).expect("fewer than 2^32 arms");
        order.swap(last, below(rng, bound) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// Undoes every round, which is what makes the map a bijection.
    fn inverse(suite_seed: u64, seed: u32) -> u32 {
        let mut x = seed;
        for (key, factor, shift) in rounds(suite_seed).into_iter().rev() {
            let mut bits = x;
            while bits != 0 {
                bits >>= shift;
                x ^= bits;
            }
            // Newton: an odd number times its inverse is 1 modulo every power of two.
            let mut inverse = 1_u32;
            for _ in 0..5 {
                inverse = inverse.wrapping_mul(2_u32.wrapping_sub(factor.wrapping_mul(inverse)));
            }
            x = x.wrapping_mul(inverse) & MASK;
            x = x.wrapping_sub(key) & MASK;
        }
        x
    }

    proptest! {
        #[test]
        fn every_request_number_comes_back_from_its_seed(suite in any::<u64>(), packed in 0..=MASK) {
            let seed = request_seed(suite, packed);
            prop_assert!(seed <= MASK);
            prop_assert_eq!(inverse(suite, seed), packed);
        }

        #[test]
        fn every_seed_is_the_seed_of_some_request(suite in any::<u64>(), seed in 0..=MASK) {
            prop_assert_eq!(request_seed(suite, inverse(suite, seed)), seed);
        }
    }

    #[test]
    fn no_two_of_the_first_two_hundred_thousand_requests_share_a_seed() {
        let seeds: HashSet<u32> = (0..200_000).map(|packed| request_seed(20_261_130, packed)).collect();
        assert_eq!(seeds.len(), 200_000);
    }

    #[test]
    fn another_suite_seed_gives_other_request_seeds() {
        let same = (0..10_000).filter(|&packed| request_seed(1, packed) == request_seed(2, packed)).count();
        // Two random maps agree on 10 000 of 2^31 numbers about never.
        assert!(same < 3, "{same} of 10 000 seeds are equal");
    }

    #[test]
    fn a_permutation_holds_every_number_once() {
        let mut order = permutation(&mut stream(7, "test", &[]), 13);
        order.sort_unstable();
        assert_eq!(order, (0..13).collect::<Vec<_>>());
    }

    #[test]
    fn parts_of_a_stream_do_not_run_together() {
        use rand::Rng;
        let first = stream(1, "a", &[b"bc", b"d"]).next_u64();
        assert_ne!(first, stream(1, "a", &[b"b", b"cd"]).next_u64());
        assert_eq!(first, stream(1, "a", &[b"bc", b"d"]).next_u64());
    }
}
