//! Server-sent events over bytes, as the WHATWG rules have it, one pass and bounded.
//!
//! A CR ends a line at once and an LF right after it is swallowed, so it does not matter where a read cuts a CRLF. Bytes are only
//! decoded by the caller, one whole event at a time, so it does not matter where a read cuts a character. A line that lies whole
//! in one read is never copied unless its event goes on in the next.
use std::ops::ControlFlow;

/// What the parser met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// A dispatched event.
    Event {
        /// Its `event:` field, or an empty string.
        kind: &'a [u8],
        /// Its `data:` lines joined by LF; never empty.
        data: &'a [u8],
    },
    /// A comment, or an event without data.
    KeepAlive,
}

/// What was left when the stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseTail<'a> {
    /// Nothing, a comment or an event without data.
    Clean,
    /// Data of an event whose blank line never came; the rules drop it, the caller may not want to.
    Unterminated {
        /// Its `event:` field, or an empty string.
        kind: &'a [u8],
        /// Its data so far.
        data: &'a [u8],
    },
    /// A line cut before it had any data.
    Fragment,
}

/// A line or an event grew past the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line or event is longer than {limit} bytes")]
pub struct SseTooLong {
    /// The limit.
    pub limit: usize,
}

const BOM: &[u8; 3] = b"\xEF\xBB\xBF";

/// The state between two reads.
#[derive(Debug)]
pub struct SseParser {
    limit: usize,
    /// Start of a line whose end has not come.
    partial: Vec<u8>,
    /// Data of an event whose blank line has not come.
    data: Vec<u8>,
    kind: Vec<u8>,
    has_data: bool,
    has_field: bool,
    swallow_lf: bool,
    /// Bytes of the byte-order mark seen at the very start; 3 when that question is settled.
    bom_seen: usize,
    too_long: bool,
}

