//! The pins themselves: their YAML, and where they are found.
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::is_hex;
use super::error::PinError;
use crate::yaml;

/// The pins that the program carries, so that an installed binary works anywhere.
const EMBEDDED: &[(&str, &str)] = &[("smollm2-135m", include_str!("../../models/smollm2-135m/pin.yaml"))];
/// The public hub, unless HF_ENDPOINT names another.
pub(super) const HUB: &str = "https://huggingface.co";
/// A pin is some hundred bytes; more is no pin.
const PIN_LIMIT: u64 = 64 << 10;

/// One pinned model: `models/<name>/pin.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPin {
    /// Name by which suites call it; the folder's name.
    pub name: String,
    /// Name of the file in the cache.
    pub file: String,
    /// Size in bytes.
    pub bytes: u64,
    /// md5 in lower-case hex.
    pub md5: String,
    /// sha256 in lower-case hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SPDX expression of the weights' licence.
    pub licence: String,
    /// One line for a table.
    pub description: String,
    /// Where the bytes can be had, tried in order.
    pub sources: Vec<Source>,
}

/// A place that has the bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// A file in a repository of the Hugging Face hub or a mirror of it.
    Huggingface {
        /// `owner/name`.
        repo: String,
        /// Branch, tag or commit.
        revision: String,
        /// Path in the repository.
        file: String,
    },
    /// A file in a wheel on PyPI.
    Pypi {
        /// Name of the package.
        package: String,
        /// Its exact version.
        version: String,
        /// Path in the wheel.
        member: String,
    },
    /// A file on this machine, used where it lies; relative to the pin's folder.
    Path(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Huggingface { repo, file, .. } => write!(f, "Hugging Face {repo}/{file}"),
            Self::Pypi { package, version, .. } => write!(f, "PyPI {package} {version}"),
            Self::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Where a pin was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PinOrigin {
    /// This file.
    File(PathBuf),
    /// The program itself.
    Embedded,
}

/// A pin and where it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinnedModel {
    /// The pin.
    pub pin: ModelPin,
    /// Where it was read.
    pub origin: PinOrigin,
}

/// Every pin that can be found: folders in order of precedence, then those the program carries.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    folders: Vec<PathBuf>,
}

impl Catalog {
    /// Pins under these folders, the first having precedence.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// INFERLAB_MODELS, else `models/` in the current folder and beside the executable's ancestors.
    pub fn from_environment() -> Self {
        if let Some(folder) = std::env::var_os("INFERLAB_MODELS").filter(|f| !f.is_empty()) {
            return Self::new(vec![folder.into()]);
        }
        let mut folders = vec![PathBuf::from("models")];
        if let Ok(program) = std::env::current_exe() {
            folders.extend(program.ancestors().skip(1).map(|a| a.join("models")).filter(|f| f.is_dir()));
        }
        Self::new(folders)
    }

    /// The pin of that name, if there is one.
    ///
    /// Errors: a pin file that cannot be read or is not a pin.
    pub fn find(&self, name: &str) -> Result<Option<PinnedModel>, PinError> {
        if !is_name(name) {
            return Ok(None);
        }
        for folder in &self.folders {
            let path = folder.join(name).join("pin.yaml");
            if let Some(text) = read_bounded(&path)? {
                let mut pin = parse(&text, &path.display().to_string())?;
                check_name(&pin, name, &path.display().to_string())?;
                pin.resolve_paths(&folder.join(name));
                return Ok(Some(PinnedModel { pin, origin: PinOrigin::File(path) }));
            }
        }
        match EMBEDDED.iter().find(|(embedded, _)| *embedded == name) {
            Some((_, text)) => {
                Ok(Some(PinnedModel { pin: parse(text, &format!("{name} (built in)"))?, origin: PinOrigin::Embedded }))
            }
            None => Ok(None),
        }
    }

    /// Names of all pins, sorted.
    pub fn names(&self) -> Vec<String> {
        let in_folders = self.folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let mut names: Vec<String> = in_folders
            .filter_map(|entry| entry.ok())
            .filter(|entry| entry.path().join("pin.yaml").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| is_name(name))
            .chain(EMBEDDED.iter().map(|(name, _)| (*name).to_owned()))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// "There is no such model", with the nearest spelling.
    pub(super) fn unknown(&self, name: &str) -> PinError {
        let known = self.names();
        let nearest = known
            .iter()
            .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, candidate)| candidate.clone());
        PinError::Unknown { name: name.to_owned(), known, nearest }
    }
}

