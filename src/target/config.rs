//! How a target is asked for: the YAML of `target`, its overrides, and the resolved configuration that runs.
//!
//! The YAML structs have only optional members, so that one type serves as base and as override; [`InProcess::over`] lays one
//! over the other. Resolving fills the defaults of the contract and picks one value of every axis.
mod endpoint;
mod in_process;
mod model;
mod thinking;

use serde::{Deserialize, Serialize};

pub use endpoint::{
    Api, Dialect, Endpoint, EndpointConfig, Launch, PlaceholderText, Ready, StopBy, Timeouts, TimeoutsConfig,
    TokenizerFrom,
};
pub use in_process::{
    Device, Draft, InProcess, InProcessConfig, KvDtype, SchedulerPolicy, Speculation, SyntheticAcceptance,
};
pub use model::{ModelRef, Synthetic};
pub use thinking::{Thinking, thinking_members};

/// `target` of an experiment file, or the part of it that an arm overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetEntry {
    /// Our own engine, in this process.
    InProcess(InProcess),
    /// A server that speaks HTTP.
    Endpoint(Endpoint),
}

impl TargetEntry {
    /// The YAML key.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::InProcess(_) => "in_process",
            Self::Endpoint(_) => "endpoint",
        }
    }
}

/// A resolved target: what one arm runs on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetConfig {
    /// Our own engine, in this process.
    InProcess(InProcessConfig),
    /// A server that speaks HTTP.
    Endpoint(EndpointConfig),
}

/// Declares a YAML struct whose members are all optional, with `over`: plain members are replaced, `deep` ones are laid over
/// member by member, `maps` key by key. Lists are replaced.
macro_rules! layered {
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$attr:meta])* $field:ident : $ty:ty,)*
            $(; deep $($(#[$deep_attr:meta])* $deep:ident : $deep_ty:ty,)*)?
            $(; maps $($(#[$map_attr:meta])* $map:ident : $map_ty:ty,)*)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$attr])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)*
            $($($(#[$deep_attr])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $deep: Option<$deep_ty>,)*)?
            $($($(#[$map_attr])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $map: Option<$map_ty>,)*)?
        }

        impl $name {
            /// This layer over `base`: what is absent here is taken from there.
            #[must_use]
            pub fn over(&self, base: &Self) -> Self {
                Self {
                    $($field: self.$field.clone().or_else(|| base.$field.clone()),)*
                    $($($deep: match (&self.$deep, &base.$deep) {
                        (Some(over), Some(base)) => Some(over.over(base)),
                        (over, base) => over.clone().or_else(|| base.clone()),
                    },)*)?
                    $($($map: match (&self.$map, &base.$map) {
                        (Some(over), Some(base)) => Some(base.clone().into_iter().chain(over.clone()).collect()),
                        (over, base) => over.clone().or_else(|| base.clone()),
                    },)*)?
                }
            }
        }
    };
}
use layered;
