//! What a well-written file can still get wrong: checked as soon as it is read.
use std::collections::BTreeSet;

use super::{Experiment, ExperimentError, SCHEMA};
use crate::target::config::{Endpoint, InProcess, TargetEntry};
use crate::workload::{Distribution, Length, Load, Serving, Workload};
use crate::yaml::{Axis, KeyPath, Part, YamlError};

/// Most repeats, and most of any count that one number asks for.
const MAX_REPEATS: u32 = 10_000;
const MAX_COUNT: u32 = 1_000_000;
const MAX_NAME: usize = 64;
/// Most shapes of a mix.
const MAX_SHAPES: usize = 100;

/// Checks every value that needs no other arm or cell to be judged.
pub(super) fn check(experiment: &Experiment) -> Result<(), ExperimentError> {
    let root = KeyPath::root();
    let origin = &experiment.origin;
    let at = |key: &str| root.key(key);
    if experiment.schema != SCHEMA {
        let help = if experiment.schema > SCHEMA { "the file wants a newer inferlab" } else { "write `schema: 1`" };
        return Err(origin.rule(
            &at("schema"),
            format!("schema {} is not known; this version reads schema {SCHEMA}", experiment.schema),
            help,
        ));
    }
    let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !(1..=MAX_NAME).contains(&experiment.name.len()) || !experiment.name.bytes().all(is_name) {
        return Err(origin.rule(
            &at("name"),
            "not a name: it names the run directory",
            "use 1 to 64 letters a-z, digits and `-`",
        ));
    }
    let question = experiment.question.trim();
    if question.is_empty() || question.chars().count() > 500 {
        return Err(origin.rule(
            &at("question"),
            "a question has 1 to 500 letters",
            "say in one sentence what the numbers are to answer",
        ));
    }
    count(experiment, &at("repeats"), experiment.repeats, MAX_REPEATS)?;
    let rate = experiment.limits.max_failure_rate.0;
    if !(0.0..=1.0).contains(&rate) {
        let path = at("limits").key("max_failure_rate");
        return Err(origin.rule(&path, format!("{rate} is no share"), "write a share from 0 to 1, as 0.01"));
    }
    if let Some(slo) = &experiment.slo {
        for (key, limit) in [("ttft_ms", slo.ttft_ms), ("tpot_ms", slo.tpot_ms)] {
            if limit.is_some_and(|limit| limit.0 <= 0.0) {
                return Err(origin.rule(&at("slo").key(key), "a limit is above 0 ms", "write milliseconds, as 1000"));
            }
        }
    }
    sampling(experiment)?;
    arms(experiment)?;
    target(experiment, &experiment.target, &at("target"))?;
    if experiment.workloads.is_empty() {
        return Err(origin.rule(&at("workloads"), "an empty list leaves nothing to run", "name at least one workload"));
    }
    for (index, workload) in experiment.workloads.iter().enumerate() {
        check_workload(experiment, workload, &at("workloads").index(index).key(workload.key()))?;
    }
    if experiment.report.formats.is_empty() {
        return Err(origin.rule(
            &at("report").key("formats"),
            "an empty list leaves no report",
            "md, html, csv; --no-report leaves it out",
        ));
    }
    Ok(())
}

fn sampling(experiment: &Experiment) -> Result<(), ExperimentError> {
    let s = experiment.sampling;
    let bounds = [
        ("temperature", s.temperature, 0.0, 100.0),
        ("top_p", s.top_p, 0.0, 1.0),
        ("min_p", s.min_p, 0.0, 1.0),
        ("presence_penalty", s.presence_penalty, -2.0, 2.0),
        ("frequency_penalty", s.frequency_penalty, -2.0, 2.0),
    ];
    for (key, value, least, most) in bounds {
        if !(least..=most).contains(&value) {
            let path = KeyPath::root().key("sampling").key(key);
            return Err(experiment.origin.rule(
                &path,
                format!("{value} is out of range"),
                format!("write a number from {least} to {most}"),
            ));
        }
    }
    Ok(())
}

