//! When to ask: the one issue loop. It knows nothing of what is asked or how it is sent.
mod closed;
mod stop;
#[cfg(test)]
mod tests;

pub use closed::{DRAIN, Issue, Lanes, closed_loop};
pub use stop::Stop;
