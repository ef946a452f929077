//! Everything an endpoint needs to know, resolved to single values.
use std::time::Duration;

use super::error::EndpointError;
use super::secret::Secret;
use crate::target::config::{Api, Dialect, EndpointConfig, Thinking, TimeoutsConfig, TokenizerFrom};

/// How long each stage of a request may take. Each has its own outcome word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of a connection to its end, TLS included; `timeout_connect`.
    pub connect: Duration,
    /// From an open connection to the first byte of the body; `timeout_first_byte`.
    pub first_byte: Duration,
    /// Between two outputs, from the first byte on; keep-alives do not count; `timeout_idle`.
    pub idle: Duration,
    /// The whole request; `timeout_total`.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        TimeoutsConfig::default().into()
    }
}

impl From<TimeoutsConfig> for Timeouts {
    fn from(config: TimeoutsConfig) -> Self {
        let TimeoutsConfig { connect, first_byte, idle, total } = config;
        Self { connect: connect.0, first_byte: first_byte.0, idle: idle.0, total: total.0 }
    }
}

/// The resolved settings of one endpoint.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// Base address, as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// Model id sent in every request.
    pub model: String,
    /// Key for `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// Deadlines.
    pub timeouts: Timeouts,
    /// What the server speaks.
    pub dialect: Dialect,
    /// Which of its interfaces is asked.
    pub api: Api,
    /// Who counts tokens besides the server's usage.
    pub tokenizer: TokenizerFrom,
    /// What is asked of its thinking.
    pub thinking: Thinking,
    /// The workloads must not be answered from a prompt cache: where the server can be told so, it is.
    pub cold: bool,
    /// Ask for token counts in every chunk where the dialect has them (vLLM and SGLang `continuous_usage_stats`, llama.cpp and NInfer
    /// `timings_per_token`), so that the tokens of the first chunk are known; costs the server some bytes a token.
    pub chunk_counts: bool,
    /// Most requests in flight, to check the limit of open files before the start.
    pub concurrency: u32,
    /// What every prompt starts with (the nonce of the run); the calibration request carries it too, so that its tokens are part
    /// of the overhead.
    pub prefix: String,
}

impl EndpointSettings {
    /// Settings with the defaults of the contract.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api_key: None,
            timeouts: Timeouts::default(),
            dialect: Dialect::Auto,
            api: Api::Chat,
            tokenizer: TokenizerFrom::None,
            thinking: Thinking::Default,
            cold: true,
            chunk_counts: false,
            concurrency: 1,
            prefix: String::new(),
        }
    }

    /// Settings of an arm; the key is read from the environment or its file now. Thinking is the caller's to set.
    pub fn from_config(config: &EndpointConfig, concurrency: u32, nonce: &str) -> Result<Self, EndpointError> {
        let api_key = match (&config.api_key_env, &config.api_key_file) {
            (Some(variable), _) => Some(Secret::from_env(variable)?),
            (None, Some(path)) => Some(Secret::from_file(path)?),
            (None, None) => None,
        };
        Ok(Self {
            api_key,
            timeouts: config.timeouts.into(),
            dialect: config.dialect,
            api: config.api,
            tokenizer: config.tokenizer.clone(),
            chunk_counts: true,
            concurrency,
            prefix: nonce.to_owned(),
            ..Self::new(&config.url, &config.model)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::config::Endpoint;

    #[test]
    fn settings_of_an_arm_take_every_key_of_the_suite() {
        let yaml = "{url: 'http://h:1/v1', model: m, dialect: llama_cpp, timeouts: {idle: 7s}}";
        let config = serde_yaml::from_str::<Endpoint>(yaml).unwrap().resolve().unwrap();
        let settings = EndpointSettings::from_config(&config, 8, "n1").unwrap();
        assert_eq!((settings.url.as_str(), settings.model.as_str(), settings.concurrency), ("http://h:1/v1", "m", 8));
        assert_eq!((settings.dialect, settings.prefix.as_str()), (Dialect::LlamaCpp, "n1"));
        assert_eq!(settings.timeouts, Timeouts { idle: Duration::from_secs(7), ..Timeouts::default() });
        assert!(settings.cold && settings.api_key.is_none());
    }

    #[test]
    fn a_suite_that_names_an_unset_key_variable_is_refused() {
        let yaml = "{url: 'http://h:1/v1', model: m, api_key_env: INFERLAB_TEST_SURELY_UNSET_KEY}";
        let config = serde_yaml::from_str::<Endpoint>(yaml).unwrap().resolve().unwrap();
        let error = EndpointSettings::from_config(&config, 1, "").unwrap_err();
        assert!(matches!(error, EndpointError::MissingKey { variable } if variable.ends_with("UNSET_KEY")));
    }

    #[test]
    fn a_key_is_read_from_its_file_without_the_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let settings = || {
            let yaml = format!("{{url: 'http://h:1/v1', model: m, api_key_file: '{}'}}", path.display());
            let config = serde_yaml::from_str::<Endpoint>(&yaml).unwrap().resolve().unwrap();
            EndpointSettings::from_config(&config, 1, "")
        };
        assert!(matches!(settings(), Err(EndpointError::KeyFile { .. })), "it is not there");
        std::fs::write(&path, "sk-made-up-4711\n").unwrap();
        assert_eq!(settings().unwrap().api_key.unwrap().expose(), "sk-made-up-4711");
        std::fs::write(&path, " \n").unwrap();
        assert!(matches!(settings(), Err(EndpointError::KeyFile { .. })), "it is empty");
    }
}
