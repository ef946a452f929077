//! `inferlab model`: the pinned models of this machine.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::exit::{CommandError, ExitCode};
use super::{CommandResult, Console, Exit, signals};
use crate::engine::weights::{self, FormatShare, Inspection};
use crate::pin::{CacheState, Fetch, Located, ModelPin, PinError, PinOrigin, Store, Verified, with_progress};

/// What to do with models.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// List the pinned models and whether they are on this machine.
    List,
    /// Download pinned models into the cache and check every digest; an interrupted download goes on where it stopped.
    Fetch(FetchArgs),
    /// Read models in full and compare size and digests with their pins.
    Verify(VerifyModelArgs),
    /// Describe a model file: architecture, shape, parameters, formats, licence, tokenizer.
    Inspect(InspectArgs),
}

/// Arguments of `model fetch`.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// Names of pins.
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
}

/// Arguments of `model verify`.
#[derive(Debug, Args)]
pub struct VerifyModelArgs {
    /// Names of pins (default: every model on this machine).
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// Arguments of `model inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Name of a pin, or path of a model file.
    #[arg(value_name = "NAME_OR_PATH")]
    pub model: String,
}

/// Carries out a `model` command.
pub fn model(command: &ModelCommand, console: &Console) -> CommandResult {
    let store = Store::from_environment()?;
    match command {
        ModelCommand::List => list(&store, console),
        ModelCommand::Fetch(args) => fetch(&store, &args.names, console),
        ModelCommand::Verify(args) => verify(&store, &args.names, console),
        ModelCommand::Inspect(args) => inspect(&store, &args.model, console),
    }
}

fn list(store: &Store, console: &Console) -> CommandResult {
    let rows: Vec<_> = store.pins()?.into_iter().map(|found| (store.state(&found.pin), found)).collect();
    if console.json() {
        let models: Vec<Value> = rows
            .iter()
            .map(|((state, path), found)| {
                let origin = match &found.origin {
                    PinOrigin::File(file) => json!(file),
                    PinOrigin::Embedded => json!("built in"),
                };
                json!({"name": found.pin.name, "bytes": found.pin.bytes, "md5": found.pin.md5, "licence": found.pin.licence,
                    "description": found.pin.description, "state": state, "path": path, "pin": origin})
            })
            .collect();
        console.print_json(&json!({"cache": store.cache, "models": models}))?;
        return Ok(ExitCode::Valid);
    }
    let width = rows.iter().map(|(_, found)| found.pin.name.len()).max().unwrap_or(0).max("name".len());
    console.print(&format!("{:width$}  {:>9}  {:12}  {:10}  description", "name", "size", "licence", "on disk"))?;
    for ((state, _), found) in &rows {
        let ModelPin { name, bytes, licence, description, .. } = &found.pin;
        let (size, state) = (megabytes(*bytes), state_word(*state));
        console.print(&format!("{name:width$}  {size:>9}  {licence:12}  {state:10}  {description}"))?;
    }
    Ok(ExitCode::Valid)
}

fn fetch(store: &Store, names: &[String], console: &Console) -> CommandResult {
    // Every name is looked up before the first byte is fetched.
    let pins = names.iter().map(|name| Ok(store.pin(name)?.pin)).collect::<Result<Vec<_>, PinError>>()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    signals::on_stop(move || stop.store(true, Ordering::Relaxed)).map_err(|error| no_signals(&error))?;
    let mut fetched = Vec::new();
    for pin in &pins {
        let verified = with_progress(&pin.name, &|| stopped.load(Ordering::Relaxed), |watch| store.fetch(pin, watch))?;
        if !console.json() {
            print_verified(pin, &verified, console)?;
        }
        fetched.push(verified_json(pin, &verified));
    }
    if console.json() {
        console.print_json(&json!({"models": fetched, "exit": 0}))?;
    }
    Ok(ExitCode::Valid)
}

