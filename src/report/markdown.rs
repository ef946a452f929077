//! The document as Markdown for a forum: pipe tables, no HTML, foreign text that cannot act.
use std::fmt::Write as _;

use super::document::{Block, Cell, Document, Rich, Span, Table};
use crate::inert;

/// Longest foreign text in one place.
const LONGEST: usize = 400;

/// Writes the document; figures are linked as `figures/<file>.png`.
pub fn markdown(document: &Document) -> String {
    let mut out = String::new();
    for block in &document.blocks {
        let written = match block {
            Block::Heading { level, text, .. } => writeln!(out, "{} {}\n", "#".repeat(*level), rich(text)),
            Block::Verdict { word, text } => writeln!(out, "**Verdict: {}.** {}\n", word.to_uppercase(), rich(text)),
            Block::Banner(text) => writeln!(out, "> **{}**\n", rich(text)),
            Block::Paragraph(text) => writeln!(out, "{}\n", rich(text)),
            Block::List(items) => {
                let lines: String = items.iter().map(|item| format!("- {}\n", rich(item))).collect();
                writeln!(out, "{lines}")
            }
            Block::Table(table) => write!(out, "{}", pipe_table(table)),
            Block::Figure(figure) => writeln!(
                out,
                "![{}](figures/{}.png)\n\n*Figure {}. {}*\n",
                alt(&figure.title),
                figure.file,
                figure.number,
                inert::markdown_text(&inert::clip(&figure.title, LONGEST)),
            ),
            Block::Commands(commands) => {
                writeln!(out, "{}", inert::markdown_block(commands).replacen("text\n", "sh\n", 1))
            }
        };
        written.expect("writing to a String cannot fail");
    }
    let mut out = out.trim_end().to_owned();
    out.push('\n');
    out
}

fn rich(text: &Rich) -> String {
    text.iter()
        .map(|span| match span {
            Span::Plain(text) => text.clone(),
            Span::Strong(text) => format!("**{text}**"),
            Span::Foreign(text) if text.trim().is_empty() => super::number::NOTHING.to_owned(),
            Span::Foreign(text) => inert::markdown_text(&inert::clip(text, LONGEST)).into_owned(),
            Span::Code(text) => inert::markdown_code(&inert::clip(text, LONGEST)),
        })
        .collect()
}

/// Alternative text stands in brackets, where not even a code span is safe in every renderer: only calm characters stay.
fn alt(text: &str) -> String {
    let text = inert::clip(text, 200);
    text.chars()
        .map(|c| if c.is_alphanumeric() || " .,;:()/%–-".contains(c) { c } else { ' ' })
        .collect::<String>()
        .replace("://", " ")
        .replace("www.", "www ")
}

fn pipe_table(table: &Table) -> String {
    let mut out = format!("**Table {}.** {}\n\n", table.number, rich(&table.caption));
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    out.push_str(&row(table
        .heads
        .iter()
        .map(|head| {
            let name = inert::markdown_cell(&inert::clip(&head.name, 120)).into_owned();
            if head.unit.is_empty() { name } else { format!("{name} [{}]", head.unit) }
        })
        .collect()));
    out.push_str(&row(table.heads.iter().map(|head| if head.numeric { "---:" } else { ":---" }.to_owned()).collect()));
    for cells in &table.rows {
        out.push_str(&row(cells.iter().map(cell).collect()));
    }
    out.push('\n');
    for (index, note) in table.notes.iter().enumerate() {
        writeln!(out, "{} {}", superscript(index + 1), inert::markdown_text(&inert::clip(note, LONGEST)))
            .expect("writing to a String cannot fail");
        // A blank line keeps notes apart in every renderer.
        out.push('\n');
    }
    out
}

fn cell(cell: &Cell) -> String {
    let mut text = if cell.foreign {
        inert::markdown_cell(&inert::clip(&cell.text, LONGEST)).into_owned()
    } else {
        cell.text.clone()
    };
    if let Some(interval) = &cell.interval {
        text.push_str(&format!(" ({interval})"));
    }
    if let Some(note) = cell.note {
        text.push_str(&superscript(note));
    }
    if let Some(n) = &cell.n {
        text.push_str(&format!(" n={n}"));
    }
    text
}

fn superscript(number: usize) -> String {
    number
        .to_string()
        .bytes()
        .map(|digit| ["⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"][usize::from(digit - b'0')])
        .collect()
}
