//! Mutated experiment files: every answer is a plan or an error that can be printed, never a panic.
use inferlab::experiment::{self, Experiment, IdentityInputs, Plan};

use crate::experiment_cases::{EVERY_KEY, SMALL, TWO_ARMS, every_endpoint_key, rendered};

/// Changes a text a little: flips, drops, doubles and inserts bytes, lines and pieces that YAML takes for structure.
fn mutated(text: &str, rng: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    const PIECES: [&str; 24] = [
        "[", "]", "{", "}", ": ", "- ", "\n", "  ", "#", "'", "\"", "&a ", "*a", "!t ", "<<: ", "---\n", "|\n", "? ",
        ".nan", "~", "\u{feff}", "\\u202e", "0", ",",
    ];
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + rng(3) {
        let at = rng(bytes.len().max(1)).min(bytes.len());
        match rng(6) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(rng(256)).expect("a byte"),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => drop(bytes.splice(at..at, PIECES[rng(PIECES.len())].bytes())),
            3 => {
                let end = (at + rng(40)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            4 => {
                let end = (at + rng(60)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = rng(bytes.len() + 1);
                drop(bytes.splice(to..to, copy));
            }
            _ => drop(bytes.splice(at..at, PIECES[rng(PIECES.len())].repeat(rng(80)).bytes())),
        }
    }
    bytes
}

fn mutate(count: usize) {
    let every = EVERY_KEY.replace("prefix_cache: true", "prefix_cache: false").replace("power: ", "# power: ");
    let seeds = [every, every_endpoint_key(), SMALL.to_owned(), TWO_ARMS.to_owned()];
    let mut state = 20_261_130_u64;
    let mut rng = |bound: usize| {
        // SplitMix64, so that a failing number can be run again.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound.max(1) as u64).expect("below a bound")
    };
    let (mut accepted, mut refused, mut slowest) = (0_u32, 0_u32, std::time::Duration::ZERO);
    for number in 0..count {
        let bytes = mutated(&seeds[number % seeds.len()], &mut rng);
        let started = std::time::Instant::now();
        let result = std::panic::catch_unwind(|| {
            match Experiment::from_bytes("mutated.yaml", &bytes, &[]).and_then(|experiment| Plan::new(&experiment, &[]))
            {
                Ok(plan) => {
                    let _ = (experiment::text(&plan), plan.identity(&IdentityInputs::default()));
                    true
                }
                Err(error) => {
                    let shown = rendered(&error);
                    assert!(!shown.is_empty() && !shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
                    false
                }
            }
        });
        slowest = slowest.max(started.elapsed());
        match result {
            Ok(true) => accepted += 1,
            Ok(false) => refused += 1,
            Err(_) => panic!("mutation {number} panicked:\n{}", String::from_utf8_lossy(&bytes)),
        }
    }
    println!("{count} mutations: {accepted} accepted, {refused} refused, 0 panics, slowest {slowest:?}");
    assert!(refused > 0 && accepted > 0, "{accepted} accepted, {refused} refused: the mutations test nothing");
}

#[test]
fn two_thousand_mutated_files_are_answered_without_a_panic() {
    mutate(2_000);
}

/// `cargo test --release --test it -- --ignored --nocapture mutated`
#[test]
#[ignore = "a command beside CI: 100 000 mutations"]
fn a_hundred_thousand_mutated_files_are_answered_without_a_panic() {
    mutate(100_000);
}
