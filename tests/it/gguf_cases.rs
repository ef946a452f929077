//! GGUF files nobody vouches for: the public cases, our own broken files, and mutations by the hundred thousand.
//!
//! The figure of R13 (a million mutations, no panic, bounded memory, no good file refused):
//! `cargo test --release --test it gguf_mutations_by_the_million -- --ignored --nocapture`
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use inferlab::engine::weights::gguf::{GgufError, Header};
use inferlab::engine::weights::{ModelError, ModelFile};
use miette::Diagnostic;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::gguf_writer::{FORMATS, GgufWriter, SMALL, Small, small_llama, vocabulary};
use crate::peak_memory::peak;

/// Folder of the public cases.
fn cases() -> Option<PathBuf> {
    let shared = std::env::var_os("INFERLAB_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared")), PathBuf::from);
    let cases = shared.join("cases");
    if !cases.is_dir() {
        println!("skipped: no shared cases at {}", cases.display());
        return None;
    }
    Some(cases)
}

fn refusal(bytes: &[u8]) -> GgufError {
    match Header::parse(bytes) {
        Err(error) => error,
        Ok(_) => panic!("a broken file was accepted"),
    }
}

fn open_error(file: &GgufWriter) -> String {
    ModelFile::from_bytes("m.gguf", file.build().0).expect_err("the file must be refused").to_string()
}

#[test]
fn every_public_gguf_case_is_refused_within_16_mib_and_says_what_to_do() {
    let Some(cases) = cases() else { return };
    let expectations = std::fs::read_to_string(cases.join("EXPECT.jsonl")).expect("EXPECT.jsonl");
    let mut seen = 0;
    for line in expectations.lines() {
        let expect: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
        if expect["kind"] != "gguf" {
            continue;
        }
        for file in expect["files"].as_array().expect("files") {
            let name = file.as_str().expect("a name");
            let variant = name.split('.').nth(1).expect("B111.dims.gguf");
            assert_eq!(expect[variant], "reject", "{name}");
            let (result, bytes) = peak(|| ModelFile::open(cases.join(name)));
            let error = result.expect_err(name);
            assert!(matches!(error, ModelError::Gguf { .. }), "{name}: {error}");
            assert!(error.help().is_some(), "{name}");
            assert!(bytes < 16 << 20, "{name}: {bytes} bytes");
            seen += 1;
        }
    }
    assert_eq!(seen, 14);
}

#[test]
fn each_public_gguf_case_is_told_by_its_own_fault() {
    let Some(cases) = cases() else { return };
    let told = |name: &str| refusal(&std::fs::read(cases.join(name)).expect(name)).to_string();
    insta::assert_snapshot!(told("B111.dims.gguf"), @"at byte 87: the size of tensor `w.weight` [4398046511105, 4194304] overflows");
    insta::assert_snapshot!(told("B111.ndims.gguf"), @"at byte 87: tensor `w.weight` has 4294967295 dimensions, at most 4 are allowed");
    insta::assert_snapshot!(told("B111.nd5.gguf"), @"at byte 87: tensor `w.weight` has 5 dimensions, at most 4 are allowed");
    insta::assert_snapshot!(told("B113.be.gguf"), @"is a big-endian GGUF file");
    insta::assert_snapshot!(told("B113.fugg.gguf"), @"is a big-endian GGUF file");
    insta::assert_snapshot!(told("B115.kv.gguf"), @"at byte 71: metadata key `general.architecture` occurs twice");
    insta::assert_snapshot!(told("B115.t.gguf"), @"at byte 104: tensor `w` occurs twice");
    insta::assert_snapshot!(told("B117.arr.gguf"), @"at byte 88: the file announces 2305843009213693952 elements of `x`, at most 32 are possible here");
    insta::assert_snapshot!(told("B117.key.gguf"), @"at byte 16: the file announces 1 metadata entries, at most 0 are possible here");
    insta::assert_snapshot!(told("B117.nkv.gguf"), @"at byte 16: the file announces 1099511627776 metadata entries, at most 12 are possible here");
    insta::assert_snapshot!(told("B117.nt.gguf"), @"at byte 8: the file announces 1099511627776 tensors, at most 7 are possible here");
    insta::assert_snapshot!(told("B119.short.gguf"), @"tensor `w.weight` ends at byte 192, the file at 191: it is the first that does not fit");
    insta::assert_snapshot!(told("B119.nodata.gguf"), @"tensor `w.weight` ends at byte 192, the file at 128: it is the first that does not fit");
    insta::assert_snapshot!(told("B119.table.gguf"), @"at byte 8: the file announces 1 tensors, at most 0 are possible here");
    insta::assert_snapshot!(told("B103.safetensors"), @"is a Git LFS pointer, not the model itself (its first line names git-lfs)");
}

