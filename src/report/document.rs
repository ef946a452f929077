//! A report as data: blocks of text, tables and figures. Markdown and HTML are two ways to write the same document.
use serde::Serialize;

/// A piece of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "text")]
pub enum Span {
    /// Our own words and numbers.
    Plain(String),
    /// Our own words, stressed.
    Strong(String),
    /// Anything that comes from outside: names, messages, the question.
    Foreign(String),
    /// Outside text set as code.
    Code(String),
}

/// A line.
pub type Rich = Vec<Span>;

/// Our own words.
pub fn plain(text: impl Into<String>) -> Span {
    Span::Plain(text.into())
}

/// Our own words, stressed.
pub fn strong(text: impl Into<String>) -> Span {
    Span::Strong(text.into())
}

/// Text from outside.
pub fn foreign(text: impl Into<String>) -> Span {
    Span::Foreign(text.into())
}

/// Text from outside, set as code.
pub fn code(text: impl Into<String>) -> Span {
    Span::Code(text.into())
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Head {
    /// Its name. May come from outside.
    pub name: String,
    /// Its unit; empty where it has none.
    pub unit: String,
    /// Numbers stand right-aligned.
    pub numeric: bool,
}

impl Head {
    /// A column of words.
    pub fn words(name: impl Into<String>) -> Self {
        Self { name: name.into(), unit: String::new(), numeric: false }
    }

    /// A column of numbers.
    pub fn numbers(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { name: name.into(), unit: unit.into(), numeric: true }
    }
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Text, or a number as it is written.
    pub text: String,
    /// The interval, without brackets.
    pub interval: Option<String>,
    /// The count behind it, as it is written.
    pub n: Option<String>,
    /// Number of the note under the table.
    pub note: Option<usize>,
    /// What the column is sorted by.
    pub sort: Option<f64>,
    /// The text comes from outside.
    pub foreign: bool,
    /// Not to be relied on: drawn in grey.
    pub grey: bool,
}

impl Cell {
    /// Our own words.
    pub fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Text from outside.
    pub fn foreign(text: impl Into<String>) -> Self {
        Self { text: text.into(), foreign: true, ..Self::default() }
    }

    /// A bare count.
    pub fn count(value: usize) -> Self {
        Self { text: super::number::count(value), sort: Some(value as f64), ..Self::default() }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Number in the report.
    pub number: usize,
    /// What it shows; warnings that hold for it stand here too.
    pub caption: Rich,
    /// Columns.
    pub heads: Vec<Head>,
    /// Rows.
    pub rows: Vec<Vec<Cell>>,
    /// Notes to cells, from 1.
    pub notes: Vec<String>,
}

impl Table {
    /// The number of a note, which is added if it is new.
    pub fn note(&mut self, text: &str) -> usize {
        if let Some(index) = self.notes.iter().position(|note| note == text) {
            return index + 1;
        }
        self.notes.push(text.to_owned());
        self.notes.len()
    }
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Picture {
    /// Number in the report.
    pub number: usize,
    /// The workload it shows.
    pub workload: String,
    /// Its title; may hold text from outside.
    pub title: String,
    /// The same in words.
    pub alt: String,
    /// File name without ending, inside `figures/`.
    pub file: String,
    /// The SVG as a `data:` address.
    pub data: String,
}

/// A block.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "body")]
pub enum Block {
    /// A heading.
    Heading {
        /// 1 is the title.
        level: usize,
        /// Anchor in HTML.
        id: String,
        /// Its text.
        text: Rich,
    },
    /// The verdict, in the largest letters after the question.
    Verdict {
        /// `valid`, `invalid`, `partial`.
        word: &'static str,
        /// What it means here.
        text: Rich,
    },
    /// Something no reader may miss.
    Banner(Rich),
    /// A paragraph.
    Paragraph(Rich),
    /// A list.
    List(Vec<Rich>),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Picture),
    /// Commands.
    Commands(String),
}

/// A whole report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Document {
    /// For the window's title; may hold text from outside.
    pub title: String,
    /// Anchors and names of the runs, where there are several.
    pub contents: Vec<(String, String)>,
    /// What stands in it.
    pub blocks: Vec<Block>,
}
