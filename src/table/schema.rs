//! The one declared schema: the columns of `record`, as Polars types and as a document.
use std::fmt::Write;

use polars::prelude::{DataType, Schema};

use crate::record::{COLUMNS, Dtype};

/// The Polars type of a column.
pub fn data_type(dtype: Dtype) -> DataType {
    match dtype {
        Dtype::Bool => DataType::Boolean,
        Dtype::U32 => DataType::UInt32,
        Dtype::U64 => DataType::UInt64,
        Dtype::I64 => DataType::Int64,
        Dtype::F64 => DataType::Float64,
        Dtype::Utf8 => DataType::String,
        Dtype::ListU32 => DataType::List(Box::new(DataType::UInt32)),
    }
}

/// The schema of `requests.parquet`: `segment`, then every column of a request row.
pub fn request_schema() -> Schema {
    let segment = [("segment".into(), DataType::UInt32)];
    segment.into_iter().chain(COLUMNS.iter().map(|column| (column.name.into(), data_type(column.dtype)))).collect()
}

/// The name of a type as the schema document spells it.
fn type_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "bool",
        Dtype::U32 => "u32",
        Dtype::U64 => "u64",
        Dtype::I64 => "i64",
        Dtype::F64 => "f64",
        Dtype::Utf8 => "utf8",
        Dtype::ListU32 => "list<u32>",
    }
}

/// The columns of `requests.parquet` as a Markdown table, for the README.
pub fn schema_document() -> String {
    let mut text = String::from(
        "One row a request, in the order of the log; null is unknown, never 0. Times are ns since the anchor of their segment.\n\n\
         | column | type | unit | meaning |\n|---|---|---|---|\n\
         | segment | u32 |  | Segment of the log: one process, one clock. |\n",
    );
    for column in COLUMNS {
        let unit = if column.unit == "us" { "µs" } else { column.unit };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {unit} | {} |",
            column.name,
            type_name(column.dtype),
            column.meaning.replace('|', "\\|")
        );
    }
    text
}