#[test]
fn a_file_of_another_kind_is_told_from_its_first_bytes() {
    let guess = |bytes: &[u8]| refusal(bytes).to_string();
    insta::assert_snapshot!(guess(b""), @"is no GGUF file: it begins with `` (it is empty), not `GGUF`");
    insta::assert_snapshot!(guess(b"PK\x03\x04rest"), @r"is no GGUF file: it begins with `PK\u{3}\u{4}` (a ZIP archive, perhaps a wheel or a PyTorch checkpoint), not `GGUF`");
    insta::assert_snapshot!(guess(b"<!DOCTYPE html>"), @"is no GGUF file: it begins with `<!DO` (a web page, perhaps an error or a login), not `GGUF`");
    insta::assert_snapshot!(guess(b"\x1b[31mX"), @r"is no GGUF file: it begins with `\u{1b}[31`, not `GGUF`");
    insta::assert_snapshot!(guess(b"GGUF\x01\0\0\0"), @"has GGUF version 1, this version reads 2 and 3");
    insta::assert_snapshot!(guess(b"GGUF\x03\0"), @"at byte 4: the version needs 4 bytes, the file has 2 left");
}

#[test]
fn lists_in_lists_are_followed_four_deep_and_no_deeper() {
    let nested = |depth: usize| {
        let mut value = [&0u32.to_le_bytes()[..], &2u64.to_le_bytes(), &[7, 7]].concat();
        for _ in 1..depth {
            value = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes(), &value].concat();
        }
        let mut file = GgufWriter::new();
        file.text("general.architecture", "x").raw("deep", 9, &value).text("after", "y");
        file.build().0
    };
    let file = nested(4);
    let header = Header::parse(&file).expect("four deep is allowed");
    assert_eq!(header.value("after").and_then(|value| value.as_text()), Some("y"));
    assert!(matches!(refusal(&nested(5)), GgufError::Nesting { .. }));
    // A megabyte of opening lists must not use the stack.
    assert!(matches!(refusal(&nested(80_000)), GgufError::Nesting { .. }));
}

#[test]
fn broken_tables_are_told_by_name() {
    let one = |dims: &[u64], kind: u32, data: usize| {
        let mut file = GgufWriter::new();
        file.text("general.architecture", "llama").tensor("w.weight", dims, kind, vec![0; data]);
        refusal(&file.build().0).to_string()
    };
    insta::assert_snapshot!(one(&[8, 0], 0, 0), @"at byte 85: tensor `w.weight` has a dimension of 0: [8, 0]");
    insta::assert_snapshot!(one(&[33, 2], 8, 68), @"at byte 85: rows of tensor `w.weight` have 33 values, Q8_0 stores 32 together");
    insta::assert_snapshot!(one(&[32, 2], 4, 68), @"at byte 105: tensor `w.weight` has unknown type 4");
    insta::assert_snapshot!(one(&[1 << 40, 1 << 30], 0, 0), @"at byte 85: the size of tensor `w.weight` [1099511627776, 1073741824] overflows");
    let mut file = GgufWriter::new();
    file.text("general.architecture", "x").u32("general.alignment", 48);
    insta::assert_snapshot!(refusal(&file.build().0), @"`general.alignment` is 48, expected a power of two up to 1048576");
    file.without("general.alignment").raw("flag", 7, &[2]);
    insta::assert_snapshot!(refusal(&file.build().0), @"at byte 81: metadata key `flag` is a bool with value 2");
    file.without("flag").raw("odd", 13, &[2]);
    insta::assert_snapshot!(refusal(&file.build().0), @"at byte 76: metadata key `odd` has a value of unknown type 13");
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(ModelFile::open(folder.path()), Err(ModelError::NotAFile { .. })));
    let pipe = folder.path().join("pipe.gguf");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    assert!(matches!(ModelFile::open(&pipe), Err(ModelError::NotAFile { .. })));
    assert!(matches!(ModelFile::open(folder.path().join("none.gguf")), Err(ModelError::Io { .. })));
    let empty = folder.path().join("empty.gguf");
    std::fs::write(&empty, b"").expect("written");
    assert!(matches!(ModelFile::open(&empty), Err(ModelError::Gguf { .. })));
}