impl ModelPin {
    fn resolve_paths(&mut self, folder: &Path) {
        for source in &mut self.sources {
            if let Source::Path(path) = source {
                *path = folder.join(&*path);
            }
        }
    }

    /// Files named by `path` sources, in order.
    pub(super) fn local_paths(&self) -> impl Iterator<Item = &Path> {
        self.sources.iter().filter_map(|source| match source {
            Source::Path(path) => Some(path.as_path()),
            _ => None,
        })
    }
}

/// Reads a pin from YAML and checks every value; `origin` is how errors call the file.
pub fn parse(text: &str, origin: &str) -> Result<ModelPin, PinError> {
    let failed = |cause| PinError::Yaml { pin: origin.to_owned(), cause };
    let pin: ModelPin = yaml::Source::new(origin, text.as_bytes()).and_then(|source| source.parse()).map_err(failed)?;
    check(&pin, origin)?;
    Ok(pin)
}

/// A pin may come from anyone: no value of it may leave the cache folder or become a flag of a command.
fn check(pin: &ModelPin, origin: &str) -> Result<(), PinError> {
    let require = |right: bool, field: &'static str, message: &str| {
        if right {
            Ok(())
        } else {
            Err(PinError::Invalid { pin: origin.to_owned(), field, message: message.to_owned() })
        }
    };
    require(
        is_name(&pin.name),
        "name",
        "must be lower-case letters, digits, `.`, `_` and `-`, starting with a letter or digit",
    )?;
    require(is_file_name(&pin.file), "file", "must be a file name without folders")?;
    require(pin.bytes > 0, "bytes", "must be the size of the file")?;
    require(is_hex(&pin.md5, 32), "md5", "must be 32 lower-case hex digits")?;
    require(pin.sha256.as_ref().is_none_or(|s| is_hex(s, 64)), "sha256", "must be 64 lower-case hex digits")?;
    require(!pin.licence.trim().is_empty(), "licence", "must not be empty")?;
    require(!pin.sources.is_empty(), "sources", "must name at least one place")?;
    for source in &pin.sources {
        match source {
            Source::Huggingface { repo, revision, file } => {
                let parts = repo.split('/').count();
                require(parts == 2 && repo.split('/').all(is_word), "huggingface.repo", "must be `owner/name`")?;
                require(is_relative(revision), "huggingface.revision", "must be a branch, tag or commit")?;
                require(is_relative(file), "huggingface.file", "must be a path in the repository")?;
            }
            Source::Pypi { package, version, member } => {
                require(is_word(package), "pypi.package", "must be the name of a package")?;
                require(is_word(version), "pypi.version", "must be one exact version")?;
                require(is_relative(member), "pypi.member", "must be a path in the wheel")?;
            }
            Source::Path(path) => {
                require(!path.as_os_str().is_empty(), "path", "must not be empty")?;
            }
        }
    }
    Ok(())
}

fn check_name(pin: &ModelPin, folder: &str, origin: &str) -> Result<(), PinError> {
    if pin.name == folder {
        return Ok(());
    }
    let message = format!("is `{}`, its folder is `{folder}`", pin.name);
    Err(PinError::Invalid { pin: origin.to_owned(), field: "name", message })
}

fn is_name(text: &str) -> bool {
    is_word(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
}

/// A word that is safe as a folder, a command's argument and a part of a URL.
fn is_word(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+'))
}

fn is_file_name(text: &str) -> bool {
    is_relative(text) && !text.contains('/') && !text.starts_with('.') && !text.ends_with(".part")
}

/// A relative path that stays below its start.
fn is_relative(text: &str) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    (1..=512).contains(&text.len())
        && !text.starts_with('-')
        && !text.contains(|c: char| c.is_control() || c == '\\')
        && Path::new(text).components().all(plain)
}

