//! Where a path stands, asked of the parser itself.
//!
//! serde_yaml gives no positions, except that an error is marked with the event under which it was raised. So a probe walks down
//! the path and raises one there. A parse costs a millisecond and only errors need places.
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::place::{Part, Step};

/// Byte offset of the key or value at the end of `steps`, or of the deepest ancestor that exists.
pub(super) fn locate(text: &str, steps: &[Step], part: Part) -> usize {
    let Some(document) = serde_yaml::Deserializer::from_str(text).next() else { return 0 };
    let probe = Probe { steps, part: if steps.is_empty() { Part::Value } else { part } };
    probe.deserialize(document).err().and_then(|error| error.location()).map_or(0, |location| location.index())
}

/// Byte offset of the first content of the second document.
pub(super) fn second_document(text: &str) -> Option<usize> {
    let document = serde_yaml::Deserializer::from_str(text).nth(1)?;
    let probe = Probe { steps: &[], part: Part::Value };
    Some(probe.deserialize(document).err().and_then(|error| error.location()).map_or(0, |location| location.index()))
}

#[derive(Clone, Copy)]
struct Probe<'p> {
    steps: &'p [Step],
    part: Part,
}

impl<'de> DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Every visit ends in an error: that is how the place comes back.
fn here<T, E: Error>() -> Result<T, E> {
    Err(E::custom("here"))
}

impl<'de> Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a place")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        here()
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        here()
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        here()
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        here()
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        here()
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        here()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some((Step::Index(index), steps)) = self.steps.split_first() else { return here() };
        for _ in 0..*index {
            if list.next_element::<IgnoredAny>()?.is_none() {
                return here();
            }
        }
        list.next_element_seed(Probe { steps, part: if steps.is_empty() { Part::Value } else { self.part } })?;
        here()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((step, steps)) = self.steps.split_first() else { return here() };
        // A key of digits alone is read as an index from a dotted path.
        let want = match step {
            Step::Key(key) => key.clone(),
            Step::Index(index) => index.to_string(),
        };
        let stop = steps.is_empty() && self.part == Part::Key;
        let found = Cell::new(false);
        while map.next_key_seed(KeyProbe { want: &want, stop, found: &found })?.is_some() {
            if found.get() {
                map.next_value_seed(Probe { steps, part: self.part })?;
                return here();
            }
            map.next_value::<IgnoredAny>()?;
        }
        here()
    }
}

struct KeyProbe<'p> {
    want: &'p str,
    stop: bool,
    found: &'p Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for KeyProbe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeyProbe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<(), E> {
        self.found.set(key == self.want);
        if self.stop && self.found.get() { here() } else { Ok(()) }
    }
}
