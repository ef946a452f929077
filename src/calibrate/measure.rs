//! One calibration: the open loop and the endpoint client as they are in a run, against the emitter.
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::CalibrateError;
use super::emitter::{Emitter, FIRST, GAP, TOKENS, Written};
use crate::loadgen::{Issue, Schedule, Sink, Stop, open_loop};
use crate::metric::row;
use crate::record::{CalibratedLevel, Calibration, ErrorMs, Outcome, RequestRecord};
use crate::request::{Message, Prompt, Request, RequestKey, Sampling};
use crate::statistics::{minimum_n, percentile_sorted, sorted};
use crate::target::config::Dialect;
use crate::target::endpoint::{Endpoint, EndpointSettings, check_file_limit};
use crate::units::Clock;
use crate::workload::Ask;

/// Requests before those that count: they open the connections.
const FIRST_REQUESTS: u32 = 8;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// Streams in flight, on average.
    pub concurrency: u32,
    /// How long, about.
    pub time: Duration,
}

/// Measures every level, one after another; `say` is told of each that is done.
pub fn measure(
    levels: &[Level],
    stop: &Stop,
    mut say: impl FnMut(&CalibratedLevel),
) -> Result<Calibration, CalibrateError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CalibrateError::Emitter)?;
    let mut measured = Vec::with_capacity(levels.len());
    for &level in levels {
        if stop.requested() {
            break;
        }
        let found = tokio::task::LocalSet::new().block_on(&runtime, one(level, stop))?;
        say(&found);
        measured.push(found);
    }
    measured.sort_by_key(|level| level.concurrency);
    Ok(Calibration { utc: crate::record::now_utc(), levels: measured })
}

async fn one(level: Level, stop: &Stop) -> Result<CalibratedLevel, CalibrateError> {
    let emitter = Emitter::start().map_err(CalibrateError::Emitter)?;
    // Both ends of every connection are ours.
    check_file_limit(level.concurrency.saturating_mul(4))?;
    let settings = EndpointSettings {
        dialect: Dialect::Openai,
        ..EndpointSettings::new(format!("http://{}/v1", emitter.address), "calibration")
    };
    let endpoint = Rc::new(Endpoint::attach(settings)?);
    // By Little's law: so many arrivals keep `concurrency` streams in flight.
    let service = (FIRST + GAP * (TOKENS - 1)).as_secs_f64();
    let rate = f64::from(level.concurrency) / service;
    let requests = FIRST_REQUESTS + (rate * level.time.as_secs_f64()).ceil().max(16.0) as u32;
    let schedule = Schedule {
        arrivals_ns: (0..requests).map(|i| (f64::from(i) / rate * 1e9) as u64).collect(),
        // Far above what is aimed at: an emitter that cannot follow must show as error, not as shed requests.
        max_in_flight: level.concurrency.saturating_mul(2).max(64),
        drain: Duration::from_secs(1),
    };
    let issues =
        (0..requests).map(|index| Issue::new(Ask { request: request(index), session: None, turns: vec![] }, 0));
    let rows: Rc<RefCell<Vec<RequestRecord>>> = Rc::default();
    let kept = Rc::clone(&rows);
    let sink: Sink = Rc::new(RefCell::new(move |seen: crate::target::Observation| kept.borrow_mut().push(seen.record)));
    let clock = Clock::start();
    open_loop(endpoint, clock, schedule, issues.collect(), stop, sink).await;
    let rows = rows.take();
    let mut errors = Errors::default();
    let mut failed = 0;
    for row in rows.iter().filter(|row| row.index >= FIRST_REQUESTS) {
        let written = row.seed.and_then(|seed| emitter.written(u64::from(seed)));
        match written.and_then(|written| errors.add(row, &written, &clock)) {
            Some(()) => {}
            None => failed += 1,
        }
    }
    if errors.ttft.is_empty() {
        return Err(CalibrateError::Unanswered { concurrency: level.concurrency, requests: rows.len() });
    }
    Ok(CalibratedLevel {
        concurrency: level.concurrency,
        requests: errors.ttft.len(),
        failed,
        dispatch_ms: error(&errors.dispatch),
        ttft_ms: error(&errors.ttft),
        event_ms: error(&errors.event),
        gap_ms: error(&errors.gap),
        tpot_ms: error(&errors.tpot),
    })
}

fn request(index: u32) -> Request {
    let message = Message { role: "user".into(), content: "Count to sixteen.".into() };
    Request {
        key: RequestKey { arm: "client".into(), cell: "calibration".into(), repeat: 0, index, warmup: false },
        prompt: Prompt::Chat(vec![message]),
        prompt_tokens_planned: None,
        sampling: Sampling::default(),
        max_tokens: TOKENS,
        ignore_eos: true,
        seed: index,
    }
}

/// Absolute errors in ms.
#[derive(Default)]
struct Errors {
    dispatch: Vec<f64>,
    ttft: Vec<f64>,
    event: Vec<f64>,
    gap: Vec<f64>,
    tpot: Vec<f64>,
}

impl Errors {
    /// Adds one request; `None` when it was not answered or its events are not those that were written.
    fn add(&mut self, row: &RequestRecord, written: &Written, clock: &Clock) -> Option<()> {
        let ms = |ns: i64| ns as f64 / 1e6;
        let truth: Vec<i64> = written.tokens.iter().map(|&at| clock.at(at).0).collect();
        let (&first_written, &last_written) = (truth.first()?, truth.last()?);
        if row.outcome != Outcome::Ok || row.gap_us.len() + 1 != truth.len() {
            return None;
        }
        let (first, last) = (row.first_token_ns?.0, row.last_token_ns?.0);
        let ttft = row::ttft_ms(row)? - ms(first_written - clock.at(written.read).0);
        let dispatch = row::lateness_ms(row)?;
        self.dispatch.push(dispatch);
        self.ttft.push(ttft.abs());
        let mut at = first;
        self.event.push(ms(first - first_written).abs());
        for (pair, &gap) in truth.windows(2).zip(&row.gap_us) {
            at += i64::from(gap) * 1000;
            self.event.push(ms(at - pair[1]).abs());
            self.gap.push((f64::from(gap) / 1e3 - ms(pair[1] - pair[0])).abs());
        }
        let steps = (truth.len() - 1) as f64;
        self.tpot.push(ms((last - first) - (last_written - first_written)).abs() / steps);
        Some(())
    }
}

fn error(values: &[f64]) -> ErrorMs {
    let rising = sorted(values);
    let percentile = |p: f64| percentile_sorted(&rising, p);
    let n = rising.len();
    ErrorMs {
        n,
        p50: percentile(0.5),
        p99: percentile(0.99).filter(|_| n >= minimum_n(0.99)),
        max: rising.last().copied(),
    }
}
