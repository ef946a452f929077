//! GGUF, versions 2 and 3: a bounded reader over bytes that nobody vouches for.
//!
//! Layout, little endian: `GGUF`, version u32, tensors u64, metadata entries u64; then the metadata (key, type u32,
//! value), the tensor table (name, number of dimensions u32, dimensions u64.., type u32, offset u64), padding to
//! `general.alignment` (32), and the data.
//!
//! Everything is checked once, when the header is read: each length against the bytes left, each product for
//! overflow, names for duplicates, data against the end of the file. Nothing is allocated by a number in the file
//! before that many entries can be there. The index keeps 8 bytes per entry and 24 per tensor while it is made, less
//! than twice what the shortest entry takes in the file.
mod cursor;
mod error;
mod tensor;
mod value;

pub use error::GgufError;
pub use tensor::{Tensor, TensorType};
pub use value::{Array, Value, ValueType};

use super::error::shown;
use cursor::Cursor;

const MAGIC: &[u8; 4] = b"GGUF";
const LFS_POINTER: &[u8] = b"version https://git-lfs";
const DEFAULT_ALIGNMENT: u64 = 32;
const MOST_ALIGNMENT: u64 = 1 << 20;
/// Entries and tensors that are read: the largest public models have about 2,000 tensors and 100 entries.
const MOST_ENTRIES: u64 = 1 << 16;
/// Longest key and tensor name that is read; ggml's own bound for tensor names is 63 bytes.
const MOST_NAME: usize = 1024;
/// Fewest bytes of a metadata entry: key length, type and one byte.
const LEAST_ENTRY: u64 = 8 + 4 + 1;

/// A checked header. It borrows the file's bytes; keys, strings and tensors are read from them when asked for.
pub struct Header<'a> {
    bytes: &'a [u8],
    version: u32,
    /// Where each metadata entry begins, sorted by key.
    keys: Vec<u64>,
    /// Where each tensor entry begins, sorted by name.
    tensors: Vec<u64>,
    metadata_begin: u64,
    table_begin: u64,
    data_begin: u64,
}

impl<'a> Header<'a> {
    /// Reads and checks everything in front of the data, and that the data is there.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of the file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(bytes, 0);
        let version = read_version(bytes, &mut cursor)?;
        let tensors_at = cursor.at();
        let tensor_count = cursor.u64(format_args!("the number of tensors"))?;
        let entries_at = cursor.at();
        let entry_count = cursor.u64(format_args!("the number of metadata entries"))?;
        bound("metadata entries", entries_at, entry_count, cursor.left() / LEAST_ENTRY)?;
        bound("tensors", tensors_at, tensor_count, cursor.left() / tensor::LEAST_BYTES)?;

        let metadata_begin = cursor.at();
        let mut keys = Vec::with_capacity(entry_count as usize);
        for _ in 0..entry_count {
            keys.push(cursor.at());
            read_entry(&mut cursor)?;
        }
        keys.sort_unstable_by_key(|&at| (name_at(bytes, at), at));
        if let Some(twice) = keys.windows(2).find(|pair| name_at(bytes, pair[0]) == name_at(bytes, pair[1])) {
            return Err(GgufError::DuplicateKey { key: shown(name_at(bytes, twice[1])), at: twice[1] });
        }
        let mut header =
            Self { bytes, version, keys, tensors: Vec::new(), metadata_begin, table_begin: cursor.at(), data_begin: 0 };
        let alignment = header.alignment()?;