#[test]
fn a_name_of_a_kilobyte_is_read_and_a_longer_one_is_not() {
    let with = |length: usize| {
        let mut file = GgufWriter::new();
        file.u32(&"k".repeat(length), 1).tensor("w", &[1], 0, vec![0; 4]);
        file.build().0
    };
    assert!(Header::parse(&with(1024)).is_ok());
    assert!(matches!(refusal(&with(1025)), GgufError::LongName { bytes: 1025, .. }));
}

#[test]
fn a_file_of_another_architecture_can_be_inspected_though_not_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("other.gguf");
    let mut file = small_llama(SMALL);
    file.without("general.architecture").text("general.architecture", "gemma3\u{1b}[31m");
    std::fs::write(&path, file.build().0).expect("written");
    let seen = inferlab::engine::weights::inspect(&path).expect("a sound file");
    assert_eq!(seen.architecture.as_deref(), Some("gemma3\\u{1b}[31m"));
    assert!(seen.shape.is_none() && seen.refused.expect("a reason").contains("architecture"));
    assert_eq!(seen.formats.len(), 2);
    assert_eq!(seen.metadata[0].0, "general.name");
}

#[test]
fn overlapping_and_misaligned_data_is_refused() {
    let mut file = GgufWriter::new();
    file.tensor("a", &[16], 0, vec![0; 64]).tensor("b", &[16], 0, vec![0; 64]);
    let (good, begin) = file.build();
    assert!(Header::parse(&good).is_ok());
    // The offset of `b` is the last number of the table; padding may follow it.
    let at = (0..begin - 7).rev().find(|&at| good[at..at + 8] == 64u64.to_le_bytes()).expect("offset of b");
    let with_offset = |offset: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        refusal(&bytes)
    };
    assert!(matches!(with_offset(32), GgufError::Overlap { .. }));
    assert!(matches!(with_offset(33), GgufError::Misaligned { .. }));
    assert!(matches!(with_offset(96), GgufError::DataCut { .. }));
    assert!(matches!(with_offset(u64::MAX - 31), GgufError::Overflow { .. }));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (good, begin) = small_llama(SMALL).build();
    for length in (0..begin).chain([good.len() - 1]) {
        // The padding after the last tensor is no data, so the very last bytes may be missing only there.
        assert!(Header::parse(&good[..length]).is_err(), "cut at {length} of {}", good.len());
    }
}

