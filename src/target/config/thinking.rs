//! How each server is told to think, not to think, or to think so many tokens (`facts/engines.md` §3.3, §4, §13).
use serde_json::{Value, json};

use super::{Api, Dialect};

/// The members that ask for `thinking`, or why this interface of this server cannot be asked.
///
/// - llama.cpp: `chat_template_kwargs.enable_thinking`; the budget under both names that its versions read.
/// - vLLM: `chat_template_kwargs.enable_thinking`, `thinking_token_budget`.
/// - SGLang: `chat_template_kwargs.enable_thinking`; the budget as `max_thinking_tokens` and `custom_params.thinking_budget`, which a
///   server without `--enable-strict-thinking` ignores in silence.
/// - NInfer: `enable_thinking`; a budget only on its Messages interface, from 1024 tokens.
/// - Messages: `thinking: {type, budget_tokens}`.
///
/// # Errors
/// One sentence: what is missing and what to use instead.
pub fn thinking_members(api: Api, dialect: Dialect, thinking: Thinking) -> Result<Vec<(&'static str, Value)>, String> {
    let template = |on: bool| ("chat_template_kwargs", json!({"enable_thinking": on}));
    let on = thinking != Thinking::Off;
    match (api, dialect) {
        _ if thinking == Thinking::Default => Ok(Vec::new()),
        (Api::Completions, _) => {
            Err("a completion has no chat template in which thinking could be switched; use `api: chat`".to_owned())
        }
        (Api::Messages, Dialect::LlamaCpp) => Ok(match thinking {
            // It reads the budget there, and passes the template's switch on.
            Thinking::Budget(n) => vec![template(true), ("thinking", json!({"type": "enabled", "budget_tokens": n}))],
            _ => vec![template(on)],
        }),
        (Api::Messages, _) => match thinking {
            Thinking::Budget(n) if n < LEAST_MESSAGES_BUDGET => {
                Err(format!("a budget of the Messages interface is at least {LEAST_MESSAGES_BUDGET} tokens, {n} were asked for"))
            }
            Thinking::Budget(n) => Ok(vec![("thinking", json!({"type": "enabled", "budget_tokens": n}))]),
            Thinking::On => Ok(vec![("thinking", json!({"type": "adaptive"}))]),
            Thinking::Off | Thinking::Default => Ok(vec![("thinking", json!({"type": "disabled"}))]),
        },
        (Api::Chat, Dialect::LlamaCpp) => {
            let mut members = vec![template(on)];
            if let Thinking::Budget(n) = thinking {
                members.extend([("reasoning_budget_tokens", json!(n)), ("thinking_budget_tokens", json!(n))]);
            }
            Ok(members)
        }
        (Api::Chat, Dialect::Vllm) => {
            let mut members = vec![template(on)];
            if let Thinking::Budget(n) = thinking {
                members.push(("thinking_token_budget", json!(n)));
            }
            Ok(members)
        }
        (Api::Chat, Dialect::Sglang) => {
            let mut members = vec![template(on)];
            if let Thinking::Budget(n) = thinking {
                members.push(("max_thinking_tokens", json!(n)));
                members.push(("custom_params", json!({"thinking_budget": n})));
            }
            Ok(members)
        }
        (Api::Chat, Dialect::Ninfer) => match thinking {
            Thinking::Budget(_) => {
                Err("NInfer takes a thinking budget only on its Messages interface; use `api: messages`".to_owned())
            }
            _ => Ok(vec![("enable_thinking", json!(on))]),
        },
        (Api::Chat, Dialect::Auto | Dialect::Openai | Dialect::Inferlab) => Err(
            "plain OpenAI has no member that switches thinking; name the dialect of the server (ninfer, sglang, vllm, llama_cpp)"
                .to_owned(),
        ),
    }
}

/// Fewest tokens of a budget on the Messages interface.
const LEAST_MESSAGES_BUDGET: u32 = 1024;

/// What is asked of a server's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thinking {
    /// Nothing: it does as it does.
    #[default]
    Default,
    /// Not to think.
    Off,
    /// To think.
    On,
    /// To think at most so many tokens.
    Budget(u32),
}

impl Thinking {
    /// As it stands in the row; `None` when nothing is asked.
    pub fn word(self) -> Option<String> {
        match self {
            Self::Default => None,
            Self::Off => Some("off".to_owned()),
            Self::On => Some("on".to_owned()),
            Self::Budget(n) => Some(format!("budget {n}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(api: Api, dialect: Dialect, thinking: Thinking) -> Option<Value> {
        thinking_members(api, dialect, thinking).ok().map(|m| m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    }

    /// The table of `facts/engines.md` §4 and §13.
    #[test]
    fn each_dialect_is_asked_in_its_own_way() {
        use Dialect::{LlamaCpp, Ninfer, Sglang, Vllm};
        let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
        for dialect in [LlamaCpp, Vllm, Sglang] {
            assert_eq!(asked(Api::Chat, dialect, Thinking::Off), Some(off.clone()));
        }
        assert_eq!(asked(Api::Chat, Ninfer, Thinking::On), Some(json!({"enable_thinking": true})));
        let budget = |dialect| asked(Api::Chat, dialect, Thinking::Budget(2000)).unwrap();
        assert_eq!(budget(Vllm)["thinking_token_budget"], 2000);
        assert_eq!(budget(Sglang)["custom_params"]["thinking_budget"], 2000);
        assert_eq!(budget(LlamaCpp)["reasoning_budget_tokens"], 2000);
        assert_eq!(
            asked(Api::Messages, Ninfer, Thinking::Budget(2000)),
            Some(json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}))
        );
        assert_eq!(asked(Api::Messages, Ninfer, Thinking::Off), Some(json!({"thinking": {"type": "disabled"}})));
    }

    #[test]
    fn what_cannot_be_asked_is_refused_and_silence_is_always_possible() {
        for dialect in [Dialect::Auto, Dialect::Openai, Dialect::Ninfer, Dialect::Vllm, Dialect::LlamaCpp] {
            assert_eq!(asked(Api::Completions, dialect, Thinking::Default), Some(json!({})));
            assert!(thinking_members(Api::Completions, dialect, Thinking::Off).unwrap_err().contains("api: chat"));
        }
        assert!(thinking_members(Api::Chat, Dialect::Openai, Thinking::On).unwrap_err().contains("name the dialect"));
        assert!(
            thinking_members(Api::Chat, Dialect::Ninfer, Thinking::Budget(2000)).unwrap_err().contains("api: messages")
        );
        assert!(thinking_members(Api::Messages, Dialect::Ninfer, Thinking::Budget(1000)).unwrap_err().contains("1024"));
    }
}
