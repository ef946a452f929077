//! What the engine's thread does with requests: admission, refusal, timeout, cancelling, ends, failure.
use std::sync::Arc;
use std::time::Duration;

use inferlab::engine::weights::ModelFile;
use inferlab::engine::{Engine, EngineConfig, EngineError, EngineFinish, Generate, Generation};
use inferlab::request::Sampling;
use tokio::sync::oneshot::Receiver;

fn tiny() -> Arc<ModelFile> {
    Arc::new(ModelFile::synthetic("tiny-llama", 1).expect("a known shape"))
}

fn config() -> EngineConfig {
    EngineConfig { threads: Some(2), max_context: 256, max_concurrency: 2, ..EngineConfig::default() }
}

fn ask(prompt: usize, max_tokens: u32) -> Generate {
    Generate {
        prompt: (0..prompt as u32).map(|i| i * 13 % 4096).collect(),
        sampling: Sampling::default(),
        max_tokens,
        ignore_eos: true,
        stop_ids: vec![],
        seed: 1,
    }
}

fn wait(receiver: Receiver<Generation>) -> Generation {
    receiver.blocking_recv().expect("every request is answered")
}

#[test]
fn times_of_a_request_stand_in_their_order_and_every_token_has_one() {
    let engine = Engine::start(tiny(), EngineConfig { prefill_chunk: 16, ..config() }).expect("it fits");
    let g = wait(engine.submit(ask(50, 20)));
    assert_eq!((g.finish, g.tokens.len(), g.token_at.len(), g.prompt_tokens), (EngineFinish::Length, 20, 20, 50));
    let (admitted, started) = (g.admitted_at.expect("admitted"), g.prefill_started_at.expect("began"));
    let ended = g.prefill_ended_at.expect("ended");
    assert!(admitted <= started && started < ended && ended <= g.token_at[0]);
    assert!(g.token_at.is_sorted() && g.token_at[19] <= g.ended_at);
    assert_eq!((g.peers_in_flight, g.peers_prefilling), (0, 0));
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_cut() {
    let engine = Engine::start(tiny(), config()).expect("it fits");
    let fits = wait(engine.submit(ask(200, 56)));
    assert_eq!((fits.finish, fits.tokens.len()), (EngineFinish::Length, 56));
    let refused = wait(engine.submit(ask(200, 57)));
    assert_eq!((refused.finish, refused.tokens.len()), (EngineFinish::ContextLengthExceeded, 0));
    assert_eq!((refused.admitted_at, refused.prompt_tokens), (None, 200));
    let huge = wait(engine.submit(ask(1, u32::MAX)));
    assert_eq!(huge.finish, EngineFinish::ContextLengthExceeded);
}

#[test]
fn a_request_that_means_nothing_is_refused_as_such() {
    let engine = Engine::start(tiny(), config()).expect("it fits");
    for bad in [ask(0, 5), ask(5, 0), Generate { prompt: vec![1, 4096], ..ask(1, 5) }] {
        assert_eq!(wait(engine.submit(bad)).finish, EngineFinish::InvalidRequest);
    }
    assert_eq!(wait(engine.submit(ask(5, 5))).finish, EngineFinish::Length);
}

#[test]
fn a_stop_token_ends_the_answer_and_is_its_last_unless_it_is_ignored() {
    let engine = Engine::start(tiny(), config()).expect("it fits");
    let free = wait(engine.submit(ask(9, 12)));
    let stop = free.tokens[5];
    let at = free.tokens.iter().position(|&t| t == stop).expect("it occurs");
    let stopped = wait(engine.submit(Generate { ignore_eos: false, stop_ids: vec![9999, stop], ..ask(9, 12) }));
    assert_eq!((stopped.finish, &stopped.tokens[..]), (EngineFinish::Stop, &free.tokens[..=at]));
    let ignored = wait(engine.submit(Generate { ignore_eos: true, stop_ids: vec![stop], ..ask(9, 12) }));
    assert_eq!((ignored.finish, ignored.tokens), (EngineFinish::Length, free.tokens));
}

#[test]
fn no_more_than_max_concurrency_run_together_and_they_are_admitted_in_their_order() {
    let engine = Engine::start(tiny(), config()).expect("it fits");
    let waiting: Vec<_> = (0..7).map(|i| engine.submit(ask(10 + i, 30))).collect();
    let all: Vec<Generation> = waiting.into_iter().map(wait).collect();
    let admitted: Vec<_> = all.iter().map(|g| g.admitted_at.expect("admitted")).collect();
    assert!(admitted.is_sorted());
    for g in &all {
        let running = |at| all.iter().filter(|o| o.admitted_at.is_some_and(|a| a <= at) && at < o.ended_at).count();
        assert!(running(g.admitted_at.expect("admitted")) <= 2);
        assert!(g.peers_in_flight <= 1);
    }
    // The third waits for a lane: it is admitted when one of the first two has ended, while the other may still run.
    assert!(admitted[2] >= all[0].ended_at.min(all[1].ended_at));
    assert!(all.iter().any(|g| g.peers_in_flight == 1), "some ran together");
}

#[test]
fn pages_are_reserved_at_admission_so_a_small_pool_makes_requests_wait_and_none_fail() {
    // One sequence of 256 fills the pool: two lanes, but never two sequences.
    let engine = Engine::start(tiny(), EngineConfig { kv_capacity_tokens: Some(256), ..config() }).expect("it fits");
    assert_eq!(engine.capacity().kv_tokens, 256);
    let waiting: Vec<_> = (0..4).map(|_| engine.submit(ask(150, 40))).collect();
    let all: Vec<Generation> = waiting.into_iter().map(wait).collect();
    assert!(all.iter().all(|g| g.finish == EngineFinish::Length && g.peers_in_flight == 0));
    assert!(all.windows(2).all(|pair| pair[1].admitted_at.expect("admitted") >= pair[0].ended_at));
}

#[test]
fn a_request_that_waits_too_long_ends_as_a_timeout_and_the_others_go_on() {
    let config = EngineConfig { max_concurrency: 1, pending_timeout: Duration::from_millis(1), ..config() };
    let engine = Engine::start(tiny(), config).expect("it fits");
    let long = engine.submit(ask(10, 200));
    // Sent once the first is surely admitted; it computes for far longer than a millisecond.
    std::thread::sleep(Duration::from_millis(20));
    let late = engine.submit(ask(10, 5));
    let late = wait(late);
    let long = wait(long);
    if late.finish == EngineFinish::Length {
        println!("skipped: 200 tokens took less than 20 ms");
        return;
    }
    assert_eq!((late.finish, late.tokens.len(), late.admitted_at), (EngineFinish::PendingTimeout, 0, None));
    assert_eq!((long.finish, long.tokens.len()), (EngineFinish::Length, 200));
}

#[test]
fn a_dropped_receiver_frees_its_lane_and_pages() {
    let config = EngineConfig { max_context: 8192, kv_capacity_tokens: Some(8192), max_concurrency: 1, ..config() };
    let engine = Engine::start(tiny(), config).expect("it fits");
    // Each would hold the only lane and every page for minutes.
    for _ in 0..5 {
        drop(engine.submit(ask(8, 8000)));
    }
    assert_eq!(wait(engine.submit(ask(8, 3))).finish, EngineFinish::Length);
}

#[test]
fn dropping_the_engine_ends_what_runs_as_cancelled() {
    let engine = Engine::start(tiny(), EngineConfig { max_context: 8192, ..config() }).expect("it fits");
    let waiting: Vec<_> = (0..4).map(|_| engine.submit(ask(8, 8000))).collect();
    drop(engine);
    for receiver in waiting {
        let g = wait(receiver);
        assert_eq!(g.finish, EngineFinish::Cancelled);
        assert!(g.tokens.len() < 8000);
    }
}

#[test]
fn a_panic_in_the_forward_pass_fails_every_request_and_hangs_none() {
    let mut model = ModelFile::synthetic("tiny-llama", 1).expect("a known shape");
    // The cache is sized for one layer, and the last page ends with it: the second layer writes past the pool.
    model.shape.layers = 1;
    let engine = Engine::start(Arc::new(model), EngineConfig { max_concurrency: 1, ..config() }).expect("it fits");
    let waiting: Vec<_> = (0..3).map(|_| engine.submit(ask(200, 5))).collect();
    for receiver in waiting {
        // A request that came after the thread had ended finds its receiver closed; the others are told.
        if let Ok(g) = receiver.blocking_recv() {
            assert_eq!(g.finish, EngineFinish::Failed);
        }
    }
    assert!(engine.submit(ask(3, 3)).blocking_recv().is_err(), "a dead engine says so at once");
}

#[test]
fn an_engine_that_cannot_be_is_refused_before_anything_is_taken() {
    let start = |config| Engine::start(tiny(), config).err().expect("refused");
    assert!(matches!(
        start(EngineConfig { max_concurrency: 0, ..config() }),
        EngineError::Zero { key: "max_concurrency" }
    ));
    assert!(matches!(start(EngineConfig { kv_capacity_tokens: Some(64), ..config() }), EngineError::KvTooSmall { .. }));
    assert!(matches!(start(EngineConfig { max_context: 1 << 30, ..config() }), EngineError::ContextBeyondModel { .. }));
}
