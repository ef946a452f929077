//! One walk over a document before any type sees it: what serde_yaml lets through, or answers without a place.
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use super::place::{KeyPath, Step};
use super::{MAX_DEPTH, MAX_VALUES, Source, YamlError, inline, locate};

/// What the walk stopped at. The place is that of the error raised there.
enum Found {
    Empty,
    NotAMap,
    NoValue,
    Duplicate(String),
    Merge,
    Tag,
    TooDeep,
    TooMany,
}

struct Walk {
    found: RefCell<Option<Found>>,
    path: RefCell<Vec<Step>>,
    values: Cell<usize>,
}

/// Checks the one document of `source`.
pub(super) fn check(source: &Source) -> Result<(), YamlError> {
    let walk = Walk { found: RefCell::new(None), path: RefCell::default(), values: Cell::new(0) };
    let mut documents = serde_yaml::Deserializer::from_str(source.text());
    let Some(first) = documents.next() else { return Err(YamlError::Empty { at: source.at(0, 0) }) };
    if let Err(error) = Node(&walk).deserialize(first) {
        let at = source.place_of(&error);
        let path = walk.path.borrow().iter().fold(KeyPath::root(), |path, step| path.step(step.clone()));
        return Err(match walk.found.take() {
            None => super::explain::syntax(source, &error),
            Some(Found::Empty) => YamlError::Empty { at: source.at(0, 0) },
            Some(Found::NotAMap) => YamlError::NotAMap { at },
            Some(Found::NoValue) => YamlError::NoValue { path: path.to_string(), at: source.key(&path) },
            Some(Found::Duplicate(key)) => {
                let path = path.key(&key);
                YamlError::DuplicateKey {
                    first: source.key(&path).into(),
                    path: path.to_string(),
                    key: inline(&key),
                    at,
                }
            }
            Some(Found::Merge) => YamlError::MergeKey { at },
            Some(Found::Tag) => YamlError::Tag { at },
            Some(Found::TooDeep) => YamlError::TooDeep { at },
            Some(Found::TooMany) => YamlError::TooMany { at },
        });
    }
    match documents.next() {
        None => Ok(()),
        Some(_) => Err(YamlError::SecondDocument { at: second_document(source) }),
    }
}

/// The `---` that opens the second document; libyaml only says where its content starts.
fn second_document(source: &Source) -> super::Place {
    let content = source.offset(locate::second_document(source.text()).unwrap_or(0));
    let line_end = source.text()[content..].find('\n').map_or(source.text().len(), |end| content + end);
    let before = &source.text()[..line_end];
    let marker =
        before.rmatch_indices("---").map(|(at, _)| at).find(|&at| at == 0 || before.as_bytes()[at - 1] == b'\n');
    // A document may also follow `...` without a marker of its own.
    marker.filter(|&at| at > 0).map_or_else(|| source.at(content, 1), |at| source.at(at, 3))
}

struct Node<'w>(&'w Walk);

impl Node<'_> {
    fn stop<T, E: Error>(&self, found: Found) -> Result<T, E> {
        self.0.found.replace(Some(found));
        Err(E::custom("stopped"))
    }

    fn is_root(&self) -> bool {
        self.0.path.borrow().is_empty()
    }

    fn scalar<E: Error>(&self) -> Result<(), E> {
        if self.is_root() { self.stop(Found::NotAMap) } else { self.count() }
    }

    fn count<E: Error>(&self) -> Result<(), E> {
        self.0.values.set(self.0.values.get() + 1);
        if self.0.values.get() > MAX_VALUES { self.stop(Found::TooMany) } else { Ok(()) }
    }

    fn nothing<E: Error>(&self) -> Result<(), E> {
        self.stop(if self.is_root() { Found::Empty } else { Found::NoValue })
    }

    fn enter<E: Error>(&self, step: Step) -> Result<(), E> {
        self.count()?;
        self.0.path.borrow_mut().push(step);
        if self.0.path.borrow().len() > MAX_DEPTH { self.stop(Found::TooDeep) } else { Ok(()) }
    }

    fn leave(&self) {
        self.0.path.borrow_mut().pop();
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }
    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.scalar()
    }
    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.scalar()
    }
    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.nothing()
    }
    fn visit_none<E: Error>(self) -> Result<(), E> {
        self.nothing()
    }
    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.stop(Found::Tag)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_root() {
            return self.stop(Found::NotAMap);
        }
        for index in 0.. {
            self.enter(Step::Index(index))?;
            if list.next_element_seed(Node(self.0))?.is_none() {
                break;
            }
            self.leave();
        }
        self.leave();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key_seed(Key { node: &self, seen: &seen })? {
            self.enter(Step::Key(key.clone()))?;
            map.next_value_seed(Node(self.0))?;
            self.leave();
            seen.insert(key);
        }
        Ok(())
    }
}

struct Key<'k> {
    node: &'k Node<'k>,
    seen: &'k HashSet<String>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key of text")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<String, E> {
        if key == "<<" {
            return self.node.stop(Found::Merge);
        }
        if self.seen.contains(key) {
            return self.node.stop(Found::Duplicate(key.to_owned()));
        }
        Ok(key.to_owned())
    }
}
