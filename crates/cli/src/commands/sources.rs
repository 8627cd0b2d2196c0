//! Access to the Hugging Face Hub for commands, with progress bars for downloads.

use firebrick::{Watcher, source::Sources};
use firebrick_data::Progress;

use crate::{
    bars::{Bar, Bars},
    terminal::Terminal,
};

/// Number of bytes that a bar counts as one unit.
const MEGABYTE: u64 = 1_000_000;

/// Makes the [`sources`] of a command that does not have its own bars.
pub(super) fn alone() -> Sources {
    sources(&Bars::on_stderr())
}

/// Sets up the Hub as the environment has it, and shows its downloads between `bars`.
pub(super) fn sources(bars: &Bars) -> Sources {
    let mut terminal: Box<dyn Watcher> =
        if bars.is_quiet() { Box::new(()) } else { Box::new(Terminal::plain(bars.clone())) };

    let bars = bars.clone();
    let mut bar: Option<Bar> = None;
    let mut bytes = 0;
    Sources::of_environment().hearing(move |progress| match progress {
        Progress::Begin { file, bytes: size } => {
            let megabytes = size.div_ceil(MEGABYTE);
            // Without a terminal there is no bar, so a line in the log announces the download.
            terminal.note(&format!("downloading {file}, {megabytes} MB"));
            bar = Some(bars.bar("megabytes", megabytes));
            bytes = 0;
        }
        Progress::Advance(more) => {
            // The bar moves by the whole megabytes that this piece completed.
            let before = bytes / MEGABYTE;
            bytes += more;
            if let Some(bar) = &bar {
                bar.advance(bytes / MEGABYTE - before);
            }
        }
        Progress::End => bar = None,
        Progress::Note(note) => {
            terminal.note(note);
        }
    })
}
