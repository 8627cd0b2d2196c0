//! `firebrick doctor`: lists the devices of this machine, and tests them.

use std::{fmt::Write as _, time::Instant};

use clap::Args;
use firebrick_device::{
    CaseReport, Description, Kind, Name, OpenError, Precision, SuiteReport, compiled, describe,
    drivers::{System, Vendor, cards, driver},
    gibibytes, guard, list, missing, open, suite,
};
use firebrick_kernels::{Kernels, use_kernels};
use firebrick_reward::{Code, CodeOptions};
use serde::Serialize;
use serde_json::json;

use super::{print, print_event};
use crate::{
    ProgramError,
    json::{Of, program},
    terminal::for_stdout,
    version::{commit, features, version},
};

/// Arguments of `firebrick doctor`.
#[derive(Args)]
pub struct Doctor {
    /// Examine this device only, such as vulkan:0
    #[arg(long, value_name = "KIND:INDEX")]
    device: Option<Name>,
    /// Compute a matrix product, a decode step and a gradient on each device, and compare them with the CPU's
    #[arg(long)]
    smoke: bool,
    /// Compute every operation of training on each device, and compare the results with the CPU's
    #[arg(long)]
    suite: bool,
    /// Compute only the cases of --suite whose names contain this text, such as operations/
    #[arg(long, value_name = "TEXT", requires = "suite")]
    cases: Option<String>,
    /// Launch the kernels of --suite, and compare nothing: for tools/kernels/run.sh, on stand-ins that compute nothing
    #[arg(long, requires = "suite", hide = true)]
    launch_only: bool,
    /// Compute with plain tensor code instead of the device's own kernels
    #[arg(long)]
    reference: bool,
    /// Only print which drivers to install for each maker's card on each system
    #[arg(long, conflicts_with_all = ["device", "smoke", "suite", "json"])]
    drivers: bool,
    /// Print the findings as one JSON object; with --suite or --smoke as JSON lines, each as soon as it is known
    #[arg(long)]
    json: bool,
}

/// Findings about this machine. As JSON they lack the reports, which are lines.
#[derive(Serialize)]
struct Findings {
    version: &'static str,
    commit: Option<&'static str>,
    /// Features that were built in: the kinds of device, `spirv` and `hub`.
    features: Vec<&'static str>,
    devices: Vec<Description>,
    /// Devices that can't be used, and what to do about each.
    missing: Vec<Missing>,
    /// Whether `reward.kind = "code"` can run programs here, if it was tried.
    sandbox: Option<Sandbox>,
    #[serde(skip)]
    reports: Vec<SuiteReport>,
}

#[derive(Serialize)]
struct Sandbox {
    works: bool,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Missing {
    device: String,
    problem: String,
    remedy: String,
}

impl Doctor {
    /// Returns exit code 1 if a case failed, or a device could not be used.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        if self.reference {
            use_kernels(Kernels::Reference);
        }
        if self.launch_only {
            suite::launch_only();
        }
        if self.drivers {
            return print(&for_stdout(&all_drivers(), 10)).map(|()| 0);
        }

        let mut findings = Findings {
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            features: features(),
            devices: Vec::new(),
            missing: Vec::new(),
            sandbox: None,
            reports: Vec::new(),
        };

        let began = Instant::now();
        if self.lines() {
            let kernels = if self.reference { "reference" } else { "fast" };
            print_event("program", program(kernels))?;
        }

        let mut broken = false;
        for name in self.names(&mut findings.missing) {
            match self.examine(name, &mut findings)? {
                Ok(()) => {}
                Err(error) if self.device.is_some() => return Err(error.into()),
                Err(error) => {
                    broken = true;
                    findings.missing.push(Missing::new(name, &error));
                }
            }
        }

