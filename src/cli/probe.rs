//! `inferlab probe`: what a server is, what its answers hold, and what it can be measured in.
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::exit::CommandError;
use super::{CommandResult, Console, ExitCode};
use crate::inert;
use crate::record::{Outcome, RequestRecord};
use crate::target::config::{Api, Dialect};
use crate::target::endpoint::{
    Ability, AnswerFields, Endpoint, EndpointError, EndpointSettings, Secret, Survey, abilities,
};

/// Longest foreign word in a line.
const MOST_LETTERS: usize = 100;
/// Models that are listed by name.
const MOST_MODELS: usize = 8;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Base address of the server, as http://127.0.0.1:8080/v1.
    #[arg(value_name = "URL")]
    pub url: String,
    /// Model id to ask (default: the first that the server lists).
    #[arg(long, value_name = "ID")]
    pub model: Option<String>,
    /// Interface to ask.
    #[arg(long, value_enum, value_name = "API", default_value_t = ApiWord::Chat)]
    pub api: ApiWord,
    /// Name of the environment variable that holds the API key (default: no key).
    #[arg(long, value_name = "VARIABLE")]
    pub api_key_env: Option<String>,
}

/// Interfaces as words of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApiWord {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions.
    Completions,
    /// Anthropic messages.
    Messages,
}

impl From<ApiWord> for Api {
    fn from(word: ApiWord) -> Self {
        match word {
            ApiWord::Chat => Self::Chat,
            ApiWord::Completions => Self::Completions,
            ApiWord::Messages => Self::Messages,
        }
    }
}

/// Carries out `probe`.
pub fn probe(args: &ProbeArgs, console: &Console) -> CommandResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        CommandError::message(ExitCode::Internal, format!("no runtime: {error}"), "this is a bug; please report it")
    })?;
    let found = runtime.block_on(ask(args))?;
    if console.json() {
        console.print_json(&found.json())?;
    } else {
        for line in found.lines() {
            console.print(&line)?;
        }
    }
    Ok(found.code())
}

struct Found {
    model: String,
    api: Api,
    survey: Survey,
    row: RequestRecord,
    fields: AnswerFields,
    abilities: Vec<Ability>,
}

async fn ask(args: &ProbeArgs) -> Result<Found, EndpointError> {
    let api = Api::from(args.api);
    let settings = |model: &str| -> Result<EndpointSettings, EndpointError> {
        let api_key = args.api_key_env.as_deref().map(Secret::from_env).transpose()?;
        Ok(EndpointSettings { api_key, api, chunk_counts: true, ..EndpointSettings::new(&args.url, model) })
    };
    let mut endpoint = Endpoint::attach(settings(args.model.as_deref().unwrap_or_default())?)?;
    let mut survey = endpoint.survey().await?;
    let model = match &args.model {
        Some(model) => model.clone(),
        None => {
            let listed = survey.models.first().and_then(|model| model.ids.first()).cloned().unwrap_or_default();
            endpoint = Endpoint::attach(EndpointSettings { dialect: survey.dialect, ..settings(&listed)? })?;
            // Once more with the model, whose limits stand in the list.
            let evidence = std::mem::take(&mut survey.evidence);
            survey = endpoint.survey().await?;
            survey.evidence = evidence;
            listed
        }
    };
    let row = endpoint.one_token().await.record;
    let fields = AnswerFields::of(&row);
    let abilities = if row.outcome == Outcome::Ok { abilities(&survey, &fields, api) } else { Vec::new() };
    Ok(Found { model, api, survey, row, fields, abilities })
}

impl Found {
    /// 4 when no token could be had: a run against this server could not start.
    fn code(&self) -> ExitCode {
        if self.row.outcome == Outcome::Ok { ExitCode::Valid } else { ExitCode::Unreachable }
    }