fn arms(experiment: &Experiment) -> Result<(), ExperimentError> {
    let Some(arms) = &experiment.arms else { return Ok(()) };
    let path = KeyPath::root().key("arms");
    if arms.is_empty() {
        return Err(experiment.origin.rule(
            &path,
            "an empty list leaves nothing to run",
            "delete the key: each point of the sweep is an arm then",
        ));
    }
    let mut names = BTreeSet::new();
    for (index, arm) in arms.iter().enumerate() {
        let path = path.index(index);
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if !(1..=MAX_NAME).contains(&arm.name.len()) || !arm.name.bytes().all(is_name) {
            return Err(experiment.origin.rule(
                &path.key("name"),
                "not a name",
                "use 1 to 64 letters, digits, `-`, `_` and `.`",
            ));
        }
        if !names.insert(&arm.name) {
            return Err(experiment.origin.rule(
                &path.key("name"),
                "another arm has this name",
                "give every arm a name of its own",
            ));
        }
        let Some(over) = &arm.over else { continue };
        if over.kind() != experiment.target.kind() {
            let message =
                format!("the base target is `{}`, and an override cannot change that", experiment.target.kind());
            return Err(experiment.origin.rule(
                &path.key("override"),
                message,
                "write two experiments; `inferlab report A B` reads them together",
            ));
        }
        target(experiment, over, &path.key("override"))?;
    }
    Ok(())
}

/// Checks the base target or an override; required keys are asked of the two together.
fn target(experiment: &Experiment, entry: &TargetEntry, path: &KeyPath) -> Result<(), ExperimentError> {
    let path = path.key(entry.kind());
    let is_base = std::ptr::eq(entry, &experiment.target);
    let missing = |key: &str| {
        let path = path.key(key);
        ExperimentError::Yaml(YamlError::MissingKey {
            path: path.to_string(),
            at: experiment.origin.place(&path, Part::Value),
        })
    };
    match entry {
        TargetEntry::InProcess(target) => {
            if is_base && target.model.is_none() {
                return Err(missing("model"));
            }
            in_process(experiment, target, &path)
        }
        TargetEntry::Endpoint(target) => {
            if is_base && target.url.is_none() {
                return Err(missing("url"));
            }
            if is_base && target.model.is_none() {
                return Err(missing("model"));
            }
            endpoint(experiment, target, &path)
        }
    }
}

fn in_process(experiment: &Experiment, target: &InProcess, path: &KeyPath) -> Result<(), ExperimentError> {
    let counts = [
        ("max_context", &target.max_context, 16 << 20),
        ("max_concurrency", &target.max_concurrency, 65_536),
        ("prefill_chunk", &target.prefill_chunk, 16 << 20),
    ];
    for (key, counts, most) in counts {
        if let Some(axis) = counts {
            each_count(experiment, &path.key(key), axis, most)?;
        }
    }
    Ok(())
}

fn endpoint(experiment: &Experiment, target: &Endpoint, path: &KeyPath) -> Result<(), ExperimentError> {
    if let Some(url) = &target.url {
        let path = path.key("url");
        let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
            return Err(experiment.origin.rule(&path, "not an http URL", "as http://127.0.0.1:8080/v1"));
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
        if authority.contains('@') {
            // The URL is in every log and report.
            return Err(experiment.origin.rule(
                &path,
                "a URL with a user or password in it",
                "name the variable that holds the key in `api_key_env`",
            ));
        }
        if authority.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) || rest.contains(['?', '#'])
        {
            return Err(experiment.origin.rule(
                &path,
                "not a base URL",
                "host and path alone, as http://127.0.0.1:8080/v1",
            ));
        }
    }
    if target.model.as_ref().is_some_and(String::is_empty) {
        return Err(experiment.origin.rule(
            &path.key("model"),
            "a model has a name",
            "the id that the server expects in requests",
        ));
    }
    if target.api_key_env.is_some() && target.api_key_file.is_some() {
        return Err(experiment.origin.rule(
            &path.key("api_key_file"),
            "the key cannot come from a variable and from a file",
            "delete one of `api_key_env` and `api_key_file`",
        ));
    }
    if let Some(name) = &target.api_key_env {
        let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !starts || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let path = path.key("api_key_env");
            return Err(experiment.origin.rule(
                &path,
                "not the name of a variable",
                "put the key into an environment variable and name that here, as LAB_KEY",
            ));
        }
    }
    Ok(())
}

