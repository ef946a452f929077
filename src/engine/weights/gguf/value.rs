//! Metadata values, borrowed from the file.
use std::fmt;

use super::cursor::Cursor;
use super::error::GgufError;
use crate::engine::weights::{Shown, shown};

/// Arrays in arrays that are followed; converters write none.
const MOST_NESTING: usize = 4;
/// Strings an array may hold: 16 times the largest vocabulary with its merges.
const MOST_STRINGS: u64 = 1 << 23;

/// Type of a value, with the number GGUF gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// 0
    U8,
    /// 1
    I8,
    /// 2
    U16,
    /// 3
    I16,
    /// 4
    U32,
    /// 5
    I32,
    /// 6
    F32,
    /// 7
    Bool,
    /// 8
    String,
    /// 9
    Array,
    /// 10
    U64,
    /// 11
    I64,
    /// 12
    F64,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Bytes of one value; `None` for strings and arrays, whose length stands in the file.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// Fewest bytes an element can have: a string its length, an array its type and count.
    fn least_bytes(self) -> u64 {
        match self {
            Self::String => 8,
            Self::Array => 12,
            _ => self.bytes().unwrap_or(1),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

/// A metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// u8, u16, u32 or u64.
    Unsigned(u64),
    /// i8, i16, i32 or i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// 0 or 1.
    Bool(bool),
    /// Bytes that should be UTF-8.
    String(&'a [u8]),
    /// Elements of one type.
    Array(Array<'a>),
}

/// An array whose elements were checked when the header was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    /// Type of the elements.
    pub element: ValueType,
    /// How many there are.
    pub count: u64,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// A whole number, of any width and sign.
    pub fn as_unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// A number.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Self::Float(value) => Some(value),
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A string that is UTF-8.
    pub fn as_text(&self) -> Option<&'a str> {
        match *self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Reads type and value of `key`.
    pub(super) fn read(cursor: &mut Cursor<'a>, key: &str) -> Result<Self, GgufError> {
        let kind = read_type(cursor, key)?;
        match kind {
            ValueType::Array => read_array(cursor, key, 1).map(Self::Array),
            ValueType::String => {
                cursor.string(format_args!("the string `{}`", Shown(key.as_bytes()))).map(Self::String)
            }
            scalar => read_scalar(cursor, scalar, key),
        }
    }
}

fn read_type(cursor: &mut Cursor<'_>, key: &str) -> Result<ValueType, GgufError> {
    let at = cursor.at();
    let id = cursor.u32(format_args!("the type of `{}`", Shown(key.as_bytes())))?;
    ValueType::from_id(id).ok_or_else(|| GgufError::ValueType { key: shown(key.as_bytes()), id, at })
}

fn read_scalar<'a>(cursor: &mut Cursor<'a>, kind: ValueType, key: &str) -> Result<Value<'a>, GgufError> {
    let at = cursor.at();
    let name = Shown(key.as_bytes());
    Ok(match kind {
        ValueType::U8 => Value::Unsigned(cursor.u8(format_args!("`{name}`"))?.into()),
        ValueType::I8 => Value::Signed(i8::from_le_bytes(cursor.array(format_args!("`{name}`"))?).into()),
        ValueType::U16 => Value::Unsigned(u16::from_le_bytes(cursor.array(format_args!("`{name}`"))?).into()),
        ValueType::I16 => Value::Signed(i16::from_le_bytes(cursor.array(format_args!("`{name}`"))?).into()),
        ValueType::U32 => Value::Unsigned(cursor.u32(format_args!("`{name}`"))?.into()),
        ValueType::I32 => Value::Signed(i32::from_le_bytes(cursor.array(format_args!("`{name}`"))?).into()),
        ValueType::F32 => Value::Float(f32::from_le_bytes(cursor.array(format_args!("`{name}`"))?).into()),
        ValueType::U64 => Value::Unsigned(cursor.u64(format_args!("`{name}`"))?),
        ValueType::I64 => Value::Signed(i64::from_le_bytes(cursor.array(format_args!("`{name}`"))?)),
        ValueType::F64 => Value::Float(f64::from_le_bytes(cursor.array(format_args!("`{name}`"))?)),
        ValueType::Bool => match cursor.u8(format_args!("`{name}`"))? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            found => return Err(GgufError::Bool { key: name.to_string(), found, at }),
        },
        ValueType::String | ValueType::Array => unreachable!("the callers read strings and arrays themselves"),
    })
}

fn read_array<'a>(cursor: &mut Cursor<'a>, key: &str, depth: usize) -> Result<Array<'a>, GgufError> {
    if depth > MOST_NESTING {
        return Err(GgufError::Nesting { key: shown(key.as_bytes()), at: cursor.at(), most: MOST_NESTING });
    }
    let element = read_type(cursor, key)?;
    let at = cursor.at();
    let count = cursor.u64(format_args!("the length of `{}`", Shown(key.as_bytes())))?;
    let most = cursor.left() / element.least_bytes();
    let most = if element.bytes().is_none() { most.min(MOST_STRINGS) } else { most };
    if count > most {
        return Err(GgufError::Count { what: format!("elements of `{}`", shown(key.as_bytes())), at, count, most });
    }
    let begin = *cursor;
    match element {
        ValueType::String => {
            for index in 0..count {
                cursor.string(format_args!("string {index} of `{}`", Shown(key.as_bytes())))?;
            }
        }
        ValueType::Array => {
            for _ in 0..count {
                read_array(cursor, key, depth + 1)?;
            }
        }
        // The count is at most the bytes left over the size of one, so the product cannot overflow.
        fixed => drop(cursor.take(count * fixed.least_bytes(), format_args!("`{}`", Shown(key.as_bytes())))?),
    }
    let mut begin = begin;
    let length = cursor.at() - begin.at();
    let bytes = begin.take(length, format_args!("`{}`", Shown(key.as_bytes())))?;
    Ok(Array { element, count, bytes })
}

impl<'a> Array<'a> {
    /// The strings of an array of strings; nothing for other arrays.
    pub fn strings(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut cursor = Cursor::new(self.bytes, 0);
        let count = if self.element == ValueType::String { self.count } else { 0 };
        (0..count).map_while(move |_| cursor.string(format_args!("a string")).ok())
    }

    /// The whole numbers of an array of integers; nothing for other arrays and from the first negative one on.
    pub fn unsigned(&self) -> impl Iterator<Item = u64> + use<'a> {
        let mut cursor = Cursor::new(self.bytes, 0);
        let element = self.element;
        let count = if element.bytes().is_some() { self.count } else { 0 };
        (0..count).map_while(move |_| read_scalar(&mut cursor, element, "").ok()?.as_unsigned())
    }
}

/// For a list: strings escaped and shortened, arrays by their length.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
            Self::String(bytes) => f.write_str(&shown(bytes)),
            Self::Array(array) => write!(f, "[{} × {}]", array.count, array.element.name()),
        }
    }
}
