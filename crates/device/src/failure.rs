use std::{
    cell::Cell,
    fmt,
    panic::{self, AssertUnwindSafe},
};

/// What a device said when it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In its own words.
    pub message: String,
}

/// What a failure means for what comes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There was not enough memory. What was allocated before can still be read.
    OutOfMemory {
        /// Bytes that were asked for, where the driver says so.
        asked: Option<u64>,
    },
    /// The device is gone, and with it all that it held.
    Lost,
    /// Anything else: a kernel that was refused, a driver's error.
    Other,
}

impl Failure {
    /// A failure with the driver's words.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into() }
    }

    /// What the words mean. burn hands errors on as text, so it is the text that tells.
    pub fn cause(&self) -> Cause {
        let text = &self.message;
        for sizes in ["out of device memory allocating ", "can't allocate buffer of size: "] {
            if let Some((_, rest)) = text.split_once(sizes) {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
                return Cause::OutOfMemory { asked: digits.and_then(|digits| digits.parse().ok()) };
            }
        }
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if says(&["out-of-memory", "OutOfMemory", "Out of Memory", "out of memory"]) {
            Cause::OutOfMemory { asked: None }
        } else if says(&["poisoned", "Lost", "device is lost", "illegal address"]) {
            Cause::Lost
        } else {
            Cause::Other
        }
    }
}

/// The driver's words without the stack trace that burn adds.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.message.split("Backtrace:").next().unwrap_or_default();
        let lines: Vec<&str> =
            words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        f.write_str(&lines.join(" "))
    }
}

impl std::error::Error for Failure {}

/// Runs what may panic in a driver, and gives the panic as an error.
///
/// burn's operations have no `Result`: an allocation that fails or a device that is lost panics.
/// Whatever `work` was changing is not to be used any more when it failed.
///
/// # Errors
/// When it panicked.
pub fn guard<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    GUARDED.set(GUARDED.get() + 1);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(GUARDED.get() - 1);
    result.map_err(|payload| {
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied());
        let place = PLACE.take().map_or_else(String::new, |place| format!(" (at {place})"));
        Failure::new(format!("{}{place}", message.unwrap_or("it panicked without a message")))
    })
}

/// Stops panics that [`guard`] catches from being printed as well: their place becomes part of the
/// failure instead. For a program's `main`.
pub fn keep_panics_quiet() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| match GUARDED.get() {
        0 => print(info),
        _ => PLACE.set(info.location().map(ToString::to_string)),
    }));
}

thread_local! {
    static GUARDED: Cell<usize> = const { Cell::new(0) };
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of cubecl-runtime 0.11.3, `server/base.rs`.
    #[test]
    fn a_failure_tells_its_cause() {
        let cause = |text: &str| Failure::new(text).cause();
        assert_eq!(
            cause("Caused by: out of device memory allocating 4096 bytes\nBacktrace:\n 0: main"),
            Cause::OutOfMemory { asked: Some(4096) }
        );
        assert_eq!(
            cause("can't allocate buffer of size: 137438953472"),
            Cause::OutOfMemory { asked: Some(137_438_953_472) }
        );
        assert_eq!(
            cause("An out-of-memory error happened during launch"),
            Cause::OutOfMemory { asked: None }
        );
        assert_eq!(cause("The device is poisoned\nCaused by:\n  Lost: gone"), Cause::Lost);
        assert_eq!(cause("the device refused the pipeline"), Cause::Other);
    }

    #[test]
    fn a_panic_becomes_a_failure_with_its_words() {
        let failure = guard(|| panic!("no kernel\nBacktrace:\n 0: main")).unwrap_err();
        assert_eq!(failure.to_string(), "no kernel");
    }
}
