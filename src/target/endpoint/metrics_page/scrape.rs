//! Asks a server for its counters, on a connection of its own so that no measured request finds its connection taken.
use std::time::Duration;

use reqwest::Url;

use super::counters::{Counters, of_load, of_page};
use super::text::{MAX_PAGE_BYTES, Reading};
use crate::target::endpoint::client::HttpClient;
use crate::target::endpoint::secret::Secret;

/// A page of counters that takes longer is left out.
const SCRAPE_TIME: Duration = Duration::from_secs(5);

/// Where counters stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `/metrics`.
    Metrics,
    /// NInfer's `/v1/load`.
    Load,
}

impl Source {
    /// The path outside `/v1`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Load => "v1/load",
        }
    }
}

/// Asks for the pages that a server was found to have.
#[derive(Debug)]
pub struct Scraper {
    http: HttpClient,
    sources: Vec<(Source, Url)>,
    key: Option<Secret>,
}

/// One page as it came.
#[derive(Debug)]
struct RawPage {
    source: Source,
    body: Vec<u8>,
    instance: Option<String>,
}

/// Pages as they came, not read yet: reading is no work for the thread that keeps the times of requests.
#[derive(Debug)]
pub struct RawScrape {
    pages: Vec<RawPage>,
    errors: Vec<String>,
    key: Option<Secret>,
}

/// What one scrape brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape {
    /// Known counters of all pages.
    pub counters: Counters,
    /// Path and text of each page, without the key.
    pub pages: Vec<(&'static str, String)>,
    /// How `/metrics` was read.
    pub reading: Reading,
    /// Pages that did not come, and why.
    pub errors: Vec<String>,
}

impl Scraper {
    pub(in crate::target::endpoint) fn new(http: HttpClient, sources: Vec<(Source, Url)>, key: Option<Secret>) -> Self {
        Self { http, sources, key }
    }

    /// Which server it is: one address is one server.
    pub fn address(&self) -> &str {
        self.sources.first().map_or("", |(_, url)| url.authority())
    }

    /// Asks for every page once. What does not come is an error of that page; a scrape never fails.
    pub async fn scrape(&self) -> RawScrape {
        let mut raw = RawScrape { pages: Vec::new(), errors: Vec::new(), key: self.key.clone() };
        for (source, url) in &self.sources {
            match self.http.get(url, MAX_PAGE_BYTES, SCRAPE_TIME).await {
                Ok(document) if document.status == 200 => {
                    raw.pages.push(RawPage { source: *source, body: document.body, instance: document.instance });
                }
                Ok(document) => raw.errors.push(format!("/{}: status {}", source.path(), document.status)),
                Err(cause) => raw.errors.push(format!("/{}: {cause}", source.path())),
            }
        }
        raw
    }
}

impl RawScrape {
    /// Reads the pages and takes the key out of them.
    pub fn read(self) -> Scrape {
        let clean = |text: &str| self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text).into_owned());
        let mut scrape = Scrape { errors: self.errors.iter().map(|error| clean(error)).collect(), ..Scrape::default() };
        for page in self.pages {
            let text = String::from_utf8_lossy(&page.body);
            let counters = match page.source {
                Source::Metrics => {
                    let read = of_page(&text);
                    scrape.reading = read.reading;
                    let instance =
                        read.counters.instance.clone().or(page.instance.map(|id| format!("started at {id}")));
                    Counters { instance, ..read.counters }
                }
                Source::Load => serde_json::from_str(&text).ok().as_ref().and_then(of_load).unwrap_or_default(),
            };
            scrape.counters = std::mem::take(&mut scrape.counters).and(counters);
            scrape.pages.push((page.source.path(), clean(&text)));
        }
        scrape
    }
}
