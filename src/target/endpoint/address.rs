//! From what people write as an address to the URLs that are asked.
use miette::Diagnostic;
use reqwest::Url;
use thiserror::Error;

use crate::target::config::Api;

/// Why an address was refused. What was written stands in the message, so the caller only adds file and line.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum UrlError {
    /// Nothing but blanks.
    #[error("the url of the endpoint is empty")]
    #[diagnostic(help("write the base address, as http://127.0.0.1:8080/v1"))]
    Empty,
    /// `host:port/v1`.
    #[error("`{url}` has no scheme")]
    #[diagnostic(help("write http://{url} or https://{url}"))]
    NoScheme {
        /// As written.
        url: String,
    },
    /// Anything but http and https.
    #[error("`{url}`: the scheme `{scheme}` is not one of http, https")]
    #[diagnostic(help("an OpenAI-compatible server is asked over http or https"))]
    Scheme {
        /// As written.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// `http://user:password@host`. The address is not shown: it holds a password and would reach the log.
    #[error("the url of the endpoint holds a user name or password")]
    #[diagnostic(help("take it out of the address and name a variable with api_key_env"))]
    Credentials,
    /// The URL standard does not accept it.
    #[error("`{url}` is not a URL: {cause}")]
    #[diagnostic(help("write the base address, as http://127.0.0.1:8080/v1"))]
    Unreadable {
        /// As written.
        url: String,
        /// What the parser said.
        cause: String,
    },
}

/// The addresses of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Addresses {
    /// `…/v1/chat/completions`.
    pub chat: Url,
    /// `…/v1/completions`.
    pub completions: Url,
    /// `…/v1/messages`.
    pub messages: Url,
    /// `…/v1/models`.
    pub models: Url,
    /// `…/health`, outside `/v1`.
    pub health: Url,
    /// `…/props`, outside `/v1`.
    pub props: Url,
    /// The path outside `/v1`, which ends in a slash.
    root: Url,
}

/// The chat URL of a server whose base address is `written`.
///
/// Blanks around it and doubled slashes are dropped and a query is kept. A bare host gets `/v1`, the path every
/// OpenAI-compatible server answers on; an address that already ends in the path of an interface is cut back to its base.
pub fn endpoint_url(written: &str) -> Result<Url, UrlError> {
    Addresses::new(written).map(|addresses| addresses.chat)
}

