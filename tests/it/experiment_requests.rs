//! The requests of a plan: exact lengths, unlike prompts, equal across arms.
use std::collections::HashSet;

use inferlab::experiment::Plan;
use inferlab::request::{Message, Prompt};
use inferlab::workload::{PromptFit, requests};

use crate::experiment_cases::{TWO_ARMS, load, plan, shared};

/// A model of token ids.
struct Raw;

impl PromptFit for Raw {
    fn count(&self, _: &[Message]) -> Option<u32> {
        None
    }
    fn raw_vocabulary(&self) -> Option<u32> {
        Some(32_000)
    }
    fn overhead_tokens(&self) -> Option<u32> {
        None
    }
}

/// A chat model that counts words and a template of five tokens.
struct Words;

impl PromptFit for Words {
    fn count(&self, messages: &[Message]) -> Option<u32> {
        let words = messages.iter().map(|message| message.content.split_ascii_whitespace().count()).sum::<usize>();
        Some(5 + u32::try_from(words).expect("few words"))
    }
    fn raw_vocabulary(&self) -> Option<u32> {
        None
    }
    fn overhead_tokens(&self) -> Option<u32> {
        None
    }
}

fn prompt_text(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Chat(messages) => messages.iter().map(|message| message.content.as_str()).collect(),
        Prompt::TokenIds(ids) => ids.iter().map(|id| format!("{id} ")).collect(),
    }
}

#[test]
fn warm_up_shares_no_prompt_with_what_is_measured() {
    let mut texts = vec![TWO_ARMS.to_owned()];
    if let Some(shared) = shared() {
        texts.push(std::fs::read_to_string(shared.join("cases/B65.plan.yaml")).expect("B65.plan.yaml"));
    }
    for text in texts {
        let plan = plan(&text).expect("planned");
        for fit in [&Raw as &dyn PromptFit, &Words] {
            let (mut warm, mut measured, mut seeds) = (HashSet::new(), HashSet::new(), HashSet::new());
            let mut count = 0;
            for cell in &plan.cells {
                for repeat in 0..plan.experiment.repeats {
                    let made = requests(&plan, cell, &plan.arms[0], repeat, "k7q2", fit).expect("made");
                    assert!(!made.warmup.is_empty());
                    assert_eq!(made.measured.len() as u32, cell.workload.requests());
                    for request in made.warmup.iter().chain(&made.measured).map(|ask| &ask.request) {
                        count += 1;
                        seeds.insert(request.seed);
                        assert!(request.seed < 1 << 31 && request.ignore_eos);
                        assert_eq!(request.max_tokens, cell.workload.completion_tokens());
                        assert_eq!(request.prompt_tokens_planned, Some(cell.workload.prompt_tokens()));
                        let text = prompt_text(&request.prompt);
                        match &request.prompt {
                            Prompt::TokenIds(ids) => assert_eq!(ids.len() as u32, cell.workload.prompt_tokens()),
                            Prompt::Chat(messages) => {
                                assert_eq!(fit.count(messages), Some(cell.workload.prompt_tokens()))
                            }
                        }
                        assert!(
                            if request.key.warmup { warm.insert(text) } else { measured.insert(text) },
                            "a prompt stands twice"
                        );
                    }
                }
            }
            assert_eq!(seeds.len(), count, "a seed stands twice");
            assert!(warm.is_disjoint(&measured));
            // No long common start either: a prefix cache of 16 tokens a block finds nothing.
            let starts: HashSet<String> = warm
                .iter()
                .chain(&measured)
                .map(|text| text.split(' ').take(16).collect::<Vec<_>>().join(" "))
                .collect();
            assert_eq!(starts.len(), warm.len() + measured.len());
        }
    }
}

#[test]
fn every_arm_asks_the_same_and_another_nonce_asks_otherwise_from_the_first_token() {
    let plan = plan(TWO_ARMS).expect("planned");
    for fit in [&Raw as &dyn PromptFit, &Words] {
        for cell in &plan.cells {
            let ask = |arm: usize, nonce: &str| requests(&plan, cell, &plan.arms[arm], 1, nonce, fit).expect("made");
            let (first, second, other) = (ask(0, "k7q2"), ask(1, "k7q2"), ask(0, "zz99"));
            for ((a, b), c) in first.measured.iter().zip(&second.measured).zip(&other.measured) {
                let (a, b, c) = (&a.request, &b.request, &c.request);
                assert_eq!((&a.prompt, a.seed, a.sampling), (&b.prompt, b.seed, b.sampling));
                assert_ne!(a.key.arm, b.key.arm);
                assert_eq!(a.seed, c.seed);
                let (a, c) = (prompt_text(&a.prompt), prompt_text(&c.prompt));
                assert_ne!(a.split(' ').next(), c.split(' ').next());
            }
            assert_eq!(ask(0, "k7q2"), first, "made again, as after a resume");
        }
    }
}

#[test]
fn only_changes_neither_prompts_nor_seeds_of_what_it_keeps() {
    let experiment = load(TWO_ARMS).expect("loaded");
    let (whole, part) = (
        Plan::new(&experiment, &[]).expect("all"),
        Plan::new(&experiment, &["decode_scaling".to_owned()]).expect("part"),
    );
    let id = &part.cells[0].id;
    let same = whole.cells.iter().find(|cell| cell.id == *id).expect("in both");
    let ask = |plan: &Plan, cell| requests(plan, cell, &plan.arms[0], 2, "n", &Raw).expect("made");
    assert_eq!(ask(&whole, same), ask(&part, &part.cells[0]));
}
