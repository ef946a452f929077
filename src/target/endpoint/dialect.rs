//! Which server it is, from what its own pages show. Names drift between versions and forks imitate each other, so every sign is
//! kept as evidence, and a server that shows none is plain OpenAI.
use serde::Serialize;
use serde_json::Value;

use super::metrics_page::{Page, counters::Families};
use crate::target::config::Dialect;

/// Pages that a server answered, as far as they could be read.
#[derive(Debug, Default)]
pub struct Pages {
    /// `/v1/models`.
    pub models: Option<Value>,
    /// `/props` (llama.cpp).
    pub props: Option<Value>,
    /// `/v1/load` (NInfer).
    pub load: Option<Value>,
    /// `/server_info`, `/get_server_info` before (SGLang).
    pub server_info: Option<Value>,
    /// `/version` (vLLM).
    pub version: Option<Value>,
    /// `/metrics`.
    pub metrics: Option<Page>,
}

/// One sign of a dialect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The dialect.
    pub dialect: &'static str,
    /// Where it was seen.
    pub page: &'static str,
    /// What was seen; foreign text.
    pub saw: String,
}

/// What the pages say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detected {
    /// The server, `openai` where nothing says which.
    pub dialect: Dialect,
    /// Every sign, also of others.
    pub evidence: Vec<Evidence>,
    /// Version, where it is told.
    pub version: Option<String>,
}

/// Looks at every page. Of several dialects the first in this order is taken: NInfer (whose forks write llama.cpp's counters as well),
/// llama.cpp, SGLang, vLLM.
pub fn detect(pages: &Pages) -> Detected {
    let mut evidence = Vec::new();
    let mut sign = |dialect: Dialect, page: &'static str, saw: String| {
        evidence.push(Evidence { dialect: dialect.word(), page, saw });
    };
    let text = |page: &Option<Value>, path: &str| {
        page.as_ref().and_then(|v| v.pointer(path)).and_then(Value::as_str).map(str::to_owned)
    };
    let families = pages.metrics.as_ref().map(|page| page.families).unwrap_or_default();
    let Families { ninfer, sglang, vllm, llamacpp } = families;

    if let Some(object) = text(&pages.load, "/object").filter(|object| object == "ninfer.load") {
        sign(Dialect::Ninfer, "/v1/load", format!("object {object}"));
    }
    if ninfer {
        sign(Dialect::Ninfer, "/metrics", "counters ninfer:…".to_owned());
    }
    let build = text(&pages.props, "/build_info");
    if let Some(build) = &build {
        sign(Dialect::LlamaCpp, "/props", format!("build_info {build}"));
    }
    if llamacpp && !ninfer {
        sign(Dialect::LlamaCpp, "/metrics", "counters llamacpp:…".to_owned());
    }
    // vLLM in its developer mode has a page of this name too, with other members.
    let info = pages.server_info.as_ref().filter(|info| info.get("vllm_config").is_none());
    let sglang_members = ["internal_states", "tokenizer_path", "disaggregation_mode", "mem_fraction_static"];
    if let Some(member) = info.and_then(|info| sglang_members.iter().find(|member| info.get(**member).is_some())) {
        sign(Dialect::Sglang, "/server_info", format!("member {member}"));
    }
    if sglang {
        sign(Dialect::Sglang, "/metrics", "counters sglang:…".to_owned());
    }
    if vllm {
        sign(Dialect::Vllm, "/metrics", "counters vllm:…".to_owned());
    }
    let owner = text(&pages.models, "/data/0/owned_by");
    for (word, dialect) in [
        ("ninfer", Dialect::Ninfer),
        ("llamacpp", Dialect::LlamaCpp),
        ("sglang", Dialect::Sglang),
        ("vllm", Dialect::Vllm),
        ("inferlab", Dialect::Inferlab),
    ] {
        if owner.as_deref() == Some(word) {
            sign(dialect, "/v1/models", format!("owned_by {word}"));
        }
    }
    let order = [Dialect::Ninfer, Dialect::LlamaCpp, Dialect::Sglang, Dialect::Vllm, Dialect::Inferlab];
    let found = order.into_iter().find(|dialect| evidence.iter().any(|e| e.dialect == dialect.word()));
    let dialect = found.unwrap_or(Dialect::Openai);
    let version = match dialect {
        Dialect::LlamaCpp => build,
        Dialect::Sglang => text(&pages.server_info, "/version").or_else(|| text(&pages.server_info, "/sglang_version")),
        // Any gateway may have such a page, so it is no evidence by itself.
        Dialect::Vllm => text(&pages.version, "/version"),
        _ => None,
    };
    Detected { dialect, evidence, version }
}

#[cfg(test)]
mod tests {
    use super::super::metrics_page::of_page;
    use super::*;
    use serde_json::json;

    #[test]
    fn each_server_is_known_by_its_own_pages() {
        let metrics = |page: &str| Some(of_page(page));
        let cases = [
            (Dialect::LlamaCpp, Some("b7"), Pages { props: Some(json!({"build_info": "b7"})), ..Pages::default() }),
            (Dialect::LlamaCpp, None, Pages { metrics: metrics("llamacpp:n_decode_total 1\n"), ..Pages::default() }),
            (Dialect::Ninfer, None, Pages { load: Some(json!({"object": "ninfer.load"})), ..Pages::default() }),
            // A fork that speaks llama.cpp's counters and properties.
            (
                Dialect::Ninfer,
                None,
                Pages {
                    metrics: metrics("llamacpp:prompt_tokens_total 1\nninfer:requests_total 1\n"),
                    props: Some(json!({"build_info": "x"})),
                    ..Pages::default()
                },
            ),
            (
                Dialect::Sglang,
                Some("0.5.6"),
                Pages { server_info: Some(json!({"internal_states": [], "version": "0.5.6"})), ..Pages::default() },
            ),
            (
                Dialect::Vllm,
                Some("0.11.0"),
                Pages {
                    models: Some(json!({"data": [{"id": "m", "owned_by": "vllm"}]})),
                    version: Some(json!({"version": "0.11.0"})),
                    server_info: Some(json!({"vllm_config": {}, "internal_states": 1})),
                    ..Pages::default()
                },
            ),
            (Dialect::Vllm, None, Pages { metrics: metrics("vllm:num_requests_running{} 0\n"), ..Pages::default() }),
            // A version alone says nothing.
            (Dialect::Openai, None, Pages { version: Some(json!({"version": "1"})), ..Pages::default() }),
            (Dialect::Openai, None, Pages::default()),
        ];
        for (dialect, version, pages) in cases {
            let found = detect(&pages);
            assert_eq!((found.dialect, found.version.as_deref()), (dialect, version), "{pages:?}");
            let told = found.evidence.iter().any(|e| e.dialect == dialect.word());
            assert_eq!(told, dialect != Dialect::Openai, "{found:?}");
        }
    }
}
