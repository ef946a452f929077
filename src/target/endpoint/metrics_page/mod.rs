//! What a server counts: `/metrics` in the Prometheus text format, and NInfer's `/v1/load`.
pub mod counters;
mod scrape;
pub mod text;

pub use counters::{Counters, Page, of_load, of_page};
pub use scrape::{Scrape, Scraper, Source};
