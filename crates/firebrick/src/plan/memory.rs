//! The memory of the machine and its device, and the warning of a run that does not fit into it.

use firebrick_device::{Kind, Name, Precision, describe, gibibytes, guard, open};
use firebrick_models::Compute;

use super::{Pieces, Plan};
use crate::{
    model,
    recipe::{ComputeType, Recipe, Recompute},
    source::Sources,
    wire,
};

/// The memory of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// The number of bytes; `None` if nobody knows.
    pub bytes: Option<u64>,
    /// The source of that number, or the reason why it is not known.
    pub words: String,
}

impl Memory {
    /// Asks a GPU's driver for all the memory that it has. For the CPU, counts the machine's memory that is not
    /// in use.
    pub fn of(name: Name) -> Self {
        if name.kind == Kind::Cpu {
            return match available() {
                Some(bytes) => Memory { bytes: Some(bytes), words: "free on this machine".into() },
                None => Memory { bytes: None, words: "this system does not tell".into() },
            };
        }
        let about =
            open(name, Precision::F32).map_err(|error| error.to_string()).and_then(|device| {
                guard(|| describe(name, &device)).map_err(|error| error.to_string())
            });
        match about.map(|about| about.memory) {
            Ok(Some(bytes)) => Memory { bytes: Some(bytes), words: format!("all that {name} has") },
            Ok(None) => Memory { bytes: None, words: format!("{name} does not tell") },
            Err(problem) => Memory { bytes: None, words: problem },
        }
    }
}

/// Returns the warning that a run begins with if its plan does not fit into the memory.
pub fn warning(recipe: &Recipe, sources: &Sources) -> Option<String> {
    let models = wire::model_sizes(recipe, sources).ok()?;
    let there = Memory::of(recipe.device.name()).bytes?;
    let plan = Plan::new(&models, recipe, compute(recipe).0, Some(there));
    if plan.fits(there) {
        return None;
    }
    let (peak, moment) = plan.peak();
    Some(format!(
        "the run may not fit into the memory: about {} are needed ({}), {} are there; `firebrick \
         plan` shows more",
        gibibytes(peak),
        moment.name(),
        gibibytes(there)
    ))
}

/// The cut of a run's updates into pieces.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The size of the pieces of those tensors that are never there whole.
    pub pieces: Pieces,
    /// The number of layers of which an update keeps more than the input.
    pub whole_layers: usize,
}

/// Decides how the updates of `recipe` are cut. A program that brings its own policy has no sources, so the
/// sizes are not known; the layers are then kept whole, unless the recipe says otherwise.
pub fn cut(recipe: &Recipe, sources: Option<&Sources>) -> Cut {
    let memory = Memory::of(recipe.device.name()).bytes;
    let models = sources.and_then(|sources| wire::model_sizes(recipe, sources).ok());
    match models {
        Some(models) => {
            let facts = Plan::new(&models, recipe, compute(recipe).0, memory).facts;
            let whole_layers = usize::try_from(facts.work.whole_layers).unwrap_or(usize::MAX);
            Cut { pieces: facts.pieces, whole_layers }
        }
        None => Cut {
            pieces: Pieces::of(recipe.device.name(), memory, 0),
            whole_layers: match recipe.train.recompute {
                Recompute::Layers => 0,
                Recompute::Auto | Recompute::None => usize::MAX,
            },
        },
    }
}

/// Returns the format that the device multiplies in. The second value is true if that is an assumption, because
/// the device can't be asked.
pub fn compute(recipe: &Recipe) -> (Compute, bool) {
    let (name, dtype) = (recipe.device.name(), recipe.model.dtype);
    let asked = guard(|| {
        let device = open(name, Precision::F32).ok()?;
        model::compute(dtype, name, &device).ok()
    });
    match (asked.ok().flatten(), dtype) {
        (Some(compute), _) => (compute, false),
        (None, ComputeType::Float32) => (Compute::F32, false),
        (None, ComputeType::Bfloat16) => (Compute::Bf16, true),
        (None, ComputeType::Float16) => (Compute::F16, true),
        // Bfloat16 is assumed where it is likely. With Vulkan it takes an extension of the driver.
        (None, ComputeType::Auto) => match name.kind {
            Kind::Cuda | Kind::Rocm | Kind::Metal => (Compute::Bf16, true),
            Kind::Cpu | Kind::Vulkan | Kind::Wgpu => (Compute::F32, true),
        },
    }
}

/// Returns the machine's memory that a new process can have without swapping, in bytes. A limit of the control
/// group makes it less.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)?;
    let limit = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
    Some(limit.map_or(free, |limit| limit.min(free)))
}