impl SseParser {
    /// A parser that holds at most about `limit` bytes of a line and `limit` bytes of an event.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            partial: Vec::new(),
            data: Vec::new(),
            kind: Vec::new(),
            has_data: false,
            has_field: false,
            swallow_lf: false,
            bom_seen: 0,
            too_long: false,
        }
    }

    /// Bytes reserved for unfinished lines and events.
    pub fn capacity(&self) -> usize {
        self.partial.capacity() + self.data.capacity() + self.kind.capacity()
    }

    /// Takes the next bytes and hands out what they complete. `on` stops the parsing with `Break`: then the number of bytes read
    /// until there comes back, and the rest is lost.
    pub fn push(
        &mut self,
        bytes: &[u8],
        mut on: impl FnMut(SseItem<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<usize>, SseTooLong> {
        if self.too_long {
            return Err(self.refuse());
        }
        let mut rest = self.after_bom(bytes);
        // The only data line so far of the current event, while it still lies in `bytes`.
        let mut held: Option<&[u8]> = None;
        while !rest.is_empty() {
            if std::mem::take(&mut self.swallow_lf) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|&b| b == b'\n' || b == b'\r') else {
                if self.partial.len() + rest.len() > self.limit {
                    return Err(self.refuse());
                }
                self.partial.extend_from_slice(rest);
                break;
            };
            let line = &rest[..end];
            self.swallow_lf = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if self.partial.len() + line.len() > self.limit {
                return Err(self.refuse());
            }
            let flow = if self.partial.is_empty() {
                self.line(line, &mut held, &mut on)?
            } else {
                self.partial.extend_from_slice(line);
                let whole = std::mem::take(&mut self.partial);
                // Whatever is held was taken over before: a partial line is always the first of its read.
                let mut inner = None;
                let flow = self.line(&whole, &mut inner, &mut on)?;
                if let Some(data) = inner {
                    self.data.extend_from_slice(data);
                }
                self.partial = whole;
                self.partial.clear();
                flow
            };
            if flow.is_break() {
                return Ok(ControlFlow::Break(bytes.len() - rest.len()));
            }
        }
        if let Some(data) = held {
            self.data.extend_from_slice(data);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The stream is over: reads the unfinished line as if it had ended and says what is left.
    pub fn finish(&mut self, mut on: impl FnMut(SseItem<'_>)) -> Result<SseTail<'_>, SseTooLong> {
        if self.too_long {
            return Err(self.refuse());
        }
        if (1..3).contains(&self.bom_seen) {
            self.partial.splice(0..0, BOM[..self.bom_seen].iter().copied());
            self.bom_seen = 3;
        }
        let cut = std::mem::take(&mut self.partial);
        let fragment = !cut.is_empty() && cut[0] != b':';
        if !cut.is_empty() {
            let mut held = None;
            let _ = self.line(&cut, &mut held, &mut |item| {
                on(item);
                ControlFlow::Continue(())
            })?;
            if let Some(data) = held {
                self.data.extend_from_slice(data);
            }
        }
        Ok(if !self.data.is_empty() {
            SseTail::Unterminated { kind: &self.kind, data: &self.data }
        } else if fragment {
            SseTail::Fragment
        } else {
            SseTail::Clean
        })
    }

    fn refuse(&mut self) -> SseTooLong {
        self.too_long = true;
        self.partial = Vec::new();
        self.data = Vec::new();
        SseTooLong { limit: self.limit }
    }

    /// Drops a byte-order mark at the start of the stream, however it is cut.
    fn after_bom<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while self.bom_seen < 3 {
            match rest.first() {
                None => break,
                Some(&b) if b == BOM[self.bom_seen] => {
                    self.bom_seen += 1;
                    rest = &rest[1..];
                }
                Some(_) => {
                    self.partial.extend_from_slice(&BOM[..self.bom_seen]);
                    self.bom_seen = 3;
                }
            }
        }
        rest
    }

    fn line<'a>(
        &mut self,
        line: &'a [u8],
        held: &mut Option<&'a [u8]>,
        on: &mut impl FnMut(SseItem<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, SseTooLong> {
        let Some(&first) = line.first() else { return Ok(self.dispatch(held, on)) };
        if first == b':' {
            return Ok(on(SseItem::KeepAlive));
        }
        let (name, value) = match line.iter().position(|&b| b == b':') {
            None => (line, &line[line.len()..]),
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
        };
        self.has_field = true;
        match name {
            b"data" if !self.has_data => {
                self.has_data = true;
                *held = Some(value);
            }
            b"data" => {
                let so_far = self.data.len() + held.map_or(0, <[u8]>::len);
                if so_far + 1 + value.len() > self.limit {
                    return Err(self.refuse());
                }
                if let Some(first) = held.take() {
                    self.data.extend_from_slice(first);
                }
                self.data.push(b'\n');
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.kind.clear();
                self.kind.extend_from_slice(value);
            }
            // `id` and `retry` only matter to a client that reconnects, and this one never does. Other names are ignored.
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A blank line.
    fn dispatch(
        &mut self,
        held: &mut Option<&[u8]>,
        on: &mut impl FnMut(SseItem<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let data = held.take().unwrap_or(&self.data);
        let flow = if !data.is_empty() {
            on(SseItem::Event { kind: &self.kind, data })
        } else if self.has_field {
            on(SseItem::KeepAlive)
        } else {
            ControlFlow::Continue(())
        };
        self.data.clear();
        self.kind.clear();
        self.has_data = false;
        self.has_field = false;
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as `kind|data`, keep-alives as `~`, the tail as its debug form.
    fn read(parts: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::new(64);
        let mut out = Vec::new();
        let show = |item: SseItem<'_>| match item {
            SseItem::Event { kind, data } => {
                format!("{}|{}", String::from_utf8_lossy(kind), String::from_utf8_lossy(data))
            }
            SseItem::KeepAlive => "~".to_owned(),
        };
        for part in parts {
            let pushed = parser.push(part, |item| {
                out.push(show(item));
                ControlFlow::Continue(())
            });
            if pushed.is_err() {
                out.push("too long".to_owned());
                return out;
            }
        }
        match parser.finish(|item| out.push(show(item))).unwrap() {
            SseTail::Clean => {}
            SseTail::Fragment => out.push("fragment".to_owned()),
            SseTail::Unterminated { kind, data } => {
                out.push(format!("tail {}", show(SseItem::Event { kind, data })));
            }
        }
        out
    }

    fn one(bytes: &str) -> Vec<String> {
        read(&[bytes.as_bytes()])
    }

    #[test]
    fn at_most_one_space_after_the_colon_is_dropped() {
        assert_eq!(one("data:a\n\ndata: a\n\ndata:  a\n\n"), ["|a", "|a", "| a"]);
    }

    #[test]
    fn lines_end_with_lf_cr_or_crlf_in_any_mixture() {
        assert_eq!(one("data: a\r\rdata: b\r\n\r\ndata: c\n\ndata: d\r\n\n"), ["|a", "|b", "|c", "|d"]);
        // A CR, an LF and an LF: the first two are one end, so this is one blank line.
        assert_eq!(one("data: a\r\n\ndata: b\r\n\r"), ["|a", "|b"]);
    }

    #[test]
    fn data_lines_of_one_event_are_joined_by_lf() {
        assert_eq!(one("data: a\ndata:b\n\n"), ["|a\nb"]);
        assert_eq!(one("data\ndata\n\n"), ["|\n"]);
    }

    #[test]
    fn comments_and_events_without_data_are_keep_alives() {
        assert_eq!(one(": ping\n\n:\n\nevent: ping\n\ndata:\n\nid: 7\nretry: 5\n\n\n\n"), ["~", "~", "~", "~", "~"]);
    }

    #[test]
    fn an_event_type_holds_for_one_event_only() {
        assert_eq!(one("event: error\ndata: a\n\ndata: b\n\n"), ["error|a", "|b"]);
    }

    #[test]
    fn unknown_fields_and_lines_without_a_colon_are_ignored() {
        assert_eq!(one("data: a\nfoo: b\nbar\n{\"x\": 1}\n\n"), ["|a"]);
    }

    #[test]
    fn one_byte_order_mark_at_the_start_is_dropped_however_it_is_cut() {
        let bytes = b"\xEF\xBB\xBFdata: a\n\n\xEF\xBB\xBFdata: b\n\n";
        for cut in 0..bytes.len() {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), ["|a", "~"], "cut at {cut}");
        }
        assert_eq!(read(&[b"\xEF\xBB", b"data: a\n\n"]), ["~"]);
        assert_eq!(read(&[b"\xEF\xBB"]), ["fragment"]);
    }

    #[test]
    fn the_tail_without_a_blank_line_is_handed_out_as_such() {
        assert_eq!(one("data: a\n\ndata: b"), ["|a", "tail |b"]);
        assert_eq!(one("data: a\n\ndata: b\n"), ["|a", "tail |b"]);
        assert_eq!(one("data: a\n\nevent: x\ndata: b"), ["|a", "tail x|b"]);
        assert_eq!(one("data: a\n\ndat"), ["|a", "fragment"]);
        assert_eq!(one("data: a\n\n: pi"), ["|a", "~"]);
        assert_eq!(one("data: a\n\n"), ["|a"]);
    }

    #[test]
    fn a_line_over_the_limit_is_refused_whole_or_cut() {
        let fits = format!("data: {}\n\n", "a".repeat(58));
        let long = format!("data: {}\n\n", "a".repeat(59));
        assert_eq!(one(&fits).len(), 1);
        for cut in 0..long.len() {
            assert_eq!(read(&[&long.as_bytes()[..cut], &long.as_bytes()[cut..]]), ["too long"], "cut at {cut}");
        }
    }

    #[test]
    fn an_event_over_the_limit_is_refused_although_its_lines_are_short() {
        assert_eq!(one(&"data: aaaaaaaaaaaaaaa\n".repeat(5)), ["too long"]);
    }

    #[test]
    fn an_endless_line_never_holds_more_than_twice_the_limit() {
        let mut parser = SseParser::new(1 << 16);
        let mut most = 0;
        for _ in 0..1024 {
            let _ = parser.push(&[b'a'; 1000], |_| ControlFlow::Continue(()));
            most = most.max(parser.capacity());
        }
        assert!(most <= 2 << 16, "{most} bytes held");
    }

    #[test]
    fn every_split_of_a_mixed_stream_gives_the_same_events() {
        let bytes =
            "data: {\"a\":\r\ndata: \u{4e16}}\r\n\r\n: c\r\rdata:x\n\nevent: e\rdata: y\r\n\r\ndata: [DONE]\n\ndata: t"
                .as_bytes();
        let whole = read(&[bytes]);
        assert_eq!(whole, ["|{\"a\":\n\u{4e16}}", "~", "|x", "e|y", "|[DONE]", "tail |t"]);
        for cut in 0..=bytes.len() {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
        assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()), whole);
    }
}
