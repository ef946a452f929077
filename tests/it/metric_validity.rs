//! Each VALID rule broken on purpose, and a control beside it that keeps it.
use inferlab::metric::summarise;
use inferlab::metric::summary::{RunSummary, Verdict};
use inferlab::record::{LoggedEvent, LoggedRun, Outcome, RowCounts, Segment};
use inferlab::units::TimestampNs;
use serde_json::{Map, Value, json};

use crate::metric_logged::{answered, arm, cell, failed, key, lane, ms, plan, run};

const C1: &str = "decode_scaling/c1";

/// Two arms, one cell, one lane of four requests each; nothing is wrong with it.
fn sound() -> LoggedRun {
    let rows = [lane("base", C1, 0, 4, 10.0, 11), lane("new", C1, 0, 4, 10.5, 11)].concat();
    run(plan(vec![arm("base"), arm("new")], vec![cell(C1, 1, 11, 4)]), rows)
}

fn broken(change: impl FnOnce(&mut LoggedRun)) -> RunSummary {
    let mut logged = sound();
    change(&mut logged);
    summarise("r", &logged)
}

#[track_caller]
fn only(summary: &RunSummary, rule: &str, text: &str) {
    let rules: Vec<&str> = summary.reasons.iter().map(|r| r.rule).collect();
    assert!(!rules.is_empty() && rules.iter().all(|r| *r == rule), "{:?}", summary.reasons);
    assert!(summary.reasons.iter().any(|r| r.message.contains(text)), "{:?}", summary.reasons);
    assert_eq!(summary.verdict, Verdict::Invalid);
}

fn event(run: &mut LoggedRun, what: &str, fields: Value) {
    let Value::Object(fields) = fields else { panic!("fields are a map") };
    run.events.push(LoggedEvent {
        segment: 0,
        t_ns: TimestampNs(0),
        what: what.into(),
        fields: Map::from_iter(fields),
    });
}

#[test]
fn the_control_is_valid() {
    let summary = broken(|_| {});
    assert_eq!((summary.verdict, summary.reasons.as_slice()), (Verdict::Valid, [].as_slice()));
}

#[test]
fn v1_a_bad_arm_is_not_hidden_by_a_good_one() {
    // 1 of 4 of one arm: 25 % there, 12.5 % over both.
    let fail = |run: &mut LoggedRun| {
        run.header.plan.limits.max_failure_rate = 0.2;
        run.rows[7].record = failed(key("new", C1, 0, 3), 615.0, Outcome::Reset, "reset by peer");
        run.end = Some(run.row_counts());
    };
    let summary = broken(fail);
    only(&summary, "V1", "new: 1 of 4 requests failed (25.0 %); the limit is 20.0 %");
    assert_eq!(summary.failures[0].example.as_deref(), Some("reset by peer"));
    let allowed = broken(|run| {
        fail(run);
        run.header.plan.limits.max_failure_rate = 0.25;
    });
    assert_eq!(allowed.reasons, []);
}

#[test]
fn v1_a_cell_that_was_never_measured_does_not_pass() {
    let summary = broken(|run| run.header.plan.cells.push(cell("decode_scaling/c2", 2, 11, 8)));
    only(&summary, "V1", "base, decode_scaling/c2: the run ended without a measured request");
}

#[test]
fn v2_lanes_that_idle_between_requests_are_seen() {
    // Each request 200 ms; a pause of 12 ms (6 %) after each is over the limit, one of 8 ms is not.
    let pause = |pause: f64| {
        let rows = (0..50).map(|i| {
            let sent = f64::from(i) * (200.0 + pause);
            answered(key("base", C1, 0, i), sent, sent + 100.0, 10.0, 11)
        });
        summarise("r", &run(plan(vec![arm("base")], vec![cell(C1, 1, 11, 50)]), rows.collect()))
    };
    only(&pause(12.0), "V2", "1 requests in flight were held in 94.3 %");
    assert_eq!(pause(8.0).reasons, []);
}

#[test]
fn v2_a_single_wave_that_never_was_full_is_seen() {
    let wave = |wanted: u32| {
        let rows = (0..8).map(|i| {
            let sent = f64::from(i / 4) * 200.0;
            answered(key("base", C1, 0, i), sent, sent + 100.0, 10.0, 11)
        });
        summarise("r", &run(plan(vec![arm("base")], vec![cell(C1, wanted, 11, 8)]), rows.collect()))
    };
    only(&wave(8), "V2", "8 requests in flight were held in 0.0 %");
    assert_eq!(wave(4).reasons, []);
}

