//! Reads or makes the problems of a run: data sets, a task's problems, or an environment's episodes.

use std::{path::Path, sync::mpsc::Sender};

use firebrick_core::{Environment, Seed, TaskCounts, Verifier};
use firebrick_data::{ColumnNames, Part, Problem, ProblemSet, read_problems};

use super::{
    environment::{openings, tell_alike},
    judges::Judges,
};
use crate::{
    Error, recipe,
    recipe::{TrainData, TrainSource},
    source::Sources,
};

/// What to read for the recipe. The program brings everything else.
#[derive(Clone, Copy)]
pub(super) struct DataRequest<'a> {
    pub(super) train: bool,
    pub(super) heldout: bool,
    pub(super) sft_examples: bool,
    /// True if a verifier may want to read a prompt's messages.
    pub(super) messages: bool,
    /// Verifiers of the prompts, some of which take references that are JSON objects or lists.
    pub(super) judges: &'a Judges,
    /// Environment whose episodes are the problems, if the recipe says so.
    pub(super) environment: Option<&'a dyn Environment>,
}

/// Problems to train on and to evaluate on.
#[derive(Default)]
pub(super) struct ProblemSets {
    pub(super) train: Vec<Problem>,
    pub(super) heldout: Vec<Problem>,
    /// Problems that were left out of the training problems.
    pub(super) dropped: ProblemSet,
}

/// Reads or makes the training problems and the held-out problems.
pub(super) fn problems(
    data: &recipe::Data,
    sources: &Sources,
    request: DataRequest<'_>,
    seed: Seed,
    notes: &Sender<String>,
) -> Result<ProblemSets, Error> {
    let reader = Reader { data, sources, request, notes };
    match (&data.train, &data.task) {
        (Some(TrainData::One(path)), _) => {
            let (subset, split) = (data.subset.clone(), data.split.clone());
            let source = TrainSource { path: path.clone(), subset, split, ..Default::default() };
            reader.data_sets(&[source], |_| String::new())
        }
        (Some(TrainData::Several(list)), _) => reader.data_sets(list, TrainSource::name),
        (None, Some(task)) => made(task, data, request, seed, notes),
        // The recipe's check demands one of the two.
        (None, None) => Err(Error::NewModelNeedsAlphabet),
    }
}

/// Makes the problems of a task, or begins the episodes of an environment.
fn made(
    task: &recipe::Task,
    data: &recipe::Data,
    request: DataRequest<'_>,
    seed: Seed,
    notes: &Sender<String>,
) -> Result<ProblemSets, Error> {
    let (train, heldout) = match (generator(task), request.environment) {
        (Some(task), _) => (task.train(seed, data.train_size)?, task.heldout(data.heldout_size)?),
        (None, Some(environment)) => {
            // Episodes cost more than generated arithmetic, so only the needed ones are begun.
            let wanted = |is_wanted, count| if is_wanted { count } else { 0 };
            let counts = environment.tasks().map_err(|failed| Error::Tasks(failed.to_string()))?;
            let all = TaskCounts { train: data.train_size, heldout: data.heldout_size };
            let TaskCounts { train, heldout } = counts.unwrap_or(all);
            let train = wanted(request.train || request.sft_examples, train);
            let heldout = wanted(request.heldout, heldout);
            let train = openings(environment, 0, train)?;
            tell_alike(&train, notes);
            (train, openings(environment, data.train_size as u64, heldout)?)
        }
        // The recipe's check demands an environment.
        (None, None) => (Vec::new(), Vec::new()),
    };
    Ok(ProblemSets { train, heldout, dropped: ProblemSet::default() })
}

/// Reads data sets, and says what is odd about them.
struct Reader<'a> {
    data: &'a recipe::Data,
    sources: &'a Sources,
    request: DataRequest<'a>,
    notes: &'a Sender<String>,
}

