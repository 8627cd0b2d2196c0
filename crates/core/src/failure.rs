//! Failures of devices: a driver's panic caught as an error, and sorted by its cause.

use std::{
    any::Any,
    fmt,
    panic::{self, AssertUnwindSafe},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Error of a device that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Message of the device.
    pub message: String,
    /// Location of the code that panicked; `None` if nothing panicked or [`silence_panics`] was not called.
    pub place: Option<String>,
}

/// Kind of a failure, which decides how the program can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was not enough memory. Earlier allocations can still be read.
    OutOfMemory {
        /// How many bytes were asked for, if the driver says so.
        requested: Option<u64>,
    },
    /// A lost device: everything on it is gone.
    Lost,
    /// Firebrick's own code panicked, not the driver.
    Bug,
    /// Anything else: a kernel that was refused, a driver's error.
    Other,
}

impl Failure {
    /// Makes a failure with the driver's message.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), place: None }
    }

    /// Reads the cause from the message, because burn passes errors on only as text. The texts here are those of
    /// cubecl-runtime 0.12.0-pre.1 (`server/base.rs`) and of wgpu.
    pub fn cause(&self) -> Cause {
        let text = &self.message;
        let sizes = [
            "out of device memory allocating ",
            "can't allocate buffer of size: ",
            "Can't allocate ",
        ];

        for sizes in sizes {
            if let Some((_, rest)) = text.split_once(sizes) {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
                return Cause::OutOfMemory {
                    requested: digits.and_then(|digits| digits.parse().ok()),
                };
            }
        }

        let says = |phrases: &[&str]| phrases.iter().any(|word| text.contains(word));
        let panicked = self.place.as_deref().and_then(crate_of);
        let is_ours = panicked.is_some_and(|name| name.starts_with("firebrick"));

        // The text decides first, because an `expect` in our code on a driver's error has a location in our code.
        if says(&["out-of-memory", "OutOfMemory", "Out of Memory", "out of memory"]) {
            Cause::OutOfMemory { requested: None }
        } else if says(&["device is poisoned", "device was poisoned", "device is lost"]) {
            Cause::Lost
        } else if is_ours {
            Cause::Bug
        } else {
            Cause::Other
        }
    }
}

/// Returns the name of the crate that a source file belongs to, from the folder above its `src`. A registry names the
/// folder for crate and version. In our own workspace, wherever this crate was built from it, `crates/train` is
/// `firebrick-train`.
fn crate_of(file: &str) -> Option<String> {
    let file = file.replace('\\', "/");
    let (package, _) = file.rsplit_once("/src/")?;
    let folder = package.rsplit('/').next()?;

    let here = file!().replace('\\', "/");
    let in_workspace = here.strip_suffix("crates/core/src/failure.rs").is_some_and(|root| {
        let inside = package.strip_prefix(root);
        inside.is_some_and(|inside| inside.starts_with("crates/") || inside == "models")
    });
    Some(if in_workspace { format!("firebrick-{folder}") } else { folder.to_owned() })
}

/// Writes the driver's message in one line, without the stack trace that burn adds.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trace = |line: &&str| {
            ["Backtrace", "Asked at:", "No backtrace"].iter().any(|word| line.starts_with(word))
        };
        let lines = self.message.lines().map(str::trim).take_while(|line| !trace(line));
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();

        f.write_str(&lines.join(" "))?;

        match &self.place {
            Some(place) => write!(f, " (at {place})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

/// Runs work that may panic in a driver, and returns the panic as an error.
///
/// burn's operations have no `Result`: they panic if an allocation fails or the device is lost. After a failure
/// you must not use the values that `work` was changing.
///
/// # Errors
/// Fails if `work` panicked.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    // Counted before the work begins, so that the hook is quiet at its first panic.
    GUARDS.fetch_add(1, Ordering::SeqCst);
    *location() = None;

    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDS.fetch_sub(1, Ordering::SeqCst);

    result.map_err(|payload| Failure {
        message: panic_message(&*payload).to_owned(),
        place: location().take(),
    })
}

/// Runs work that may run out of a device's memory, and returns only that failure as an error, while any other panic
/// continues. The device can still be used afterwards: earlier allocations are there, and smaller work may well
/// succeed.
///
/// # Errors
/// Fails if there was not enough memory.
pub fn guard_memory<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let failure = Failure::new(panic_message(&*payload));
        match failure.cause() {
            Cause::OutOfMemory { .. } => failure,
            _ => panic::resume_unwind(payload),
        }
    })
}

