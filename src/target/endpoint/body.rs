//! The body of a chat request: every sampler field is always sent, so that no default of a server hides in a result.
use serde::Serialize;

use super::settings::EndpointSettings;
use crate::request::{Message, Prompt, Request};
use crate::target::config::Dialect;

#[derive(Serialize)]
struct ChatBody<'a> {
    model: &'a str,
    messages: &'a [Message],
    stream: bool,
    stream_options: StreamOptions,
    max_tokens: u32,
    temperature: f64,
    top_p: f64,
    top_k: u32,
    min_p: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    seed: u32,
    ignore_eos: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_prompt: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings_per_token: Option<bool>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The body of `request`, or `None` when its prompt is token ids, which no chat endpoint takes.
pub fn chat_body(settings: &EndpointSettings, dialect: Dialect, request: &Request) -> Option<Vec<u8>> {
    let Prompt::Chat(messages) = &request.prompt else { return None };
    let s = request.sampling;
    let llama_cpp = dialect == Dialect::LlamaCpp;
    let body = ChatBody {
        model: &settings.model,
        messages,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: request.max_tokens,
        temperature: s.temperature,
        top_p: s.top_p,
        top_k: s.top_k,
        min_p: s.min_p,
        presence_penalty: s.presence_penalty,
        frequency_penalty: s.frequency_penalty,
        seed: request.seed,
        ignore_eos: request.ignore_eos,
        // The nonce already keeps a prompt from hitting; this keeps even its template from being taken from another slot.
        cache_prompt: (llama_cpp && settings.cold).then_some(false),
        timings_per_token: (llama_cpp && settings.chunk_counts).then_some(true),
    };
    serde_json::to_vec(&body).ok()
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

    fn json(dialect: Dialect, change: impl Fn(&mut EndpointSettings)) -> serde_json::Value {
        let mut settings = EndpointSettings::new("http://h/v1", "m");
        change(&mut settings);
        let chat = Prompt::Chat(vec![Message { role: "user".into(), content: "hi \"世\"".into() }]);
        serde_json::from_slice(&chat_body(&settings, dialect, &request(chat)).unwrap()).unwrap()
    }

    #[test]
    fn every_sampler_field_is_sent_although_it_is_a_default() {
        let want = serde_json::json!({
            "model": "m",
            "messages": [{"role": "user", "content": "hi \"世\""}],
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 9, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 5, "ignore_eos": true,
        });
        assert_eq!(json(Dialect::Openai, |s| s.chunk_counts = true), want);
        assert_eq!(json(Dialect::Auto, |_| ()), want);
    }

    #[test]
    fn llama_cpp_is_told_not_to_use_its_cache_in_cold_workloads_only() {
        assert_eq!(json(Dialect::LlamaCpp, |_| ())["cache_prompt"], serde_json::json!(false));
        assert_eq!(json(Dialect::LlamaCpp, |s| s.cold = false).get("cache_prompt"), None);
        assert_eq!(json(Dialect::LlamaCpp, |_| ()).get("timings_per_token"), None);
        assert_eq!(json(Dialect::LlamaCpp, |s| s.chunk_counts = true)["timings_per_token"], serde_json::json!(true));
    }

    #[test]
    fn token_ids_are_no_chat() {
        let settings = EndpointSettings::new("http://h/v1", "m");
        assert_eq!(chat_body(&settings, Dialect::Openai, &request(Prompt::TokenIds(vec![1]))), None);
    }
}
