//! When to ask: the issue loops. They know nothing of what is asked or how it is sent.
mod closed;
mod issue;
mod open;
mod stop;
#[cfg(test)]
mod tests;

use tokio::task::{JoinError, JoinSet};

pub use closed::{Lanes, closed_loop};
pub use issue::{DRAIN, Issue, Sink};
pub use open::{Schedule, open_loop};
pub use stop::Stop;

/// Waits for every task; a panic inside one goes on here.
async fn join(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        unpanicked(ended);
    }
}

fn unpanicked(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