fn read_bounded(path: &Path) -> Result<Option<String>, PinError> {
    use std::io::{ErrorKind, Read};
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(PinError::io("read", path)(error)),
    };
    let mut text = String::new();
    file.take(PIN_LIMIT + 1).read_to_string(&mut text).map_err(PinError::io("read", path))?;
    if text.len() as u64 > PIN_LIMIT {
        let pin = path.display().to_string();
        return Err(PinError::Invalid { pin, field: "file", message: format!("is larger than {PIN_LIMIT} bytes") });
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name: m\nfile: m.gguf\nbytes: 3\nmd5: 900150983cd24fb0d6963f7d28e17f72\nlicence: MIT\ndescription: d\nsources:\n  - huggingface: {repo: o/n, revision: main, file: sub/m.gguf}\n  - pypi: {package: p, version: 0.1.2, member: a/b.gguf}\n  - path: m.gguf\n";

    fn refused(change: impl Fn(&str) -> String) -> String {
        let text = change(GOOD);
        assert_ne!(text, GOOD, "the test changes something");
        parse(&text, "pin.yaml").expect_err(&text).to_string()
    }

    #[test]
    fn every_kind_of_source_parses() {
        let pin = parse(GOOD, "pin.yaml").unwrap();
        assert_eq!(pin.sources.len(), 3);
        assert_eq!(pin.sources[2], Source::Path("m.gguf".into()));
        assert_eq!(pin.sha256, None);
    }

    #[test]
    fn the_pins_that_the_program_carries_are_right() {
        for (name, text) in EMBEDDED {
            let pin = parse(text, name).unwrap();
            assert_eq!(&pin.name, name);
            assert_eq!(pin.local_paths().count(), 0, "a path on this machine is no embedded source");
        }
        let smollm2 = Catalog::default().find("smollm2-135m").unwrap().unwrap();
        assert_eq!((smollm2.pin.bytes, smollm2.origin), (98_362_432, PinOrigin::Embedded));
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_place() {
        let error = parse(&GOOD.replace("licence", "licens"), "pin.yaml").unwrap_err();
        assert!(error.to_string().contains("licens"), "{error}");
        let labels: Vec<_> = miette::Diagnostic::labels(&error).unwrap().collect();
        assert_eq!(labels[0].offset(), GOOD.find("licence").unwrap());
    }

    #[test]
    fn a_source_that_does_not_exist_is_refused() {
        assert!(refused(|t| t.replace("- path: m.gguf", "- ftp: m.gguf")).contains("ftp"));
    }

    #[test]
    fn values_that_could_leave_the_cache_or_become_a_flag_are_refused() {
        assert!(refused(|t| t.replace("file: m.gguf", "file: ../m.gguf")).contains("`file`"));
        assert!(refused(|t| t.replace("file: m.gguf", "file: a/m.gguf")).contains("`file`"));
        assert!(refused(|t| t.replace("name: m", "name: ../m")).contains("`name`"));
        assert!(refused(|t| t.replace("package: p", "package: --index-url=x")).contains("`pypi.package`"));
        assert!(refused(|t| t.replace("member: a/b.gguf", "member: ../b.gguf")).contains("`pypi.member`"));
        assert!(refused(|t| t.replace("repo: o/n", "repo: o/../n")).contains("`huggingface.repo`"));
        assert!(refused(|t| t.replace("sub/m.gguf", "/etc/passwd")).contains("`huggingface.file`"));
    }

    #[test]
    fn digests_of_the_wrong_length_and_empty_files_are_refused() {
        assert!(refused(|t| t.replace("md5: 9001", "md5: ")).contains("`md5`"));
        assert!(refused(|t| t.replace("bytes: 3", "bytes: 0")).contains("`bytes`"));
        assert!(refused(|t| t.replace("licence: MIT", "licence: MIT\nsha256: abc")).contains("`sha256`"));
        let no_source = refused(|t| format!("{}sources: []\n", t.split("sources").next().unwrap()));
        assert!(no_source.contains("`sources`"));
    }

    #[test]
    fn a_name_with_folders_in_it_finds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pin.yaml"), GOOD).unwrap();
        let catalog = Catalog::new(vec![folder.path().join("models")]);
        assert_eq!(catalog.find("..").unwrap(), None);
        assert_eq!(catalog.find("../m").unwrap(), None);
    }

    #[test]
    fn a_pin_in_a_folder_goes_before_the_embedded_one_and_must_bear_its_folders_name() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("smollm2-135m");
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("pin.yaml"), GOOD).unwrap();
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        assert!(catalog.find("smollm2-135m").unwrap_err().to_string().contains("its folder is `smollm2-135m`"));
        std::fs::write(own.join("pin.yaml"), GOOD.replace("name: m\n", "name: smollm2-135m\n")).unwrap();
        let found = catalog.find("smollm2-135m").unwrap().unwrap();
        assert_eq!(found.pin.bytes, 3);
        assert_eq!(found.pin.local_paths().next(), Some(own.join("m.gguf").as_path()));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let message = Catalog::default().unknown("smolm2-135m").to_string();
        assert!(message.contains("did you mean `smollm2-135m`?"), "{message}");
    }
}
