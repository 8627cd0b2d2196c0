//! A tracker of one's own: a CSV file, and a run that continues when the disk is full.

use std::{error::Error, fs::File, io::Write, path::Path, sync::mpsc};

use firebrick::{Metrics, Recipe, Result, Session, Step, Summary, TrackError, Tracker, Watcher};

// ANCHOR: csv
/// A CSV file with a line `step,name,value` for each number of a step.
struct Csv<W> {
    file: W,
    begun: bool,
}

impl<W: Write + Send> Tracker for Csv<W> {
    fn log(&mut self, step: Step, metrics: &Metrics) -> Result<(), TrackError> {
        let mut text = String::new();
        if !self.begun {
            text.push_str("step,name,value\n");
        }
        for (name, value) in &metrics.0 {
            text.push_str(&format!("{step},{name},{value}\n"));
        }
        // All of a step is one write, so that a disk that fills up mostly loses whole steps.
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        self.begun |= written.is_ok();
        written.map_err(|error| TrackError(error.into()))
    }
}
// ANCHOR_END: csv

// ANCHOR: notes
/// A watcher that hears what the run has to tell a person.
struct Notes(mpsc::Sender<String>);

impl Watcher for Notes {
    fn note(&mut self, text: &str) {
        let _ = self.0.send(text.to_owned()); // Nobody listens any more.
    }
}
// ANCHOR_END: notes

// ANCHOR: main
/// Trains three steps, with their numbers in `file`. Gives the notes of the run as well.
fn train<W: Write + Send + 'static>(runs: &Path, file: W) -> Result<(Summary, Vec<String>)> {
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../addition.toml"))?;
    let (sender, notes) = mpsc::channel();
    let summary = Session::new(recipe)
        .name("tracked")
        .settings(|recipe| (recipe.sft.steps, recipe.train.steps) = (60, 3))
        .tracker(Csv { file, begun: false })
        .watcher(Notes(sender))
        .runs(runs)
        .run()?
        .summary;
    Ok((summary, notes.iter().collect()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "metrics.csv".into());
    let file = File::create(&path)?;
    let (summary, notes) = train(Path::new("runs"), file)?;
    notes.iter().for_each(|note| println!("{note}"));
    println!("{} steps; their numbers are in {path}, unless it was said above", summary.steps);
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn every_number_of_every_step_has_a_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("metrics.csv");
        let (_, notes) = train(place.path(), File::create(&path).unwrap()).unwrap();
        assert!(!notes.iter().any(|note| note.contains("tracker")), "{notes:?}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches("step,name,value\n").count(), 1);
        for step in 1..=3 {
            let line = text.lines().find(|line| line.starts_with(&format!("{step},reward/mean,")));
            let value = line.and_then(|line| line.rsplit(',').next()?.parse::<f64>().ok());
            assert!(value.is_some_and(f64::is_finite), "{text}");
        }
    }

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.0);
            self.0 -= fits;
            if fits > 0 { Ok(fits) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_ends_no_run_and_is_told() {
        let place = tempfile::tempdir().unwrap();
        let (summary, notes) = train(place.path(), Disk(3000)).unwrap();
        assert_eq!((summary.steps, summary.stopped_because.as_str()), (3, "steps"));
        let lost: Vec<&String> = notes.iter().filter(|note| note.contains("tracker")).collect();
        assert!(
            lost.iter().any(|note| note.contains("lost step 3: no storage space")),
            "{notes:?}"
        );
        assert!(!lost.iter().any(|note| note.contains("lost step 1")), "{notes:?}");
    }
}