#[test]
fn metadata_that_changes_the_mathematics_is_refused_by_name() {
    let with = |change: &dyn Fn(&mut GgufWriter)| {
        let mut file = small_llama(SMALL);
        change(&mut file);
        open_error(&file)
    };
    insta::assert_snapshot!(with(&|f| { f.text("llama.rope.scaling.type", "yarn"); }), @"`m.gguf`: `llama.rope.scaling.type` = yarn is not in this version");
    insta::assert_snapshot!(with(&|f| { f.f32("llama.rope.scaling.factor", 4.0); }), @"`m.gguf`: `llama.rope.scaling.factor` = 4 is not in this version");
    insta::assert_snapshot!(with(&|f| { f.u32("llama.expert_count", 8); }), @"`m.gguf`: `llama.expert_count` = 8 is not in this version");
    insta::assert_snapshot!(with(&|f| { f.u32("llama.rope.dimension_count", 8); }), @"`m.gguf`: `llama.rope.dimension_count` is 8, expected 16, the width of a head");
    insta::assert_snapshot!(with(&|f| { f.tensor("rope_freqs.weight", &[8], 0, vec![0; 32]); }), @"`m.gguf`: `rope_freqs.weight` = F32 [8] is not in this version");
    insta::assert_snapshot!(with(&|f| { f.tensor("blk.0.attn_q.bias", &[32], 0, vec![0; 128]); }), @"`m.gguf`: `blk.0.attn_q.bias` = F32 [32] is not in this version");
    insta::assert_snapshot!(with(&|f| { f.without("general.architecture").text("general.architecture", "gemma3"); }), @"`m.gguf`: architecture `gemma3` is not in this version");
    insta::assert_snapshot!(with(&|f| { f.without("general.architecture"); }), @"`m.gguf`: the metadata has no `general.architecture`");
    insta::assert_snapshot!(with(&|f| { f.without("llama.attention.layer_norm_rms_epsilon"); }), @"`m.gguf`: the metadata has no `llama.attention.layer_norm_rms_epsilon`");
    insta::assert_snapshot!(with(&|f| { f.without("llama.attention.head_count_kv").u32("llama.attention.head_count_kv", 0); }), @"`m.gguf`: `llama.attention.head_count_kv` is 0, expected a whole number from 1 to 16777216");
    insta::assert_snapshot!(with(&|f| { f.without("llama.block_count").u32("llama.block_count", 16_000_000); }), @"`m.gguf`: tensor `blk.2.attn_norm.weight` is missing");
    insta::assert_snapshot!(with(&|f| { f.without_tensor("output_norm.weight"); }), @"`m.gguf`: tensor `output_norm.weight` is missing");
    insta::assert_snapshot!(with(&|f| { f.without_tensor("blk.1.ffn_up.weight").tensor("blk.1.ffn_up.weight", &[32, 32], 8, vec![0; 34 * 32]); }), @"`m.gguf`: tensor `blk.1.ffn_up.weight` is [32, 32], the metadata asks for [32, 64]");
    insta::assert_snapshot!(with(&|f| { f.without_tensor("blk.1.attn_k.weight").tensor("blk.1.attn_k.weight", &[32, 16], 6, vec![0; 22 * 16]); }), @"`m.gguf`: tensor `blk.1.attn_k.weight` has type Q5_0, which is not in this version");
    insta::assert_snapshot!(with(&|f| { f.text("tokenizer.ggml.model", "llama"); }), @"`m.gguf`: tokenizer model `llama` is not in this version");
    insta::assert_snapshot!(with(&|f| { vocabulary(f, &[("a", 1)], &[]); f.without("tokenizer.ggml.pre").text("tokenizer.ggml.pre", "qwen"); }), @"`m.gguf`: pre-tokenizer `qwen` is not in this version");
    insta::assert_snapshot!(with(&|f| { vocabulary(f, &[("a", 1), ("a", 1)], &[]); }), @"`m.gguf`: tokens 0 and 1 are both `a`");
    insta::assert_snapshot!(with(&|f| { vocabulary(f, &[("a", 1), ("b", 1)], &["a b"]); }), @"`m.gguf`: `tokenizer.ggml.merges` does not fit the tokens: Token `ab` out of vocabulary");
    insta::assert_snapshot!(with(&|f| { vocabulary(f, &[("a", 1)], &[]); f.u32("tokenizer.ggml.eos_token_id", 1); }), @"`m.gguf`: `tokenizer.ggml.eos_token_id` is 1, expected the id of a token");
    insta::assert_snapshot!(with(&|f| { f.text("tokenizer.chat_template", "{% if x %}"); }), @"`m.gguf`: line 1 of the chat template: syntax error: unexpected end of input, expected end of block");
    // Scaling of type none changes nothing, whatever the factor.
    let mut file = small_llama(SMALL);
    file.text("llama.rope.scaling.type", "none").f32("llama.rope.scaling.factor", 4.0);
    assert!(ModelFile::from_bytes("m.gguf", file.build().0).is_ok());
}

#[test]
fn a_sound_file_gives_its_shape_its_weights_and_its_histogram() {
    let file = small_llama(Small { tied: false, ..SMALL });
    let model = ModelFile::from_bytes("m.gguf", file.build().0).expect("sound");
    let shape = &model.shape;
    assert_eq!((shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim), (2, 32, 2, 1, 16));
    assert_eq!((shape.feed_forward, shape.vocabulary, shape.context, shape.rope_theta), (64, 48, 64, 10_000.0));
    assert_eq!((model.name.as_str(), model.license.as_deref(), model.synthetic), ("small", Some("cc0-1.0"), false));
    let output = model.weights.output.as_ref().expect("not tied");
    assert_eq!((output.rows, output.cols, output.bytes()), (48, 32, 48 * 34));
    assert_eq!(model.weights.layers[1].ffn_norm, vec![1.0; 32]);
    // Each layer: q and o 32×32, k and v 16×32, three of 64×32, two norms of 32.
    let layer = 2 * 1024 + 2 * 512 + 3 * 2048 + 64;
    let seen = model.inspect();
    assert_eq!(seen.parameters, 2 * layer + 2 * 48 * 32 + 32);
    let formats: Vec<_> = seen.formats.iter().map(|share| (share.format, share.tensors, share.parameters)).collect();
    assert_eq!(formats, [("Q8_0", 16, 2 * (layer - 64) + 2 * 48 * 32), ("F32", 5, 160)]);
    assert_eq!(seen.refused, None);
}