impl Addresses {
    pub(super) fn new(written: &str) -> Result<Self, UrlError> {
        let url = written.trim();
        if url.is_empty() {
            return Err(UrlError::Empty);
        }
        let Some((scheme, _)) = url.split_once("://") else { return Err(UrlError::NoScheme { url: url.to_owned() }) };
        if !matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https") {
            return Err(UrlError::Scheme { url: url.to_owned(), scheme: scheme.to_owned() });
        }
        let mut base = Url::parse(url)
            .map_err(|e| UrlError::Unreadable { url: without_user(url).to_owned(), cause: e.to_string() })?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(UrlError::Credentials);
        }
        base.set_fragment(None);

        let mut segments: Vec<String> = base.path().split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect();
        match segments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [.., "chat", "completions"] => segments.truncate(segments.len() - 2),
            [.., "completions" | "messages"] => segments.truncate(segments.len() - 1),
            _ => {}
        }
        if segments.is_empty() {
            segments.push("v1".to_owned());
        }
        let root = match segments.as_slice() {
            [root @ .., last] if last == "v1" => root,
            all => all,
        };
        let at = |front: &[String], rest: &[&str]| {
            let path: Vec<&str> = front.iter().map(String::as_str).chain(rest.iter().copied()).collect();
            let mut url = base.clone();
            url.set_path(&path.join("/"));
            url
        };
        Ok(Self {
            chat: at(&segments, &["chat", "completions"]),
            completions: at(&segments, &["completions"]),
            messages: at(&segments, &["messages"]),
            models: at(&segments, &["models"]),
            health: at(root, &["health"]),
            props: at(root, &["props"]),
            root: at(root, &[""]),
        })
    }

    /// Where requests of this interface go.
    pub(super) fn of(&self, api: Api) -> &Url {
        match api {
            Api::Chat => &self.chat,
            Api::Completions => &self.completions,
            Api::Messages => &self.messages,
        }
    }

    /// `path`, as `metrics` or `v1/load`, outside `/v1`.
    pub(super) fn at_root(&self, path: &str) -> Url {
        let mut url = self.root.clone();
        url.set_path(&format!("{}{path}", self.root.path()));
        url
    }

    /// Whether the server is on this machine: then no proxy may stand between.
    pub(super) fn is_loopback(&self) -> bool {
        match self.chat.host_str() {
            None => false,
            Some(host) => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                bare == "localhost"
                    || bare.ends_with(".localhost")
                    || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

/// `url` without its query, which may hold a token, for messages and provenance.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.to_string()
}

/// An address that could not be read, without anything before an `@`.
fn without_user(url: &str) -> &str {
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_way_to_write_a_base_address_gives_one_chat_url() {
        let chat = |base: &str| endpoint_url(base).unwrap().to_string();
        for base in
            ["http://h:1/v1", "http://h:1/v1/", " http://h:1//v1/ ", "http://h:1", "http://h:1/", "HTTP://h:1/v1"]
        {
            assert_eq!(chat(base), "http://h:1/v1/chat/completions", "{base}");
        }
        assert_eq!(chat("http://h:1/v1/chat/completions"), "http://h:1/v1/chat/completions");
        assert_eq!(chat("http://h:1/v1?x=1"), "http://h:1/v1/chat/completions?x=1");
        assert_eq!(chat("https://h/lab//api/v2/"), "https://h/lab/api/v2/chat/completions");
        assert_eq!(chat("http://[::1]:8/v1#top"), "http://[::1]:8/v1/chat/completions");
    }

    #[test]
    fn health_and_props_stand_outside_v1() {
        let a = Addresses::new("http://h:1/lab/v1").unwrap();
        assert_eq!(a.models.as_str(), "http://h:1/lab/v1/models");
        assert_eq!((a.health.as_str(), a.props.as_str()), ("http://h:1/lab/health", "http://h:1/lab/props"));
        assert_eq!(a.at_root("v1/load").as_str(), "http://h:1/lab/v1/load");
        assert_eq!(Addresses::new("http://h:1").unwrap().at_root("metrics").as_str(), "http://h:1/metrics");
    }

    #[test]
    fn each_interface_has_its_address_and_any_of_them_gives_the_base() {
        for written in ["http://h:1/v1", "http://h:1/v1/completions", "http://h:1/v1/messages"] {
            let a = Addresses::new(written).unwrap();
            let urls = [Api::Chat, Api::Completions, Api::Messages].map(|api| a.of(api).path().to_owned());
            assert_eq!(urls, ["/v1/chat/completions", "/v1/completions", "/v1/messages"], "{written}");
        }
    }

    #[test]
    fn addresses_that_cannot_be_asked_are_refused_with_their_reason() {
        assert_eq!(endpoint_url("  "), Err(UrlError::Empty));
        assert!(matches!(endpoint_url("h:1/v1"), Err(UrlError::NoScheme { .. })));
        assert!(matches!(endpoint_url("127.0.0.1:8080"), Err(UrlError::NoScheme { .. })));
        assert!(matches!(endpoint_url("ftp://h/v1"), Err(UrlError::Scheme { scheme, .. }) if scheme == "ftp"));
        assert!(matches!(endpoint_url("http://"), Err(UrlError::Unreadable { .. })));
        assert!(matches!(endpoint_url("http://h:99999/v1"), Err(UrlError::Unreadable { .. })));
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        for url in ["http://me:hunter2hunter2@h:1/v1", "http://me:hunter2hunter2@h:port/v1"] {
            let error = endpoint_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        let loopback = |u: &str| Addresses::new(u).unwrap().is_loopback();
        assert!(loopback("http://127.0.0.1:1/v1") && loopback("http://[::1]:1/v1") && loopback("http://localhost/v1"));
        assert!(!loopback("http://10.0.0.1:1/v1") && !loopback("http://localhost.example/v1"));
    }
}