    fn json(&self) -> Value {
        json!({
            "model": self.model,
            "api": self.api,
            "survey": self.survey,
            "answer": {
                "outcome": self.row.outcome,
                "error": self.row.error,
                "http_status": self.row.http_status,
                "prompt_tokens": self.row.usage_prompt_tokens,
                "completion_tokens": self.row.usage_completion_tokens,
                "cached_tokens": self.row.usage_cached_tokens.or(self.row.server_cache_n),
                "fields": self.fields,
            },
            "abilities": self.abilities,
            "exit": self.code().number(),
        })
    }

    fn lines(&self) -> Vec<String> {
        let survey = &self.survey;
        let mut lines = Vec::new();
        let mut say = |name: &str, value: String| lines.push(format!("{name:<10} {value}"));
        let number = |n: Option<u32>, unit: &str| n.map_or_else(|| "–".to_owned(), |n| format!("{n} {unit}"));
        say("url", shown(&survey.url));
        let signs: Vec<String> = survey
            .evidence
            .iter()
            .map(|sign| {
                let other = if sign.dialect == survey.dialect.word() { "" } else { " (another dialect)" };
                format!("{}: {}{other}", sign.page, shown(&sign.saw))
            })
            .collect();
        let seen = match (survey.dialect, signs.is_empty()) {
            (Dialect::Openai, true) => "no page shows another server".to_owned(),
            _ => signs.join("; "),
        };
        say("dialect", format!("{} ({seen})", survey.dialect.word()));
        say("version", survey.version.as_deref().map_or_else(|| "not stated".to_owned(), shown));
        let ids: Vec<String> = survey.models.iter().filter_map(|m| m.ids.first()).map(|id| shown(id)).collect();
        let more = ids.len().saturating_sub(MOST_MODELS);
        let listed = match (ids.len(), more) {
            (0, _) => "none listed".to_owned(),
            (_, 0) => ids.join(", "),
            (_, more) => format!("{}, and {more} more", ids[..MOST_MODELS].join(", ")),
        };
        say("models", listed);
        say("asked", format!("{} over {}", shown(&self.model), self.api.word()));
        say("context", number(survey.context, "tokens a sequence"));
        say("slots", number(survey.slots, "sequences decoded together"));
        say("kv dtype", survey.kv_dtype.as_deref().map_or_else(|| "–".to_owned(), shown));
        let pages: Vec<String> = survey.counter_pages.iter().map(|page| format!("/{page}")).collect();
        say(
            "counters",
            match pages.is_empty() {
                true => "none".to_owned(),
                false => format!("{} known on {}", survey.counters.len(), pages.join(", ")),
            },
        );
        say(
            "cache",
            survey.cache_reset.map_or("cannot be emptied; prompts start with a nonce", |reset| reset.how).to_owned(),
        );
        for warning in &survey.warnings {
            say("warning", shown(warning));
        }
        if self.row.outcome != Outcome::Ok {
            let said = self.row.error.as_deref().map(shown).unwrap_or_default();
            let status = self.row.http_status.map(|status| format!(" (status {status})")).unwrap_or_default();
            say("answer", format!("one token was asked for and ended as {}{status}: {said}", self.row.outcome.word()));
            return lines;
        }
        let f = &self.fields;
        let parts = [
            ("stream", f.stream),
            ("usage", f.usage),
            ("usage in every chunk", f.usage_per_chunk),
            ("timings", f.timings),
            ("cached tokens", f.cached_tokens),
            ("reasoning", f.reasoning),
            ("drafts", f.drafts),
            ("end mark", f.end_mark),
        ];
        let words: Vec<String> =
            parts.iter().map(|(name, there)| format!("{name} {}", if *there { "yes" } else { "no" })).collect();
        say("answer", words.join(", "));
        for ability in &self.abilities {
            let can = if ability.can { "yes" } else { "NO " };
            let why = if ability.why.is_empty() {
                String::new()
            } else {
                format!("  {}", inert::terminal_line(&ability.why))
            };
            lines.push(format!("{:<10} {can}  {}{why}", ability.kind, ability.name));
        }
        lines
    }
}

/// Foreign text for one line of a terminal.
fn shown(text: &str) -> String {
    inert::terminal_line(&inert::clip(text, MOST_LETTERS)).into_owned()
}
