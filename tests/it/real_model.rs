//! The real weights that some tests need, found the same way everywhere.
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use inferlab::engine::weights::ModelFile;

/// SmolLM2-135M-Instruct, or `None` with the reason printed.
pub fn smollm2() -> Option<Arc<ModelFile>> {
    static MODEL: OnceLock<Option<Arc<ModelFile>>> = OnceLock::new();
    MODEL
        .get_or_init(|| {
            let path = smollm2_path()?;
            Some(Arc::new(ModelFile::open(&path).expect("the pinned file opens")))
        })
        .clone()
}

/// Where the file lies: `INFERLAB_TEST_SMOLLM2`, else the cache that `inferlab model fetch smollm2-135m` fills.
pub fn smollm2_path() -> Option<PathBuf> {
    let cached = || {
        let cache = std::env::var_os("INFERLAB_CACHE").map(PathBuf::from).or_else(|| {
            let home = std::env::var_os("HOME").map(PathBuf::from)?;
            let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).unwrap_or_else(|| home.join(".cache"));
            Some(base.join("inferlab"))
        })?;
        Some(cache.join("models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"))
    };
    let path = std::env::var_os("INFERLAB_TEST_SMOLLM2").map(PathBuf::from).or_else(cached)?;
    if path.is_file() {
        Some(path)
    } else {
        println!("skipped: no real weights; `cargo run -- model fetch smollm2-135m` brings them");
        None
    }
}
