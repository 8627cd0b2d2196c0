//! Memory of the machine and its device, and the warning of a run that does not fit into it.

use std::path::Path;

use firebrick_device::{Kind, Name, Precision, describe, gibibytes, guard, open};
use firebrick_models::Compute;

use super::{ChunkPlan, Plan};
use crate::{
    build, model,
    recipe::{ComputeType, Recipe, Recompute},
    source::Sources,
};

/// A device's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Size in bytes; `None` if it is not known.
    pub bytes: Option<u64>,
    /// Source of that number, or the reason why it is not known.
    pub words: String,
}

impl Memory {
    /// Asks a GPU's driver for all the memory that it has. For the CPU, counts the host memory that is not in use.
    pub fn of_device(name: Name) -> Self {
        if name.kind == Kind::Cpu {
            return match available() {
                Some(bytes) => Memory { bytes: Some(bytes), words: "free on this machine".into() },
                None => Memory { bytes: None, words: "this system does not report it".into() },
            };
        }

        let about =
            open(name, Precision::F32).map_err(|error| error.to_string()).and_then(|device| {
                guard(|| describe(name, &device)).map_err(|error| error.to_string())
            });

        match about.map(|about| about.memory) {
            Ok(Some(bytes)) => Memory { bytes: Some(bytes), words: format!("all that {name} has") },
            Ok(None) => Memory { bytes: None, words: format!("{name} does not report it") },
            Err(problem) => Memory { bytes: None, words: problem },
        }
    }
}

/// Returns the warning that a run begins with if its plan does not fit into the memory.
pub fn warning(recipe: &Recipe, sources: &Sources) -> Option<String> {
    let models = build::model_sizes(recipe, sources).ok()?;
    let available = Memory::of_device(recipe.device.name()).bytes?;
    let plan = Plan::new(&models, recipe, compute(recipe).0, Some(available));
    if plan.fits(available) {
        return None;
    }

    let (peak, moment) = plan.peak();
    Some(format!(
        "the run may not fit into the memory: it needs about {} (peak, {}), {} available; `firebrick \
         plan` shows more",
        gibibytes(peak),
        moment.in_words(),
        gibibytes(available)
    ))
}

/// How a run's updates are split into micro-batches, the chunks in which they compute, and what the engine unpacks.
#[derive(Clone, Copy, Debug)]
pub struct MicroBatchPlan {
    /// Chunk sizes of the tensors that never exist as a whole.
    pub chunks: ChunkPlan,
    /// Number of layers of which an update keeps more than the input.
    pub whole_layers: usize,
    /// True if the engine unpacks weights of 8 or 4 bits once for all its steps.
    pub unpacks_once: bool,
}

/// Decides how the updates of `recipe` are split. A program that brings its own policy has no sources, so the sizes are
/// not known; all activations of the layers are then kept, unless the recipe says otherwise.
pub fn micro_batching(recipe: &Recipe, sources: Option<&Sources>) -> MicroBatchPlan {
    let memory = Memory::of_device(recipe.device.name()).bytes;
    let models = sources.and_then(|sources| build::model_sizes(recipe, sources).ok());

    match models {
        Some(models) => {
            let facts = Plan::new(&models, recipe, compute(recipe).0, memory).facts;
            let whole_layers = usize::try_from(facts.work.whole_layers).unwrap_or(usize::MAX);
            let unpacks_once = facts.unpacks_once;
            MicroBatchPlan { chunks: facts.chunks, whole_layers, unpacks_once }
        }
        None => MicroBatchPlan {
            chunks: ChunkPlan::for_device(recipe.device.name(), memory, 0),
            whole_layers: match recipe.train.recompute {
                Recompute::Layers => 0,
                Recompute::Auto | Recompute::None => usize::MAX,
            },
            unpacks_once: false,
        },
    }
}

/// Returns the device's matmul precision. The second value is true if that is an assumption, because the device can't
/// be asked.
pub fn compute(recipe: &Recipe) -> (Compute, bool) {
    let name = recipe.device.name();
    let dtype = recipe.model.dtype;
    let device_compute = guard(|| {
        let device = open(name, Precision::F32).ok()?;
        model::compute(dtype, name, &device).ok()
    });

    match (device_compute.ok().flatten(), dtype) {
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

/// Returns the bytes of host memory that a new process can have without swapping. A limit of a control group reduces
/// it.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)?;

    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit = group_limit(Path::new("/sys/fs/cgroup"), &groups);
    Some(limit.map_or(free, |limit| limit.min(free)))
}

/// Returns the smallest limit of the control groups in `groups`, the text of `/proc/self/cgroup`, in bytes. `root` has
/// the folders of all groups. A job of Slurm or a unit of systemd often has no limit itself although a group above it
/// has one, and a container sees its own group as `root`, perhaps under a path that is not there. So every group is
/// read, from that of the process up to `root`. Where there is no limit, version 1 has a huge number and version 2 the
/// word `max`.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = |line: &str| -> Vec<u64> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            return Vec::new();
        };

        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            names if names.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };

        let path = Path::new(path.trim_start_matches('/'));
        // The last of these is empty, which is the root.
        let folders = path.ancestors().map(|folder| root.join(folder));
        let texts = folders.filter_map(|folder| std::fs::read_to_string(folder.join(file)).ok());
        texts.filter_map(|text| text.trim().parse().ok()).collect()
    };
    groups.lines().flat_map(limits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case has the groups of a process, the files with limits, and the limit that holds.
    #[test]
    fn the_smallest_limit_of_all_groups_above_a_process_holds() {
        let job = "0::/slurm/job_7/step_0\n";
        let old = "12:cpu,cpuacct:/slurm\n5:hugetlb,memory:/slurm/job_7\n0::/user\n";
        let none = "9223372036854771712";
        let max = "memory/memory.limit_in_bytes";
        let limit = "memory/slurm/job_7/memory.limit_in_bytes";

        for (groups, files, expected) in [
            // A step has no limit, its job has one, and the group above them a larger one.
            (
                job,
                &[
                    ("slurm/job_7/step_0/memory.max", "max\n"),
                    ("slurm/job_7/memory.max", "4096\n"),
                    ("slurm/memory.max", "8192\n"),
                    ("memory.max", "16384\n"),
                    ("slurm/job_8/memory.max", "1\n"),
                ][..],
                Some(4096),
            ),
            (job, &[("slurm/job_7/step_0/memory.max", "512"), ("memory.max", "1024")], Some(512)),
            // In a container the path may be that of the machine outside.
            (job, &[("memory.max", "1024\n")], Some(1024)),
            ("0::/\n", &[("memory.max", "1024\n")], Some(1024)),
            (old, &[(limit, "2048\n"), (max, none), ("memory.max", "max")], Some(2048)),
            (old, &[("memory/user/memory.limit_in_bytes", "1"), (max, "4096")], Some(4096)),
            (job, &[("memory.max", "max\n")], None),
            ("nonsense\n\n:\n", &[("memory.max", "many")], None),
            ("", &[], None),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let path = root.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }

            assert_eq!(group_limit(root.path(), groups), expected, "{groups:?} {files:?}");
        }
    }
}
