//! A position in the file that only moves over bytes that are there.
use std::fmt;

use super::error::GgufError;

/// Reads little-endian values front to back; every length is checked against the bytes left before it is used.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Panics when `at` lies past the end: positions come from an earlier cursor over the same bytes.
    pub(super) fn new(bytes: &'a [u8], at: u64) -> Self {
        let at = usize::try_from(at).expect("a position inside the file fits usize");
        assert!(at <= bytes.len(), "a position inside the file");
        Self { bytes, at }
    }

    pub(super) fn at(&self) -> u64 {
        self.at as u64
    }

    pub(super) fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `count` bytes; `what` is put into words only when they are not there.
    pub(super) fn take(&mut self, count: u64, what: fmt::Arguments<'_>) -> Result<&'a [u8], GgufError> {
        let left = self.left();
        match usize::try_from(count) {
            Ok(length) if count <= left => {
                let taken = &self.bytes[self.at..self.at + length];
                self.at += length;
                Ok(taken)
            }
            _ => Err(GgufError::TooShort { what: what.to_string(), at: self.at(), needed: count, left }),
        }
    }

    pub(super) fn array<const N: usize>(&mut self, what: fmt::Arguments<'_>) -> Result<[u8; N], GgufError> {
        let taken = self.take(N as u64, what)?;
        Ok(taken.try_into().expect("exactly N bytes were taken"))
    }

    pub(super) fn u8(&mut self, what: fmt::Arguments<'_>) -> Result<u8, GgufError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn u32(&mut self, what: fmt::Arguments<'_>) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: fmt::Arguments<'_>) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A string: its length in 8 bytes, then its bytes. They may be anything.
    pub(super) fn string(&mut self, what: fmt::Arguments<'_>) -> Result<&'a [u8], GgufError> {
        let length = self.u64(format_args!("the length of {what}"))?;
        self.take(length, what)
    }
}