#[test]
fn v3_arms_of_other_lengths_are_not_compared() {
    let lengths = |n: u32| {
        broken(|run| {
            for (i, row) in lane("new", C1, 0, 4, 10.5, n).into_iter().enumerate() {
                run.rows[4 + i].record = row;
            }
        })
    };
    only(&lengths(13), "V3", "completions hold 11.0 tokens on average in base and 13.0 in new");
    assert_eq!(lengths(12).reasons, [], "9.1 % is within the limit");
}

#[test]
fn v4_counts_that_contradict_each_other_or_are_unknown() {
    let count = |usage: Option<u32>, counted: Option<u32>| {
        broken(|run| {
            let row = &mut run.rows[1].record;
            (row.usage_completion_tokens, row.counted_completion_tokens) = (usage, counted);
        })
    };
    only(&count(Some(11), Some(14)), "V4", "0 have no token count to trust and 1 have two that disagree");
    only(&count(None, None), "V4", "1 have no token count to trust");
    only(&count(Some(0), None), "V4", "1 have no token count to trust");
    assert_eq!(count(Some(11), Some(13)).reasons, [], "two tokens apart are a matter of the tokenizer");
    assert_eq!(count(None, Some(11)).reasons, []);
}

#[test]
fn v5_a_cache_hit_in_a_cold_cell() {
    let cached = |n: u32, cold: bool| {
        broken(|run| {
            run.rows[1].record.usage_cached_tokens = Some(n);
            run.header.plan.cells[0].cold = cold;
        })
    };
    only(&cached(448, true), "V5", "1 prompts were answered from a cache, up to 448 tokens");
    assert_eq!(cached(448, false).reasons, []);
}

#[test]
fn v6_what_ran_is_what_was_asked() {
    let ran = |fact: &str, value: Value| broken(|run| run.segments[0].open.provenance["target"]["new"][fact] = value);
    // B81: the server fell back to f16.
    only(&ran("effective_kv_dtype", json!("f16")), "V6", "new: kv_dtype bf16 was asked, f16 ran");
    only(&ran("effective_context", json!(2048)), "V6", "max_context 4096 was asked, 2048 ran");
    only(&ran("effective_concurrency", json!(2)), "V6", "max_concurrency 4 was asked, 2 ran");
    let unknown = ran("effective_kv_dtype", Value::Null);
    assert_eq!(unknown.reasons, []);
    assert!(unknown.warnings.iter().any(|w| w.contains("new: unverified") && w.contains("kv_dtype")));
}

#[test]
fn v6_a_server_with_fewer_slots_than_lanes_is_seen_once() {
    let slots = |slots: u32| {
        let lanes: Vec<_> = (0..2).flat_map(|_| lane("base", "decode_scaling/c2", 0, 8, 10.0, 11)).collect();
        let mut logged = run(plan(vec![arm("base")], vec![cell("decode_scaling/c2", 2, 11, 8)]), lanes);
        logged.header.plan.arms[0].target = json!({"endpoint": {"url": "http://127.0.0.1:1/v1", "model": "m"}});
        logged.segments[0].open.provenance["target"]["base"]["effective_concurrency"] = json!(slots);
        // A resumed run says the same in each segment.
        logged.segments.push(Segment { number: 1, ..logged.segments[0].clone() });
        let reasons = summarise("r", &logged).reasons;
        reasons.into_iter().filter(|reason| reason.rule == "V6").collect::<Vec<_>>()
    };
    assert_eq!(slots(1).len(), 1, "{:?}", slots(1));
    assert!(slots(1)[0].message.contains("2 requests in flight were asked, the server decodes 1 together"));
    assert_eq!(slots(2), []);
}

#[test]
fn v6_thinking_that_was_asked_off_is_off() {
    let thought = |asked: Value, seen: bool| {
        broken(|run| {
            run.header.plan.arms.iter_mut().for_each(|arm| arm.thinking = asked.clone());
            run.rows.iter_mut().for_each(|row| row.record.thinking_seen = Some(seen));
        })
    };
    only(&thought(json!("off"), true), "V6", "base: thinking was asked off, 4 of 4 answers hold it");
    only(&thought(json!({"budget": 2000}), false), "V6", "thinking was asked for, none of 4 answers holds it");
    assert_eq!(thought(json!("off"), false).reasons, []);
    assert_eq!(thought(json!("default"), true).reasons, []);
}