fn check_workload(experiment: &Experiment, workload: &Workload, path: &KeyPath) -> Result<(), ExperimentError> {
    let load = path.key("load").key(workload.load().key());
    let positive = |path: &KeyPath, rate: f64| {
        if rate > 0.0 {
            Ok(())
        } else {
            Err(experiment.origin.rule(path, "a rate is above 0", "write requests a second, as 2.0"))
        }
    };
    match workload.load() {
        Load::Closed(closed) => each_count(experiment, &load.key("concurrency"), &closed.concurrency, 65_536)?,
        Load::Constant(rate) | Load::Poisson(rate) => {
            rate.rate_req_s.values().iter().try_for_each(|rate| positive(&load.key("rate_req_s"), rate.0))?;
            stop(experiment, &load, rate.duration.is_some(), rate.requests)?;
            count(experiment, &load.key("max_in_flight"), rate.max_in_flight, 65_536)?;
        }
        Load::Ramp(ramp) => {
            positive(&load.key("from_req_s"), ramp.from_req_s.0)?;
            positive(&load.key("to_req_s"), ramp.to_req_s.0)?;
            stop(experiment, &load, ramp.duration.is_some(), ramp.requests)?;
            count(experiment, &load.key("max_in_flight"), ramp.max_in_flight, 65_536)?;
        }
        Load::Trace(_) => {}
    }
    for (_, _, point) in workload.load().points() {
        let arrivals = point.offer().map_or(0, |offer| offer.arrivals);
        if arrivals > MAX_COUNT {
            let message = format!("{arrivals} requests would arrive; at most {MAX_COUNT}");
            return Err(experiment.origin.rule(&load, message, "ask for a lower rate or a shorter time"));
        }
    }
    match workload {
        Workload::DecodeScaling(workload) => {
            each_count(experiment, &path.key("prompt_tokens"), &workload.prompt_tokens, 16 << 20)?;
            each_count(experiment, &path.key("completion_tokens"), &workload.completion_tokens, 16 << 20)?;
            count(experiment, &path.key("requests_per_lane"), workload.requests_per_lane, MAX_COUNT)?;
            // No warm-up is a choice that the numbers show.
            if workload.warmup_per_lane > 0 {
                count(experiment, &path.key("warmup_per_lane"), workload.warmup_per_lane, MAX_COUNT)?;
            }
        }
        Workload::PrefillScaling(workload) => {
            each_count(experiment, &path.key("prompt_tokens"), &workload.prompt_tokens, 16 << 20)?;
            count(experiment, &path.key("requests"), workload.requests, MAX_COUNT)?;
        }
        Workload::Serving(workload) => serving(experiment, workload, path)?,
    }
    Ok(())
}

/// Either a time or a count ends an open loop.
fn stop(experiment: &Experiment, path: &KeyPath, by_time: bool, requests: Option<u32>) -> Result<(), ExperimentError> {
    match (by_time, requests) {
        (true, None) => Ok(()),
        (false, Some(requests)) => count(experiment, &path.key("requests"), requests, MAX_COUNT),
        (both, _) => {
            let message = if both { "both `duration` and `requests`" } else { "neither `duration` nor `requests`" };
            Err(experiment.origin.rule(
                path,
                format!("{message}: when do arrivals end?"),
                "write one of them, as `duration: 60s` or `requests: 500`",
            ))
        }
    }
}