/// A sound file of random form, with metadata of every type.
fn random_good(rng: &mut Pcg64) -> (Vec<u8>, usize) {
    let heads = rng.random_range(1..=4u64);
    let kv_heads = if heads % 2 == 0 && rng.random_bool(0.5) { heads / 2 } else { heads };
    let small = Small {
        hidden: 32 * heads * rng.random_range(1..=2u64),
        layers: rng.random_range(1..=3),
        heads,
        kv_heads,
        feed_forward: 32 * rng.random_range(1..=3u64),
        vocabulary: rng.random_range(1..=50),
        tied: rng.random_bool(0.5),
        format: rng.random_range(0..FORMATS.len()),
    };
    let mut file = small_llama(small);
    file.version = rng.random_range(2..=3);
    if rng.random_bool(0.5) {
        file.alignment = 1 << rng.random_range(3..=8);
        let alignment = file.alignment as u32;
        file.u32("general.alignment", alignment);
    }
    for (kind, width) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (10, 8), (11, 8), (12, 8)] {
        if rng.random_bool(0.3) {
            let bytes: Vec<u8> = (0..width).map(|_| rng.random()).collect();
            file.raw(&format!("x.scalar{kind}"), kind, &bytes);
            let count = rng.random_range(0..4u64);
            let items: Vec<u8> = (0..width as u64 * count).map(|_| rng.random()).collect();
            let value = [&kind.to_le_bytes()[..], &count.to_le_bytes(), &items].concat();
            file.raw(&format!("x.list{kind}"), 9, &value);
        }
    }
    if rng.random_bool(0.3) {
        file.texts("x.texts", &["", "é", "long enough"]).text("", "an empty key").bool("x.yes", true);
        file.raw("x.bytes", 8, &[3, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0, 0x80]);
    }
    file.build()
}

/// A sound file with a vocabulary and a template.
fn with_vocabulary() -> (Vec<u8>, usize) {
    let mut file = small_llama(SMALL);
    let tokens = [("<s>", 3), ("a", 1), ("b", 1), ("ab", 1), ("Ġ", 1), ("Ġab", 1), ("", 5), ("<x>", 4), ("c", 1)];
    vocabulary(&mut file, &tokens, &["a b", "Ġ ab"]);
    file.u32("tokenizer.ggml.bos_token_id", 0).bool("tokenizer.ggml.add_bos_token", true);
    file.text("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
    file.build()
}

/// Changes a few places: most of them in front of the data, where the numbers stand.
fn mutate(rng: &mut Pcg64, base: &(Vec<u8>, usize), other: &[u8]) -> Vec<u8> {
    const NUMBERS: [u64; 20] = [
        0,
        1,
        2,
        3,
        4,
        5,
        8,
        9,
        12,
        31,
        32,
        33,
        255,
        1 << 16,
        1 << 31,
        u32::MAX as u64,
        1 << 42,
        1 << 61,
        1 << 62,
        u64::MAX,
    ];
    let (mut bytes, begin) = base.clone();
    for _ in 0..rng.random_range(1..=4) {
        if bytes.is_empty() {
            break;
        }
        let end = if rng.random_bool(0.9) { begin.min(bytes.len()) } else { bytes.len() };
        let at = rng.random_range(0..end.max(1));
        let length = rng.random_range(1..=40usize).min(bytes.len() - at);
        match rng.random_range(0..9) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][rng.random_range(0..5)],
            2 | 3 => {
                let near = [bytes.len() as u64, begin as u64, at as u64][rng.random_range(0..3)];
                let number = if rng.random_bool(0.7) {
                    NUMBERS[rng.random_range(0..NUMBERS.len())]
                } else {
                    near.wrapping_add(rng.random_range(0..17)).wrapping_sub(8)
                };
                let width = if rng.random_bool(0.5) { 8 } else { 4 }.min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..at + length)),
            6 => {
                let copy = bytes[at..at + length].to_vec();
                let to = rng.random_range(0..=bytes.len());
                bytes.splice(to..to, copy);
            }
            7 => {
                let from = rng.random_range(0..other.len());
                let copy = &other[from..(from + length).min(other.len())];
                bytes.splice(at..at, copy.iter().copied());
            }
            _ => rng.fill_bytes(&mut bytes[at..at + length]),
        }
    }
    bytes
}