fn verify(store: &Store, names: &[String], console: &Console) -> CommandResult {
    let pins: Vec<ModelPin> = if names.is_empty() {
        let on_disk = |pin: &ModelPin| matches!(store.state(pin).0, CacheState::Present | CacheState::WrongSize);
        store.pins()?.into_iter().map(|found| found.pin).filter(on_disk).collect()
    } else {
        names.iter().map(|name| Ok(store.pin(name)?.pin)).collect::<Result<_, PinError>>()?
    };
    if pins.is_empty() && !console.json() {
        console.note("no pinned model is on this machine; `inferlab model fetch NAME` gets one");
    }
    let (mut code, mut rows) = (ExitCode::Valid, Vec::new());
    // One bad model does not hide the state of the next.
    for pin in &pins {
        match store.verify(pin, &|_| {}) {
            Ok(verified) => {
                if !console.json() {
                    print_verified(pin, &verified, console)?;
                }
                rows.push(verified_json(pin, &verified));
            }
            Err(error) => {
                rows.push(json!({"name": pin.name, "ok": false, "error": error.to_string()}));
                code = code.max(error.exit_code());
                if !console.json() {
                    console.fail(&CommandError::from(error));
                }
            }
        }
    }
    if console.json() {
        console.print_json(&json!({"models": rows, "exit": code.number()}))?;
    }
    Ok(code)
}

fn inspect(store: &Store, name_or_path: &str, console: &Console) -> CommandResult {
    let located = store.locate(name_or_path, Fetch::Never)?;
    let inspection = weights::inspect(&located.path)?;
    if console.json() {
        let pin = located.pin.as_ref().map(|pin| &pin.name);
        console.print_json(&json!({"path": located.path, "md5": located.md5, "pin": pin, "model": inspection}))?;
        return Ok(ExitCode::Valid);
    }
    let facts = facts(&located, &inspection);
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &facts {
        console.print(&format!("{name:width$}  {value}"))?;
    }
    Ok(ExitCode::Valid)
}

/// What `inspect` prints, name and value; `–` where the file does not say.
fn facts(located: &Located, inspection: &Inspection) -> Vec<(&'static str, String)> {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let shape = inspection.shape.as_ref().map(|s| {
        format!(
            "{} layers, hidden {}, {} query and {} KV heads of {}, feed-forward {}, vocabulary {}, context {}",
            s.layers, s.hidden, s.heads, s.kv_heads, s.head_dim, s.feed_forward, s.vocabulary, s.context
        )
    });
    let formats = inspection.formats.iter().map(|share| {
        let FormatShare { format, tensors, parameters, bytes } = share;
        format!("{format}: {tensors} tensors, {} M values, {}", millions(*parameters), megabytes(*bytes))
    });
    let tokens = inspection.tokens.map(|n| format!(", {n} tokens")).unwrap_or_default();
    let tokenizer = inspection.tokenizer.as_ref().map(|tokenizer| format!("{tokenizer}{tokens}"));
    let pinned = located.pin.as_ref().map_or("not pinned".to_owned(), |pin| format!("as pinned in `{}`", pin.name));
    let licence = located.pin.as_ref().map(|pin| pin.licence.clone()).or_else(|| inspection.license.clone());
    let mut facts = vec![
        ("name", inspection.name.clone()),
        ("file", located.path.display().to_string()),
        ("size", format!("{} ({} bytes)", megabytes(inspection.file_bytes), inspection.file_bytes)),
        ("md5", format!("{}, {pinned}", located.md5)),
        ("architecture", or_dash(inspection.architecture.clone())),
        ("shape", or_dash(shape)),
        ("parameters", format!("{} M", millions(inspection.parameters))),
        ("licence", or_dash(licence)),
        ("tokenizer", or_dash(tokenizer)),
        ("chat template", if inspection.chat_template { "yes" } else { "no" }.to_owned()),
    ];
    facts.extend(formats.map(|text| ("format", text)));
    facts.push(("engine", inspection.refused.clone().unwrap_or_else(|| "runs it".to_owned())));
    facts
}

fn millions(count: u64) -> String {
    format!("{:.1}", count as f64 / 1e6)
}

fn no_signals(error: &std::io::Error) -> CommandError {
    CommandError::message(ExitCode::Internal, format!("cannot listen for signals: {error}"), "please report this")
}

fn print_verified(pin: &ModelPin, verified: &Verified, console: &Console) -> Result<(), CommandError> {
    let Verified { path, digests } = verified;
    let size = megabytes(digests.bytes);
    Ok(console.print(&format!("{}: {size}, md5 {} as pinned, {}", pin.name, digests.md5, path.display()))?)
}

fn verified_json(pin: &ModelPin, verified: &Verified) -> Value {
    let digests = &verified.digests;
    json!({"name": pin.name, "ok": true, "path": verified.path, "bytes": digests.bytes, "md5": digests.md5, "sha256": digests.sha256})
}

fn state_word(state: CacheState) -> &'static str {
    match state {
        CacheState::Present => "yes",
        CacheState::WrongSize => "wrong size",
        CacheState::Partial => "partial",
        CacheState::Absent => "no",
    }
}

/// Decimal megabytes, as download pages count.
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
