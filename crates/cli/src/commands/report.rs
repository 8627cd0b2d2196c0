//! `firebrick report`: writes runs as one HTML file.

use std::{fs, path::PathBuf};

use clap::Args;
use firebrick_runs::shell_word;
use firebrick_view::report;

use super::watch::open;
use crate::{ProgramError, bars::Bars, closing::bytes, out::Out};

/// Arguments of `firebrick report`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Report {
    /// One or several runs, by their names or folders; several are laid over each other
    #[arg(required = true, value_name = "RUN", value_parser = super::run())]
    runs: Vec<PathBuf>,
    /// The file to write; by default report.html in the run's folder, or in the current folder for several runs
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Link charts and findings to the book at this address
    #[arg(long, value_name = "ADDRESS")]
    book: Option<String>,
}

const EXAMPLES: &str = "\
The report is one file that needs no other file: curves, findings, the
settings in which the recipes differ, and every completion that the runs'
databases have.

Examples:
  firebrick report runs/quickstart
  firebrick report runs/first runs/second --out both.html";

impl Report {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let (path, is_ours) = match (self.out, &self.runs[..]) {
            (Some(out), _) if out.is_dir() => (out.join("report.html"), true),
            (Some(out), _) => (out, false),
            (None, [run]) => (run.join("report.html"), true),
            (None, _) => ("report.html".into(), true),
        };

        // The user did not name this file, and in the folder of an untrusted run it may be a link to anything.
        if is_ours && fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(ProgramError::NoPage { path });
        }

        let out = Out::at_path(&path)?;
        let writing = Bars::on_stderr().bar("writing", 0);
        let page = report(open(&self.runs)?, self.book.as_deref()).map_err(ProgramError::View)?;
        out.write(page.as_bytes())?;
        drop(writing);

        let size = bytes(page.len() as u64);
        let name = shell_word(&path.to_string_lossy());
        match out {
            Out::File(_) => super::print(&format!("{name} ({size}): open it in a browser\n")),
            // The page may have been written to standard output.
            Out::Stream(_) => {
                super::warn(format!("{name}: {size}"));
                Ok(())
            }
        }
    }
}