        let mut tensors = Vec::with_capacity(tensor_count as usize);
        for _ in 0..tensor_count {
            tensors.push(cursor.at());
            let tensor = Tensor::read(&mut cursor)?;
            if !tensor.offset.is_multiple_of(alignment) {
                let (tensor, offset, at) = (shown(tensor.name.as_bytes()), tensor.offset, tensor.at);
                return Err(GgufError::Misaligned { tensor, offset, alignment, at });
            }
        }
        header.data_begin = cursor.at().next_multiple_of(alignment);
        header.check_data(&tensors)?;
        tensors.sort_unstable_by_key(|&at| (name_at(bytes, at), at));
        if let Some(twice) = tensors.windows(2).find(|pair| name_at(bytes, pair[0]) == name_at(bytes, pair[1])) {
            return Err(GgufError::DuplicateTensor { tensor: shown(name_at(bytes, twice[1])), at: twice[1] });
        }
        header.tensors = tensors;
        Ok(header)
    }

    fn alignment(&self) -> Result<u64, GgufError> {
        match self.value("general.alignment") {
            None => Ok(DEFAULT_ALIGNMENT),
            Some(value) => value
                .as_unsigned()
                .filter(|alignment| alignment.is_power_of_two() && *alignment <= MOST_ALIGNMENT)
                .ok_or_else(|| GgufError::Alignment { found: value.to_string(), most: MOST_ALIGNMENT }),
        }
    }

    /// Each tensor's data lies inside the file, and no two share bytes. `table` is in the order of the file.
    fn check_data(&self, table: &[u64]) -> Result<(), GgufError> {
        let mut extents = Vec::with_capacity(table.len());
        for &at in table {
            let tensor = Tensor::read(&mut Cursor::new(self.bytes, at))?;
            // The offset plus the bytes fits i64, and the data begins inside the file or less than 1 MiB after it.
            let end = self.data_begin + tensor.offset + tensor.bytes;
            if end > self.file_bytes() {
                return Err(GgufError::DataCut { tensor: shown(tensor.name.as_bytes()), end, file: self.file_bytes() });
            }
            extents.push((tensor.offset, at));
        }
        extents.sort_unstable();
        for pair in extents.windows(2) {
            let first = Tensor::read(&mut Cursor::new(self.bytes, pair[0].1))?;
            if first.offset + first.bytes > pair[1].0 {
                let second = Tensor::read(&mut Cursor::new(self.bytes, pair[1].1))?;
                return Err(GgufError::Overlap {
                    first: shown(first.name.as_bytes()),
                    second: shown(second.name.as_bytes()),
                    begin: self.data_begin + second.offset,
                    end: self.data_begin + first.offset + first.bytes,
                });
            }
        }
        Ok(())
    }

    /// GGUF version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Length of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Value of a metadata key.
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        let found = self.keys.binary_search_by_key(&key.as_bytes(), |&at| name_at(self.bytes, at)).ok()?;
        read_entry(&mut Cursor::new(self.bytes, self.keys[found])).ok().map(|(_, value)| value)
    }

    /// Every metadata entry, in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let mut cursor = Cursor::new(self.bytes, self.metadata_begin);
        (0..self.keys.len()).map_while(move |_| read_entry(&mut cursor).ok())
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'a>> {
        let found = self.tensors.binary_search_by_key(&name.as_bytes(), |&at| name_at(self.bytes, at)).ok()?;
        Tensor::read(&mut Cursor::new(self.bytes, self.tensors[found])).ok()
    }

    /// Every tensor, in the order of the file.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'a>> + use<'a> {
        let mut cursor = Cursor::new(self.bytes, self.table_begin);
        (0..self.tensors.len()).map_while(move |_| Tensor::read(&mut cursor).ok())
    }

    /// Where the tensor's data begins in the file.
    pub fn data_offset(&self, tensor: &Tensor<'_>) -> u64 {
        self.data_begin + tensor.offset
    }
}

fn read_version(bytes: &[u8], cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    if bytes.starts_with(LFS_POINTER) {
        return Err(GgufError::LfsPointer);
    }
    if bytes.starts_with(b"FUGG") {
        return Err(GgufError::BigEndian);
    }
    if bytes.len() < MAGIC.len() || !bytes.starts_with(MAGIC) {
        let guess = match bytes {
            [] => " (it is empty)",
            [b'P', b'K', 3, 4, ..] => " (a ZIP archive, perhaps a wheel or a PyTorch checkpoint)",
            [b'<', ..] => " (a web page, perhaps an error or a login)",
            [0x1f, 0x8b, ..] => " (a gzip archive)",
            [b'g', b'g', b'j' | b'm' | b'l', ..] | [b'l' | b't' | b'f', b'j' | b'm', b'g', b'g', ..] => {
                " (a file from before GGUF)"
            }
            [_, _, _, _, _, 0, 0, 0, b'{', ..] => " (a safetensors file)",
            _ => "",
        };
        return Err(GgufError::NotGguf { found: shown(&bytes[..bytes.len().min(4)]), guess });
    }
    cursor.take(4, format_args!("the magic"))?;
    let version = cursor.u32(format_args!("the version"))?;
    match version {
        2 | 3 => Ok(version),
        // Version 3 read in the other byte order is 0x0300_0000.
        swapped if swapped != 0 && swapped & 0xFFFF == 0 => Err(GgufError::BigEndian),
        version => Err(GgufError::Version { version }),
    }
}

fn bound(what: &str, at: u64, count: u64, possible: u64) -> Result<(), GgufError> {
    let most = possible.min(MOST_ENTRIES);
    if count <= most { Ok(()) } else { Err(GgufError::Count { what: what.to_owned(), at, count, most }) }
}

/// A key or a tensor name.
fn read_name<'a>(cursor: &mut Cursor<'a>, what: &'static str) -> Result<&'a str, GgufError> {
    let at = cursor.at();
    let name = cursor.string(format_args!("a {what}"))?;
    if name.len() > MOST_NAME {
        return Err(GgufError::LongName { what, name: shown(name), bytes: name.len(), most: MOST_NAME, at });
    }
    std::str::from_utf8(name).map_err(|_| GgufError::NotText { what, name: shown(name), at })
}

fn read_entry<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a str, Value<'a>), GgufError> {
    let key = read_name(cursor, "metadata key")?;
    Ok((key, Value::read(cursor, key)?))
}

/// Key of the entry, or name of the tensor, at a position that was read before.
fn name_at(bytes: &[u8], at: u64) -> &[u8] {
    Cursor::new(bytes, at).string(format_args!("a name")).unwrap_or_default()
}
