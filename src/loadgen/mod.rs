//! When to ask: the one issue loop.
