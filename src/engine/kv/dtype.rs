//! KV dtypes by their word in `contracts/words.json`.
/// What a key or value is stored as. Every word of the contract is known; this version computes with f32 and bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvDtype {
    /// 4 bytes a value.
    F32,
    /// IEEE halves.
    F16,
    /// The upper half of an f32, rounded to nearest even.
    Bf16,
    /// NInfer fp8: E4M3 with one f16 scale a 256-row.
    Fp8,
    /// NInfer int8: group 64, f16 scale.
    Int8,
    /// 8-bit keys, 4-bit values.
    K8v4,
    /// Rotated 8-bit keys, 4-bit values.
    Rk8v4,
    /// Rotated 4-bit keys, 4-bit values.
    Rk4v4,
    /// E8 as shipped by the forks: half-integer coset discarded.
    Rk4v4E8,
    /// Exact E8.
    Rk4v4E8x,
    /// Rotated 2-bit keys, 4-bit values, E8.
    Rk2v4E8,
    /// E2M1 with UE4M3 scales.
    Nvfp4,
    /// llama.cpp block of 8-bit codes.
    Q8_0,
    /// llama.cpp block of 4-bit codes.
    Q4_0,
}

impl KvDtype {
    /// Every word, in the order of the contract.
    pub const ALL: [Self; 14] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Fp8,
        Self::Int8,
        Self::K8v4,
        Self::Rk8v4,
        Self::Rk4v4,
        Self::Rk4v4E8,
        Self::Rk4v4E8x,
        Self::Rk2v4E8,
        Self::Nvfp4,
        Self::Q8_0,
        Self::Q4_0,
    ];

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::K8v4 => "k8v4",
            Self::Rk8v4 => "rk8v4",
            Self::Rk4v4 => "rk4v4",
            Self::Rk4v4E8 => "rk4v4-e8",
            Self::Rk4v4E8x => "rk4v4-e8x",
            Self::Rk2v4E8 => "rk2v4-e8",
            Self::Nvfp4 => "nvfp4",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Whether the CPU engine of this version stores it.
    pub fn is_supported(self) -> bool {
        matches!(self, Self::F32 | Self::Bf16)
    }

    /// Bytes of one value of a supported dtype.
    ///
    /// Panics for the others: the capacity planner refuses them before anything is sized.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            other => panic!("the capacity planner refuses `{}`", other.word()),
        }
    }
}

impl std::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

impl std::str::FromStr for KvDtype {
    /// A sentence: words come checked from the experiment file, so nobody but a programmer sees it.
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|dtype| dtype.word() == word).ok_or_else(|| {
            format!("`{}` is no KV dtype; words: {}", word.escape_debug(), Self::ALL.map(Self::word).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back_and_others_are_refused() {
        for dtype in KvDtype::ALL {
            assert_eq!(dtype.word().parse(), Ok(dtype));
        }
        assert!("fp16".parse::<KvDtype>().is_err());
        assert_eq!(
            KvDtype::ALL.into_iter().filter(|d| d.is_supported()).map(KvDtype::word).collect::<Vec<_>>(),
            ["f32", "bf16"]
        );
    }
}
