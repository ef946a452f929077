//! What stands in a log beside request rows.
use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::planned::PlannedRun;
use super::row::{Outcome, OutcomeGroup, RequestRecord};
use crate::units::{Clock, TimestampNs};

/// The schema that this version writes. Logs of every schema up to it are read.
pub const SCHEMA: u32 = 1;

/// First line of a log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the log format.
    pub schema: u32,
    /// First six hex digits of the hash of everything that makes the run what it is.
    pub identity: String,
    /// The parts of that hash by name, so that a refused resume can name what differs.
    #[serde(default)]
    pub identity_parts: BTreeMap<String, String>,
    /// Drawn once; put in front of timed prompts so that no cache flatters them.
    pub nonce: String,
    /// Program and version that wrote the log.
    pub program: String,
    /// The resolved plan.
    pub plan: PlannedRun,
}

impl Header {
    /// A header of this version of the program.
    pub fn new(identity: &str, parts: &BTreeMap<String, String>, nonce: &str, plan: PlannedRun) -> Self {
        Self {
            schema: SCHEMA,
            identity: identity.to_owned(),
            identity_parts: parts.clone(),
            nonce: nonce.to_owned(),
            program: concat!("inferlab ", env!("CARGO_PKG_VERSION")).to_owned(),
            plan,
        }
    }
}

/// Start of a segment: one process, one clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// When, as `2026-11-30T21:45:00Z`.
    pub utc: String,
    /// The kernel's id of this boot; times of two boots share no clock.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// The anchor on CLOCK_MONOTONIC, which kernel messages are stamped by. Logs of older builds hold it in steps of 10 ms.
    #[serde(default)]
    pub anchor_ns: Option<i64>,
    /// Build, host and target facts of this session.
    #[serde(default)]
    pub provenance: Value,
}

impl Open {
    /// A segment that starts now and whose times are read from `clock`.
    pub fn now(clock: &Clock, provenance: Value) -> Self {
        Self {
            utc: now_utc(),
            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned()),
            anchor_ns: Some(clock.anchor_ns()),
            provenance,
        }
    }
}

/// Now, RFC 3339 UTC to the second.
pub fn now_utc() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Measured rows by outcome group; their sum is the number of requests issued.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowCounts {
    /// Answered.
    pub ok: u64,
    /// Not answered.
    pub failed: u64,
    /// Stopped by us.
    pub cancelled: u64,
    /// Never sent.
    pub shed: u64,
}

impl RowCounts {
    /// `issued = ok + failed + cancelled + shed`
    pub fn issued(&self) -> u64 {
        self.ok + self.failed + self.cancelled + self.shed
    }

    /// Counts one row.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome.group() {
            OutcomeGroup::Ok => self.ok += 1,
            OutcomeGroup::Failed => self.failed += 1,
            OutcomeGroup::Cancelled => self.cancelled += 1,
            OutcomeGroup::Shed => self.shed += 1,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.shed += other.shed;
    }
}

/// Anything a reader needs beside rows: a launch, an exit, an incident, a warning.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedEvent {
    /// Which segment.
    pub segment: u32,
    /// When, on the clock of that segment.
    pub t_ns: TimestampNs,
    /// What: launch, ready, exit, restart, incident, xid, clock_step, counters, warning.
    pub what: String,
    /// The other members.
    pub fields: Map<String, Value>,
}

/// One tick of the hardware sampler.
#[derive(Debug, Clone, PartialEq)]
pub struct LoggedHardware {
    /// Which segment.
    pub segment: u32,
    /// When, on the clock of that segment.
    pub t_ns: TimestampNs,
    /// What was read.
    pub fields: Map<String, Value>,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// First line.
    Header(Box<Header>),
    /// Start of a segment.
    Open {
        /// Its number, from 0.
        segment: u32,
        /// What it says.
        open: Box<Open>,
    },
    /// A request ended.
    Request(Box<RequestRecord>),
    /// Sampler tick.
    Hardware(LoggedHardware),
    /// Event.
    Event(LoggedEvent),
    /// End of a segment.
    Close {
        /// done, interrupted, storage, error; a crash is its absence.
        reason: String,
    },
    /// Every cell is done.
    End {
        /// Measured live rows.
        rows: RowCounts,
    },
    /// A kind that this version does not know, in a schema that it does.
    Unknown {
        /// Its word.
        kind: String,
    },
}

/// Members that every line has; a field of the same name is kept under `name_`.
const RESERVED: [&str; 5] = ["seq", "kind", "crc", "t_ns", "what"];

/// The body of an event or hardware line: `t_ns`, `what`, then the fields beside them, as in `log.sample.jsonl`.
pub(super) fn flat_body(t_ns: Option<TimestampNs>, what: Option<&str>, fields: Value) -> Vec<u8> {
    let mut body = Map::new();
    if let Some(t_ns) = t_ns {
        body.insert("t_ns".into(), t_ns.0.into());
    }
    if let Some(what) = what {
        body.insert("what".into(), what.into());
    }
    match fields {
        Value::Null => {}
        Value::Object(fields) => {
            for (mut name, value) in fields {
                // A sampler's own t_ns is the time of the line.
                let own_time = t_ns.is_none() && name == "t_ns";
                while !own_time && (RESERVED.contains(&name.as_str()) || body.contains_key(&name)) {
                    name.push('_');
                }
                body.insert(name, value);
            }
        }
        other => {
            body.insert("value".into(), other);
        }
    }
    // A map of JSON values always has a JSON form.
    serde_json::to_vec(&body).expect("JSON values are writable")
}
