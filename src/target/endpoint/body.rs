//! The body of a request: every sampler field is always sent, so that no default of a server hides in a result.
use serde_json::{Map, Value, json};

use super::settings::EndpointSettings;
use crate::request::{Message, Prompt, Request};
use crate::target::config::{Api, Dialect, Thinking, thinking_members};

/// The body of `request` for the interface of `settings`.
///
/// # Errors
/// Why this request cannot be asked there.
pub fn body(settings: &EndpointSettings, dialect: Dialect, request: &Request) -> Result<Vec<u8>, String> {
    let mut body = Map::new();
    body.insert("model".into(), json!(settings.model));
    match settings.api {
        Api::Chat => {
            body.insert("messages".into(), json!(chat(&request.prompt)?));
        }
        Api::Completions => {
            body.insert("prompt".into(), completion_prompt(&request.prompt, dialect)?);
        }
        Api::Messages => {
            let chat = chat(&request.prompt)?;
            // Instructions stand apart there.
            let system: Vec<&str> = chat.iter().filter(|m| m.role == "system").map(|m| m.content.as_str()).collect();
            if !system.is_empty() {
                body.insert("system".into(), json!(system.join("\n\n")));
            }
            let turns: Vec<&Message> = chat.iter().filter(|m| m.role != "system").collect();
            body.insert("messages".into(), json!(turns));
        }
    }
    body.insert("stream".into(), json!(true));
    if settings.api != Api::Messages {
        let mut options = json!({"include_usage": true});
        if settings.chunk_counts && matches!(dialect, Dialect::Vllm | Dialect::Sglang) {
            options["continuous_usage_stats"] = json!(true);
        }
        body.insert("stream_options".into(), options);
    }
    sampler(&mut body, dialect, request);
    if settings.api != Api::Messages {
        // The nonce already keeps a prompt from hitting; this keeps even its template from being taken from another slot.
        if dialect == Dialect::LlamaCpp && settings.cold {
            body.insert("cache_prompt".into(), json!(false));
        }
        if settings.chunk_counts && matches!(dialect, Dialect::LlamaCpp | Dialect::Ninfer) {
            body.insert("timings_per_token".into(), json!(true));
        }
    }
    let thinking = thinking_members(settings.api, dialect, settings.thinking)?;
    if let (Api::Messages, Thinking::Budget(budget)) = (settings.api, settings.thinking)
        && budget >= request.max_tokens
    {
        let most = request.max_tokens;
        return Err(format!("a thinking budget of {budget} tokens leaves nothing of the {most} that may be generated"));
    }
    body.extend(thinking.into_iter().map(|(name, value)| (name.to_owned(), value)));
    serde_json::to_vec(&body).map_err(|error| error.to_string())
}

fn sampler(body: &mut Map<String, Value>, dialect: Dialect, request: &Request) {
    let s = request.sampling;
    let pooled = matches!(dialect, Dialect::Vllm | Dialect::Sglang);
    // SGLang and older vLLM refuse 0, and call "off" -1.
    let top_k = if pooled && s.top_k == 0 { json!(-1) } else { json!(s.top_k) };
    let fields = [
        ("max_tokens", json!(request.max_tokens)),
        ("temperature", json!(s.temperature)),
        ("top_p", json!(s.top_p)),
        ("top_k", top_k),
        ("min_p", json!(s.min_p)),
        ("presence_penalty", json!(s.presence_penalty)),
        ("frequency_penalty", json!(s.frequency_penalty)),
        ("seed", json!(request.seed)),
        ("ignore_eos", json!(request.ignore_eos)),
    ];
    body.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    if pooled && request.ignore_eos {
        // `ignore_eos` lets the stop tokens of the model's generation config through.
        body.insert("min_tokens".into(), json!(request.max_tokens));
    }
}

fn chat(prompt: &Prompt) -> Result<&[Message], String> {
    match prompt {
        Prompt::Chat(messages) => Ok(messages),
        Prompt::TokenIds(_) => {
            Err("a chat endpoint takes messages, not token ids; `api: completions` takes both".to_owned())
        }
    }
}

/// The prompt of a completion: the messages one after the other without any template, or token ids.
fn completion_prompt(prompt: &Prompt, dialect: Dialect) -> Result<Value, String> {
    match prompt {
        Prompt::Chat(messages) => Ok(json!(completion_text(messages))),
        Prompt::TokenIds(_) if dialect == Dialect::Ninfer => Err("NInfer takes no token ids as a prompt".to_owned()),
        Prompt::TokenIds(ids) => Ok(json!(ids)),
    }
}

