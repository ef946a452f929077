//! A swept field: one value or a list of them.
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Most values of one axis.
const MAX_POINTS: usize = 1000;

/// One value, or a list that is swept. A list is never empty and holds no value twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)] // writing only: reading goes through the visitor below, which keeps places
pub enum Axis<T> {
    /// The same at every point.
    One(T),
    /// One point each.
    Many(Vec<T>),
}

impl<T> Axis<T> {
    /// The values.
    pub fn values(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }

    /// Whether it holds more than one value.
    pub fn varies(&self) -> bool {
        self.values().len() > 1
    }

    /// Whether it was written as a list, also as one of a single value.
    pub fn is_list(&self) -> bool {
        matches!(self, Self::Many(_))
    }
}

impl<T: Copy> Axis<T> {
    /// The first value, which is the only one in a resolved cell.
    pub fn first(&self) -> T {
        *self.values().first().expect("an axis is never empty")
    }
}

impl<'de, T: Deserialize<'de> + PartialEq> Deserialize<'de> for Axis<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueOrList(PhantomData))
    }
}

/// Serde's own `untagged` would lose line and column.
struct ValueOrList<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + PartialEq> Visitor<'de> for ValueOrList<T> {
    type Value = Axis<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Axis<T>, E> {
        T::deserialize(value.into_deserializer()).map(Axis::One)
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Axis<T>, E> {
        T::deserialize(value.into_deserializer()).map(Axis::One)
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Axis<T>, E> {
        T::deserialize(value.into_deserializer()).map(Axis::One)
    }
    fn visit_f64<E: Error>(self, value: f64) -> Result<Axis<T>, E> {
        T::deserialize(value.into_deserializer()).map(Axis::One)
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Axis<T>, E> {
        T::deserialize(value.into_deserializer()).map(Axis::One)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Axis<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Axis::One)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Axis<T>, A::Error> {
        let values = Vec::<T>::deserialize(SeqAccessDeserializer::new(list))?;
        if values.is_empty() {
            return Err(A::Error::custom("an empty list leaves nothing to run"));
        }
        if values.len() > MAX_POINTS {
            return Err(A::Error::custom(format!("a list of {} values; at most {MAX_POINTS}", values.len())));
        }
        if let Some(second) = (1..values.len()).find(|&n| values[..n].contains(&values[n])) {
            return Err(A::Error::custom(format!("value number {} of the list stands in it already", second + 1)));
        }
        Ok(Axis::Many(values))
    }
}
