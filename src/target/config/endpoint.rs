//! `target.endpoint`: a server that speaks HTTP.
use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::layered;
use crate::yaml::{Axis, HumanDuration, words};

layered! {
    /// The YAML of `target.endpoint`.
    pub struct Endpoint {
        /// Base URL with its version, as `http://127.0.0.1:8080/v1`. Required.
        url: String,
        /// The model id sent in requests. Required.
        model: String,
        /// What the server does differently from plain OpenAI; default `auto`.
        dialect: Dialect,
        /// Which interface; default `chat`.
        api: Api,
        /// Name of the environment variable that holds the key; the value reaches no file.
        api_key_env: String,
        /// File that holds the key and nothing else, where there is no variable; its contents reach no file.
        api_key_file: String,
        /// How prompts are counted before they are sent; default `none`.
        tokenizer: TokenizerFrom,
        /// Shape for rooflines: a name or a config.json.
        model_shape: String,
        ; deep
        /// How long to wait. Not part of the identity.
        timeouts: Timeouts,
        /// How to start the server; absent attaches to a running one.
        launch: Launch,
    }
}

layered! {
    /// How long to wait for a server.
    pub struct Timeouts {
        /// For a connection; default 5s.
        connect: HumanDuration,
        /// From sending to the first byte; default 600s.
        first_byte: HumanDuration,
        /// Between two pieces of output, keep-alives not counted; default 60s.
        idle: HumanDuration,
        /// For the whole request; default 1800s.
        total: HumanDuration,
    }
}

layered! {
    /// How to start a server.
    pub struct Launch {
        /// Program and arguments; `{name}` is filled from `vary`. Required in `launch`.
        command: Vec<String>,
        /// Variables passed through by name; their values are never recorded.
        env_from: Vec<String>,
        /// Working directory; default `.`.
        workdir: String,
        /// How to stop it; default `sigterm`.
        stop: StopBy,
        /// Lines of its log that end the run.
        watch_log: Vec<String>,
        ; deep
        /// When it is ready.
        ready: Ready,
        ; maps
        /// Values of the placeholders; a list is swept, and each point is a launch.
        vary: BTreeMap<String, Axis<PlaceholderText>>,
        /// Variables set for it, written to the log as they stand: no secrets here.
        env: BTreeMap<String, String>,
    }
}

layered! {
    /// When a server is ready.
    pub struct Ready {
        /// Path that answers 200; default `/health`.
        path: String,
        /// Longest wait; default 600s.
        timeout: HumanDuration,
    }
}

/// A resolved endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Base URL with its version.
    pub url: String,
    /// The model id sent in requests.
    pub model: String,
    /// What the server does differently from plain OpenAI.
    pub dialect: Dialect,
    /// Which interface.
    pub api: Api,
    /// Name of the environment variable that holds the key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// File that holds the key, where there is no variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<String>,
    /// How prompts are counted before they are sent.
    pub tokenizer: TokenizerFrom,
    /// Shape for rooflines.
    #[serde(default)]
    pub model_shape: Option<String>,
    /// How long to wait.
    pub timeouts: TimeoutsConfig,
    /// How to start the server.
    #[serde(default)]
    pub launch: Option<Box<Launch>>,
}

/// Resolved timeouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutsConfig {
    /// For a connection.
    pub connect: HumanDuration,
    /// From sending to the first byte.
    pub first_byte: HumanDuration,
    /// Between two pieces of output, keep-alives not counted.
    pub idle: HumanDuration,
    /// For the whole request.
    pub total: HumanDuration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            connect: HumanDuration::seconds(5),
            first_byte: HumanDuration::seconds(600),
            idle: HumanDuration::seconds(60),
            total: HumanDuration::seconds(1800),
        }
    }
}

impl Endpoint {
    /// Every absent key at its default; `None` without url or model.
    pub fn resolve(&self) -> Option<EndpointConfig> {
        let default = TimeoutsConfig::default();
        let asked = self.timeouts.clone().unwrap_or_default();
        Some(EndpointConfig {
            url: self.url.clone()?,
            model: self.model.clone()?,
            dialect: self.dialect.unwrap_or(Dialect::Auto),
            api: self.api.unwrap_or(Api::Chat),
            api_key_env: self.api_key_env.clone(),
            api_key_file: self.api_key_file.clone(),
            tokenizer: self.tokenizer.clone().unwrap_or(TokenizerFrom::None),
            model_shape: self.model_shape.clone(),
            timeouts: TimeoutsConfig {
                connect: asked.connect.unwrap_or(default.connect),
                first_byte: asked.first_byte.unwrap_or(default.first_byte),
                idle: asked.idle.unwrap_or(default.idle),
                total: asked.total.unwrap_or(default.total),
            },
            launch: self.launch.clone().map(Box::new),
        })
    }
}

words! {
    /// What a server does differently from plain OpenAI.
    pub enum Dialect {
        /// Seen from its answers.
        Auto = "auto",
        /// Plain OpenAI.
        Openai = "openai",
        /// NInfer.
        Ninfer = "ninfer",
        /// SGLang.
        Sglang = "sglang",
        /// vLLM.
        Vllm = "vllm",
        /// llama.cpp's server.
        LlamaCpp = "llama_cpp",
        /// Our own server.
        Inferlab = "inferlab",
    }
}

words! {
    /// Which interface of a server is asked.
    pub enum Api {
        /// `/chat/completions`.
        Chat = "chat",
        /// `/completions`.
        Completions = "completions",
        /// Anthropic's `/messages`.
        Messages = "messages",
    }
}

/// How prompts for a server are counted before they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenizerFrom {
    /// They are not.
    None,
    /// By the server's own `/tokenize`.
    Server,
    /// By a tokenizer.json or a GGUF.
    File(String),
}

impl Serialize for TokenizerFrom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::None => "none",
            Self::Server => "server",
            Self::File(path) => path,
        })
    }
}

impl<'de> Deserialize<'de> for TokenizerFrom {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "none" => Self::None,
            "server" => Self::Server,
            path => Self::File(path.to_owned()),
        })
    }
}

/// How a launched server is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopBy {
    /// SIGTERM to the process group.
    Sigterm,
    /// A command, for containers.
    Command(Vec<String>),
}

impl Serialize for StopBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Sigterm => serializer.serialize_str("sigterm"),
            Self::Command(command) => command.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StopBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrCommand;
        impl<'de> Visitor<'de> for WordOrCommand {
            type Value = StopBy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`sigterm` or a command as a list")
            }
            fn visit_str<E: Error>(self, word: &str) -> Result<StopBy, E> {
                if word == "sigterm" {
                    Ok(StopBy::Sigterm)
                } else {
                    Err(E::unknown_variant(word, &["sigterm", "[command, argument]"]))
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<StopBy, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(StopBy::Command)
            }
        }
        deserializer.deserialize_any(WordOrCommand)
    }
}

/// Text that fills a placeholder. A number with a point would lose its face (1.10 is not 1.1), so it wants quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PlaceholderText(pub String);

impl<'de> Deserialize<'de> for PlaceholderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = PlaceholderText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a whole number; quote anything else")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<PlaceholderText, E> {
                Ok(PlaceholderText(text.to_owned()))
            }
            fn visit_u64<E: Error>(self, number: u64) -> Result<PlaceholderText, E> {
                Ok(PlaceholderText(number.to_string()))
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<PlaceholderText, E> {
                Ok(PlaceholderText(number.to_string()))
            }
        }
        deserializer.deserialize_any(Text)
    }
}
