//! What stops an endpoint before its first request. After that, failures are outcomes in rows.
use miette::Diagnostic;
use thiserror::Error;

use super::address::UrlError;

/// Why an endpoint cannot be used at all; `run` ends with code 4.
#[derive(Debug, Error, Diagnostic)]
pub enum EndpointError {
    /// The address of the suite is no address.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Url(#[from] UrlError),

    /// `api_key_env` names a variable that is not set.
    #[error("the variable {variable} named by api_key_env is not set")]
    #[diagnostic(help(
        "set it in the environment of this command: {variable}=... inferlab run ...; its value reaches no file"
    ))]
    MissingKey {
        /// Name of the variable.
        variable: String,
    },

    /// The key holds bytes that no header may carry. The key itself is not shown.
    #[error("the API key holds characters that an HTTP header cannot carry")]
    #[diagnostic(help("look for a line end or a quote copied along with the key"))]
    UnusableKey,

    /// Nobody answers.
    #[error("no answer from {url}: {cause}")]
    #[diagnostic(help("is the server running, and is the port the one it listens on? `curl {url}` should answer"))]
    Unreachable {
        /// What was asked.
        url: String,
        /// The transport's own words.
        cause: String,
    },

    /// The server answers that it is not ready yet.
    #[error("the server at {url} is not ready: status {status}: {said}")]
    #[diagnostic(help("a model that is still loading answers 503; wait until /health answers 200"))]
    NotReady {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// Its body, shortened.
        said: String,
    },

    /// The server refuses us or the first chat request.
    #[error("{url} refused a request: status {status}: {said}")]
    #[diagnostic(help(
        "401 and 403 ask for api_key_env; 404 often is a wrong path or model id; 400 names what it dislikes"
    ))]
    Refused {
        /// What was asked.
        url: String,
        /// HTTP status.
        status: u16,
        /// Its body, shortened.
        said: String,
    },

    /// The first chat request brought no answer.
    #[error("the first chat request to {url} ended as `{outcome}`: {cause}")]
    #[diagnostic(help("one token was asked of the model; a run would only collect the same failure"))]
    NoAnswer {
        /// What was asked.
        url: String,
        /// Outcome word.
        outcome: &'static str,
        /// Cause, where one was given.
        cause: String,
    },

    /// The suite asks for thinking in a way that this server does not have.
    #[error("thinking cannot be asked of this server (dialect {dialect}): {why}")]
    #[diagnostic(help("write `thinking: default`, or name `dialect` and `api` in the suite"))]
    Thinking {
        /// The dialect that is spoken.
        dialect: &'static str,
        /// What is missing.
        why: String,
    },

    /// The file of `tokenizer` cannot be used.
    #[error("the tokenizer {path} cannot be used: {cause}")]
    #[diagnostic(help("name a tokenizer.json or a GGUF of the model that is served, or write `tokenizer: none`"))]
    Tokenizer {
        /// As written.
        path: String,
        /// What is wrong with it.
        cause: String,
    },

    /// `api_key_file` cannot be read.
    #[error("the file {path} named by api_key_file holds no key: {cause}")]
    #[diagnostic(help("it holds the key and nothing else; its contents reach no file of a run"))]
    KeyFile {
        /// As written.
        path: String,
        /// Why.
        cause: String,
    },

    /// The process may not open as many sockets as the plan needs.
    #[error("{wanted} requests in flight need {needed} open files, but the limit of this process is {limit}")]
    #[diagnostic(help("raise it with `ulimit -n {needed}`, or lower the concurrency"))]
    FileLimit {
        /// Requests in flight.
        wanted: u32,
        /// Open files needed.
        needed: u64,
        /// Hard limit found.
        limit: u64,
    },

    /// The HTTP client could not be built.
    #[error("the HTTP client cannot start: {cause}")]
    #[diagnostic(help("this is TLS set-up: check the system's root certificates"))]
    Client {
        /// Its words.
        cause: String,
    },
}
