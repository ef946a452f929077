//! What a file may cost before a parser sees it.
//!
//! libyaml keeps one simple-key candidate per open bracket and looks at all of them for every token, so 100 000 brackets take
//! it over a second to refuse. One pass over the bytes says so at once.

/// Most bytes of a file.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of maps and lists.
pub const MAX_DEPTH: usize = 64;
/// Most keys and values a document may hold, aliases followed.
pub const MAX_VALUES: usize = 100_000;
/// Longest line in bytes: an error draws its line whole, and no reader follows one of thousands of columns.
pub const MAX_LINE: usize = 10_000;
/// Most opening brackets anywhere in the file, whatever they stand in: a bound that no quoting can hide from.
const MAX_BRACKETS: usize = 2000;

/// Number, from 1, of the first line over [`MAX_LINE`], if there is one.
pub(super) fn too_long(text: &[u8]) -> Option<usize> {
    text.split(|&byte| byte == b'\n').position(|line| line.len() > MAX_LINE).map(|index| index + 1)
}

/// Byte offset of the bracket that is one too many, if there is one.
///
/// Quotes and comments are skipped as YAML does; where this pass and YAML disagree, [`MAX_BRACKETS`] still bounds the cost.
pub(super) fn too_nested(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_open = |byte: u8| matches!(byte, b'[' | b'{');
    if let Some((offset, _)) = bytes.iter().enumerate().filter(|&(_, &byte)| is_open(byte)).nth(MAX_BRACKETS) {
        return Some(offset);
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while at < bytes.len() {
        let starts_token = at == 0 || matches!(bytes[at - 1], b' ' | b'\t' | b'\n' | b'\r' | b'[' | b'{' | b',' | b':');
        match bytes[at] {
            b'#' if starts_token => at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at),
            b'"' if starts_token => at = end_of_double_quoted(bytes, at),
            b'\'' if starts_token => at = end_of_single_quoted(bytes, at),
            byte if is_open(byte) => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Offset of the closing quote of a double-quoted scalar that opens at `open`; the last byte when it never closes.
pub(super) fn end_of_double_quoted(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len().saturating_sub(1)
}

/// Offset of the closing quote of a single-quoted scalar, `''` being a quote inside it.
pub(super) fn end_of_single_quoted(bytes: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < bytes.len() {
        if bytes[at] == b'\'' {
            if bytes.get(at + 1) != Some(&b'\'') {
                return at;
            }
            at += 1;
        }
        at += 1;
    }
    bytes.len().saturating_sub(1)
}