fn serving(experiment: &Experiment, workload: &Serving, path: &KeyPath) -> Result<(), ExperimentError> {
    let each = |key: &str, axis: &Option<Axis<Length>>| {
        let Some(axis) = axis else { return Ok(()) };
        axis.values().iter().enumerate().try_for_each(|(index, &value)| {
            let path = path.key(key);
            length(experiment, &if axis.is_list() { path.index(index) } else { path }, value)
        })
    };
    each("prompt_tokens", &workload.prompt_tokens)?;
    each("completion_tokens", &workload.completion_tokens)?;
    if let Some(mix) = &workload.mix {
        let path = path.key("mix");
        if workload.prompt_tokens.is_some() || workload.completion_tokens.is_some() {
            let help = "write the lengths into the shapes of `mix`, or delete `mix`";
            return Err(experiment.origin.rule(&path, "lengths stand here and beside", help));
        }
        if !(1..=MAX_SHAPES).contains(&mix.len()) {
            let message = format!("a mix of {} shapes", mix.len());
            return Err(experiment.origin.rule(&path, message, format!("write 1 to {MAX_SHAPES} shapes")));
        }
        for (index, shape) in mix.iter().enumerate() {
            let path = path.index(index);
            length(experiment, &path.key("prompt_tokens"), shape.prompt_tokens)?;
            length(experiment, &path.key("completion_tokens"), shape.completion_tokens)?;
            if shape.share.0 <= 0.0 {
                return Err(experiment.origin.rule(&path.key("share"), "a share is above 0", "write a part, as 0.25"));
            }
        }
    }
    if let Some(prefix) = &workload.prefix {
        let path = path.key("prefix");
        if !(0.0..=1.0).contains(&prefix.share.0) {
            return Err(experiment.origin.rule(&path.key("share"), "no share", "write a number from 0 to 1, as 0.5"));
        }
        count(experiment, &path.key("groups"), prefix.groups, MAX_COUNT)?;
    }
    if let Some(sessions) = &workload.sessions {
        let path = path.key("sessions");
        count(experiment, &path.key("turns"), sessions.turns, 1000)?;
        count(experiment, &path.key("turn_tokens"), sessions.turn_tokens, 16 << 20)?;
    }
    count(experiment, &path.key("requests_per_lane"), workload.requests_per_lane, MAX_COUNT)?;
    if workload.warmup_per_lane > 0 {
        count(experiment, &path.key("warmup_per_lane"), workload.warmup_per_lane, MAX_COUNT)?;
    }
    Ok(())
}

/// Least and most tokens in order, each in range.
fn length(experiment: &Experiment, path: &KeyPath, length: Length) -> Result<(), ExperimentError> {
    let (least, most) = length.bounds();
    count(experiment, path, least, 16 << 20)?;
    count(experiment, path, most, 16 << 20)?;
    let Length::Drawn(law) = length else { return Ok(()) };
    let fine = match law {
        Distribution::Uniform(_) => least <= most,
        Distribution::Lognormal(law) => least <= law.median && law.median <= most && (0.0..=5.0).contains(&law.sigma.0),
    };
    if fine {
        return Ok(());
    }
    let help = "write min <= max; for lognormal min <= median <= max and sigma from 0 to 5";
    Err(experiment.origin.rule(path, "a distribution that nothing can be drawn from", help))
}

fn each_count(experiment: &Experiment, path: &KeyPath, axis: &Axis<u32>, most: u32) -> Result<(), ExperimentError> {
    axis.values().iter().enumerate().try_for_each(|(index, &value)| {
        let path = if axis.is_list() { path.index(index) } else { path.clone() };
        count(experiment, &path, value, most)
    })
}

fn count(experiment: &Experiment, path: &KeyPath, value: u32, most: u32) -> Result<(), ExperimentError> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(experiment.origin.rule(
        path,
        format!("{value} is out of range"),
        format!("write a whole number from 1 to {most}"),
    ))
}
