//! Which driver a card needs before it computes, by the card's maker and the system.

use std::{fmt, fs};

/// Maker of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vendor {
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// NVIDIA.
    Nvidia,
    /// Apple.
    Apple,
}

/// An operating system, as far as the names of packages differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum System {
    /// Debian, Ubuntu and systems based on them.
    Debian,
    /// Fedora and Red Hat's systems.
    Fedora,
    /// Arch and systems based on it.
    Arch,
    /// Another Linux.
    Linux,
    /// Windows.
    Windows,
    /// macOS.
    Macos,
}

impl Vendor {
    /// Returns the makers whose cards are found in machines with this system.
    pub fn on(system: System) -> &'static [Vendor] {
        match system {
            System::Macos => &[Vendor::Apple],
            _ => &[Vendor::Amd, Vendor::Intel, Vendor::Nvidia],
        }
    }
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Vendor::Amd => "AMD",
            Vendor::Intel => "Intel",
            Vendor::Nvidia => "NVIDIA",
            Vendor::Apple => "Apple",
        })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            System::Debian => "Debian, Ubuntu",
            System::Fedora => "Fedora",
            System::Arch => "Arch",
            System::Linux => "another Linux",
            System::Windows => "Windows",
            System::Macos => "macOS",
        })
    }
}

impl System {
    /// All systems.
    pub const ALL: [System; 6] = [
        System::Debian,
        System::Fedora,
        System::Arch,
        System::Windows,
        System::Macos,
        System::Linux,
    ];

    /// Detects the system of this machine.
    pub fn here() -> Self {
        match std::env::consts::OS {
            "windows" => System::Windows,
            "macos" => System::Macos,
            _ => System::of(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        }
    }

    /// Detects the system that an `os-release` file describes.
    fn of(release: &str) -> Self {
        let value = |name: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };

        // A derived system names the systems that it is made from in ID_LIKE.
        let names = format!("{} {}", value("ID"), value("ID_LIKE"));
        let like = |known: &[&str]| names.split_whitespace().any(|name| known.contains(&name));

        if like(&["debian", "ubuntu"]) {
            System::Debian
        } else if like(&["fedora", "rhel", "centos"]) {
            System::Fedora
        } else if like(&["arch"]) {
            System::Arch
        } else {
            System::Linux
        }
    }
}

/// Describes how a card of this maker gets its driver on this system, and which cargo feature the card needs. Nobody
/// has tried these names, except Mesa's names on Debian.
pub fn driver(vendor: Vendor, system: System) -> String {
    use System::{Arch, Debian, Fedora, Linux, Macos, Windows};
    use Vendor::{Amd, Apple, Intel, Nvidia};
    const NVIDIA: &str = "vulkan, or cuda, which also needs libdevice.10.bc of the CUDA toolkit";

    let (how, feature) = match (vendor, system) {
        (Amd | Intel, Debian) => {
            ("sudo apt install mesa-vulkan-drivers libvulkan1 vulkan-tools", "vulkan")
        }
        (Amd | Intel, Fedora) => {
            ("sudo dnf install mesa-vulkan-drivers vulkan-loader vulkan-tools", "vulkan")
        }
        (Amd, Arch) => ("sudo pacman -S vulkan-radeon vulkan-icd-loader vulkan-tools", "vulkan"),
        (Intel, Arch) => ("sudo pacman -S vulkan-intel vulkan-icd-loader vulkan-tools", "vulkan"),
        (Amd | Intel, Linux) => ("install Mesa's Vulkan driver and the Vulkan loader", "vulkan"),

        (Nvidia, Debian) => (
            "sudo apt install nvidia-driver libvulkan1 (Debian, from non-free), or \
             sudo ubuntu-drivers install (Ubuntu)",
            NVIDIA,
        ),
        (Nvidia, Fedora) => {
            ("sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda, from RPM Fusion", NVIDIA)
        }
        (Nvidia, Arch) => ("sudo pacman -S nvidia-open nvidia-utils vulkan-icd-loader", NVIDIA),
        (Nvidia, Linux) => ("install NVIDIA's driver and the Vulkan loader", NVIDIA),

        (Amd, Windows) => ("install AMD's Adrenalin driver, which brings Vulkan", "vulkan"),
        (Intel, Windows) => ("install Intel's graphics driver, which brings Vulkan", "vulkan"),
        (Nvidia, Windows) => ("install NVIDIA's driver, which brings Vulkan", NVIDIA),
        (Apple, _) => ("Metal is part of macOS", "metal"),
        (Amd | Intel, Macos) => ("Metal is part of macOS", "metal"),
        (Nvidia, Macos) => return "macOS has no driver for NVIDIA cards".into(),
    };

    format!("{how}; feature {feature}")
}

/// Finds the makers of this machine's graphics cards, as Linux lists them. `None` if nothing lists them.
pub fn cards() -> Option<Vec<Vendor>> {
    let mut vendors = Vec::new();
    for entry in fs::read_dir("/sys/bus/pci/devices").ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).unwrap_or_default();

        // Class 0x03 is a display controller. Some cards that only compute are accelerators, 0x12, but so are NPUs.
        if !read("class").starts_with("0x03") {
            continue;
        }

        let vendor = match read("vendor").trim() {
            "0x1002" => Vendor::Amd,
            "0x8086" => Vendor::Intel,
            "0x10de" => Vendor::Nvidia,
            _ => continue,
        };

        if !vendors.contains(&vendor) {
            vendors.push(vendor);
        }
    }
    Some(vendors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_known_by_what_it_is_made_of() {
        for (release, system) in [
            ("ID=debian\n", System::Debian),
            ("NAME=\"Linux Mint\"\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", System::Debian),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", System::Fedora),
            ("ID=endeavouros\nID_LIKE=arch\n", System::Arch),
            ("ID=alpine\n", System::Linux),
            ("", System::Linux),
        ] {
            assert_eq!(System::of(release), system, "{release}");
        }
    }
}
