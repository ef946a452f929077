//! Tensor types and entries of the tensor table.
use super::cursor::Cursor;
use super::error::GgufError;
use super::read_name;
use crate::engine::weights::matrix::WeightFormat;
use crate::engine::weights::{Shown, shown};

/// Dimensions a tensor may have (`GGML_MAX_DIMS`).
const MOST_DIMENSIONS: usize = 4;
/// Fewest bytes of an entry: name length, number of dimensions, type and offset.
pub(super) const LEAST_BYTES: u64 = 8 + 4 + 4 + 8;

/// One of ggml's storage types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorType {
    id: u32,
    name: &'static str,
    block: u64,
    block_bytes: u64,
}

const fn kind(id: u32, name: &'static str, block: u64, block_bytes: u64) -> TensorType {
    TensorType { id, name, block, block_bytes }
}

/// `enum ggml_type` and the block sizes of `ggml-common.h`; numbers left out were removed from ggml.
const TYPES: [TensorType; 35] = [
    TensorType::F32,
    kind(1, "F16", 1, 2),
    kind(2, "Q4_0", 32, 18),
    kind(3, "Q4_1", 32, 20),
    kind(6, "Q5_0", 32, 22),
    kind(7, "Q5_1", 32, 24),
    kind(8, "Q8_0", 32, 34),
    kind(9, "Q8_1", 32, 36),
    kind(10, "Q2_K", 256, 84),
    kind(11, "Q3_K", 256, 110),
    kind(12, "Q4_K", 256, 144),
    kind(13, "Q5_K", 256, 176),
    kind(14, "Q6_K", 256, 210),
    kind(15, "Q8_K", 256, 292),
    kind(16, "IQ2_XXS", 256, 66),
    kind(17, "IQ2_XS", 256, 74),
    kind(18, "IQ3_XXS", 256, 98),
    kind(19, "IQ1_S", 256, 50),
    kind(20, "IQ4_NL", 32, 18),
    kind(21, "IQ3_S", 256, 110),
    kind(22, "IQ2_S", 256, 82),
    kind(23, "IQ4_XS", 256, 136),
    kind(24, "I8", 1, 1),
    kind(25, "I16", 1, 2),
    kind(26, "I32", 1, 4),
    kind(27, "I64", 1, 8),
    kind(28, "F64", 1, 8),
    kind(29, "IQ1_M", 256, 56),
    kind(30, "BF16", 1, 2),
    kind(34, "TQ1_0", 256, 54),
    kind(35, "TQ2_0", 256, 66),
    kind(39, "MXFP4", 32, 17),
    kind(40, "NVFP4", 64, 36),
    kind(41, "Q1_0", 128, 18),
    kind(42, "Q2_0", 64, 18),
];

impl TensorType {
    /// 32-bit floats.
    pub const F32: Self = kind(0, "F32", 1, 4);

    fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().find(|kind| kind.id == id).copied()
    }

    /// Name as GGUF tools print it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The format the engine computes with, where there is one.
    pub fn weight_format(&self) -> Option<WeightFormat> {
        WeightFormat::ALL.into_iter().find(|format| format.name() == self.name)
    }
}

/// One entry of the tensor table, checked.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it is stored.
    pub kind: TensorType,
    /// Values in it, at least 1.
    pub values: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// Where its data begins, counted from the data region.
    pub offset: u64,
    dims: [u64; MOST_DIMENSIONS],
    n_dims: usize,
    /// Where the entry stands in the file.
    pub(super) at: u64,
}

impl<'a> Tensor<'a> {
    /// Sizes, the fastest-running first: `[columns, rows, ..]`; empty for a scalar.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }

    /// Reads and checks one entry.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, GgufError> {
        let at = cursor.at();
        let name = read_name(cursor, "tensor name")?;
        let shown_name = || shown(name.as_bytes());
        let lazy = Shown(name.as_bytes());
        let dims_at = cursor.at();
        let found = cursor.u32(format_args!("the number of dimensions of tensor `{lazy}`"))?;
        let n_dims = usize::try_from(found)
            .ok()
            .filter(|&n| n <= MOST_DIMENSIONS)
            .ok_or_else(|| GgufError::Dimensions { tensor: shown_name(), found, most: MOST_DIMENSIONS, at: dims_at })?;
        let mut dims = [1; MOST_DIMENSIONS];
        for dim in &mut dims[..n_dims] {
            *dim = cursor.u64(format_args!("the dimensions of tensor `{lazy}`"))?;
        }
        let sizes = || format!("{:?}", &dims[..n_dims]);
        if dims.contains(&0) {
            return Err(GgufError::ZeroDimension { tensor: shown_name(), dims: sizes(), at: dims_at });
        }
        let type_at = cursor.at();
        let id = cursor.u32(format_args!("the type of tensor `{lazy}`"))?;
        let kind =
            TensorType::from_id(id).ok_or_else(|| GgufError::TensorType { tensor: shown_name(), id, at: type_at })?;
        let offset = cursor.u64(format_args!("the offset of tensor `{lazy}`"))?;
        let columns = dims[0];
        if !columns.is_multiple_of(kind.block) {
            let (kind, block) = (kind.name, kind.block);
            return Err(GgufError::PartialBlock { tensor: shown_name(), columns, kind, block, at: dims_at });
        }
        let overflow = || GgufError::Overflow { tensor: shown_name(), dims: sizes(), at: dims_at };
        let values = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim)).ok_or_else(overflow)?;
        let bytes = (values / kind.block)
            .checked_mul(kind.block_bytes)
            .filter(|&bytes| offset.checked_add(bytes).is_some_and(|end| i64::try_from(end).is_ok()))
            .ok_or_else(overflow)?;
        Ok(Self { name, kind, values, bytes, offset, dims, n_dims, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_formats_have_the_block_sizes_of_the_table() {
        for format in WeightFormat::ALL {
            let kind = TYPES.iter().find(|kind| kind.weight_format() == Some(format)).expect("in the table");
            assert_eq!((kind.block, kind.block_bytes), (format.block() as u64, format.block_bytes() as u64));
        }
    }
}
