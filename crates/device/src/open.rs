use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use burn::tensor::Device;
#[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
use burn_dispatch::devices::{CubeDevice, WgpuBackend, WgpuDevice, WgpuDeviceKind};
use firebrick_kernels::keep_memory;

use crate::{
    Failure, Kind, Name, Precision,
    describe::{computes, describe, is_software},
    guard,
};

/// The kinds that this build can compute on; the CPU always.
pub fn compiled() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|&kind| is_compiled(kind)).collect()
}

fn is_compiled(kind: Kind) -> bool {
    match kind {
        Kind::Cpu => true,
        Kind::Vulkan => cfg!(feature = "vulkan"),
        Kind::Wgpu => cfg!(feature = "wgpu"),
        Kind::Metal => cfg!(feature = "metal"),
        Kind::Cuda => cfg!(feature = "cuda"),
        Kind::Rocm => cfg!(feature = "rocm"),
    }
}

/// The devices of `kind` that this machine has and this build reaches, in the order of their
/// numbers: discrete GPUs, integrated, virtual, and last those that compute on the processor.
///
/// # Errors
/// When the driver fails while it is asked.
pub fn list(kind: Kind) -> Result<Vec<Device>, Failure> {
    // Kept, because what a driver's loader finds does not change, and some of them talk each time.
    static FOUND: Mutex<BTreeMap<Kind, Vec<Device>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    match found.get(&kind) {
        Some(devices) => Ok(devices.clone()),
        None => {
            let devices = guard(|| enumerate(kind))?;
            Ok(found.entry(kind).or_insert(devices).clone())
        }
    }
}

fn enumerate(kind: Kind) -> Vec<Device> {
    #[cfg(feature = "gpu")]
    configure();
    match kind {
        Kind::Cpu => vec![Device::flex()],
        #[cfg(feature = "vulkan")]
        Kind::Vulkan => wgpu(WgpuBackend::Vulkan),
        #[cfg(feature = "wgpu")]
        Kind::Wgpu => wgpu(WgpuBackend::Auto),
        #[cfg(feature = "metal")]
        Kind::Metal => wgpu(WgpuBackend::Metal),
        #[cfg(feature = "cuda")]
        Kind::Cuda => Device::enumerate(burn::tensor::DeviceType::Cuda).into_vec(),
        #[cfg(feature = "rocm")]
        Kind::Rocm => Device::enumerate(burn::tensor::DeviceType::Rocm).into_vec(),
        #[allow(unreachable_patterns)] // where all of them are compiled in
        _ => Vec::new(),
    }
}

/// Settles how kernels are run, before the first device is opened.
///
/// Left alone, cubecl would take its settings from any `cubecl.toml` in this folder or above it, and
/// give every thread a stream with pools of its own. One stream is enough for a program that computes
/// on one thread, and leaves one way less for memory to grow
/// (<https://github.com/tracel-ai/burn/issues/5212>). `CUBECL_` variables still hold.
#[cfg(feature = "gpu")]
fn configure() {
    use burn::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig as _};
    let mut config = CubeClRuntimeConfig::default();
    config.streaming.max_streams = 1;
    // Where it was settled before, it stays as it is.
    CubeClRuntimeConfig::try_set(config.override_from_env());
}

