//! Lists the devices of a machine and opens one by name, or says what is missing.

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

/// Returns the kinds that this build can compute on. The CPU is always one of them.
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

/// Lists the devices of `kind` that this machine has and this build reaches, in the order of their numbers: discrete
/// GPUs, integrated GPUs, virtual GPUs, and last the devices that compute on the processor.
///
/// # Errors
/// If the driver fails while it is asked.
pub fn list(kind: Kind) -> Result<Vec<Device>, Failure> {
    // A driver's loader always finds the same devices, and some loaders print text each time. So the devices are kept.
    static FOUND: Mutex<BTreeMap<Kind, Vec<Device>>> = Mutex::new(BTreeMap::new());
    let mut known_devices = FOUND.lock().unwrap_or_else(PoisonError::into_inner);

    match known_devices.get(&kind) {
        Some(devices) => Ok(devices.clone()),
        None => {
            let devices = guard(|| enumerate(kind))?;
            Ok(known_devices.entry(kind).or_insert(devices).clone())
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
        #[allow(unreachable_patterns)] // if all kinds are compiled in
        _ => Vec::new(),
    }
}

/// Decides how kernels are run, before the first device is opened.
///
/// Without these settings, cubecl would take its own from any `cubecl.toml` in this folder or above it, and give every
/// thread a stream with its own pools. One stream is enough for a program that computes on one thread, and avoids one
/// cause of growing memory (<https://github.com/tracel-ai/burn/issues/5212>). `CUBECL_` variables still hold.
///
/// Matrix units of some NVIDIA cards take factors in f32 if they may round them to TF32, which has f16's 11 bits. They
/// may not: a recipe that says f32 means f32, and the matmul of few rows, which decoding uses, never rounds.
#[cfg(feature = "gpu")]
fn configure() {
    use burn::cubecl::config::{CubeClRuntimeConfig, RuntimeConfig as _};
    use cubek_std::config::{CubekConfig, MatmulConfig};
    let mut config = CubeClRuntimeConfig::default();
    config.streaming.max_streams = 1;
    // Settings that were made before are kept.
    CubeClRuntimeConfig::try_set(config.override_from_env());
    let matmul = MatmulConfig { allow_tf32: false };
    CubekConfig::try_set(CubekConfig { matmul });
}

/// Lists the adapters of one graphics API, as concrete devices. burn's `DefaultDevice` could be any of them.
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
        // All adapters that compute on the processor share one id, which means the first of them.
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    devices
}

/// Returns the name of a device, with autodiff or without. `None` if [`list`] does not find the device.
pub fn name_of(device: &Device) -> Option<Name> {
    let device = if device.is_autodiff() { device.clone().inner() } else { device.clone() };
    compiled().into_iter().find_map(|kind| {
        let index = list(kind).ok()?.iter().position(|listed| *listed == device)?;
        Some(Name { kind, index })
    })
}

/// Opens the device `name`, and never another. burn's own default would take the first API that was compiled in,
/// whether or not the machine has it.
///
/// # Errors
/// If the device is not compiled in, does not exist, does not compute, or does not compute in `needed`.
pub fn open(name: Name, needed: Precision) -> Result<Device, OpenError> {
    if !is_compiled(name.kind) {
        return Err(OpenError::NotCompiled { name, compiled: compiled() });
    }

    // Whether the device exists is known without opening it.
    let mut devices = list(name.kind).map_err(|failure| OpenError::Broken { name, failure })?;
    if name.index >= devices.len() {
        return Err(OpenError::Absent { name, count: devices.len() });
    }

    let device = devices.swap_remove(name.index);
    if name.kind == Kind::Cpu {
        keep_memory();
    }

    #[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
    fewer_at_once(&device);
    #[cfg(feature = "gpu")]
    if let Some(bytes) = guard(|| shared_memory(&device)).unwrap_or(None)
        && bytes < firebrick_kernels::SHARED_MEMORY
    {
        return Err(OpenError::SharedMemory { name, bytes });
    }

    if cfg!(feature = "spirv") && is_software(&device) {
        // cubecl-spirv 0.12.0-pre.1 declares shared memory with the type of a pointer to it if the driver lacks
        // VK_KHR_workgroup_memory_explicit_layout, and Mesa's llvmpipe crashes on that. Drivers that have the
        // extension, like 26.2, have matrix units too. The drivers that were seen without it, up to 25.0, have none.
        if !guard(|| describe(name, &device).matrix_units).unwrap_or(false) {
            return Err(OpenError::Spirv { name });
        }
    }

    // A device that is listed may still fail once it has something to do.
    let computes = guard(|| match device.sync() {
        Ok(()) => Ok(computes(name.kind, &device)),
        Err(error) => Err(Failure::new(error.to_string())),
    });
    let computes = computes
        .and_then(|answer| answer)
        .map_err(|failure| OpenError::Broken { name, failure })?;

    if computes.contains(&needed) {
        Ok(device)
    } else {
        Err(OpenError::Precision { name, needed, computes })
    }
}

