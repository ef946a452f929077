//! Which model: a pin, a file, or random weights.
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A pin under `models/`, a file path, or `{synthetic: {shape: tiny-llama, seed: 1}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// Name of a pin, or path of a weight file.
    Named(String),
    /// Seeded random weights: for speed only, and labelled so.
    Synthetic(Synthetic),
}

/// Random weights of a true shape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// Name of the shape, as `tiny-llama`.
    pub shape: String,
    /// Seed of the weights.
    pub seed: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OneKey {
    Synthetic(Synthetic),
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Synthetic(synthetic) => write!(f, "synthetic {} (seed {})", synthetic.shape, synthetic.seed),
        }
    }
}

impl Serialize for ModelRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Named(name) => serializer.serialize_str(name),
            Self::Synthetic(synthetic) => OneKey::Synthetic(synthetic.clone()).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ModelRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrMap;
        impl<'de> Visitor<'de> for NameOrMap {
            type Value = ModelRef;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a pin, a file path, or {synthetic: {shape, seed}}; a name of digits wants quotes",
                )
            }
            fn visit_str<E: Error>(self, name: &str) -> Result<ModelRef, E> {
                if name.is_empty() {
                    Err(E::custom("a model has a name"))
                } else {
                    Ok(ModelRef::Named(name.to_owned()))
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelRef, A::Error> {
                let OneKey::Synthetic(synthetic) = OneKey::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ModelRef::Synthetic(synthetic))
            }
        }
        deserializer.deserialize_any(NameOrMap)
    }
}
