//! Carries out a plan: launches arms, runs cells, writes the log, derives tables and the report.
mod counting;
mod error;
mod launch;
mod models;
mod progress;
mod scrapes;
mod session;
mod space;

pub use error::RunError;
pub use models::check_models;
pub use progress::note;
pub use session::{Options, RunResult, execute};