/// The adapters of one graphics API, as concrete devices: burn's `DefaultDevice` could be any of
/// them.
#[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
fn wgpu(backend: WgpuBackend) -> Vec<Device> {
    let kinds = [
        WgpuDeviceKind::DiscreteGpu(0),
        WgpuDeviceKind::IntegratedGpu(0),
        WgpuDeviceKind::VirtualGpu(0),
        WgpuDeviceKind::Other(0),
        WgpuDeviceKind::Cpu,
    ];
    let like =
        |kind| CubeDevice::enumerate(CubeDevice::Wgpu(WgpuDevice::new(kind).on(backend)).to_id());
    let mut devices: Vec<Device> = Vec::new();
    for id in kinds.into_iter().flat_map(like) {
        let device = Device::new(CubeDevice::from_id(id));
        // All adapters that compute on the processor have one id, which means the first of them.
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

/// The name of a device, with autodiff or without; none of a device that [`list`] does not find.
pub fn name_of(device: &Device) -> Option<Name> {
    let device = if device.is_autodiff() { device.clone().inner() } else { device.clone() };
    compiled().into_iter().find_map(|kind| {
        let index = list(kind).ok()?.iter().position(|listed| *listed == device)?;
        Some(Name { kind, index })
    })
}

/// The device `name`, and no other: burn's own default would take the first API that was compiled
/// in, whether or not the machine has it.
///
/// # Errors
/// When it is not compiled in, not there, does not compute, or does not compute in `needed`.
pub fn open(name: Name, needed: Precision) -> Result<Device, OpenError> {
    if !is_compiled(name.kind) {
        return Err(OpenError::NotCompiled { name, compiled: compiled() });
    }
    let mut devices = list(name.kind).map_err(|failure| OpenError::Broken { name, failure })?;
    if name.index >= devices.len() {
        return Err(OpenError::Absent { name, count: devices.len() });
    }
    let device = devices.swap_remove(name.index);
    if name.kind == Kind::Cpu {
        keep_memory();
    }
    if cfg!(feature = "spirv") && is_software(&device) {
        // cubecl-spirv 0.11.3 declares shared memory with the type of a pointer to it where the driver lacks
        // VK_KHR_workgroup_memory_explicit_layout, and Mesa's llvmpipe crashes on that. Those that have it, like 26.2,
        // have matrix units too, and those that were seen without it, up to 25.0, have none.
        if !guard(|| describe(name, &device).matrix_units).unwrap_or(false) {
            return Err(OpenError::Spirv { name });
        }
    }
    let computes = guard(|| match device.sync() {
        Ok(()) => Ok(computes(name.kind, &device)),
        Err(error) => Err(Failure::new(error.to_string())),
    });
    let computes = computes
        .and_then(|answer| answer)
        .map_err(|failure| OpenError::Broken { name, failure })?;
    match computes.contains(&needed) {
        true => Ok(device),
        false => Err(OpenError::Precision { name, needed, computes }),
    }
}

/// Why a device can't be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The build lacks the API.
    #[error("device {name} is not in this build, which has {}", list_of(compiled))]
    NotCompiled {
        /// What was asked for.
        name: Name,
        /// What there is.
        compiled: Vec<Kind>,
    },
    /// The machine lacks the device.
    #[error("there is no device {name}: {}", found(name, *count))]
    Absent {
        /// What was asked for.
        name: Name,
        /// How many of its kind there are.
        count: usize,
    },
    /// The device lacks a format.
    #[error("device {name} does not compute in {needed}; it has {}", list_of(computes))]
    Precision {
        /// What was asked for.
        name: Name,
        /// What is to be computed.
        needed: Precision,
        /// What it computes.
        computes: Vec<Precision>,
    },
    /// SPIR-V kernels crash older drivers that compute on the processor.
    #[error(
        "device {name} computes on the processor, and its driver is too old for the SPIR-V kernels of this build"
    )]
    Spirv {
        /// What was asked for.
        name: Name,
    },
    /// The driver refuses it.
    #[error("device {name} can't be used: {failure}")]
    Broken {
        /// What was asked for.
        name: Name,
        /// What the driver says.
        failure: Failure,
    },
}

impl OpenError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            OpenError::NotCompiled { name: Name { kind: Kind::Metal, .. }, .. }
                if cfg!(not(target_os = "macos")) =>
            {
                missing(Kind::Metal).into()
            }
            OpenError::NotCompiled { name, compiled } => {
                let all = compiled.iter().chain([&name.kind]).filter(|kind| **kind != Kind::Cpu);
                let all: Vec<&str> = all.map(|kind| kind.name()).collect();
                // Whoever has no clone has an archive or a wheel, which there are several of.
                let archive = match name.kind {
                    Kind::Vulkan => "take an archive with it, or in a clone: ",
                    _ => "in a clone: ",
                };
                format!(
                    "{archive}cargo install --path crates/cli --locked --features {}",
                    all.join(",")
                )
            }
            OpenError::Absent { name, count: 0 } => missing(name.kind).to_owned(),
            OpenError::Absent { .. } | OpenError::Precision { .. } => {
                "firebrick doctor lists the devices of this machine".into()
            }
            OpenError::Spirv { .. } => {
                "build with the feature vulkan in the place of spirv, or install Mesa 26.2".into()
            }
            OpenError::Broken { .. } => {
                "firebrick doctor shows what the driver says of each device; is the driver as new \
                 as the card, and does another program hold it?"
                    .into()
            }
        }
    }
}

/// What a machine without a device of `kind` lacks.
pub fn missing(kind: Kind) -> &'static str {
    match kind {
        Kind::Cpu => "",
        Kind::Vulkan | Kind::Wgpu => {
            "install the card's Vulkan driver (AMD, Intel: mesa-vulkan-drivers, on Arch vulkan-radeon or \
             vulkan-intel; NVIDIA: its own driver) and the loader (libvulkan1), and see that you may \
             open /dev/dri/renderD* (group render); vulkaninfo --summary shows what the loader finds"
        }
        Kind::Metal => "Metal needs a Mac",
        Kind::Cuda => "install NVIDIA's driver (libcuda.so.1); nvidia-smi shows what it finds",
        Kind::Rocm => "install ROCm (libamdhip64.so); rocminfo shows what it finds",
    }
}

fn list_of<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    match items.as_slice() {
        [only] => format!("{only} only"),
        items => items.join(", "),
    }
}

fn found(name: &Name, count: usize) -> String {
    match count {
        0 => format!("this machine has none of kind {}", name.kind),
        1 => format!("this machine has only {}:0", name.kind),
        _ => format!("this machine has {}:0 to {}:{}", name.kind, name.kind, count - 1),
    }
}
