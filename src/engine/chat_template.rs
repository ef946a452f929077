//! How a chat is written as one text.
use miette::Diagnostic;
use thiserror::Error;

/// Why a chat template cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub enum TemplateError {}

/// A model's own Jinja template.
#[derive(Debug)]
pub struct ChatTemplate {}

impl ChatTemplate {
    /// Compiles a template; `bos` and `eos` are the texts it may name as `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// When the template is too long or no Jinja.
    pub fn new(_template: &str, _bos: Option<&str>, _eos: Option<&str>) -> Result<Self, TemplateError> {
        Ok(Self {})
    }
}
