//! Descriptions of devices: name, driver, memory and number formats.

use burn::tensor::Device;
use serde::Serialize;

use crate::{Kind, Name, Precision};

/// A device and its abilities, as far as its driver reports them.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Name of the device, such as `vulkan:0`.
    pub device: Name,
    /// Name of the card or the processor.
    pub name: String,
    /// Whether the device computes on the processor although its API is a GPU's.
    pub software: bool,
    /// Bytes that the device may hold, if known.
    pub memory: Option<u64>,
    /// Bytes of the largest single tensor, if there is a limit.
    pub largest_tensor: Option<u64>,
    /// Driver and its version, if known.
    pub driver: Option<String>,
    /// burn's runtime, with the language of its kernels, such as `wgpu<wgsl>`.
    pub runtime: Option<String>,
    /// Formats that the device computes in.
    pub computes: Vec<Precision>,
    /// Whether the device has matrix units that burn uses.
    pub matrix_units: bool,
    /// Whether the lanes of a subgroup (warp, wave) can exchange values.
    pub subgroups: bool,
}

impl Description {
    /// Describes the device in a line: its name, and whether it is a software device.
    pub fn headline(&self) -> String {
        if self.software {
            format!("{}, a software device: it computes on the processor", self.name)
        } else {
            self.name.clone()
        }
    }
}

/// Formats a number of bytes for the user.
pub fn gibibytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 30) {
        gib if gib >= 1.0 => format!("{gib:.1} GiB"),
        gib => format!("{:.0} MiB", gib * 1024.0),
    }
}

/// Finds the formats that `device` can be trusted to compute in.
///
/// burn's flex holds narrower formats too, but some of its sums seem to be as narrow: a matmul of f16 matrices
/// (1×129×65) is off by 1.5e-3, although sums in f32 explain only 6e-5.
pub(crate) fn computes(kind: Kind, device: &Device) -> Vec<Precision> {
    let usable = |precision: &Precision| {
        device.supports_dtype(precision.dtype())
            && (kind != Kind::Cpu || *precision == Precision::F32)
    };
    Precision::ALL.into_iter().filter(usable).collect()
}

/// Asks the driver about `device`, which is called `name`. This opens the device, and may panic in the driver.
pub fn describe(name: Name, device: &Device) -> Description {
    // With autodiff, the device is a wrapper that hides which device it wraps.
    let device = &device.clone().without_autodiff();

    let computes = computes(name.kind, device);
    // The CPU's description is the basis: a GPU's driver replaces what it knows better.
    let cpu = Description {
        device: name,
        name: processor(),
        software: false,
        memory: memory(),
        largest_tensor: None,
        driver: None,
        runtime: None,
        computes,
        matrix_units: false,
        subgroups: false,
    };

    #[cfg(feature = "gpu")]
    if name.kind != Kind::Cpu {
        return gpu(cpu, device);
    }
    cpu
}

#[cfg(feature = "gpu")]
fn gpu(cpu: Description, device: &Device) -> Description {
    use burn_dispatch::DispatchDevice;
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { return cpu };

    let client = cube.client();
    let properties = client.properties();

    Description {
        name: properties.identity.name.clone(),
        software: is_software(device),
        memory: properties.memory.max_memory(),
        largest_tensor: Some(properties.memory.max_page_size),
        driver: driver(cpu.device.kind, &properties.identity.name),
        runtime: Some(client.name().to_owned()),
        matrix_units: !properties.features.matmul.cmma.is_empty(),
        subgroups: !properties.features.plane.is_empty(),
        ..cpu
    }
}

/// Finds the driver of the card called `card`, at the path where the card's API keeps it.
#[cfg(feature = "gpu")]
fn driver(kind: Kind, card: &str) -> Option<String> {
    let first_line = |path: &str| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().next().map(|line| line.trim().to_owned())
    };

    match kind {
        Kind::Cuda => first_line("/proc/driver/nvidia/version"),
        Kind::Rocm => {
            first_line("/opt/rocm/.info/version").map(|version| format!("ROCm {version}"))
        }
        #[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
        Kind::Vulkan | Kind::Wgpu | Kind::Metal => adapter(kind, card),
        _ => {
            let _ = card;
            None
        }
    }
}

/// Finds the driver of the card called `card` from wgpu's adapter of that name.
#[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
fn adapter(kind: Kind, card: &str) -> Option<String> {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use burn_dispatch::devices::wgpu::wgpu::{
        AdapterInfo as Info, Backends, Instance, InstanceDescriptor,
    };
    let backends = match kind {
        Kind::Vulkan => Backends::VULKAN,
        Kind::Metal => Backends::METAL,
        _ => Backends::all(),
    };

    let instance = Instance::new(InstanceDescriptor {
        backends,
        ..InstanceDescriptor::new_without_display_handle()
    });

    let adapters = pin!(instance.enumerate_adapters(backends));
    // On a native machine the answer is ready immediately. It is a future only because browsers need one.
    let Poll::Ready(adapters) = adapters.poll(&mut Context::from_waker(Waker::noop())) else {
        return None;
    };

    let info = adapters.iter().map(|adapter| adapter.get_info()).find(|info| info.name == card)?;
    let Info { backend, driver, driver_info, .. } = info;
    Some(
        format!("{backend} {driver} {driver_info}")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// Tells whether the adapter of a GPU's API computes on the processor, as Mesa's llvmpipe does.
pub(crate) fn is_software(device: &Device) -> bool {
    #[cfg(any(feature = "vulkan", feature = "wgpu", feature = "metal"))]
    {
        use burn_dispatch::{
            DispatchDevice,
            devices::{CubeDevice, WgpuDeviceKind},
        };
        if let DispatchDevice::Cube(CubeDevice::Wgpu(wgpu)) = device.as_dispatch() {
            return wgpu.kind == WgpuDeviceKind::Cpu;
        }
    }
    let _ = device;
    false
}

/// Returns the host memory in bytes, if the kernel reports it.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Returns the processor's name, as the kernel reports it.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |name| name.trim().to_owned())
}
