//! Opens the recipe's device, introduces it, and explains its failures.
//!
//! A program that brings its own policy opens a device by name:
//!
//! ```
//! use firebrick::device::{Precision, open};
//!
//! let device = open("cpu".parse()?, Precision::F32)?.autodiff();
//! assert!(device.is_autodiff());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use burn::tensor::Device;
use firebrick_device::{Cause, Description, Failure, OpenError, describe, gibibytes, guard};
use firebrick_kernels::{Kernels, use_kernels};
use firebrick_models::CheckpointError;
use firebrick_rollout::RolloutError;
use firebrick_train::{TrainError, learner::Replicas};

pub use firebrick_device::{Kind, Name, Precision, open};

use crate::{
    Error,
    recipe::{self, Recipe},
};

/// Opens the device of `recipe`, which then computes with the recipe's kernels. Everything is f32, whatever the device.
pub(crate) fn of_recipe(recipe: &Recipe) -> Result<Device, Error> {
    choose_kernels(recipe);
    Ok(open(recipe.device.name(), Precision::F32)?)
}

/// Opens the devices of `recipe` next to the first of them.
pub(crate) fn replicas(recipe: &Recipe) -> Result<Replicas, Error> {
    let Name { kind, index } = recipe.device.name();
    let names = (1..recipe.device.count).map(|next| Name { kind, index: index + next });
    // The CPU is one device, whatever number the recipe asks for.
    let name = |name: Name| if kind == Kind::Cpu { recipe.device.name() } else { name };
    let devices = names.map(|it| open(name(it), Precision::F32)).collect::<Result<Vec<_>, _>>()?;
    Ok(Replicas::new(devices))
}

/// Makes the device compute with the recipe's kernels.
pub(crate) fn choose_kernels(recipe: &Recipe) {
    use_kernels(match recipe.device.kernels {
        recipe::Kernels::Fast => Kernels::Fast,
        recipe::Kernels::Reference => Kernels::Reference,
    });
}

/// Describes a GPU for the user before anything is computed on it.
pub(crate) fn introduce(name: Name, device: &Device) -> Result<Option<String>, Error> {
    if name.kind == Kind::Cpu {
        return Ok(None);
    }
    let about =
        guard(|| describe(name, device)).map_err(|failure| OpenError::Broken { name, failure })?;
    Ok(Some(format!("on {name}, {}", about.headline())))
}

/// Runs work on the recipe's device. Whatever the failure of the device, the error is of the same kind. On the CPU a
/// panic stays a panic, because there it is a bug in Firebrick.
pub(crate) fn guarded<T>(
    recipe: &Recipe,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<Result<T, Error>, Failure> {
    let result = match recipe.device.kind {
        Kind::Cpu => work(),
        _ => guard(work)?,
    };

    match &result {
        Err(error) => match device_message(error) {
            Some(message) => Err(Failure::new(message.to_owned())),
            None => Ok(result),
        },
        Ok(_) => Ok(result),
    }
}

/// Returns the message of a device that failed, or `None` for any other error.
fn device_message(error: &Error) -> Option<&str> {
    match error {
        Error::Checkpoint(CheckpointError::Device(message))
        | Error::Train(
            TrainError::Device(message)
            | TrainError::Rollout(RolloutError::Device(message))
            | TrainError::Weights(CheckpointError::Device(message)),
        ) => Some(message),
        _ => None,
    }
}

/// Runs work on `device`, the recipe's device. The work is not part of a run, and so leaves nothing to save.
/// `smaller` is the advice if memory is short.
///
/// # Errors
/// The work's own errors, and any failure of the device, as one kind of error.
pub fn unsaved<T>(
    recipe: &Recipe,
    device: &Device,
    phase: &str,
    smaller: String,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    guarded(recipe, work).unwrap_or_else(|failure| {
        Err(failed(recipe, device, phase.into(), &failure, smaller, "nothing was changed".into()))
    })
}

/// Returns the advice if not even the weights fit.
pub(crate) fn smaller_model() -> String {
    "train an adapter (--set model.lora.rank=16), or take a smaller model or a device with more memory; \
     `firebrick plan` says what fits"
        .into()
}

/// Returns the advice if sampling takes too much memory.
pub fn fewer_sequences(recipe: &Recipe) -> String {
    format!("lower rollout.max_sequences (now {})", recipe.rollout.max_sequences)
}

/// Makes the error of a device that failed in `phase`. `smaller` is the advice if memory was short, and `saved`
/// says what is left.
pub(crate) fn failed(
    recipe: &Recipe,
    device: &Device,
    phase: String,
    failure: &Failure,
    smaller: String,
    saved: String,
) -> Error {
    let name = recipe.device.name();

    let (problem, remedy) = match failure.cause() {
        Cause::OutOfMemory { requested } => {
            let about = guard(|| describe(name, device)).ok();
            let largest = about.as_ref().and_then(|about| about.largest_tensor);
            let memory_note =
                memory(device, about.as_ref()).map(|memory_note| format!("; {memory_note}"));
            let memory_note = memory_note.unwrap_or_default();
            let for_it = requested
                .map(|requested| format!(" for {}", gibibytes(requested)))
                .unwrap_or_default();

            let remedy = match requested.zip(largest) {
                Some((requested, largest)) if requested > largest => format!(
                    "the device can't hold a tensor of that size: for a weight, use a smaller \
                     model or another device; otherwise {smaller}"
                ),
                _ => smaller,
            };
            (format!("it has no memory{for_it}{memory_note}"), remedy)
        }
        Cause::Lost => (
            format!("the driver lost the device: {failure}"),
            "look into the kernel's log (dmesg), and start the program again, which opens the \
             device again"
                .into(),
        ),
        Cause::Bug => (
            failure.to_string(),
            "this looks like a bug of firebrick: please report it, with RUST_BACKTRACE=1".into(),
        ),
        Cause::Other => (
            failure.to_string(),
            format!(
                "`firebrick doctor --device {name} --suite` tests whether it computes correctly"
            ),
        ),
    };

    Error::DeviceFailed { device: name, phase, problem, remedy, saved }
}

/// Describes the device's memory, as far as the device reports it.
fn memory(device: &Device, about: Option<&Description>) -> Option<String> {
    let used = guard(|| device.memory_pool_usage()).ok().flatten();
    let parts = [
        used.map(|usage| format!("{} in use", gibibytes(usage.bytes_in_use))),
        about.and_then(|about| about.memory).map(|all| format!("{} in all", gibibytes(all))),
        about
            .and_then(|about| about.largest_tensor)
            .map(|most| format!("one tensor may have {}", gibibytes(most))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
