//! Readers for JSON members that servers fill in many ways: a member of the wrong type must not cost the text beside it.
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

/// A string; null, absent and any other type are `None`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Text<'a>(pub Option<Cow<'a, str>>);

/// A count of tokens: anything but null and an integer of 32 bits is `Bad`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Absent or null.
    #[default]
    Missing,
    /// A count.
    Good(u32),
    /// Negative, fractional, a string, out of range.
    Bad,
}

/// A finite number that is not negative; everything else is `None`.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Number(pub Option<f64>);

/// An object; null and absent are `Missing`, any other type is `Bad`.
#[derive(Debug, Default, Clone, PartialEq)]
pub enum Object<T> {
    /// Absent or null.
    #[default]
    Missing,
    /// An object.
    Good(T),
    /// Something else.
    Bad,
}

/// The first element of an array; everything else is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct First<T> {
    /// Whether there was an array at all.
    pub is_array: bool,
    /// Its first element.
    pub value: Option<T>,
}

/// At most [`MAX_LIST`] elements of an array; everything else is empty.
#[derive(Debug, Clone, PartialEq)]
pub struct List<T>(pub Vec<T>);

/// More tool calls than this in one chunk are not read.
pub const MAX_LIST: usize = 256;

impl Count {
    /// The count, where it is good.
    pub fn good(self) -> Option<u32> {
        match self {
            Self::Good(n) => Some(n),
            Self::Missing | Self::Bad => None,
        }
    }
}

impl<T> Object<T> {
    /// The object, where it is one.
    pub fn good(&self) -> Option<&T> {
        match self {
            Self::Good(value) => Some(value),
            Self::Missing | Self::Bad => None,
        }
    }
}

impl Text<'_> {
    /// The string, unless it is empty.
    pub fn some(&self) -> Option<&str> {
        self.0.as_deref().filter(|s| !s.is_empty())
    }
}

impl<T> Default for First<T> {
    fn default() -> Self {
        Self { is_array: false, value: None }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Reads any JSON value; each type a server may put there is a method, and what is not overridden is `$other`.
macro_rules! any_value {
    ($other:expr; $($skip:ident)*) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON value")
        }
        $(any_value!(@ $skip, $other);)*
    };
    (@ bool, $other:expr) => { fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> { Ok($other) } };
    (@ int, $other:expr) => {
        fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> { Ok($other) }
        fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> { Ok($other) }
    };
    (@ float, $other:expr) => { fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> { Ok($other) } };
    (@ string, $other:expr) => { fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> { Ok($other) } };
    (@ seq, $other:expr) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok($other)
        }
    };
    (@ map, $other:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($other)
        }
    };
    (@ null, $other:expr) => {
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> { Ok($other) }
        fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> { Ok($other) }
    };
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Text<'de>;
            any_value!(Text(None); bool int float seq map null);
            fn visit_borrowed_str<E: de::Error>(self, s: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Borrowed(s))))
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Self::Value, E> {
                Ok(Text(Some(Cow::Owned(s.to_owned()))))
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Count;
            any_value!(Count::Bad; bool float string seq map);
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Count, E> {
                Ok(u32::try_from(n).map_or(Count::Bad, Count::Good))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Count, E> {
                Ok(u32::try_from(n).map_or(Count::Bad, Count::Good))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Count, E> {
                Ok(Count::Missing)
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Number;
            any_value!(Number(None); bool string seq map null);
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Number, E> {
                Ok(Number(Some(n).filter(|n| n.is_finite() && *n >= 0.0)))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Number, E> {
                self.visit_f64(n as f64)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Number, E> {
                self.visit_f64(n as f64)
            }
        }
        deserializer.deserialize_any(V)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = Object<T>;
            any_value!(Object::Bad; bool int float string seq);
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Object::Missing)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object::Good)
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for First<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = First<T>;
            any_value!(First::default(); bool int float string map null);
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let value = seq.next_element()?;
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(First { is_array: true, value })
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for V<T> {
            type Value = List<T>;
            any_value!(List::default(); bool int float string map null);
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while list.len() < MAX_LIST {
                    let Some(value) = seq.next_element()? else { return Ok(List(list)) };
                    list.push(value);
                }
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(List(list))
            }
        }
        deserializer.deserialize_any(V(PhantomData))
    }
}

/// A string as it stands, or any other JSON value as its text; null and absent are `None`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct JsonText<'a>(pub Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = JsonText<'de>;
            any_value!(JsonText(None); null);
            fn visit_borrowed_str<E: de::Error>(self, s: &'de str) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Borrowed(s))))
            }
            fn visit_str<E: de::Error>(self, s: &str) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(s.to_owned()))))
            }
            fn visit_bool<E: de::Error>(self, b: bool) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(b.to_string()))))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(n.to_string()))))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(n.to_string()))))
            }
            fn visit_f64<E: de::Error>(self, n: f64) -> Result<Self::Value, E> {
                Ok(JsonText(Some(Cow::Owned(n.to_string()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let value = serde_json::Value::deserialize(de::value::SeqAccessDeserializer::new(seq))?;
                Ok(JsonText(Some(Cow::Owned(value.to_string()))))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let value = serde_json::Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(JsonText(Some(Cow::Owned(value.to_string()))))
            }
        }
        deserializer.deserialize_any(V)
    }
}

/// What an `error` member says: its message with type and code, or the whole value where it has no message.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ErrorText(pub Option<String>);

impl<'de> Deserialize<'de> for ErrorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(describe(&value)))
    }
}

/// An error value in one line; `None` for null, false and empty ones, which say that there was none.
fn describe(value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()).filter(|t| !t.is_empty()),
        Value::Object(members) if members.is_empty() => None,
        Value::Object(members) => {
            let Some(message) = members.get("message").and_then(Value::as_str) else { return Some(value.to_string()) };
            let marks: Vec<String> = ["type", "code"]
                .iter()
                .filter_map(|name| match members.get(*name)? {
                    Value::String(word) => Some(word.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            Some(if marks.is_empty() { message.to_owned() } else { format!("{message} ({})", marks.join(", ")) })
        }
        other => Some(other.to_string()),
    }
}
