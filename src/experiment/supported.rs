//! What the contract names and this version does not do yet: read, and refused by name and place.
use super::{Experiment, ExperimentError, Language, Thinking};
use crate::target::config::{
    self, Api, Device, Dialect, Endpoint, InProcess, KvDtype, Speculation, TargetEntry, thinking_members,
};
use crate::workload::{Load, Workload};
use crate::yaml::{Axis, KeyPath, Part};

impl From<&Thinking> for config::Thinking {
    fn from(thinking: &Thinking) -> Self {
        match *thinking {
            Thinking::Default => Self::Default,
            Thinking::Off => Self::Off,
            Thinking::On => Self::On,
            Thinking::Budget(tokens) => Self::Budget(tokens),
        }
    }
}

/// KV formats of this version's engine.
const KV_DTYPES: [KvDtype; 2] = [KvDtype::F32, KvDtype::Bf16];

impl Experiment {
    /// Refuses the first key, in the order of the contract, whose feature comes in a later version.
    ///
    /// # Errors
    /// [`ExperimentError::Unsupported`] with the key and its place.
    pub fn check_supported(&self) -> Result<(), ExperimentError> {
        let root = KeyPath::root();
        self.target_supported(&self.target, &root.key("target"))?;
        for (index, arm) in self.arms.iter().flatten().enumerate() {
            if let Some(over) = &arm.over {
                self.target_supported(over, &root.key("arms").index(index).key("override"))?;
            }
        }
        self.thinking_supported(&root)?;
        if self.power.is_some() {
            return self.refuse_key(&root.key("power"), "the price of energy", "delete the key");
        }
        for (index, workload) in self.workloads.iter().enumerate() {
            self.load_supported(workload, &root.key("workloads").index(index).key(workload.key()))?;
        }
        if self.report.language != Language::En {
            return self.refuse(
                &root.key("report").key("language"),
                "a report in another language than English",
                "write `language: en`",
            );
        }
        Ok(())
    }

    fn load_supported(&self, workload: &Workload, path: &KeyPath) -> Result<(), ExperimentError> {
        let load = workload.load();
        let path = path.key("load").key(load.key());
        let what = format!("the load `{}`", load.key());
        match (workload, load) {
            (_, Load::Closed(_)) => Ok(()),
            (_, Load::Trace(_)) => self.refuse_key(&path, &what, "use `poisson`, `constant`, `ramp` or `closed`"),
            (Workload::Serving(_), _) => Ok(()),
            // Their question is a concurrency or a length: an open loop would answer another one.
            (Workload::DecodeScaling(_) | Workload::PrefillScaling(_), _) => self.refuse_key(
                &path,
                &format!("{what} in `{}`", workload.key()),
                "use a closed loop, `load: {closed: {concurrency: 1}}`, or the workload `serving`",
            ),
        }
    }

    fn target_supported(&self, target: &TargetEntry, path: &KeyPath) -> Result<(), ExperimentError> {
        let path = path.key(target.kind());
        match target {
            TargetEntry::InProcess(target) => self.in_process_supported(target, &path),
            TargetEntry::Endpoint(target) => self.endpoint_supported(target, &path),
        }
    }

    fn in_process_supported(&self, target: &InProcess, path: &KeyPath) -> Result<(), ExperimentError> {
        if let Some(device @ (Device::Cuda(_) | Device::GpuUuid(_))) = &target.device {
            return self.refuse(
                &path.key("device"),
                &format!("the device `{device}`"),
                "write `device: cpu` or `device: auto`",
            );
        }
        if let Some((at, dtype)) =
            first_of(&path.key("kv_dtype"), target.kv_dtype.as_ref(), |dtype| KV_DTYPES.contains(dtype))
        {
            return self.refuse(&at, &format!("the KV dtype `{}`", dtype.word()), "use `f32` or `bf16`");
        }
        if let Some((at, _)) =
            first_of(&path.key("speculation"), target.speculation.as_ref(), |s| *s == Speculation::None)
        {
            return self.refuse(&at, "speculative decoding", "write `speculation: none`, or delete the key");
        }
        if let Some((at, _)) = first_of(&path.key("prefix_cache"), target.prefix_cache.as_ref(), |on| !on) {
            return self.refuse(
                &at,
                "a prefix cache",
                "write `prefix_cache: false`, or delete the key: this version computes every prompt",
            );
        }
        Ok(())
    }

