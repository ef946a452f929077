//! A weight matrix in the format of its file, read row by row as f32.
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memmap2::Mmap;
use serde::Serialize;

use super::dequantise;

/// How the values of a matrix are stored. Byte layouts are little endian; see [`dequantise`](super::dequantise).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum WeightFormat {
    /// 32-bit floats.
    F32,
    /// IEEE half floats.
    F16,
    /// The upper half of 32-bit floats.
    BF16,
    /// 32 values in 34 bytes: an f16 scale and 32 signed bytes; 8.5 bits per value.
    Q8_0,
    /// 32 values in 20 bytes: an f16 scale, an f16 minimum and 32 nibbles; 5 bits per value.
    Q4_1,
}

impl WeightFormat {
    /// Every format the engine computes with.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::BF16, Self::Q8_0, Self::Q4_1];

    /// Name as GGUF tools print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_1 => "Q4_1",
        }
    }

    /// Values that are stored together.
    pub fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_1 => 32,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 34,
            Self::Q4_1 => 20,
        }
    }
}

/// Memory that weights live in, shared by all matrices that point into it.
#[derive(Clone)]
pub(crate) enum Storage {
    /// A model file, mapped read-only.
    Mapped(Arc<Mmap>),
    /// Bytes of our own.
    Bytes(Arc<Vec<u8>>),
    /// Floats of our own, which are aligned for direct use.
    Floats(Arc<Vec<f32>>),
}

impl Storage {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Bytes(bytes) => bytes,
            Self::Floats(floats) => {
                // SAFETY: the slice covers exactly the vector's initialised floats, and any byte is a valid u8.
                unsafe { std::slice::from_raw_parts(floats.as_ptr().cast::<u8>(), std::mem::size_of_val(&floats[..])) }
            }
        }
    }
}

/// A weight matrix `[rows, cols]`, row-major: `rows` output features, `cols` input features; `y[o] = sum_i W[o,i] x[i]`.
///
/// Cloning shares the memory.
#[derive(Clone)]
pub struct Matrix {
    /// Output features.
    pub rows: usize,
    /// Input features, a multiple of the format's block.
    pub cols: usize,
    /// How values are stored.
    pub format: WeightFormat,
    storage: Storage,
    offset: usize,
}

impl Matrix {
    /// A view of `rows * cols` values at `offset` bytes into `storage`; `None` unless blocks divide `cols` and the bytes are there.
    pub(crate) fn view(
        rows: usize,
        cols: usize,
        format: WeightFormat,
        storage: Storage,
        offset: usize,
    ) -> Option<Self> {
        if !cols.is_multiple_of(format.block()) {
            return None;
        }
        let bytes = (cols / format.block()).checked_mul(format.block_bytes())?.checked_mul(rows)?;
        let end = offset.checked_add(bytes)?;
        (end <= storage.as_bytes().len()).then_some(Self { rows, cols, format, storage, offset })
    }

    /// A matrix of floats; `None` unless there are `rows * cols` of them.
    pub fn from_f32(rows: usize, cols: usize, values: Vec<f32>) -> Option<Self> {
        if rows.checked_mul(cols)? != values.len() {
            return None;
        }
        Self::view(rows, cols, WeightFormat::F32, Storage::Floats(Arc::new(values)), 0)
    }

    /// A matrix of encoded bytes; `None` unless blocks divide `cols` and exactly the bytes of `rows * cols` values are given.
    pub fn from_bytes(rows: usize, cols: usize, format: WeightFormat, bytes: Vec<u8>) -> Option<Self> {
        let given = bytes.len();
        Self::view(rows, cols, format, Storage::Bytes(Arc::new(bytes)), 0).filter(|matrix| matrix.bytes() == given)
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.cols / self.format.block() * self.format.block_bytes()
    }

    /// Bytes of the whole matrix: what one pass over it reads.
    pub fn bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Encoded bytes of some rows. Panics when `rows` reaches past the matrix.
    pub fn encoded_rows(&self, rows: Range<usize>) -> &[u8] {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of a matrix of {}", self.rows);
        let row = self.row_bytes();
        &self.storage.as_bytes()[self.offset + rows.start * row..self.offset + rows.end * row]
    }

    /// All values in place, without a copy: `Some` for F32 in aligned memory on a little-endian machine.
    pub fn as_f32(&self) -> Option<&[f32]> {
        if self.format != WeightFormat::F32 || cfg!(target_endian = "big") {
            return None;
        }
        // SAFETY: every bit pattern is a valid f32; `align_to` puts unaligned bytes into the edges, which must then be empty.
        let (head, floats, tail) = unsafe { self.encoded_rows(0..self.rows).align_to::<f32>() };
        (head.is_empty() && tail.is_empty()).then_some(floats)
    }

    /// Values of some rows as f32, row-major, into `out`, whose length is `rows.len() * cols`.
    ///
    /// Panics when `rows` reaches past the matrix or `out` has another length.
    pub fn dequantise_rows(&self, rows: Range<usize>, out: &mut [f32]) {
        assert_eq!(out.len(), rows.len() * self.cols, "out holds exactly the rows asked for");
        dequantise::dequantise(self.format, self.encoded_rows(rows), out);
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix[{} x {}, {}]", self.rows, self.cols, self.format.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_range_reads_the_same_values_as_the_whole() {
        let matrix = Matrix::from_f32(3, 2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("six values");
        let mut out = [0.0; 4];
        matrix.dequantise_rows(1..3, &mut out);
        assert_eq!(out, [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(matrix.as_f32(), Some([1.0, 2.0, 3.0, 4.0, 5.0, 6.0].as_slice()));
        assert_eq!(matrix.bytes(), 24);
    }

    #[test]
    fn a_matrix_whose_bytes_do_not_fit_is_none() {
        assert!(Matrix::from_bytes(2, 32, WeightFormat::Q8_0, vec![0; 67]).is_none());
        assert!(Matrix::from_bytes(2, 32, WeightFormat::Q8_0, vec![0; 69]).is_none());
        assert!(Matrix::from_bytes(2, 31, WeightFormat::Q8_0, vec![0; 68]).is_none());
        assert!(Matrix::from_bytes(usize::MAX, 32, WeightFormat::Q8_0, vec![0; 68]).is_none());
        assert!(Matrix::from_f32(usize::MAX, 2, vec![0.0; 2]).is_none());
        assert!(Matrix::from_bytes(2, 32, WeightFormat::Q8_0, vec![0; 68]).is_some());
    }

    #[test]
    fn unaligned_floats_are_copied_and_never_reinterpreted() {
        let mut bytes = vec![9u8];
        bytes.extend(1.5f32.to_le_bytes());
        bytes.extend((-2.0f32).to_le_bytes());
        // Of two views one byte apart, at most one can be aligned; both must read what stands there.
        let storage = Storage::Bytes(Arc::new(bytes));
        let odd = Matrix::view(1, 2, WeightFormat::F32, storage.clone(), 1).expect("fits");
        let mut out = [0.0; 2];
        odd.dequantise_rows(0..1, &mut out);
        assert_eq!(out, [1.5, -2.0]);
        let even = Matrix::view(1, 2, WeightFormat::F32, storage, 0).expect("fits");
        assert!(odd.as_f32().is_none() || even.as_f32().is_none());
    }
}
