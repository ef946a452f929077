//! Parquet tables made from the log by Polars.
