//! One Parquet file: written beside its name, read back and counted, and only then given its name.
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::panic::AssertUnwindSafe;
use std::path::Path;

use polars::prelude::{DataFrame, ParquetCompression, ParquetReader, ParquetWriter, SchemaRef, SerReader};

use super::error::TableError;
use crate::record::disk::Replacement;
use crate::record::{Disk, StorageError};

/// Writes `frames`, all of `schema`, as one zstd-compressed Parquet file with a row group each: temporary name, fsync, read back and
/// count, rename, fsync of the folder. Answers the number of rows.
///
/// Errors: the disk; a file that reads back otherwise than it was written. The old file, where there is one, then still stands.
pub fn write_parquet(
    disk: &dyn Disk,
    path: &Path,
    schema: &SchemaRef,
    frames: impl Iterator<Item = DataFrame>,
) -> Result<usize, TableError> {
    let mut file = Replacement::begin(disk, path)?;
    let written = match write_frames(&mut file, schema, frames) {
        Ok(rows) => rows,
        Err(message) => {
            return Err(match file.failure() {
                Some(error) => error.into(),
                None => TableError::Polars { path: path.display().to_string(), message },
            });
        }
    };
    file.sync()?;
    let found = whole_rows(&file.temporary)?;
    if found != written {
        return Err(TableError::Count { path: path.display().to_string(), written, found });
    }
    file.finish()?;
    Ok(written)
}

fn write_frames(
    file: &mut Replacement<'_>,
    schema: &SchemaRef,
    frames: impl Iterator<Item = DataFrame>,
) -> Result<usize, String> {
    let mut buffered = BufWriter::with_capacity(1 << 18, &mut *file);
    let mut rows = 0;
    {
        let writer = ParquetWriter::new(&mut buffered).with_compression(ParquetCompression::Zstd(None));
        let mut writer = writer.batched(schema).map_err(|e| e.to_string())?;
        for mut frame in frames {
            if frame.height() > 0 {
                rows += frame.height();
                frame.align_chunks();
                writer.write_batch(&frame).map_err(|e| e.to_string())?;
            }
        }
        writer.finish().map_err(|e| e.to_string())?;
    }
    buffered.flush().map_err(|e| e.to_string())?;
    Ok(rows)
}

/// The frame in a Parquet file. A file that is cut, or otherwise not whole, is [`TableError::Broken`].
pub fn read_parquet(path: &Path) -> Result<DataFrame, TableError> {
    check_frame(path)?;
    let file = File::open(path).map_err(|e| StorageError::io(path, "open", e))?;
    let broken = |why: String| TableError::Broken { path: path.display().to_string(), why };
    // Polars trusts what stands inside a page; damage there may end in a panic of its decoder rather than in an error.
    let read = std::panic::catch_unwind(AssertUnwindSafe(|| ParquetReader::new(file).finish()));
    match read {
        Ok(Ok(frame)) => Ok(frame),
        Ok(Err(error)) => Err(broken(error.to_string())),
        Err(_) => Err(broken("its pages cannot be decoded".into())),
    }
}

/// Rows of a Parquet file that reads whole, every page of it. Existence says nothing: a cut file exists too.
pub fn whole_rows(path: &Path) -> Result<usize, TableError> {
    read_parquet(path).map(|frame| frame.height())
}

/// The marks at both ends and a footer length that fits, before Polars sees the file.
fn check_frame(path: &Path) -> Result<(), TableError> {
    let io = |e| StorageError::io(path, "read", e);
    let broken = |why: &str| TableError::Broken { path: path.display().to_string(), why: why.into() };
    let mut file = File::open(path).map_err(|e| StorageError::io(path, "open", e))?;
    let length = file.metadata().map_err(io)?.len();
    // PAR1, footer, u32 length of the footer, PAR1.
    if length < 12 {
        return Err(broken("it is shorter than an empty table"));
    }
    let (mut head, mut tail) = ([0; 4], [0; 8]);
    file.read_exact(&mut head).map_err(io)?;
    file.seek(SeekFrom::End(-8)).and_then(|_| file.read_exact(&mut tail)).map_err(io)?;
    let [a, b, c, d, mark @ ..] = tail;
    if &head != b"PAR1" || &mark != b"PAR1" {
        return Err(broken("the mark PAR1 is missing at its start or end"));
    }
    if u64::from(u32::from_le_bytes([a, b, c, d])) > length - 12 {
        return Err(broken("its footer is longer than the file"));
    }
    Ok(())
}
