//! The model list of a server.
use serde::Serialize;
use serde_json::Value;

/// More models than this are not read.
const MAX_MODELS: usize = 1000;

/// One entry of a model list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ListedModel {
    /// Its id, then its aliases.
    pub ids: Vec<String>,
    /// Tokens a sequence may hold.
    pub context: Option<u32>,
    /// Anything else worth printing.
    pub facts: Vec<(String, String)>,
}

/// The models of `/v1/models`; vLLM, SGLang and NInfer say `max_model_len` or `context_window`, llama.cpp `meta.n_ctx` and aliases.
pub(super) fn listed_models(list: &Value) -> Vec<ListedModel> {
    let Some(entries) = list.get("data").and_then(Value::as_array) else { return Vec::new() };
    let mut models = Vec::new();
    for entry in entries.iter().take(MAX_MODELS) {
        let Some(id) = entry.get("id").and_then(Value::as_str) else { continue };
        let mut ids = vec![id.to_owned()];
        let aliases = entry.get("aliases").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        ids.extend(aliases.iter().filter_map(Value::as_str).map(str::to_owned));
        let at = |path: &str| entry.pointer(path).and_then(count);
        let facts = [
            ("/meta/n_ctx_train", "trained_context"),
            ("/meta/n_vocab", "vocabulary"),
            ("/meta/n_params", "parameters"),
        ];
        let facts = facts.iter().filter_map(|(path, name)| {
            entry.pointer(path).filter(|v| v.is_u64()).map(|value| ((*name).to_owned(), value.to_string()))
        });
        models.push(ListedModel {
            context: at("/max_model_len").or_else(|| at("/context_window")).or_else(|| at("/meta/n_ctx")),
            facts: facts.collect(),
            ids,
        });
    }
    models
}

/// A count of 32 bits.
pub(super) fn count(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}
