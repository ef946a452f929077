//! Token ids against llama.cpp's, chats against jinja2's, and vocabularies with holes.
use std::path::PathBuf;
use std::sync::OnceLock;

use inferlab::engine::chat_template::{ChatTemplate, TemplateError};
use inferlab::engine::tokenizer::Tokenizer;
use inferlab::engine::weights::gguf::Header;
use inferlab::engine::weights::{ModelFile, RopePairs, WeightFormat};
use inferlab::request::Message;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::gguf_writer::{SMALL, small_llama, vocabulary};

const SMOLLM2: &str = "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf";

/// The real model, from the environment or the cache.
fn smollm2() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("INFERLAB_CACHE").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
        Some(base.join("inferlab"))
    });
    let path = std::env::var_os("INFERLAB_TEST_SMOLLM2").map(PathBuf::from).or_else(|| Some(cache?.join(SMOLLM2)))?;
    if !path.is_file() {
        println!("skipped: no SmolLM2 at {}; set INFERLAB_TEST_SMOLLM2 or run `inferlab model fetch`", path.display());
        return None;
    }
    Some(path)
}

fn golden(text: &'static str) -> Value {
    serde_json::from_str(text).expect("a fixture is JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn message(role: &str, content: &str) -> Message {
    Message { role: role.to_owned(), content: content.to_owned() }
}

/// A tokenizer from a small file with this vocabulary.
fn small_tokenizer(tokens: &[(&str, i32)], merges: &[&str], bos: Option<u32>) -> Tokenizer {
    let mut file = small_llama(SMALL);
    vocabulary(&mut file, tokens, merges);
    if let Some(bos) = bos {
        file.u32("tokenizer.ggml.bos_token_id", bos).bool("tokenizer.ggml.add_bos_token", true);
    }
    ModelFile::from_bytes("m.gguf", file.build().0).expect("sound").tokenizer.expect("has a vocabulary")
}

#[test]
fn the_real_model_tokenizes_as_llama_cpp_does_under_every_pre_tokenizer() {
    let Some(path) = smollm2() else { return };
    let golden = golden(include_str!("../fixtures/engine/tokenizer.json"));
    let bytes = std::fs::read(path).expect("readable");
    let header = Header::parse(&bytes).expect("sound");
    let rows = golden["rows"].as_array().expect("rows");
    assert!(rows.len() >= 60);
    for pre in ["smollm", "gpt-2", "default", "llama-bpe", "qwen2"] {
        let tokenizer = Tokenizer::from_gguf_as(&header, Some(pre)).expect("known").expect("has a vocabulary");
        assert_eq!(tokenizer.pre(), pre);
        for row in rows {
            let text = row["text"].as_str().expect("text");
            let special = row["parse_special"].as_bool().expect("bool");
            assert_eq!(tokenizer.encode(text, special), ids(&row["ids"][pre]), "{pre}, special {special}: {text:?}");
        }
    }
}

#[test]
fn the_real_model_has_the_bytes_of_every_token_and_the_special_ids_that_llama_cpp_has() {
    let Some(path) = smollm2() else { return };
    let golden = golden(include_str!("../fixtures/engine/tokenizer.json"));
    let model = ModelFile::open(path).expect("sound");
    let tokenizer = model.tokenizer.expect("has a vocabulary");
    let mut hash = Sha256::new();
    for id in 0..tokenizer.vocabulary() as u32 {
        let piece = tokenizer.decode_token_bytes(id).expect("every id has a token");
        hash.update((piece.len() as u32).to_le_bytes());
        hash.update(piece);
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(golden["pieces_sha256"], hash);
    let special = &golden["special"];
    assert_eq!(special["tokens"], tokenizer.vocabulary());
    assert_eq!(
        (special["bos"].as_u64(), special["eos"].as_u64()),
        (tokenizer.bos().map(u64::from), tokenizer.eos().map(u64::from))
    );
    // llama.cpp also stops at 4, `<reponame>`, which it takes for a fill-in-the-middle token.
    assert_eq!(special["eog"], serde_json::json!([0, 2, 4]));
    assert_eq!(tokenizer.stop_ids(), [0, 2]);
    // Text comes back from its ids, except where the vocabulary lacks a byte; control tokens are no text.
    let text = "Round trip: 你好 🙂\n\t fn main() {}";
    assert_eq!(tokenizer.decode(&tokenizer.encode(text, false)), text);
    assert_eq!(tokenizer.decode(&tokenizer.encode("<|im_start|>user\nHi<|im_end|>", true)), "user\nHi");
    assert_eq!(tokenizer.decode(&tokenizer.encode("<|im_end|>", false)), "<|im_end|>");
}

#[test]
fn the_real_model_has_its_published_shape() {
    let Some(path) = smollm2() else { return };
    let model = ModelFile::open(path).expect("sound");
    let shape = &model.shape;
    assert_eq!((shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim), (30, 576, 9, 3, 64));
    assert_eq!((shape.feed_forward, shape.vocabulary, shape.context), (1536, 49_152, 8192));
    assert_eq!((shape.rope_theta, shape.rms_eps, shape.rope_pairs), (1e5, 1e-5, RopePairs::Interleaved));
    assert!(model.weights.output.is_none() && !model.synthetic);
    assert_eq!(model.weights.token_embedding.format, WeightFormat::Q8_0);
    assert_eq!((model.license.as_deref(), model.file_bytes), (Some("apache-2.0"), 98_362_432));
    let seen = model.inspect();
    assert_eq!(seen.parameters, 134_515_008);
    let formats: Vec<_> = seen.formats.iter().map(|share| (share.format, share.tensors)).collect();
    assert_eq!(formats, [("Q4_1", 210), ("Q8_0", 1), ("F32", 61)]);
    assert_eq!(seen.tokenizer.as_deref(), Some("gpt2, pre smollm"));
    let chat = model.chat_template.expect("has a template").render(&[message("user", "Hi")], true).expect("renders");
    let tokenizer = model.tokenizer.expect("has a vocabulary");
    let ids = tokenizer.encode_chat(&chat);
    // `<|im_start|>` is the beginning-of-sequence token of this vocabulary: the template writes it, nobody adds one.
    assert_eq!(ids[..2], [1, 9690]);
    assert_eq!(ids.iter().filter(|&&id| id == 1).count(), 3);
}

#[test]
fn chats_are_written_as_jinja2_writes_them() {
    let golden = golden(include_str!("../fixtures/engine/chat_template.json"));
    let now = golden["now"].as_u64().expect("seconds");
    let mut seen = 0;
    for row in golden["rows"].as_array().expect("rows") {
        let name = row["template"].as_str().expect("name");
        let template =
            ChatTemplate::at(golden["templates"][name].as_str().expect("template"), Some("<s>"), Some("</s>"), now);
        let messages: Vec<Message> =
            serde_json::from_value(golden["chats"][row["chat"].as_str().expect("chat")].clone()).expect("messages");
        let rendered = template.expect(name).render(&messages, row["add_generation_prompt"].as_bool().expect("bool"));
        match (row.get("text"), row.get("error")) {
            (Some(text), None) => assert_eq!(rendered.expect(name), text.as_str().expect("text"), "{row}"),
            (None, Some(error)) => {
                let told = rendered.expect_err(name).to_string();
                assert!(told.contains(error.as_str().expect("text")), "{told}");
            }
            _ => panic!("a row has a text or an error"),
        }
        seen += 1;
    }
    assert_eq!(seen, 80);
}

#[test]
fn a_hostile_template_ends_in_an_error_and_not_in_a_hang_or_a_panic() {
    let chat = [message("user", "x")];
    let told =
        |source: &str| match ChatTemplate::new(source, None, None).and_then(|template| template.render(&chat, true)) {
            Ok(text) => format!("{} bytes", text.len()),
            Err(error) => error.to_string(),
        };
    let deep = |depth: usize, open: &str, close: &str| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    let hostile = [
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for i in range(100000) %}{{ messages[0].content * 1000 }}{% endfor %}".to_owned(),
        "{{ 'x' * 10000000000 }}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}".to_owned(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}".to_owned(),
        "{{ raise_exception('\u{1b}[31m no') }}".to_owned(),
        "{% include 'chat' %}".to_owned(),
        "{% extends 'chat' %}".to_owned(),
        "{% if x %}".to_owned(),
        format!("{{{{ {} }}}}", deep(5000, "(", ")")),
        format!("{{{{ {} }}}}", deep(5000, "[", "]")),
        deep(2000, "{% if true %}", "{% endif %}"),
        "{{ messages[0].nothing.deeper }}".to_owned(),
        "{{ strftime_now('%') }}{{ strftime_now('%Q%Y') }}".to_owned(),
        "{{ 1 // 0 }}".to_owned(),
        "x".repeat(65 * 1024),
    ];
    let told: Vec<String> = hostile.iter().map(|source| told(source)).collect();
    assert!(told.iter().all(|told| !told.contains('\u{1b}')), "{told:#?}");
    insta::assert_snapshot!(told.join("\n"), @r#"
the chat template does not come to an end: it exceeds the steps allowed for this chat
the chat template does not come to an end: it exceeds the length allowed for this chat
the chat template does not come to an end: it exceeds the steps allowed for this chat
the chat template does not come to an end: it exceeds the steps allowed for this chat
the chat template failed on this chat in line 1: invalid operation: recursion limit exceeded
the chat template does not come to an end: it exceeds the steps allowed for this chat
the chat template does not come to an end: it exceeds the length allowed for this chat
the chat template failed on this chat in line 1: invalid operation: it says: \u{1b}[31m no
the chat template failed on this chat in line 1: could not render include: error in \"chat\"
the chat template failed on this chat in line 1: invalid operation: cycle in template inheritance. \"chat\" was referenced more than once
line 1 of the chat template: syntax error: unexpected end of input, expected end of block
line 1 of the chat template: syntax error: template exceeds maximum recursion limits
line 1 of the chat template: syntax error: template exceeds maximum recursion limits
line 1 of the chat template: syntax error: template exceeds maximum recursion limits
the chat template failed on this chat in line 1: undefined value: `messages[0].nothing` is undefined
7 bytes
the chat template failed on this chat in line 1: invalid operation: unable to calculate 1 // 0
the chat template has 66560 bytes, at most 65536 are read
"#);
}

#[test]
fn mutated_templates_never_panic() {
    use rand::{RngExt, SeedableRng};
    let golden = golden(include_str!("../fixtures/engine/chat_template.json"));
    let templates: Vec<Vec<char>> = golden["templates"]
        .as_object()
        .expect("templates")
        .values()
        .map(|t| t.as_str().expect("text").chars().collect())
        .collect();
    let pieces = [
        "{%",
        "%}",
        "{{",
        "}}",
        "{%-",
        "-%}",
        "{#",
        "#}",
        "'",
        "(",
        ")",
        "[",
        "]",
        "|",
        "*",
        "99999999999",
        "in",
        "for",
        "\u{0}",
        "é",
        "messages",
    ];
    let mut rng = rand_pcg::Pcg64::seed_from_u64(3);
    let chat = [message("system", "a\nb"), message("user", "é")];
    let mut rendered = 0;
    for _ in 0..3000 {
        let mut text = templates[rng.random_range(0..templates.len())].clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..text.len());
            let end = (at + rng.random_range(0..6usize)).min(text.len());
            let piece: Vec<char> = pieces[rng.random_range(0..pieces.len())].chars().collect();
            text.splice(at..end, piece);
        }
        let text: String = text.into_iter().collect();
        rendered +=
            usize::from(ChatTemplate::new(&text, Some("<s>"), None).and_then(|t| t.render(&chat, true)).is_ok());
    }
    assert!((100..2900).contains(&rendered), "{rendered} of 3000 rendered");
}

#[test]
fn a_long_honest_chat_stays_within_the_bounds() {
    let golden = golden(include_str!("../fixtures/engine/chat_template.json"));
    let template = golden["templates"]["llama2_alternating"].as_str().expect("text");
    let template = ChatTemplate::new(template, Some("<s>"), Some("</s>")).expect("compiles");
    // A million tokens of text in one message, and a thousand turns.
    let long = "word ".repeat(1_000_000);
    assert!(template.render(&[message("user", &long)], true).expect("long is not endless").len() >= 4_999_999);
    let turns: Vec<Message> =
        (0..1000).map(|turn| message(if turn % 2 == 0 { "user" } else { "assistant" }, "some words")).collect();
    assert!(template.render(&turns, true).is_ok());
}

#[test]
fn a_template_longer_than_the_bound_is_refused() {
    let error = ChatTemplate::new(&" ".repeat(64 * 1024 + 1), None, None).expect_err("too long");
    assert!(matches!(error, TemplateError::TooLong { bytes: 65_537, most: 65_536 }));
}

/// B67: a vocabulary whose ids have holes. The ids and holes are those of the public case.
#[test]
fn ids_without_a_token_decode_to_nothing() {
    let tokens: Vec<(&str, i32)> = vec![
        ("a", 1),
        ("b", 1),
        ("[UNK]", 2),
        ("", 5),
        ("", 5),
        ("", 5),
        ("unused", 5),
        ("c", 1),
        ("", 5),
        ("<end>", 3),
    ];
    let tokenizer = small_tokenizer(&tokens, &[], None);
    let holes: Vec<u32> = (0..10).filter(|&id| tokenizer.decode_token_bytes(id).is_none()).collect();
    assert_eq!(holes, [3, 4, 5, 6, 8]);
    let every: Vec<u32> = (0..2000).chain([u32::MAX]).collect();
    assert_eq!(tokenizer.decode(&every), "ab[UNK]c");
    assert_eq!((tokenizer.vocabulary(), tokenizer.encode("cab<end>", true)), (10, vec![7, 0, 1, 9]));
}

/// B109: the template writes BOS and the vocabulary says to add it.
#[test]
fn a_chat_begins_with_at_most_one_bos() {
    let tokens = [("<s>", 3), ("[", 1), ("]", 1), ("u", 1), ("x", 1), ("<", 1), ("s", 1), (">", 1)];
    let tokenizer = small_tokenizer(&tokens, &[], Some(0));
    let source = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let chat = |source: &str, content: &str| {
        let template = ChatTemplate::new(source, tokenizer.token_text(0).as_deref(), None).expect("compiles");
        tokenizer.encode_chat(&template.render(&[message("u", content)], true).expect("renders"))
    };
    assert_eq!(chat(source, "x"), [0, 1, 3, 2, 4]);
    assert_eq!(chat(&format!("{{{{ bos_token }}}}{source}"), "x"), [0, 1, 3, 2, 4]);
    // A template without BOS is taken at its word; a BOS that the user wrote later stays where it is.
    assert_eq!(chat("{{ messages[0].content }}", "x"), [4]);
    assert_eq!(chat(source, "<s>"), [0, 1, 3, 2, 0]);
    assert!(tokenizer.add_bos());
    assert_eq!(tokenizer.encode_text("x<s>"), [0, 4, 5, 6, 7]);
    assert_eq!(tokenizer.encode_text(""), [0]);
}

#[test]
fn special_tokens_are_found_longest_first_and_user_defined_ones_always() {
    let tokens = [("<a>", 3), ("<a><b>", 3), ("<b>", 4), ("<", 1), ("a", 1), ("b", 1), (">", 1), ("é", 3)];
    let tokenizer = small_tokenizer(&tokens, &[], None);
    assert_eq!(tokenizer.encode("<a><b><a>a<b", true), [1, 0, 4, 3, 5]);
    assert_eq!(tokenizer.encode("<a><b>", false), [3, 4, 6, 2]);
    assert_eq!(tokenizer.encode("é", true), [7]);
    assert_eq!(tokenizer.encode("<<<", true), [3, 3, 3]);
}

#[test]
fn a_million_blanks_are_tokens_too() {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let mut file = small_llama(SMALL);
        vocabulary(&mut file, &[("Ġ", 1), ("x", 1)], &[]);
        file.without("tokenizer.ggml.pre").text("tokenizer.ggml.pre", "qwen2");
        ModelFile::from_bytes("m.gguf", file.build().0).expect("sound").tokenizer.expect("has a vocabulary")
    });
    let text = format!("{}x", " ".repeat(1_100_000));
    let ids = tokenizer.encode(&text, true);
    assert_eq!((ids.len(), ids.last()), (1_100_001, Some(&1)));
}
