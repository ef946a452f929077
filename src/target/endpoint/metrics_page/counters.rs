//! The counters that servers keep, under the names of this program, and what two pages say about the time between them.
//!
//! Names of the servers: `facts/engines.md` §3.3 and §13. Docs and pages differ about `_total`, so both are read; samples that
//! differ in labels (engine, model, source of a cached token) are summed.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::text::{self, Reading, Sample};

/// Our name, its meaning, and the servers' names without `_total`, of which the first that a page holds counts.
struct Known {
    name: &'static str,
    theirs: &'static [&'static str],
}

const fn known(name: &'static str, theirs: &'static [&'static str]) -> Known {
    Known { name, theirs }
}

/// Counters: they only grow while the server lives.
const COUNTERS: &[Known] = &[
    // Prompt tokens, those from a cache included.
    known("prompt_tokens", &["vllm:prompt_tokens", "sglang:prompt_tokens"]),
    // Prompt tokens without those from a cache.
    known("computed_prompt_tokens", &["llamacpp:prompt_tokens"]),
    known(
        "cached_prompt_tokens",
        &[
            "vllm:prefix_cache_hits",
            "vllm:gpu_prefix_cache_hits",
            "sglang:cached_tokens",
            "ninfer:prefix_cache_hit_tokens",
            "llamacpp:prompt_tokens_cached",
        ],
    ),
    known("prefix_cache_queries", &["vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"]),
    known("completion_tokens", &["vllm:generation_tokens", "sglang:generation_tokens", "llamacpp:tokens_predicted"]),
    known("reasoning_tokens", &["ninfer:reasoning_tokens"]),
    known("prefill_seconds", &["llamacpp:prompt_seconds"]),
    known("decode_seconds", &["llamacpp:tokens_predicted_seconds"]),
    known("decode_calls", &["llamacpp:n_decode"]),
    known(
        "drafted_tokens",
        &["vllm:spec_decode_num_draft_tokens", "ninfer:draft_tokens", "llamacpp:spec_decode_num_draft_tokens"],
    ),
    known(
        "accepted_tokens",
        &[
            "vllm:spec_decode_num_accepted_tokens",
            "ninfer:draft_accepted_tokens",
            "llamacpp:spec_decode_num_accepted_tokens",
        ],
    ),
    known("spec_rounds", &["vllm:spec_decode_num_drafts", "llamacpp:spec_decode_num_drafts"]),
    known("requests", &["ninfer:requests", "sglang:num_requests", "vllm:request_success"]),
    known("requests_failed", &["ninfer:requests_failed"]),
    known("requests_cancelled", &["ninfer:requests_cancelled", "sglang:num_aborted_requests"]),
    known("requests_rejected", &["ninfer:requests_rejected"]),
    known("preemptions", &["vllm:num_preemptions", "sglang:num_retracted_requests"]),
];

/// Accepted tokens by draft position, in the label `position`.
const PER_POSITION: &[&str] =
    &["vllm:spec_decode_num_accepted_tokens_per_pos", "llamacpp:spec_decode_num_accepted_tokens_per_pos"];
/// Longest list of draft positions.
const MAX_POSITIONS: usize = 64;

/// Gauges: the state of the moment.
const GAUGES: &[Known] = &[
    known("running", &["vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"]),
    known("waiting", &["vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"]),
    known("kv_cache_usage", &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"]),
];

/// Second at which the process started, as the Prometheus client libraries write it.
const START: &str = "process_start_time_seconds";

/// Members of NInfer's `/v1/load` and our names for them.
const LOAD_COUNTERS: &[(&str, &str)] = &[
    ("computed_prefill_tokens", "computed_prompt_tokens"),
    // Without the first token of each request, which prefill emits.
    ("committed_decode_tokens", "decode_tokens"),
    ("reused_prompt_tokens", "cached_prompt_tokens"),
    ("decode_rounds", "decode_calls"),
    ("decode_row_rounds", "decode_row_rounds"),
];

/// What a server had counted at one moment. A counter that it does not keep is absent, never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Our name and the count.
    pub counters: BTreeMap<String, f64>,
    /// Accepted tokens by draft position, from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted_per_position: Vec<f64>,
    /// Our name and the state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, f64>,
    /// Which life of the server this is, in its own words; two lives differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Seconds since it is ready, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_s: Option<f64>,
}

/// Whose page it is, as the names on it show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Families {
    /// `ninfer:…`
    pub ninfer: bool,
    /// `sglang:…`
    pub sglang: bool,
    /// `vllm:…`
    pub vllm: bool,
    /// `llamacpp:…`, which NInfer writes as well.
    pub llamacpp: bool,
}

/// A page of `/metrics` as far as it is understood.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// Known counters.
    pub counters: Counters,
    /// Whose it is.
    pub families: Families,
    /// KV dtype by vLLM's `cache_config_info`.
    pub kv_dtype: Option<String>,
    /// How it was read.
    pub reading: Reading,
}

