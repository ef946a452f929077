//! Pinned models: fetch, verify, locate.