/// Returns the message of a panic.
fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked without a message")
}

/// Stops panics from being printed while a [`guard`] is there to catch them: their location becomes part of the
/// failure instead. If `RUST_BACKTRACE` is set, they are printed nevertheless. A program calls this in its `main`.
///
/// It holds for every thread, because a driver works on its own thread, whose panics burn carries over to the caller.
pub fn silence_panics() {
    let print = panic::take_hook();
    let talkative = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");

    panic::set_hook(Box::new(move |info| {
        let guarded = GUARDS.load(Ordering::SeqCst) > 0;
        if guarded {
            *location() = info.location().map(ToString::to_string);
        }
        if talkative || !guarded {
            print(info);
        }
    }));
}

/// How many guards are active, on any thread.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// Location of the latest panic. If several threads guard at once, a failure may get another's location, or none: it is
/// a hint for the user, and decides only whose fault a failure is called.
static LOCATION: Mutex<Option<String>> = Mutex::new(None);

fn location() -> std::sync::MutexGuard<'static, Option<String>> {
    LOCATION.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_its_cause() {
        let cause = |text: &str| Failure::new(text).cause();
        let out_of_memory = |requested| Cause::OutOfMemory { requested };

        let text = "Caused by: out of device memory allocating 4096 bytes\nBacktrace:\n 0: main";
        assert_eq!(cause(text), out_of_memory(Some(4096)));
        assert_eq!(cause("Can't allocate 96 bytes: every page size"), out_of_memory(Some(96)));
        assert_eq!(
            cause("can't allocate buffer of size: 137438953472"),
            out_of_memory(Some(1 << 37))
        );
        assert_eq!(cause("An out-of-memory error happened during launch"), out_of_memory(None));

        assert_eq!(cause("The device is poisoned\nCaused by:\n  gone"), Cause::Lost);
        assert_eq!(cause("Validation: the device is lost"), Cause::Lost);
        assert_eq!(cause("poisoned lock: another task failed inside"), Cause::Other);
        assert_eq!(cause("the device refused the pipeline"), Cause::Other);

        let at = |place: &str| Failure { place: Some(place.into()), ..Failure::new("") }.cause();
        let registry = "/home/me/.cargo/registry/src/index";
        assert_eq!(at(&format!("{}:1:1", file!())), Cause::Bug);
        assert_eq!(at(&format!("{registry}/firebrick-train-0.1.0/src/loss.rs:1:1")), Cause::Bug);
        assert_eq!(at(&format!("{registry}/cubecl-wgpu-0.12.0/src/stream.rs:1:1")), Cause::Other);
        assert_eq!(at("src/main.rs:1:1"), Cause::Other);
    }

    #[test]
    fn a_panic_on_any_thread_becomes_a_failure_with_its_words() {
        silence_panics();
        let elsewhere = || std::thread::spawn(|| panic!("no kernel\nBacktrace:\n 0: main")).join();
        // The panic is carried over from another thread, as burn carries those of a driver's thread.
        let failure = guard(|| elsewhere().unwrap_or_else(|payload| panic::resume_unwind(payload)));

        let shown = failure.unwrap_err().to_string();
        // The location is that of the process's latest panic, which may be another test's.
        assert!(shown.starts_with("no kernel") && !shown.contains("main"), "{shown}");
    }
}
