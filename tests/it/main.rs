//! Every integration test, in one binary.
mod inert;
mod report_check;
mod report_files;
mod report_hostile;
mod report_pictures;
mod report_summary;