    /// Our engine does not think; a server is asked in the way of its dialect, where it has one.
    fn thinking_supported(&self, root: &KeyPath) -> Result<(), ExperimentError> {
        let (path, axis) = (root.key("thinking"), &self.thinking);
        let TargetEntry::Endpoint(base) = &self.target else {
            return match first(&path, axis, |thinking| *thinking == Thinking::Default) {
                None => Ok(()),
                Some((path, _)) => self.refuse(
                    &path,
                    "asking the built-in engine for thinking",
                    "delete the key: the target does as it does by default",
                ),
            };
        };
        let overrides = self.arms.iter().flatten().map(|arm| match &arm.over {
            Some(TargetEntry::Endpoint(over)) => (over.api.or(base.api), over.dialect.or(base.dialect)),
            _ => (base.api, base.dialect),
        });
        let endpoints: Vec<(Api, Dialect)> = std::iter::once((base.api, base.dialect))
            .chain(overrides)
            .map(|(api, dialect)| (api.unwrap_or(Api::Chat), dialect.unwrap_or(Dialect::Auto)))
            .collect();
        let refusal = |thinking: &Thinking| {
            let mut refused = endpoints.iter().filter_map(|&(api, dialect)| {
                // Which server it is shows when it is asked.
                let open = dialect == Dialect::Auto && api == Api::Chat;
                thinking_members(api, dialect, thinking.into()).err().filter(|_| !open)
            });
            refused.next()
        };
        match first(&path, axis, |thinking| refusal(thinking).is_none()) {
            None => Ok(()),
            Some((path, thinking)) => {
                let why = refusal(thinking).unwrap_or_default();
                Err(self.origin.rule(&path, why, "write `thinking: default`, or delete the key"))
            }
        }
    }

    fn endpoint_supported(&self, target: &Endpoint, path: &KeyPath) -> Result<(), ExperimentError> {
        if target.model_shape.is_some() {
            return self.refuse_key(&path.key("model_shape"), "a roofline", "delete the key");
        }
        if target.launch.is_some() {
            return self.refuse_key(
                &path.key("launch"),
                "launching a server",
                "start the server yourself and delete the key",
            );
        }
        Ok(())
    }

    fn refuse(&self, path: &KeyPath, what: &str, help: &str) -> Result<(), ExperimentError> {
        self.unsupported(path, Part::Value, what, help)
    }

    fn refuse_key(&self, path: &KeyPath, what: &str, help: &str) -> Result<(), ExperimentError> {
        self.unsupported(path, Part::Key, what, help)
    }

    fn unsupported(&self, path: &KeyPath, part: Part, what: &str, help: &str) -> Result<(), ExperimentError> {
        Err(ExperimentError::Unsupported {
            path: path.to_string(),
            what: what.to_owned(),
            help: help.to_owned(),
            at: self.origin.place(path, part),
        })
    }
}

fn first_of<'a, T>(
    path: &KeyPath,
    axis: Option<&'a Axis<T>>,
    is_fine: impl Fn(&T) -> bool,
) -> Option<(KeyPath, &'a T)> {
    axis.and_then(|axis| first(path, axis, is_fine))
}

/// The first value of an axis that is not fine, with its path.
fn first<'a, T>(path: &KeyPath, axis: &'a Axis<T>, is_fine: impl Fn(&T) -> bool) -> Option<(KeyPath, &'a T)> {
    let (index, value) = axis.values().iter().enumerate().find(|(_, value)| !is_fine(value))?;
    Some((if axis.is_list() { path.index(index) } else { path.clone() }, value))
}