        findings.missing.extend(only_software(&findings.devices));
        if self.device.is_none() {
            let problem = Code::new(CodeOptions::default()).err().map(|error| error.to_string());
            findings.sandbox = Some(Sandbox { works: problem.is_none(), problem });
        }
        let passed = !broken && findings.reports.iter().all(|report| report.passed);
        if self.lines() {
            for missing in &findings.missing {
                print_event("missing", missing)?;
            }

            let devices = findings.devices.len();
            let seconds = began.elapsed().as_secs_f64();
            print_event(
                "summary",
                json!({ "passed": passed, "devices": devices, "seconds": seconds }),
            )?;
        } else if self.json {
            let text = serde_json::to_string_pretty(&findings).unwrap_or_default();
            print(&format!("{text}\n"))?;
        } else {
            print(&for_stdout(&summary(&findings, self.device.is_none()), 10))?;
        }

        Ok(u8::from(!passed))
    }

    /// Returns whether each finding is a separate line. A driver may hang or end the process in the middle of a suite,
    /// and an object at the end would then be lost with all that was found.
    fn lines(&self) -> bool {
        self.json && (self.suite || self.smoke)
    }

    /// Opens and describes a device, and tries it if asked to. The outer error is that of printing.
    fn examine(
        &self,
        name: Name,
        findings: &mut Findings,
    ) -> Result<Result<(), OpenError>, ProgramError> {
        let broken = |failure| OpenError::Broken { name, failure };
        let opened = open(name, Precision::F32).and_then(|device| {
            let description = guard(|| describe(name, &device)).map_err(broken)?;
            Ok((device, description))
        });

        let (device, description) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };

        if !self.json {
            print(&for_stdout(&shown(&description), 10))?;
        }

        let mut cases = match (self.suite, self.smoke) {
            (true, _) => suite::cases(),
            (false, true) => suite::smoke(),
            (false, false) => {
                findings.devices.push(description);
                return Ok(Ok(()));
            }
        };

        if let Some(text) = &self.cases {
            cases.retain(|case| case.name.contains(text));
        }

        if self.lines() {
            // The next case after the last reported one is the case in which a process died.
            let names = cases.iter().map(|case| format!("{} {}", case.name, case.precision));
            let mut about = json!(description);
            about["cases"] = names.collect();
            print_event("device", about)?;
        }

        findings.devices.push(description);
        // The suite's callback can't return an error, so the first one is kept, and nothing is printed after it.
        let mut printed = Ok(());

        let report_case = &mut |case: &CaseReport| {
            if printed.is_err() {
                return;
            }
            if self.json {
                super::warn(format!("{name}  {case}"));
                printed = print_event("case", Of { device: name, fact: case });
            } else {
                printed = print(&format!("  {case}\n"));
            }
        };

        let report = match suite::run(name, &device, &cases, report_case) {
            Ok(report) => report,
            Err(failure) => return Ok(Err(broken(failure))),
        };

        printed?;
        if self.json {
            let SuiteReport { passed, seconds, .. } = report;
            let about =
                json!({ "passed": passed, "verdicts": report.verdicts(), "seconds": seconds });
            print_event("suite", Of { device: name, fact: &about })?;
        } else {
            print(&format!("  {}\n", report.summary()))?;
        }

        findings.reports.push(report);
        Ok(Ok(()))
    }

    /// Returns the devices to look at: the device that was asked for, or all devices of this machine.
    fn names(&self, absent: &mut Vec<Missing>) -> Vec<Name> {
        if let Some(name) = self.device {
            return vec![name];
        }

        let mut names = Vec::new();
        for kind in Kind::ALL {
            let name = Name { kind, index: 0 };
            match list(kind) {
                _ if !compiled().contains(&kind) => {
                    let error = OpenError::NotCompiled { name, compiled: compiled() };
                    absent.push(Missing {
                        device: kind.to_string(),
                        problem: "not in this build".into(),
                        remedy: error.remedy(),
                    });
                }
                Err(failure) => {
                    absent.push(Missing::new(name, &OpenError::Broken { name, failure }));
                }
                Ok(found) if found.is_empty() => {
                    absent.push(Missing {
                        device: kind.to_string(),
                        problem: "none found".into(),
                        remedy: missing(kind).to_owned(),
                    });
                }
                Ok(found) => names.extend((0..found.len()).map(|index| Name { kind, index })),
            }
        }
        names
    }
}

