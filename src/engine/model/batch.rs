//! What a forward pass is given and asked for.

/// New tokens of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The tokens.
    pub tokens: &'a [u32],
    /// Position of the first.
    pub first: usize,
    /// Pages of the sequence, enough for all of them.
    pub table: &'a [u32],
}

/// The sequences of a decode step, so that a step need not collect them first.
pub trait Batch: Sync {
    /// Sequences.
    fn sequences(&self) -> usize;

    /// The new token of one of them: a span whose first token is it.
    fn span(&self, sequence: usize) -> Span<'_>;
}

impl Batch for [Span<'_>] {
    fn sequences(&self) -> usize {
        self.len()
    }

    fn span(&self, sequence: usize) -> Span<'_> {
        self[sequence]
    }
}

impl<const N: usize> Batch for [Span<'_>; N] {
    fn sequences(&self) -> usize {
        N
    }

    fn span(&self, sequence: usize) -> Span<'_> {
        self[sequence]
    }
}

/// Which positions get logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// None: a chunk of prefill that is not the last.
    None,
    /// The last token of the span.
    Last,
    /// Every token.
    All,
}