impl Reader<'_> {
    /// Reads data sets, one after the other. Each problem has the name of its data set, and an id of its own.
    fn data_sets(
        &self,
        list: &[TrainSource],
        name: fn(&TrainSource) -> String,
    ) -> Result<ProblemSets, Error> {
        let mut all = ProblemSets::default();
        let mut next_id = 0;

        for (source, share) in list.iter().zip(shares(self.data.heldout_size, list.len())) {
            let name = name(source);
            let (subset, split) = (source.subset.clone(), source.split.clone());
            let part = Part { subset, split, default_split: "train" };
            let ProblemSet { problems: mut train, duplicates, conflicting, .. } =
                self.rows("data.train", &source.path, &part, &name, source.columns.as_ref())?;
            let mut heldout = match self.data.heldout {
                Some(_) => Vec::new(),
                None => self.own_heldout(source, &name, &mut train, share)?,
            };

            let first_id = next_id;
            for problem in train.iter_mut().chain(&mut heldout) {
                problem.data_source.clone_from(&name);
                problem.id += first_id;
                next_id = next_id.max(problem.id + 1);
            }

            all.train.append(&mut train);
            all.heldout.append(&mut heldout);
            all.dropped.duplicates += duplicates;
            all.dropped.conflicting += conflicting;
        }

        if let Some(path) = &self.data.heldout {
            let (subset, split) = (&self.data.heldout_subset, &self.data.heldout_split);
            all.heldout = self.heldout_rows(path, subset, split.clone(), "", None)?;
        }
        Ok(all)
    }

    /// Returns the held-out problems of a data set: those of its own split, or the last `size` of its training problems.
    fn own_heldout(
        &self,
        source: &TrainSource,
        name: &str,
        train: &mut Vec<Problem>,
        size: usize,
    ) -> Result<Vec<Problem>, Error> {
        let TrainSource { path, subset, columns, .. } = source;
        let split = &self.data.heldout_split;
        // A file has no splits.
        if split.is_some() && !path.is_file() {
            return self.heldout_rows(path, subset, split.clone(), name, columns.as_ref());
        }

        // At most half is held out: a file of ten rows is for trying things out, and must still train.
        let count = size.min(train.len() / 2);
        let whole = self.data.heldout_size;
        let share = if size < whole { format!(", {size} of each data set") } else { String::new() };
        if count < size || size == 0 {
            self.note(format!(
                "data.heldout_size = {whole}{share}: {} has {} rows, and at most half of them are held out: {count}{}",
                path.display(),
                train.len(),
                if count == 0 { "; nothing of it is evaluated" } else { "" }
            ));
        }
        if let Some(split) = split {
            self.note(format!(
                "data.heldout_split: {} is one file and has no split {split}: its last {count} prompts are held out",
                path.display()
            ));
        }
        Ok(train.split_off(train.len() - count))
    }

    /// Reads held-out problems from their own file or split.
    fn heldout_rows(
        &self,
        path: &Path,
        subset: &Option<String>,
        split: Option<String>,
        name: &str,
        columns: Option<&recipe::Columns>,
    ) -> Result<Vec<Problem>, Error> {
        let part = Part { subset: subset.clone(), split, default_split: "test" };
        let set = self.rows("data.heldout", path, &part, name, columns)?;
        if set.duplicates > 0 {
            let kept = set.problems.len();
            let left = set.duplicates;
            self.note(format!("data.heldout: {kept} prompts, {left} duplicates left out"));
        }
        Ok(set.problems)
    }

    /// Reads the rows of a data set whose judge is that of `name`. Without `columns`, they are those of the recipe.
    fn rows(
        &self,
        key: &'static str,
        path: &Path,
        part: &Part,
        name: &str,
        columns: Option<&recipe::Columns>,
    ) -> Result<ProblemSet, Error> {
        let files = self.sources.data_files(key, path, part)?;
        let given = columns.or(self.data.columns.as_ref());
        let columns = column_names(given, self.request.judges.of(name));
        let set = read_problems(&files, &columns, self.data.deduplicate)?;
        if let Some(note) = &set.note {
            self.note(format!("{key}: {note}"));
        }
        Ok(set)
    }

    fn note(&self, text: String) {
        let _ = self.notes.send(text);
    }
}

/// Returns the generator of a task. `None` if an environment's own episodes are the problems.
pub(super) fn generator(task: &recipe::Task) -> Option<firebrick_data::Task> {
    Some(match *task {
        recipe::Task::Addition { digits, worked, second_look } => {
            firebrick_data::Task::Addition { digits, worked, second_look }
        }
        recipe::Task::Multiplication { digits, worked } => {
            firebrick_data::Task::Multiplication { digits, worked }
        }
        recipe::Task::Countdown { numbers, max_number, max_target } => {
            firebrick_data::Task::Countdown { numbers, max_number, max_target }
        }
        recipe::Task::Sums { digits, differences } => {
            firebrick_data::Task::Sums { digits, differences }
        }
        recipe::Task::WordProblems { steps, fewest_steps } => {
            firebrick_data::Task::WordProblems { steps, fewest_steps }
        }
        recipe::Task::Functions { operations } => firebrick_data::Task::Functions { operations },
        recipe::Task::Guessing { numbers } => firebrick_data::Task::Guessing { numbers },
        recipe::Task::Environment { .. } => return None,
    })
}

/// Returns the names of the columns, for a data set with this verifier.
pub(super) fn column_names(
    given: Option<&recipe::Columns>,
    verifier: &dyn Verifier,
) -> ColumnNames {
    let recipe::Columns { prompt, reference, difficulty } = given.cloned().unwrap_or_default();
    ColumnNames { prompt, reference, json_reference: verifier.takes_json(), difficulty }
}

/// Divides a number into equal shares, of which the first are larger by one if it can't be divided.
pub(super) fn shares(number: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |index| number / count + usize::from(index < number % count))
}
