//! Everything an endpoint needs to know, resolved to single values.
use std::time::Duration;

use super::error::EndpointError;
use super::secret::Secret;
use crate::target::config::{Dialect, EndpointConfig, TimeoutsConfig};

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
    /// The workloads must not be answered from a prompt cache: where the server can be told so, it is.
    pub cold: bool,
    /// Ask for token counts in every chunk where the dialect has them (llama.cpp `timings_per_token`), so that the tokens of the
    /// first chunk are known; costs the server some bytes a token.
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
            cold: true,
            chunk_counts: false,
            concurrency: 1,
            prefix: String::new(),
        }
    }

    /// Settings of an arm; the key is read from the environment now.
    pub fn from_config(config: &EndpointConfig, concurrency: u32, nonce: &str) -> Result<Self, EndpointError> {
        let api_key = config.api_key_env.as_deref().map(Secret::from_env).transpose()?;
        Ok(Self {
            api_key,
            timeouts: config.timeouts.into(),
            dialect: config.dialect,
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
}
