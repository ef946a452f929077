//! In which order arms run inside repeats.
use super::Order;
use super::plan::Visit;
use crate::workload::{permutation, stream};

/// Every visit of a plan: in each repeat every arm once.
///
/// `abba` with two arms: A B, B A, A B and so on, so that a drift that is linear in time falls on both alike. Above two arms the
/// blocks are rows of a seeded Latin square of Williams: in as many blocks as there are arms, each arm stands once in every
/// position and, over a square and its mirror, follows every other arm equally often (Williams 1949, doi:10.1071/CH9490149).
pub(super) fn visits(order: Order, arms: usize, repeats: u32, seed: u64) -> Vec<Visit> {
    let rows = square(arms, seed);
    (0..repeats)
        .flat_map(|repeat| {
            let block = match order {
                Order::Sequential => (0..arms).collect(),
                Order::Shuffled => permutation(&mut stream(seed, "order of a block", &[&repeat.to_le_bytes()]), arms),
                Order::Abba if arms <= 2 => turned((0..arms).collect(), repeat % 2 == 1),
                Order::Abba => {
                    let (pass, row) = (repeat as usize / arms, repeat as usize % arms);
                    turned(rows[row].clone(), pass % 2 == 1)
                }
            };
            block.into_iter().map(move |arm| Visit { repeat, arm })
        })
        .collect()
}

fn turned(mut block: Vec<usize>, reversed: bool) -> Vec<usize> {
    if reversed {
        block.reverse();
    }
    block
}

/// The square of Williams with its symbols and rows permuted.
fn square(arms: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut rng = stream(seed, "latin square", &[]);
    let symbols = permutation(&mut rng, arms);
    let rows = permutation(&mut rng, arms);
    // 0, 1, n-1, 2, n-2, ...: neighbouring differences are all unlike.
    let first: Vec<usize> = (0..arms)
        .map(|column| if column % 2 == 1 { column.div_ceil(2) } else { (arms - column / 2) % arms.max(1) })
        .collect();
    rows.into_iter().map(|row| first.iter().map(|symbol| symbols[(symbol + row) % arms]).collect()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn blocks(order: Order, arms: usize, repeats: u32, seed: u64) -> Vec<Vec<usize>> {
        let visits = visits(order, arms, repeats, seed);
        (0..repeats).map(|repeat| visits.iter().filter(|v| v.repeat == repeat).map(|v| v.arm).collect()).collect()
    }

    #[test]
    fn two_arms_run_ab_ba_ab() {
        assert_eq!(blocks(Order::Abba, 2, 4, 1), [[0, 1], [1, 0], [0, 1], [1, 0]]);
    }

    #[test]
    fn every_order_visits_every_arm_once_in_every_repeat() {
        for order in Order::ALL {
            for arms in 1..=7 {
                for block in blocks(*order, arms, 9, 5) {
                    let mut sorted = block.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, (0..arms).collect::<Vec<_>>(), "{order:?} {arms}");
                }
            }
        }
    }

    #[test]
    fn above_two_arms_each_stands_once_in_every_position_of_a_square() {
        for arms in 3..=7 {
            let square = blocks(Order::Abba, arms, u32::try_from(arms).expect("few arms"), 9);
            for column in 0..arms {
                let mut seen: Vec<usize> = square.iter().map(|block| block[column]).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..arms).collect::<Vec<_>>(), "{arms} arms, position {column}");
            }
        }
    }

    #[test]
    fn over_a_square_and_its_mirror_every_arm_follows_every_other_equally_often() {
        for arms in 3..=6 {
            let mut follows: BTreeMap<(usize, usize), u32> = BTreeMap::new();
            for block in blocks(Order::Abba, arms, 2 * u32::try_from(arms).expect("few arms"), 3) {
                for pair in block.windows(2) {
                    *follows.entry((pair[0], pair[1])).or_default() += 1;
                }
            }
            assert_eq!(follows.len(), arms * (arms - 1), "{arms} arms");
            assert!(follows.values().all(|&count| count == 2), "{follows:?}");
        }
    }

    #[test]
    fn the_seed_decides_the_order_and_nothing_else_does() {
        for order in [Order::Abba, Order::Shuffled] {
            assert_eq!(blocks(order, 5, 10, 7), blocks(order, 5, 10, 7));
            assert_ne!(blocks(order, 5, 10, 7), blocks(order, 5, 10, 8));
        }
        assert_eq!(blocks(Order::Sequential, 3, 2, 7), [[0, 1, 2], [0, 1, 2]]);
    }
}
