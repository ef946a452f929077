//! Our own engine as a target.
