//! Parquet tables made from the log by Polars: derived, repeatable, and never taken for done because a file exists.
mod derive;
mod error;
mod frame;
mod parquet;
mod parts;
mod schema;

pub use derive::{Derived, derive, derive_missing, derive_on};
pub use error::TableError;
pub use frame::{RequestColumns, events_frame, hardware_frame, logged_frame, requests_frame};
pub use parquet::{read_parquet, whole_rows, write_parquet};
pub use parts::{PART_ROWS, Parts};
pub use schema::{data_type, request_schema, schema_document};
