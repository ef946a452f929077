//! The document as one HTML file that loads nothing: figures are `data:` images, style and script are named by their hashes.
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value, context};
use sha2::{Digest, Sha256};

use super::ReportError;
use super::document::Document;
use crate::inert;

const TEMPLATE: &str = include_str!("templates/report.html");
const STYLE: &str = include_str!("templates/report.css");
const SCRIPT: &str = include_str!("templates/report.js");
/// Longest foreign text in one place.
const LONGEST: usize = 2000;

/// Writes the document.
///
/// # Errors
/// [`ReportError::Template`] when the template and the document do not fit, which is a bug.
pub fn html(document: &Document) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(ReportError::template)?,
    );
    // Whatever the template prints passes here, so that no field can be forgotten.
    environment.set_formatter(|out, state, value| match value.as_str() {
        Some(text) if !value.is_safe() && inert::terminal_line(text) != text => {
            minijinja::escape_formatter(out, state, &Value::from(inert::terminal_line(text).into_owned()))
        }
        _ => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("clip", |text: &str| inert::clip(text, LONGEST).into_owned());
    environment.add_template("report.html", TEMPLATE).map_err(ReportError::template)?;
    let template = environment.get_template("report.html").map_err(ReportError::template)?;
    template
        .render(context! {
            document => Value::from(Serde(document)),
            style => STYLE,
            script => SCRIPT,
            style_hash => hash(STYLE),
            script_hash => hash(SCRIPT),
            version => env!("CARGO_PKG_VERSION"),
        })
        .map_err(ReportError::template)
}

/// The hash a content security policy names a block by: of the very bytes between its tags.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// An SVG as a `data:` address.
pub fn data_uri(svg: &str) -> String {
    format!("data:image/svg+xml;base64,{}", STANDARD.encode(svg))
}