/// Without `_total`, which not every page has.
fn stem(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

/// Reads a page of `/metrics`.
pub fn of_page(page: &str) -> Page {
    let mut read = Page::default();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut positions: BTreeMap<usize, f64> = BTreeMap::new();
    let find = |name: &str| {
        let mut names = COUNTERS.iter().chain(GAUGES).flat_map(|known| known.theirs).copied();
        names.find(|theirs| *theirs == name)
    };
    read.reading = text::read(page, |sample: Sample<'_>| {
        let families = &mut read.families;
        match sample.name.split_once(':').map(|(family, _)| family) {
            Some("ninfer") => families.ninfer = true,
            Some("sglang") => families.sglang = true,
            Some("vllm") => families.vllm = true,
            Some("llamacpp") => families.llamacpp = true,
            _ => {}
        }
        if sample.name == "vllm:cache_config_info" {
            read.kv_dtype = sample.label("cache_dtype").map(str::to_owned);
        }
        if sample.name == START {
            read.counters.instance = Some(format!("started at {} s", sample.value));
        }
        if !sample.value.is_finite() {
            return;
        }
        let name = stem(sample.name);
        if PER_POSITION.contains(&name)
            && let Some(position) = sample.label("position").and_then(|p| p.parse().ok())
            && position < MAX_POSITIONS
        {
            *positions.entry(position).or_default() += sample.value;
        } else if let Some(known) = find(name) {
            *sums.entry(known).or_default() += sample.value;
        }
    });
    let pick = |table: &[Known]| -> BTreeMap<String, f64> {
        let found = |known: &Known| known.theirs.iter().find_map(|name| sums.get(name).copied());
        table.iter().filter_map(|known| Some((known.name.to_owned(), found(known)?))).collect()
    };
    read.counters.counters = pick(COUNTERS);
    read.counters.gauges = pick(GAUGES);
    if let Some((&last, _)) = positions.last_key_value() {
        read.counters.accepted_per_position = (0..=last).map(|p| positions.get(&p).copied().unwrap_or(0.0)).collect();
    }
    read
}

/// Reads NInfer's `/v1/load`; `None` when it is another object.
pub fn of_load(load: &Value) -> Option<Counters> {
    if load.get("object").and_then(Value::as_str) != Some("ninfer.load") {
        return None;
    }
    let number = |path: &str| load.pointer(path).and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
    let counters = LOAD_COUNTERS
        .iter()
        .filter_map(|(theirs, ours)| Some(((*ours).to_owned(), number(&format!("/counters/{theirs}"))?)));
    let gauges = ["running", "waiting"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), number(&format!("/requests/{name}"))?)));
    Some(Counters {
        counters: counters.collect(),
        gauges: gauges.collect(),
        uptime_s: number("/uptime_seconds"),
        ..Counters::default()
    })
}

impl Counters {
    /// Whether a restart between two moments would show.
    pub fn observable(&self) -> bool {
        !self.counters.is_empty() || self.instance.is_some() || self.uptime_s.is_some()
    }

    /// Adds what another page of the same moment says; what both say stays.
    pub fn and(mut self, other: Self) -> Self {
        for (name, value) in other.counters {
            self.counters.entry(name).or_insert(value);
        }
        for (name, value) in other.gauges {
            self.gauges.entry(name).or_insert(value);
        }
        self.instance = self.instance.or(other.instance);
        self.uptime_s = self.uptime_s.or(other.uptime_s);
        if self.accepted_per_position.is_empty() {
            self.accepted_per_position = other.accepted_per_position;
        }
        self
    }

    /// What shows that the server was started anew between `earlier` and `self`: another life, less uptime, or a counter that fell.
    pub fn restarted_since(&self, earlier: &Self) -> Option<String> {
        if let (Some(before), Some(now)) = (&earlier.instance, &self.instance)
            && before != now
        {
            return Some(format!("the server was `{before}` and is `{now}`"));
        }
        if let (Some(before), Some(now)) = (earlier.uptime_s, self.uptime_s)
            && now < before
        {
            return Some(format!("its uptime fell from {before:.1} s to {now:.1} s"));
        }
        let fallen = self.counters.iter().find_map(|(name, &now)| {
            let before = *earlier.counters.get(name)?;
            (now < before).then_some((name, before, now))
        });
        fallen.map(|(name, before, now)| format!("its counter {name} fell from {before} to {now}"))
    }

