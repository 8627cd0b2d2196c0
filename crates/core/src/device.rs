//! Names of devices. The crate `firebrick-device` knows which devices a machine has and what they can do.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// An API that computes tensors. Each API but `cpu` has to be built in, with the cargo feature of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The processor, through burn's `flex`.
    #[default]
    Cpu,
    /// Any GPU with a Vulkan driver: AMD, Intel, NVIDIA and others.
    Vulkan,
    /// Any GPU, through Vulkan, DirectX 12, OpenGL or Metal, whichever the machine has.
    Wgpu,
    /// Apple GPUs.
    Metal,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs with ROCm.
    Rocm,
}

impl Kind {
    /// All kinds, compiled in or not.
    pub const ALL: [Kind; 6] =
        [Kind::Cpu, Kind::Vulkan, Kind::Wgpu, Kind::Metal, Kind::Cuda, Kind::Rocm];

    /// Returns the name that a recipe uses. The cargo feature has the same name; the CPU needs none.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Vulkan => "vulkan",
            Kind::Wgpu => "wgpu",
            Kind::Metal => "metal",
            Kind::Cuda => "cuda",
            Kind::Rocm => "rocm",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A device of this machine: `cpu`, `vulkan:0`, `cuda:1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// API that the device is reached through.
    pub kind: Kind,
    /// Index among the devices of its kind, counted from 0.
    pub index: usize,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Cpu if self.index == 0 => f.write_str("cpu"),
            kind => write!(f, "{kind}:{}", self.index),
        }
    }
}

/// Returns what to write instead of a card's maker, or of another word that people use for a GPU; `None` for other
/// words.
///
/// ```
/// assert_eq!(firebrick_core::device::meant("AMD"), Some("an AMD or Intel card needs vulkan"));
/// ```
pub fn meant(word: &str) -> Option<&'static str> {
    Some(match word.to_lowercase().as_str() {
        "amd" | "radeon" | "intel" | "arc" | "xpu" => "an AMD or Intel card needs vulkan",
        "hip" => "HIP needs rocm; an AMD card without ROCm needs vulkan",
        "nvidia" | "geforce" | "rtx" => "an NVIDIA card needs cuda or vulkan",
        "apple" | "mps" | "mac" => "an Apple GPU needs metal",
        "gpu" => "a GPU needs vulkan, cuda or metal, depending on its maker",
        "webgpu" | "dx12" | "directx" | "opengl" => "WebGPU needs wgpu",
        _ => return None,
    })
}

/// A text that does not name a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a device: expected cpu, or vulkan, wgpu, metal, cuda or rocm with a number, such as \
     vulkan:0{hint}",
    hint = meant(.0.split(':').next().unwrap_or_default())
        .map_or_else(String::new, |hint| format!("; {hint}"))
)]
pub struct ParseNameError(String);

impl FromStr for Name {
    type Err = ParseNameError;

    /// Reads a name. A name without a number means the first device of its kind.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseNameError(text.to_owned());
        let (kind, index) = match text.split_once(':') {
            // `parse` alone would accept a sign, as in `cuda:+1`.
            Some((kind, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                (kind, index.parse().map_err(|_| refuse())?)
            }
            Some(_) => return Err(refuse()),
            None => (text, 0),
        };

        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(refuse)?;
        Ok(Name { kind, index })
    }
}

impl Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