impl Missing {
    fn new(name: Name, error: &OpenError) -> Self {
        Missing { device: name.to_string(), problem: error.to_string(), remedy: error.remedy() }
    }
}

/// Reports the kinds of which only a software device was found. A machine whose card is not listed usually lists
/// Mesa's llvmpipe, which came with the drivers.
fn only_software(devices: &[Description]) -> Vec<Missing> {
    let of = |kind| devices.iter().filter(move |device| device.device.kind == kind);
    let in_name_only =
        |kind: &Kind| of(*kind).next().is_some() && of(*kind).all(|device| device.software);
    let report = |kind: Kind| Missing {
        device: kind.to_string(),
        problem: "only a software device was found, and no GPU".into(),
        remedy: missing(kind).into(),
    };

    [Kind::Vulkan, Kind::Wgpu].into_iter().filter(in_name_only).map(report).collect()
}

/// Names the drivers that the cards of this machine need. If no card is listed, it names those of all makers.
fn drivers_here() -> String {
    let (system, cards) = (System::here(), cards());
    let mut text = match cards.as_deref() {
        None => format!("\ndrivers for a graphics card on {system}:\n"),
        Some([]) => {
            format!(
                "\nno graphics card from AMD, Intel or NVIDIA is listed; drivers for one on \
                 {system}:\n"
            )
        }
        Some(_) => format!("\ndrivers for this machine's cards on {system}:\n"),
    };

    let cards = cards.unwrap_or_default();
    let vendors = if cards.is_empty() { Vendor::on(system) } else { &cards };
    for vendor in vendors {
        let _ = writeln!(text, "{:<9} {}", vendor.to_string(), driver(*vendor, system));
    }

    text + "--drivers lists the drivers of all systems\n"
}

fn all_drivers() -> String {
    let mut text = String::new();
    for system in System::ALL {
        let _ = writeln!(text, "{system}");
        for vendor in Vendor::on(system) {
            let _ = writeln!(text, "  {:<7} {}", vendor.to_string(), driver(*vendor, system));
        }
    }
    text
}

/// Describes a device in two or three lines: its name, its abilities, and its driver.
fn shown(device: &Description) -> String {
    let mut text = format!("{:<9} {}", device.device.to_string(), device.headline());

    let mut can = Vec::new();
    can.push(
        device.memory.map_or("memory unknown".into(), |all| format!("memory {}", gibibytes(all))),
    );
    can.extend(device.largest_tensor.map(|bytes| format!("tensors to {}", gibibytes(bytes))));
    let formats: Vec<String> = device.computes.iter().map(Precision::to_string).collect();
    can.push(format!("computes {}", formats.join(" ")));
    can.extend(device.matrix_units.then(|| "matrix units".to_owned()));
    can.extend(device.subgroups.then(|| "subgroups".to_owned()));
    let _ = write!(text, "\n          {}\n", can.join(", "));

    let through: Vec<&str> =
        [&device.driver, &device.runtime].into_iter().flatten().map(String::as_str).collect();
    if !through.is_empty() {
        let _ = writeln!(text, "          through {}", through.join(", "));
    }
    text
}

/// Says what is missing and how to get it, and which options test a device. If all devices were looked at and no
/// GPU was found, it also names drivers.
fn summary(findings: &Findings, all_devices: bool) -> String {
    let mut text = String::new();
    for Missing { device, problem, remedy } in &findings.missing {
        let _ = writeln!(text, "{device:<9} {problem}; {remedy}");
    }

    let has_gpu =
        findings.devices.iter().any(|found| found.device.kind != Kind::Cpu && !found.software);
    if all_devices && !has_gpu {
        text += &drivers_here();
    }

    if let Some(Sandbox { problem, .. }) = &findings.sandbox {
        let says = problem.as_deref().unwrap_or("python3 runs in bwrap's sandbox");
        let _ = writeln!(text, "\nprograms of reward.kind = \"code\": {says}");
    }

    let _ = writeln!(text, "\nfirebrick {}", version());
    if findings.reports.is_empty() {
        text += "--smoke tests each device briefly; --suite compares every operation of training \
                 with the CPU's\n";
    }
    text
}