#[test]
fn v7_a_log_that_lost_rows_supports_nothing() {
    let lost = broken(|run| event(run, "incident", json!({"cause": "storage", "message": "2 rows were not written"})));
    only(&lost, "V7", "2 rows were not written");
    let counted = broken(|run| run.end = Some(RowCounts { ok: 9, ..RowCounts::default() }));
    only(&counted, "V7", "the end line counts 9 requests (9 ok, 0 failed), the log holds 8");
    // Also before its end: what is missing cannot be told from what was never asked.
    let unfinished = broken(|run| {
        (run.end, run.segments[0].close) = (None, Some("storage".into()));
    });
    only(&unfinished, "V7", "segment 0 closed because the log could not be written");
}

#[test]
fn v7_a_run_that_ended_holds_every_planned_request() {
    let planned = |requests: u32| {
        broken(|run| {
            run.header.plan.repeats = 1;
            run.header.plan.cells[0].requests = requests;
        })
    };
    only(&planned(5), "V7", "base, decode_scaling/c1: the log holds 4 of 5 planned requests");
    assert_eq!(planned(4).reasons, []);
}

#[test]
fn a_run_without_its_end_is_partial_whatever_else_is_wrong() {
    let summary = broken(|run| {
        run.end = None;
        run.torn = true;
        run.segments[0].close = None;
        run.rows[1].record.usage_cached_tokens = Some(500);
    });
    assert_eq!(summary.verdict, Verdict::Partial);
    assert_eq!(summary.reasons.iter().map(|r| r.rule).collect::<Vec<_>>(), ["V5"]);
    assert!(summary.warnings.iter().any(|w| w.contains("a crash cut the last line")), "{:?}", summary.warnings);
}

#[test]
fn v8_the_clients_own_error_has_a_budget() {
    let late = |by: f64| {
        broken(|run| {
            for row in run.rows.iter_mut().map(|row| &mut row.record) {
                let sent = row.sent_ns.expect("sent").0 as f64 / 1e6;
                row.scheduled_ns = ms(sent - by);
            }
        })
    };
    only(&late(5.5), "V8", "sent 5.50 ms late at the median, over 5 % of the time to first token (100.00 ms)");
    assert_eq!(late(4.5).reasons, []);
    let budget = |share: f64| {
        broken(|run| {
            event(run, "client_budget", json!({"arm": "base", "cell": C1, "metric": "icl_ms", "share": share}))
        })
    };
    only(&budget(0.07), "V8", "base, decode_scaling/c1: the client's own error is 7.0 % of icl_ms");
    assert_eq!(budget(0.03).reasons, []);
}

#[test]
fn v9_a_prompt_is_as_long_as_planned() {
    let counted = |got: u32, server: bool| {
        broken(|run| {
            run.rows[1].record.usage_prompt_tokens = Some(got);
            run.rows.iter_mut().for_each(|row| row.record.http_status = server.then_some(200));
            if server {
                run.header
                    .plan
                    .arms
                    .iter_mut()
                    .for_each(|arm| arm.target = json!({"endpoint": {"url": "http://h/v1"}}));
            }
        })
    };
    only(&counted(513, false), "V9", "1 prompts were counted otherwise than planned, as 513 tokens for 512");
    assert_eq!(counted(540, true).reasons, [], "a template of 28 tokens");
    only(&counted(600, true), "V9", "as 600 tokens for 512");
    // ollama cuts prompts in silence.
    only(&counted(256, true), "V9", "as 256 tokens for 512");
}

#[test]
fn a_segment_that_ran_otherwise_breaks_v6_for_the_whole_run() {
    let summary = broken(|run| {
        let mut open = run.segments[0].open.clone();
        open.provenance["target"]["base"]["effective_kv_dtype"] = json!("f32");
        run.segments.push(Segment { number: 1, open, close: Some("done".into()) });
    });
    only(&summary, "V6", "base: kv_dtype bf16 was asked, f32 ran");
}
