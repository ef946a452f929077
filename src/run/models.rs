//! Whether the models that a plan names exist, before anything is fetched or started.
use miette::Diagnostic;

use super::RunError;
use crate::engine::weights::SHAPES;
use crate::experiment::Plan;
use crate::pin::{PinError, Store};
use crate::target::config::{ModelRef, TargetConfig};
use crate::yaml::{inline, nearest, quoted};

/// Refuses a model that no pin, file or shape stands for. Nothing is fetched, and no model file is opened.
///
/// # Errors
/// An unknown shape, with its place in the file; a name that is neither a pin nor a file.
pub fn check_models(plan: &Plan) -> Result<(), RunError> {
    for arm in &plan.arms {
        let TargetConfig::InProcess(target) = &arm.target else { continue };
        match &target.model {
            ModelRef::Synthetic(model) if SHAPES.contains(&model.shape.as_str()) => {}
            ModelRef::Synthetic(model) => {
                let near =
                    nearest(&model.shape, &SHAPES).map_or(String::new(), |near| format!("did you mean `{near}`? "));
                let message = format!("there is no shape `{}`", inline(&model.shape));
                return Err(plan.model_error(arm, message, format!("{near}shapes: {}", quoted(&SHAPES))).into());
            }
            ModelRef::Named(name) => match Store::from_environment()?.expect(name) {
                Err(error @ (PinError::Unknown { .. } | PinError::NotAFile { .. })) => {
                    let help = error.help().map_or(String::new(), |help| help.to_string());
                    return Err(RunError::NoModel { message: error.to_string(), help, at: plan.model_place(arm) });
                }
                other => other?,
            },
        }
    }
    Ok(())
}
