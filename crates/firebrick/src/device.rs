//! The recipe's device: opening it, introducing it, and saying what happened when it fails.

use burn::tensor::Device;
use firebrick_device::{Cause, Failure, Kind, Name, OpenError, Precision, describe, guard};
use firebrick_rollout::RolloutError;
use firebrick_train::TrainError;

use crate::{ProgramError, commands::gibibytes, recipe::Recipe};

/// The device of `recipe`. Everything computes in f32, whatever the device.
pub(crate) fn open(recipe: &Recipe) -> Result<Device, ProgramError> {
    Ok(firebrick_device::open(recipe.device.name(), Precision::F32)?)
}

/// What a user should know of a GPU before anything is computed on it.
pub(crate) fn introduce(name: Name, device: &Device) -> Result<Option<String>, ProgramError> {
    if name.kind == Kind::Cpu {
        return Ok(None);
    }
    let about =
        guard(|| describe(name, device)).map_err(|failure| OpenError::Broken { name, failure })?;
    let software = match about.software {
        true => ", a software device: it computes on the processor",
        false => "",
    };
    Ok(Some(format!("on {name}, {}{software}", about.name)))
}

/// Runs what computes on the recipe's device; whatever way the device fails, it is one kind of
/// error. On the CPU a panic stays one: there it is a bug of ours.
pub(crate) fn guarded<T>(
    recipe: &Recipe,
    work: impl FnOnce() -> Result<T, ProgramError>,
) -> Result<Result<T, ProgramError>, Failure> {
    let result = match recipe.device.kind {
        Kind::Cpu => work(),
        _ => guard(work)?,
    };
    match result {
        Err(ProgramError::Train(
            TrainError::Device(words) | TrainError::Rollout(RolloutError::Device(words)),
        )) => Err(Failure::new(words)),
        result => Ok(result),
    }
}

/// The same for work that is not part of a run, and so leaves nothing to save.
pub(crate) fn unsaved<T>(
    recipe: &Recipe,
    device: &Device,
    phase: &str,
    work: impl FnOnce() -> Result<T, ProgramError>,
) -> Result<T, ProgramError> {
    guarded(recipe, work).unwrap_or_else(|failure| {
        Err(failed(recipe, device, phase.into(), &failure, "nothing was changed".into()))
    })
}

/// The error of a device that failed in `phase`; `saved` says what is left.
pub(crate) fn failed(
    recipe: &Recipe,
    device: &Device,
    phase: String,
    failure: &Failure,
    saved: String,
) -> ProgramError {
    let name = recipe.device.name();
    let (problem, remedy) = match failure.cause() {
        Cause::OutOfMemory { asked } => {
            let asked =
                asked.map_or_else(String::new, |asked| format!(" for {}", gibibytes(asked)));
            (
                format!("it has no memory{asked}; {}", memory(name, device)),
                format!(
                    "lower train.micro_batch_tokens (now {}) or rollout.max_sequences (now {})",
                    recipe.train.micro_batch_tokens, recipe.rollout.max_sequences
                ),
            )
        }
        Cause::Lost => (
            format!("the driver lost it: {failure}"),
            "the kernel's log (dmesg) tells more of it; a restart of the program opens it anew"
                .into(),
        ),
        Cause::Other => (
            failure.to_string(),
            format!("firebrick doctor --device {name} --suite tells whether it computes rightly"),
        ),
    };
    ProgramError::DeviceFailed { device: name, phase, problem, remedy, saved }
}

/// What there was.
fn memory(name: Name, device: &Device) -> String {
    let used = guard(|| device.memory_pool_usage()).ok().flatten();
    let about = guard(|| describe(name, device)).ok();
    let used = used
        .map_or_else(String::new, |usage| format!("{} are in use", gibibytes(usage.bytes_in_use)));
    let all = about.as_ref().and_then(|about| about.memory);
    let all = all.map_or_else(String::new, |bytes| format!(" of {}", gibibytes(bytes)));
    let largest = about.and_then(|about| about.largest_tensor);
    let largest = largest.map_or_else(String::new, |bytes| {
        format!(", and one tensor may have {} at most", gibibytes(bytes))
    });
    format!("{used}{all}{largest}")
}