    /// What was counted between `earlier` and `self`, for counters that stand in both.
    pub fn since(&self, earlier: &Self) -> Counters {
        let counters = self.counters.iter().filter_map(|(name, now)| {
            let delta = now - earlier.counters.get(name)?;
            Some((name.clone(), delta))
        });
        let before = |at: usize| earlier.accepted_per_position.get(at).copied().unwrap_or(0.0);
        let positions = self.accepted_per_position.iter().enumerate().map(|(at, now)| now - before(at));
        Counters { counters: counters.collect(), accepted_per_position: positions.collect(), ..Counters::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(page: &str) -> Counters {
        of_page(page).counters
    }

    #[test]
    fn names_with_and_without_total_are_one_and_engines_are_summed() {
        let with = counters(
            "vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 100\nvllm:prompt_tokens_total{engine=\"1\",model_name=\"m\"} 11\nvllm:prompt_tokens_created{engine=\"0\"} 1.7e9\n",
        );
        assert_eq!(with.counters["prompt_tokens"], 111.0);
        assert_eq!(counters("vllm:prompt_tokens 7\n").counters["prompt_tokens"], 7.0);
        // Two generations of one counter on a page are not two counters.
        let both = counters("vllm:prefix_cache_hits_total 5\nvllm:gpu_prefix_cache_hits_total 5\n");
        assert_eq!(both.counters["cached_prompt_tokens"], 5.0);
        let sources = counters(
            "sglang:cached_tokens_total{cache_source=\"device\"} 3\nsglang:cached_tokens_total{cache_source=\"host\"} 4\n",
        );
        assert_eq!(sources.counters["cached_prompt_tokens"], 7.0);
    }

    #[test]
    fn what_a_server_does_not_count_is_absent() {
        let page = of_page("# HELP x y\nllamacpp:prompt_tokens_total 9\nllamacpp:predicted_tokens_seconds NaN\n");
        assert_eq!(
            page.counters.counters.into_iter().collect::<Vec<_>>(),
            [("computed_prompt_tokens".to_owned(), 9.0)]
        );
        assert!(page.families.llamacpp && !page.families.ninfer);
        assert!(!counters("go_goroutines 5\n").observable());
    }

    #[test]
    fn drafts_are_counted_by_position() {
        let page = counters(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 8\nllamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"2\"} 1\nllamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"99999999\"} 1\n",
        );
        assert_eq!(page.accepted_per_position, [8.0, 0.0, 1.0]);
        let later = counters("llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 10\n");
        assert_eq!(later.since(&page).accepted_per_position, [2.0]);
    }

    /// The example of NInfer's `docs/serving.md`, with two members of a wrong type.
    #[test]
    fn the_load_page_of_ninfer_is_read() {
        let load = serde_json::json!({"object": "ninfer.load", "uptime_seconds": 812.4, "requests": {"running": 4, "waiting": -2},
            "counters": {"computed_prefill_tokens": 48200113, "committed_decode_tokens": "x", "reused_prompt_tokens": 30911840}});
        let read = of_load(&load).unwrap();
        assert_eq!(
            (read.counters["computed_prompt_tokens"], read.counters["cached_prompt_tokens"]),
            (48_200_113.0, 30_911_840.0)
        );
        assert_eq!((read.counters.get("decode_tokens"), read.uptime_s), (None, Some(812.4)));
        assert_eq!(read.gauges.into_iter().collect::<Vec<_>>(), [("running".to_owned(), 4.0)]);
        assert_eq!(of_load(&serde_json::json!({"object": "list"})), None);
    }

    #[test]
    fn mutated_pages_never_panic_and_give_finite_counts() {
        use rand::{Rng, RngExt, SeedableRng};
        let page = "# TYPE a counter\nvllm:prompt_tokens_total{engine=\"0\",m=\"a\\\"b\"} 100 17\n\
            llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 8\nvllm:num_requests_running 1e3\n\
            process_start_time_seconds 1.7e9\nvllm:cache_config_info{cache_dtype=\"fp8\"} 1\n";
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(3);
        let odd = [b'{', b'}', b'"', b'\\', b'=', b',', b'\n', b'#', b' ', 0, 0xFF, b'9', b'e', b'-'];
        for _ in 0..20_000 {
            let mut bytes = page.as_bytes().to_vec();
            for _ in 0..rng.random_range(1..6) {
                // A page that was cut to one byte may lose that one too.
                let at = rng.random_range(0..bytes.len().max(1));
                if bytes.is_empty() {
                    break;
                }
                match rng.random_range(0..4) {
                    0 => bytes[at] = odd[rng.random_range(0..odd.len())],
                    1 => bytes.insert(at, odd[rng.random_range(0..odd.len())]),
                    2 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let _ = rng.next_u32();
            let read = of_page(&String::from_utf8_lossy(&bytes)).counters;
            let all = read.counters.values().chain(read.gauges.values()).chain(&read.accepted_per_position);
            assert!(all.into_iter().all(|n| n.is_finite()), "{bytes:?}");
            assert!(read.accepted_per_position.len() <= MAX_POSITIONS);
        }
    }

    #[test]
    fn a_restart_shows_in_any_of_three_ways_and_growth_shows_none() {
        let at = |n: f64, instance: Option<&str>, uptime_s: Option<f64>| Counters {
            counters: [("requests".to_owned(), n)].into(),
            instance: instance.map(str::to_owned),
            uptime_s,
            ..Counters::default()
        };
        let before = at(5.0, Some("a"), Some(10.0));
        assert_eq!(at(5.0, Some("a"), Some(11.0)).restarted_since(&before), None);
        assert_eq!(at(9.0, None, None).restarted_since(&before), None);
        for after in [at(9.0, Some("b"), Some(11.0)), at(9.0, Some("a"), Some(1.0)), at(0.0, None, None)] {
            assert!(after.restarted_since(&before).is_some(), "{after:?}");
        }
        assert_eq!(at(9.0, None, None).since(&before).counters["requests"], 4.0);
    }
}