/// Makes an integrated GPU take fewer launches in a batch. It also draws the desktop, and a driver aborts a batch of
/// launches that blocks the desktop for too long. cubecl's own number is 32.
#[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
fn fewer_at_once(device: &Device) {
    use burn_dispatch::{
        DispatchDevice,
        devices::wgpu::{AutoGraphicsApi, RuntimeOptions, try_init_setup},
    };
    // A second setup of a device makes a device of wgpu before it is refused.
    static SET_UP: Mutex<Vec<WgpuDevice>> = Mutex::new(Vec::new());

    let DispatchDevice::Cube(CubeDevice::Wgpu(wgpu)) = device.as_dispatch() else { return };
    let is_set = std::env::var_os("CUBECL_WGPU_MAX_TASKS").is_some();
    if is_set || !matches!(wgpu.kind, WgpuDeviceKind::IntegratedGpu(_)) {
        return;
    }

    let mut set_up = SET_UP.lock().unwrap_or_else(PoisonError::into_inner);
    if set_up.contains(wgpu) {
        return;
    }
    set_up.push(wgpu.clone());
    // A device that is open already keeps its number. Any other failure occurs again when the device is used, and is
    // reported then.
    if let Ok(options) = RuntimeOptions::with_tasks_max(Some(8)) {
        let _ = guard(|| try_init_setup::<AutoGraphicsApi>(wgpu, options).is_ok());
    }
}

/// Returns how many bytes the units of a cube can share.
#[cfg(feature = "gpu")]
fn shared_memory(device: &Device) -> Option<usize> {
    let burn_dispatch::DispatchDevice::Cube(cube) = device.as_dispatch() else { return None };
    Some(cube.client().properties().hardware.max_shared_memory_size)
}

/// Why a device is not available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The build lacks the API.
    #[error("device {name} is not in this build, which has {}", list_of(compiled))]
    NotCompiled {
        /// Requested device.
        name: Name,
        /// Kinds that the build has.
        compiled: Vec<Kind>,
    },
    /// The machine lacks the device.
    #[error("there is no device {name}: {}", found(name, *count))]
    Absent {
        /// Requested device.
        name: Name,
        /// Number of devices of its kind.
        count: usize,
    },
    /// The device lacks a format.
    #[error("device {name} does not compute in {needed}; it computes in {}", list_of(computes))]
    Precision {
        /// Requested device.
        name: Name,
        /// Format that is needed.
        needed: Precision,
        /// Formats that the device computes in.
        computes: Vec<Precision>,
    },
    /// Units of a cube can't share enough memory.
    #[error(
        "device {name} offers a workgroup {bytes} bytes of shared memory, expected at least {}",
        firebrick_kernels::SHARED_MEMORY
    )]
    SharedMemory {
        /// Requested device.
        name: Name,
        /// Bytes that it offers.
        bytes: usize,
    },
    /// SPIR-V kernels crash older drivers that compute on the processor.
    #[error(
        "device {name} computes on the processor, and its driver is too old for the SPIR-V kernels of this build"
    )]
    Spirv {
        /// Requested device.
        name: Name,
    },
    /// The driver refuses the device.
    #[error("device {name} can't be used: {failure}")]
    Broken {
        /// Requested device.
        name: Name,
        /// What the driver reported.
        failure: Failure,
    },
}

impl OpenError {
    /// Suggests what to do about the error.
    pub fn remedy(&self) -> String {
        match self {
            OpenError::NotCompiled { name: Name { kind: Kind::Metal, .. }, .. }
                if cfg!(not(target_os = "macos")) =>
            {
                missing(Kind::Metal).into()
            }

            OpenError::NotCompiled { name, compiled } => {
                let features = compiled.iter().chain([&name.kind]).filter(|kind| **kind != Kind::Cpu);
                let features: Vec<&str> = features.map(|kind| kind.name()).collect();
                // A user without a clone has an archive or a wheel, and there are several of each.
                let archive = match name.kind {
                    Kind::Vulkan => "use an archive with vulkan, or in a clone: ",
                    _ => "in a clone: ",
                };

                format!(
                    "{archive}cargo install --path crates/cli --locked --features {}",
                    features.join(",")
                )
            }

            OpenError::Absent { name, count: 0 } => missing(name.kind).to_owned(),
            OpenError::Absent { .. } | OpenError::Precision { .. } => {
                "firebrick doctor lists the devices of this machine".into()
            }
            OpenError::SharedMemory { .. } => {
                "the attention kernels need it: use another device, or the CPU".into()
            }
            OpenError::Spirv { .. } => {
                "build with the feature vulkan instead of spirv, or install Mesa 26.2".into()
            }
            OpenError::Broken { .. } => {
                "firebrick doctor shows what the driver reports for each device; is the driver as new \
                 as the card, and does another program hold the device?"
                    .into()
            }
        }
    }
}

/// Suggests what to do on a machine without a device of `kind`.
pub fn missing(kind: Kind) -> &'static str {
    match kind {
        Kind::Cpu => "",
        Kind::Vulkan | Kind::Wgpu => {
            "install the card's Vulkan driver (AMD, Intel: mesa-vulkan-drivers, on Arch vulkan-radeon or \
             vulkan-intel; NVIDIA: its own driver) and the loader (libvulkan1), and check that you may \
             open /dev/dri/renderD* (group render); vulkaninfo --summary shows what the loader finds"
        }
        Kind::Metal => "Metal needs a Mac",
        Kind::Cuda => {
            "install NVIDIA's driver (libcuda.so.1); nvidia-smi shows the cards that it finds"
        }
        Kind::Rocm => "install ROCm (libamdhip64.so); rocminfo shows the cards that it finds",
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
        0 => format!("this machine has no {} device", name.kind),
        1 => format!("this machine has only {}:0", name.kind),
        _ => format!("this machine has {}:0 to {}:{}", name.kind, name.kind, count - 1),
    }
}
