//! OpenAI-compatible HTTP servers.
