//! The width of lines.

use std::io;

/// Room for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// As much room as a line takes, for a file or a pipe.
    Endless,
    /// This number of columns.
    Columns(usize),
    /// The columns that the terminal on standard error has at the moment; endless if standard error is not a terminal.
    Terminal,
}

impl Width {
    pub(crate) fn columns(self) -> Option<usize> {
        match self {
            Width::Endless => None,
            Width::Columns(columns) => Some(columns),
            Width::Terminal => {
                let size = terminal_size::terminal_size_of(io::stderr());
                size.map(|(terminal_size::Width(columns), _)| usize::from(columns))
            }
        }
    }
}
