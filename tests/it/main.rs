//! Every integration test, in one binary.
mod report_files;
mod report_pictures;
mod report_summary;
