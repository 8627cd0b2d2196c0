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

/// The error of a device that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message in the device's own words.
    pub message: String,
    /// The place in the code that panicked; `None` if nothing panicked or [`keep_panics_quiet`] was not called.
    pub place: Option<String>,
}

/// The kind of a failure, which decides how the program can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was not enough memory. Earlier allocations can still be read.
    OutOfMemory {
        /// The number of bytes asked for, if the driver tells it.
        asked: Option<u64>,
    },
    /// The device is gone, and so is everything on it.
    Lost,
    /// Firebrick's own code panicked, not the driver.
    Bug,
    /// Anything else: a kernel that was refused, a driver's error.
    Other,
}

impl Failure {
    /// Makes a failure with the driver's words.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), place: None }
    }

    /// Tells the cause from the message. burn hands errors on as text, so only the text can tell. The texts here
    /// are those of cubecl-runtime 0.12.0-pre.1 (`server/base.rs`) and of wgpu.
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
                return Cause::OutOfMemory { asked: digits.and_then(|digits| digits.parse().ok()) };
            }
        }
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        // Places in our code are relative to the workspace. Places in a dependency are not.
        let ours = |place: &String| place.starts_with("crates/") || place.starts_with("models/");
        if says(&["out-of-memory", "OutOfMemory", "Out of Memory", "out of memory"]) {
            Cause::OutOfMemory { asked: None }
        } else if says(&["device is poisoned", "device was poisoned", "device is lost"]) {
            Cause::Lost
        } else if self.place.as_ref().is_some_and(ours) {
            Cause::Bug
        } else {
            Cause::Other
        }
    }
}

/// The driver's words in one line, without the stack trace that burn adds.
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
/// the caller must not use the values that `work` was changing.
///
/// # Errors
/// Fails if `work` panicked.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    GUARDS.fetch_add(1, Ordering::SeqCst);
    *place() = None;
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDS.fetch_sub(1, Ordering::SeqCst);
    result
        .map_err(|payload| Failure { message: words(&*payload).to_owned(), place: place().take() })
}

/// Runs work that may run out of a device's memory, and returns only that failure as an error. Any other panic
/// continues. The device can still be used afterwards: earlier allocations are there, and smaller work may well
/// succeed.
///
/// # Errors
/// Fails if there was not enough memory.
pub fn guard_memory<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let failure = Failure::new(words(&*payload));
        match failure.cause() {
            Cause::OutOfMemory { .. } => failure,
            _ => panic::resume_unwind(payload),
        }
    })
}

/// Returns the words of a panic.
fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("it panicked without a message")
}

/// Stops panics from being printed while a [`guard`] is there to catch them. Their place becomes part of the
/// failure instead. If `RUST_BACKTRACE` is set, they are printed all the same. A program calls this in its `main`.
///
/// A driver works on a thread of its own, and burn carries that thread's panics over to the caller. So this holds
/// for every thread.
pub fn keep_panics_quiet() {
    let print = panic::take_hook();
    let talkative = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    panic::set_hook(Box::new(move |info| {
        let guarded = GUARDS.load(Ordering::SeqCst) > 0;
        if guarded {
            *place() = info.location().map(ToString::to_string);
        }
        if talkative || !guarded {
            print(info);
        }
    }));
}

/// The number of guards at work, on any thread.
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// The place of the latest panic. If several threads guard at once, a failure may get another's place, or none: it is
/// a hint for a person, and nothing is decided by it beyond whose fault it is called.
static PLACE: Mutex<Option<String>> = Mutex::new(None);

fn place() -> std::sync::MutexGuard<'static, Option<String>> {
    PLACE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_its_cause() {
        let cause = |text: &str| Failure::new(text).cause();
        let asked = |asked| Cause::OutOfMemory { asked };
        let text = "Caused by: out of device memory allocating 4096 bytes\nBacktrace:\n 0: main";
        assert_eq!(cause(text), asked(Some(4096)));
        assert_eq!(cause("Can't allocate 96 bytes: every page size"), asked(Some(96)));
        assert_eq!(cause("can't allocate buffer of size: 137438953472"), asked(Some(1 << 37)));
        assert_eq!(cause("An out-of-memory error happened during launch"), asked(None));
        assert_eq!(cause("The device is poisoned\nCaused by:\n  gone"), Cause::Lost);
        assert_eq!(cause("Validation: the device is lost"), Cause::Lost);
        assert_eq!(cause("poisoned lock: another task failed inside"), Cause::Other);
        assert_eq!(cause("the device refused the pipeline"), Cause::Other);
        let ours =
            Failure { place: Some("crates/train/src/loss.rs:1:1".into()), ..Failure::new("") };
        assert_eq!(ours.cause(), Cause::Bug);
    }

    #[test]
    fn a_panic_on_any_thread_becomes_a_failure_with_its_words() {
        keep_panics_quiet();
        let elsewhere = || std::thread::spawn(|| panic!("no kernel\nBacktrace:\n 0: main")).join();
        let failure = guard(|| elsewhere().unwrap_or_else(|payload| panic::resume_unwind(payload)));
        let told = failure.unwrap_err().to_string();
        // The place is that of the process's latest panic, which may be another test's.
        assert!(told.starts_with("no kernel") && !told.contains("main"), "{told}");
    }
}
