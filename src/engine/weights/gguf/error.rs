//! What can be broken in a GGUF file.
use miette::Diagnostic;
use thiserror::Error;

/// Why bytes are no sound GGUF file. Every variant says what, and at which byte of the file.
///
/// Text from the file is escaped and shortened before it gets here.
#[derive(Debug, Clone, PartialEq, Eq, Error, Diagnostic)]
pub enum GgufError {
    /// A Git LFS pointer: the real file was never downloaded.
    #[error("is a Git LFS pointer, not the model itself (its first line names git-lfs)")]
    #[diagnostic(help("run `git lfs pull` in that checkout, or `inferlab model fetch`"))]
    LfsPointer,
    /// Another kind of file.
    #[error("is no GGUF file: it begins with `{found}`{guess}, not `GGUF`")]
    #[diagnostic(help("give a .gguf file; compare its checksum with the published one if it should be one"))]
    NotGguf {
        /// Its first four bytes, escaped.
        found: String,
        /// What it looks like, as ` (a ZIP archive)`, or nothing.
        guess: &'static str,
    },
    /// Written for machines of the other byte order.
    #[error("is a big-endian GGUF file")]
    #[diagnostic(help(
        "convert it with `gguf_convert_endian.py FILE little` of the gguf package, or fetch the little-endian one"
    ))]
    BigEndian,
    /// A version whose layout is not known.
    #[error("has GGUF version {version}, this version reads 2 and 3")]
    #[diagnostic(help("convert the model again with a current converter"))]
    Version {
        /// What the file says.
        version: u32,
    },
    /// A length, a count or the end of the file that cannot be.
    #[error("at byte {at}: {what} needs {needed} bytes, the file has {left} left")]
    #[diagnostic(help("the file is cut off or damaged; fetch it again and compare its checksum"))]
    TooShort {
        /// What was being read.
        what: String,
        /// Where it begins.
        at: u64,
        /// Bytes it needs.
        needed: u64,
        /// Bytes there are.
        left: u64,
    },
    /// More entries than the rest of the file could hold, or than any real model has.
    #[error("at byte {at}: the file announces {count} {what}, at most {most} are possible here")]
    #[diagnostic(help("the file is cut off or damaged; fetch it again and compare its checksum"))]
    Count {
        /// `metadata entries`, `tensors`, or the elements of a key.
        what: String,
        /// Where the count stands.
        at: u64,
        /// The count.
        count: u64,
        /// The bound.
        most: u64,
    },
    /// A name that is no UTF-8.
    #[error("at byte {at}: {what} `{name}` is not UTF-8")]
    #[diagnostic(help("the file is damaged; fetch it again and compare its checksum"))]
    NotText {
        /// `metadata key` or `tensor name`.
        what: &'static str,
        /// The name, escaped.
        name: String,
        /// Where it stands.
        at: u64,
    },
    /// A name no converter writes.
    #[error("at byte {at}: {what} `{name}` has {bytes} bytes, at most {most} are read")]
    #[diagnostic(help("the file is damaged or made to break readers"))]
    LongName {
        /// `metadata key` or `tensor name`.
        what: &'static str,
        /// The name, escaped and shortened.
        name: String,
        /// Its length.
        bytes: usize,
        /// The bound.
        most: usize,
        /// Where it stands.
        at: u64,
    },
    /// The same key twice.
    #[error("at byte {at}: metadata key `{key}` occurs twice")]
    #[diagnostic(help("which of the two counts is anybody's guess; convert the model again"))]
    DuplicateKey {
        /// The key.
        key: String,
        /// Where it stands again.
        at: u64,
    },
    /// The same tensor twice.
    #[error("at byte {at}: tensor `{tensor}` occurs twice")]
    #[diagnostic(help("which of the two counts is anybody's guess; convert the model again"))]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
        /// Where it stands again.
        at: u64,
    },
    /// A value of no known type.
    #[error("at byte {at}: metadata key `{key}` has a value of unknown type {id}")]
    #[diagnostic(help("the file is damaged or of a newer format; fetch it again and compare its checksum"))]
    ValueType {
        /// The key.
        key: String,
        /// Number of the type.
        id: u32,
        /// Where it stands.
        at: u64,
    },
    /// Arrays in arrays without end.
    #[error("at byte {at}: metadata key `{key}` nests arrays more than {most} deep")]
    #[diagnostic(help("no converter writes such a file; it is damaged or made to break readers"))]
    Nesting {
        /// The key.
        key: String,
        /// Where the first array too deep begins.
        at: u64,
        /// The bound.
        most: usize,
    },
    /// A truth value that is neither.
    #[error("at byte {at}: metadata key `{key}` is a bool with value {found}")]
    #[diagnostic(help("the file is damaged; fetch it again and compare its checksum"))]
    Bool {
        /// The key.
        key: String,
        /// The byte.
        found: u8,
        /// Where it stands.
        at: u64,
    },
    /// An alignment that is none.
    #[error("`general.alignment` is {found}, expected a power of two up to {most}")]
    #[diagnostic(help("the file is damaged or was converted wrongly"))]
    Alignment {
        /// What the file says.
        found: String,
        /// The bound.
        most: u64,
    },
    /// More dimensions than tensors have.
    #[error("at byte {at}: tensor `{tensor}` has {found} dimensions, at most {most} are allowed")]
    #[diagnostic(help("the file is damaged; fetch it again and compare its checksum"))]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// What the file says.
        found: u32,
        /// The bound.
        most: usize,
        /// Where it stands.
        at: u64,
    },
    /// A tensor of no values.
    #[error("at byte {at}: tensor `{tensor}` has a dimension of 0: {dims}")]
    #[diagnostic(help("the file is damaged; fetch it again and compare its checksum"))]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: String,
        /// Where they stand.
        at: u64,
    },
    /// A tensor larger than any file.
    #[error("at byte {at}: the size of tensor `{tensor}` {dims} overflows")]
    #[diagnostic(help("the file is damaged or made to break readers"))]
    Overflow {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: String,
        /// Where they stand.
        at: u64,
    },
    /// A tensor of no known type.
    #[error("at byte {at}: tensor `{tensor}` has unknown type {id}")]
    #[diagnostic(help(
        "the type was removed from ggml or is newer than this version; convert or quantise the model again"
    ))]
    TensorType {
        /// The tensor.
        tensor: String,
        /// Number of the type.
        id: u32,
        /// Where it stands.
        at: u64,
    },
    /// Rows that end inside a block.
    #[error("at byte {at}: rows of tensor `{tensor}` have {columns} values, {kind} stores {block} together")]
    #[diagnostic(help("the file is damaged or was converted wrongly"))]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Its first dimension.
        columns: u64,
        /// Its type.
        kind: &'static str,
        /// Values in a block of the type.
        block: u64,
        /// Where it stands.
        at: u64,
    },
    /// Data that does not begin where it may.
    #[error(
        "at byte {at}: tensor `{tensor}` begins at offset {offset}, which is no multiple of the alignment {alignment}"
    )]
    #[diagnostic(help("the file is damaged or was converted wrongly"))]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Its offset into the data.
        offset: u64,
        /// `general.alignment`, or 32.
        alignment: u64,
        /// Where it stands.
        at: u64,
    },
    /// Data that reaches past the end of the file.
    #[error("tensor `{tensor}` ends at byte {end}, the file at {file}: it is the first that does not fit")]
    #[diagnostic(help(
        "the download stopped early or the disk was full: fetch the file again and compare its checksum"
    ))]
    DataCut {
        /// The tensor.
        tensor: String,
        /// Where its data would end.
        end: u64,
        /// Length of the file.
        file: u64,
    },
    /// Two tensors in the same bytes.
    #[error(
        "tensors `{first}` and `{second}` overlap: the second begins at byte {begin} of the file, before the first ends at {end}"
    )]
    #[diagnostic(help("the file is damaged or was converted wrongly"))]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The other.
        second: String,
        /// Where the second begins.
        begin: u64,
        /// Where the first ends.
        end: u64,
    },
}