/// What a completion of these messages continues.
pub fn completion_text(messages: &[Message]) -> String {
    messages.iter().map(|message| message.content.as_str()).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{RequestKey, Sampling};

    fn request(prompt: Prompt) -> Request {
        Request {
            key: RequestKey { arm: "a".into(), cell: "c".into(), repeat: 0, index: 0, warmup: false },
            prompt,
            prompt_tokens_planned: None,
            sampling: Sampling::default(),
            max_tokens: 9,
            ignore_eos: true,
            seed: 5,
        }
    }

    fn message(role: &str, content: &str) -> Message {
        Message { role: role.into(), content: content.into() }
    }

    fn made(prompt: Prompt, dialect: Dialect, change: impl Fn(&mut EndpointSettings)) -> Result<Value, String> {
        let mut settings = EndpointSettings::new("http://h/v1", "m");
        change(&mut settings);
        body(&settings, dialect, &request(prompt)).map(|bytes| serde_json::from_slice(&bytes).unwrap())
    }

    fn json(dialect: Dialect, change: impl Fn(&mut EndpointSettings)) -> Value {
        made(Prompt::Chat(vec![message("user", "hi \"世\"")]), dialect, change).unwrap()
    }

    #[test]
    fn every_sampler_field_is_sent_although_it_is_a_default() {
        let want = json!({
            "model": "m",
            "messages": [{"role": "user", "content": "hi \"世\""}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 9, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 5, "ignore_eos": true,
        });
        assert_eq!(json(Dialect::Openai, |s| s.chunk_counts = true), want);
        assert_eq!(json(Dialect::Auto, |_| ()), want);
        assert_eq!(json(Dialect::Inferlab, |_| ()), want);
        for api in [Api::Completions, Api::Messages] {
            let body = json(Dialect::Openai, |s| s.api = api);
            let sampler = ["temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"];
            for name in sampler.iter().chain(&["seed", "ignore_eos", "max_tokens"]) {
                assert_eq!(body[name], want[name], "{name} of {api:?}");
            }
        }
    }

    #[test]
    fn llama_cpp_is_told_not_to_use_its_cache_in_cold_workloads_only() {
        assert_eq!(json(Dialect::LlamaCpp, |_| ())["cache_prompt"], json!(false));
        assert_eq!(json(Dialect::LlamaCpp, |s| s.cold = false).get("cache_prompt"), None);
        assert_eq!(json(Dialect::LlamaCpp, |_| ()).get("timings_per_token"), None);
        assert_eq!(json(Dialect::LlamaCpp, |s| s.chunk_counts = true)["timings_per_token"], json!(true));
    }

    #[test]
    fn counts_in_every_chunk_and_fixed_lengths_are_asked_as_each_server_has_them() {
        for dialect in [Dialect::Vllm, Dialect::Sglang] {
            let body = json(dialect, |s| s.chunk_counts = true);
            assert_eq!(body["stream_options"], json!({"include_usage": true, "continuous_usage_stats": true}));
            // sglang `sampling_params.py`: top_k is -1 or at least 1.
            assert_eq!((&body["top_k"], &body["min_tokens"]), (&json!(-1), &json!(9)), "{dialect:?}");
        }
        assert_eq!(json(Dialect::Openai, |_| ()).get("min_tokens"), None);
    }

    #[test]
    fn token_ids_are_no_chat_but_a_completion() {
        let ids = || Prompt::TokenIds(vec![1, 2]);
        assert!(made(ids(), Dialect::Openai, |_| ()).unwrap_err().contains("api: completions"));
        assert!(made(ids(), Dialect::Openai, |s| s.api = Api::Messages).is_err());
        let completion = |dialect| made(ids(), dialect, |s| s.api = Api::Completions);
        assert_eq!(completion(Dialect::Vllm).unwrap()["prompt"], json!([1, 2]));
        assert!(completion(Dialect::Ninfer).is_err());
    }

    #[test]
    fn instructions_stand_apart_in_messages_and_in_line_in_a_completion() {
        let chat = || Prompt::Chat(vec![message("system", "be brief"), message("user", "hi")]);
        let messages = made(chat(), Dialect::Ninfer, |s| s.api = Api::Messages).unwrap();
        assert_eq!(messages["system"], "be brief");
        assert_eq!(messages["messages"], json!([{"role": "user", "content": "hi"}]));
        assert_eq!(messages.get("stream_options"), None);
        let completion = made(chat(), Dialect::Vllm, |s| s.api = Api::Completions).unwrap();
        assert_eq!(completion["prompt"], "be brief\n\nhi");
    }

    #[test]
    fn thinking_is_sent_and_a_budget_that_leaves_no_answer_is_refused() {
        assert_eq!(json(Dialect::Ninfer, |s| s.thinking = Thinking::Off)["enable_thinking"], false);
        assert_eq!(json(Dialect::Ninfer, |_| ()).get("enable_thinking"), None);
        let chat = Prompt::Chat(vec![message("user", "hi")]);
        let refused = made(chat, Dialect::Ninfer, |s| {
            (s.api, s.thinking) = (Api::Messages, Thinking::Budget(1024));
        });
        assert!(refused.unwrap_err().contains("leaves nothing"));
    }
}
