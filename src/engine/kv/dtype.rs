//! KV dtypes by their word in `contracts/words.json`.

/// What a key or value is stored as. Only f32 and bf16 exist in this version; the others are known by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvDtype {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value, rounded to nearest even.
    Bf16,
}

impl KvDtype {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl std::str::FromStr for KvDtype {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::F32, Self::Bf16].into_iter().find(|dtype| dtype.word() == word).ok_or_else(|| {
            format!("the CPU engine of this version stores keys and values as f32 or bf16, not `{word}`")
        })
    }
}
