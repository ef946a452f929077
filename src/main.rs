//! The `inferlab` program.
fn main() {}