/// What a number of mutations came to.
#[derive(Debug, Default)]
struct Figure {
    mutations: usize,
    accepted_headers: usize,
    accepted_models: usize,
    good_files: usize,
    most_header_ratio: f64,
    most_bytes: usize,
    slowest: Duration,
}

/// Mutates small good files. Panics with the seed and the bytes when the reader panics, takes more than its bound, or
/// refuses a good file.
fn gguf_mutations(count: usize, seed: u64) -> Figure {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut figure = Figure { mutations: count, ..Figure::default() };
    let spoken = with_vocabulary();
    let mut bases: Vec<(Vec<u8>, usize)> = Vec::new();
    for index in 0..count {
        if index % 500 == 0 {
            bases = (0..8).map(|_| random_good(&mut rng)).chain([spoken.clone()]).collect();
            for (bytes, _) in &bases {
                ModelFile::from_bytes("good.gguf", bytes.clone()).expect("a good file is not refused");
                figure.good_files += 1;
            }
        }
        let base = &bases[rng.random_range(0..bases.len())];
        let other = &bases[rng.random_range(0..bases.len())].0;
        let bytes = mutate(&mut rng, base, other);
        let started = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (accepted, header_bytes) = peak(|| match Header::parse(&bytes) {
                Err(error) => {
                    assert!(error.to_string().len() < 1000, "a message of {} bytes", error.to_string().len());
                    false
                }
                Ok(header) => {
                    // As text, because a float may be NaN.
                    let entries = header.entries().inspect(|(key, value)| {
                        assert_eq!(format!("{:?}", header.value(key)), format!("{:?}", Some(value)))
                    });
                    let entries = entries.count();
                    let tensors = header.tensors().inspect(|tensor| {
                        let begin = header.data_offset(tensor);
                        assert!(begin + tensor.bytes <= header.file_bytes(), "data outside the file");
                        assert!(header.tensor(tensor.name).is_some());
                    });
                    entries + tensors.count() > 0
                }
            });
            // A vocabulary compiles regular expressions, a thousand times the work of the header: one file in 50.
            let model = if std::ptr::eq(base, &bases[bases.len() - 1]) && index % 50 != 0 {
                None
            } else {
                let copy = bytes.clone();
                Some(peak(|| ModelFile::from_bytes("mutated.gguf", copy).is_ok()))
            };
            (accepted, header_bytes, model)
        }));
        let taken = started.elapsed();
        let Ok((accepted, header_bytes, model)) = outcome else {
            panic!("mutation {index} of seed {seed} made the reader panic: {bytes:02x?}");
        };
        // R13: at most twice the header, beside a message's few hundred bytes.
        assert!(header_bytes <= 2 * bytes.len() + 4096, "mutation {index}: {header_bytes} for {}", bytes.len());
        figure.most_header_ratio = figure.most_header_ratio.max(header_bytes as f64 / bytes.len().max(1024) as f64);
        figure.accepted_headers += usize::from(accepted);
        if let Some((opened, model_bytes)) = model {
            assert!(model_bytes < 16 << 20, "mutation {index}: {model_bytes} bytes");
            figure.most_bytes = figure.most_bytes.max(model_bytes);
            figure.accepted_models += usize::from(opened);
        }
        figure.slowest = figure.slowest.max(taken);
    }
    figure
}

#[test]
fn gguf_mutations_never_panic_and_stay_within_twice_the_header() {
    let figure = gguf_mutations(20_000, 1);
    // A test that refuses everything at the first byte would show nothing.
    assert!(figure.accepted_headers > 1000 && figure.accepted_models > 200, "{figure:?}");
}

#[test]
#[ignore = "a million mutations take minutes; the figure of R13"]
fn gguf_mutations_by_the_million() {
    let started = Instant::now();
    let figure = gguf_mutations(1_000_000, 20_261_201);
    println!("{figure:#?}\n{:.0} s", started.elapsed().as_secs_f64());
    assert_eq!(figure.mutations, 1_000_000);
}
