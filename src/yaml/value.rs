//! Kinds of values that YAML has no type for. Each checks inside its visitor, which is where serde_yaml knows the place.
use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A number that is neither infinite nor NaN: serde_yaml lets `.inf` and `.nan` into an f64.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Finite(pub f64);

impl<'de> Deserialize<'de> for Finite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Finite;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E: Error>(self, value: f64) -> Result<Finite, E> {
                if value.is_finite() {
                    Ok(Finite(value))
                } else {
                    Err(E::custom(format!("must be a finite number, found {value}")))
                }
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<Finite, E> {
                Ok(Finite(value as f64))
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<Finite, E> {
                Ok(Finite(value as f64))
            }
        }
        deserializer.deserialize_f64(Number)
    }
}

/// A length of time written with its unit: `10s`, `500ms`, `4h`, `1h 30m`. Longer than nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// So many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = HumanDuration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, as 10s or 4h")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<HumanDuration, E> {
                match humantime::parse_duration(text) {
                    Ok(duration) if !duration.is_zero() => Ok(HumanDuration(duration)),
                    Ok(_) => Err(E::custom("a duration must be longer than 0s")),
                    Err(cause) => Err(E::custom(format!("not a duration with its unit, as 10s or 4h: {cause}"))),
                }
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// `auto`, or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoOr<T> {
    /// The program decides and says what it decided.
    Auto,
    /// As asked.
    Value(T),
}

impl<T: Copy> AutoOr<T> {
    /// The value that was asked for, if one was.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Value(value) => Some(value),
        }
    }
}

impl<T: Serialize> Serialize for AutoOr<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Value(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AutoOr<u32> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Count;
        impl Visitor<'_> for Count {
            type Value = AutoOr<u32>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto` or a count of at least 1")
            }
            fn visit_u64<E: Error>(self, count: u64) -> Result<AutoOr<u32>, E> {
                match u32::try_from(count) {
                    Ok(count) if count > 0 => Ok(AutoOr::Value(count)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Unsigned(count), &self)),
                }
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<AutoOr<u32>, E> {
                if text == "auto" {
                    Ok(AutoOr::Auto)
                } else {
                    Err(E::invalid_type(serde::de::Unexpected::Str(text), &self))
                }
            }
        }
        deserializer.deserialize_any(Count)
    }
}
