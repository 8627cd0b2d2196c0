//! Reads the prompts of a run, and the tokenizer for them.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc::Sender},
};

use firebrick_core::{Environment, Prompt, Seed, SftExample, Verifier};
use firebrick_data::{
    ChatTemplate, ColumnNames, DataError, DateTime, Part, Preparation, Problem, ProblemSet,
    PromptFormat, PromptReport, Tokenizer, read_problems, shared_questions,
};
use serde_json::{Map, Value};

use super::{
    environment::{alphabet, openings, tell_alike},
    references, sft,
};
use crate::{Error, model::Folders, recipe, recipe::Recipe, source::Sources};

/// Prompts and tokenizer.
pub(super) struct Data {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) train: Vec<Prompt>,
    pub(super) heldout: Vec<Prompt>,
    pub(super) sets: Vec<EvalSet>,
    pub(super) sft_examples: Vec<SftExample>,
    /// Prompts of the SFT examples.
    pub(super) sft_prompts: Vec<Prompt>,
    /// Format in which a question is written.
    pub(super) format: PromptFormat,
    /// Report on the training problems; `None` if they were not requested.
    pub(super) report: Option<PromptReport>,
}

/// What to read for the recipe. The program brings everything else.
#[derive(Clone, Copy)]
pub(super) struct DataRequest<'a> {
    pub(super) train: bool,
    pub(super) heldout: bool,
    pub(super) sft_examples: bool,
    /// True if a verifier may want to read a prompt's messages.
    pub(super) messages: bool,
    /// True if the verifier takes references that are JSON objects or lists.
    pub(super) json_references: bool,
    /// Environment whose episodes are the problems, if the recipe says so.
    pub(super) environment: Option<&'a dyn Environment>,
}

impl Data {
    /// Reads the data for the model in `folders`, and reports through `notes` what was left out.
    pub(super) fn read(
        recipe: &Recipe,
        request: DataRequest<'_>,
        folders: Option<&Folders>,
        sources: &Sources,
        seed: Seed,
        now: DateTime,
        notes: &Sender<String>,
    ) -> Result<Self, Error> {
        let limit = prompt_limit(recipe, folders)?;
        let text = text_folder(recipe, folders);
        let tokenizer = tokenizer(recipe, text)?;
        for what in tokenizer.switched_off() {
            let _ = notes.send(format!("the tokenizer asks for {what}: it is switched off"));
        }

        let format = format(&recipe.data, text, now)?;
        let mut preparation = Preparation::new(&tokenizer, &format);
        preparation.max_prompt_tokens = limit;
        preparation.max_tokens = context(recipe, folders)?;
        preparation.keep_messages = request.messages;

        let imitates = request.sft_examples && recipe.sft.steps > 0;
        let sft_rows = match &recipe.sft.data {
            Some(path) if imitates => Some(sft::rows(&recipe.sft, path, sources)?),
            _ => None,
        };
        // Without rows of their own, the solutions of the training problems are imitated.
        let sft_examples = imitates && sft_rows.is_none();
        let ProblemSets { train, mut heldout, dropped } =
            if request.train || request.heldout || sft_examples {
                let request = DataRequest { sft_examples, ..request };
                problems(&recipe.data, sources, request, seed, notes)?
            } else {
                ProblemSets::default()
            };
        shorten(&mut heldout, recipe);

        // The episodes of an environment may all open with the same text.
        let compared: &[Problem] = if request.environment.is_none() { &train } else { &[] };
        tell_shared("data.heldout", "training questions", compared, &heldout, notes);
        if let (Some(rows), None) = (&sft_rows, request.environment) {
            tell_shared("data.heldout", "questions of sft.data", rows, &heldout, notes);
        }

        let data = &recipe.data;
        let lost = |file| move |error| no_prompts(data, file, error);
        let train_file = data.train.as_ref();
        let (prompts, report) = if request.train {
            let (prompts, mut report) = preparation.prompts(&train).map_err(lost(train_file))?;
            report.read += dropped.duplicates + dropped.conflicting;
            report.duplicates = dropped.duplicates;
            report.conflicting = dropped.conflicting;
            (prompts, Some(report))
        } else {
            (Vec::new(), None)
        };

        let heldout = if heldout.is_empty() || !request.heldout {
            Vec::new()
        } else {
            let file = data.heldout.as_ref().or(train_file);
            let (prompts, report) = preparation.prompts(&heldout).map_err(lost(file))?;
            if report.kept < report.read {
                let _ = notes.send(format!("held out: {report}"));
            }
            prompts
        };

        let (sft_examples, sft_prompts) = match sft_rows {
            Some(rows) => sft::examples(&rows, recipe, &preparation, notes)?,
            None if sft_examples => {
                let examples = preparation.sft_examples(&train).map_err(lost(train_file))?.0;
                examples.into_iter().unzip()
            }
            None => (Vec::new(), Vec::new()),
        };

        let sets = if request.heldout {
            eval_sets(recipe, sources, request, &preparation, compared, notes)?
        } else {
            Vec::new()
        };

        let tokenizer = Arc::new(tokenizer);
        Ok(Data {
            tokenizer,
            train: prompts,
            heldout,
            sets,
            sft_examples,
            sft_prompts,
            format,
            report,
        })
    }
}

impl Data {
    /// Tries the verifier, leaves out prompts that can't be judged, and checks that the rest can be answered right.
    ///
    /// # Errors
    /// When the verifier can't judge, or most prompts can't be answered right.
    pub(super) fn check_references(
        &mut self,
        recipe: &Recipe,
        verifier: &dyn Verifier,
        notes: &Sender<String>,
    ) -> Result<(), Error> {
        if let Some(first) = self.train.first().or(self.heldout.first()) {
            references::probe(verifier, first)?;
        }

        let own = [("data.train", &mut self.train), ("data.heldout", &mut self.heldout)];
        let further = self.sets.iter_mut().map(|set| (set.name.as_str(), &mut set.prompts));
        for (key, prompts) in own.into_iter().chain(further) {
            references::leave_out(key, prompts, recipe, verifier, notes)?;
            references::check(key, prompts, recipe, verifier, notes)?;
        }
        Ok(())
    }
}

/// A set to evaluate on besides the held-out prompts.
#[derive(Clone, Debug)]
pub struct EvalSet {
    /// Name in the recipe.
    pub name: String,
    /// Prompts.
    pub prompts: Vec<Prompt>,
    /// Number of completions of each prompt.
    pub samples: usize,
}

fn eval_sets(
    recipe: &Recipe,
    sources: &Sources,
    request: DataRequest<'_>,
    preparation: &Preparation<'_>,
    train: &[Problem],
    notes: &Sender<String>,
) -> Result<Vec<EvalSet>, Error> {
    let columns = columns(&recipe.data, request);
    let read = |set: &recipe::EvalSet| {
        let subset = set.subset.clone();
        let split = set.split.clone();
        let part = Part { subset, split, default_split: "test" };
        let files = sources.data_files("eval.sets", &set.data, &part)?;
        let mut problems = read_problems(&files, &columns, recipe.data.deduplicate)?.problems;
        if set.prompts > 0 {
            problems.truncate(set.prompts);
        }

        tell_shared(&set.name, "training questions", train, &problems, notes);
        let lost = |error| no_prompts(&recipe.data, Some(&set.data), error);
        let (prompts, report) = preparation.prompts(&problems).map_err(lost)?;
        if report.kept < report.read {
            let _ = notes.send(format!("{}: {report}", set.name));
        }

        let samples = set.samples.unwrap_or(recipe.eval.samples).max(1);
        Ok(EvalSet { name: set.name.clone(), prompts, samples })
    };
    recipe.eval.sets.iter().map(read).collect()
}

/// Warns the user if questions to evaluate on are trained on: their accuracy says little about other questions. `what`
/// names the questions of `train`.
fn tell_shared(
    set: &str,
    what: &str,
    train: &[impl AsRef<Problem>],
    problems: &[Problem],
    notes: &Sender<String>,
) {
    let shared = shared_questions(train, problems);
    if shared > 0 {
        let _ = notes.send(format!(
            "{set}: {shared} of {} questions are {what} too: their accuracy says little \
             about questions that are new",
            problems.len()
        ));
    }
}

fn columns(data: &recipe::Data, request: DataRequest<'_>) -> ColumnNames {
    let given = data.columns.clone().unwrap_or_default();
    let recipe::Columns { prompt, reference, difficulty } = given;
    ColumnNames { prompt, reference, json_reference: request.json_references, difficulty }
}

/// Keeps the first `eval.prompts` of the prompts to evaluate on, or all if that is 0.
pub(super) fn shorten<T>(heldout: &mut Vec<T>, recipe: &Recipe) {
    if recipe.eval.prompts > 0 {
        heldout.truncate(recipe.eval.prompts);
    }
}

/// Returns the folder of the tokenizer. `None` for a tokenizer that is made for a task.
pub(super) fn text_folder<'a>(
    recipe: &'a Recipe,
    folders: Option<&'a Folders>,
) -> Option<&'a Path> {
    let of_new = recipe.model.new.as_ref().and_then(|new| new.tokenizer.as_deref());
    folders.map(|folders| folders.text.as_path()).or(of_new)
}

pub(super) fn tokenizer(recipe: &Recipe, folder: Option<&Path>) -> Result<Tokenizer, Error> {
    if let Some(folder) = folder {
        return Ok(Tokenizer::from_folder(folder)?);
    }

    let of_new = recipe.model.new.as_ref().and_then(|new| new.alphabet.as_deref());
    let of_task = || {
        let mut alphabet_of_task =
            recipe.data.task.as_ref().and_then(generator)?.alphabet().to_owned();
        for letter in alphabet(recipe.environment.kind).chars() {
            if !alphabet_of_task.contains(letter) {
                alphabet_of_task.push(letter);
            }
        }
        Some(alphabet_of_task)
    };

    let alphabet = of_new.map(str::to_owned).or_else(of_task);
    Ok(Tokenizer::characters(&alphabet.ok_or(Error::NewModelNeedsAlphabet)?)?)
}

/// Returns the longest prompt that is kept: the recipe's limit, limited by the room that the model's context has next
/// to a completion. A longer prompt would end the run at the step that draws it.
pub(super) fn prompt_limit(recipe: &Recipe, folders: Option<&Folders>) -> Result<usize, Error> {
    let context = context(recipe, folders)?;
    room_for_a_prompt(recipe, context).map(|room| room.min(recipe.data.max_prompt_tokens))
}

/// Returns the limit of the tokens that the model takes, prompt and completion together.
fn context(recipe: &Recipe, folders: Option<&Folders>) -> Result<usize, Error> {
    Ok(match (folders, &recipe.model.new) {
        (Some(folders), _) => folders.sizes()?.max_position_embeddings,
        (None, Some(new)) => new.max_position_embeddings,
        // The recipe's check demands one of the two.
        (None, None) => usize::MAX,
    })
}

/// Returns the tokens that a context has left next to the recipe's longest completion.
pub(crate) fn room_for_a_prompt(recipe: &Recipe, context: usize) -> Result<usize, Error> {
    let completion = recipe.longest_completion();
    match context.checked_sub(completion) {
        Some(room) if room > 0 => Ok(room),
        _ => Err(Error::Context {
            completion,
            observed: recipe.environment.observation_tokens(),
            context,
        }),
    }
}

/// Says which file has no prompts left, and which key would bring them back.
fn no_prompts(data: &recipe::Data, file: Option<&PathBuf>, error: DataError) -> Error {
    let DataError::NoPrompts { report, max_prompt_tokens: limit } = error else {
        return error.into();
    };
    let remedy = if limit < data.max_prompt_tokens {
        "lower rollout.max_completion_tokens: prompt and completion share the model's context"
    } else {
        "raise data.max_prompt_tokens"
    };
    let place = file.map_or_else(|| "the task".into(), |file| file.display().to_string());
    Error::NoPrompts { place, report, limit, remedy }
}

#[derive(Default)]
struct ProblemSets {
    train: Vec<Problem>,
    heldout: Vec<Problem>,
    /// Problems that were left out of the training problems.
    dropped: ProblemSet,
}

/// Reads or makes the training problems and the held-out problems.
fn problems(
    data: &recipe::Data,
    sources: &Sources,
    request: DataRequest<'_>,
    seed: Seed,
    notes: &Sender<String>,
) -> Result<ProblemSets, Error> {
    let columns = columns(data, request);
    let read = |key: &'static str, path: &Path, part: &Part| -> Result<ProblemSet, Error> {
        let files = sources.data_files(key, path, part)?;
        let set = read_problems(&files, &columns, data.deduplicate)?;
        if let Some(note) = &set.note {
            let _ = notes.send(format!("{key}: {note}"));
        }
        Ok(set)
    };

    let Some(path) = &data.train else {
        let task = data.task.as_ref().ok_or(Error::NewModelNeedsAlphabet)?;
        let (train, heldout) = match (generator(task), request.environment) {
            (Some(task), _) => {
                (task.train(seed, data.train_size)?, task.heldout(data.heldout_size)?)
            }
            (None, Some(environment)) => {
                // Episodes cost more than generated arithmetic, so only the needed ones are begun.
                let wanted = |is_wanted, count| if is_wanted { count } else { 0 };
                let train = wanted(request.train || request.sft_examples, data.train_size);
                let heldout = wanted(request.heldout, data.heldout_size);
                let train = openings(environment, 0, train)?;
                tell_alike(&train, notes);
                (train, openings(environment, data.train_size as u64, heldout)?)
            }
            // The recipe's check demands an environment.
            (None, None) => (Vec::new(), Vec::new()),
        };
        return Ok(ProblemSets { train, heldout, dropped: ProblemSet::default() });
    };

    let subset = data.subset.clone();
    let split = data.split.clone();
    let part = Part { subset, split, default_split: "train" };
    let mut dropped = read("data.train", path, &part)?;
    let mut train = std::mem::take(&mut dropped.problems);
    // A file has no splits. Held-out rows without their own file or split are its last rows.
    let splits = data.heldout.is_some() || !path.is_file();
    let heldout_split = data.heldout_split.clone().filter(|_| splits);

    let heldout = match (&data.heldout, heldout_split) {
        (None, None) => {
            // At most half is held out: a file of ten rows is for trying things out, and must still train.
            let count = data.heldout_size.min(train.len() / 2);
            if count < data.heldout_size {
                let _ = notes.send(format!(
                    "data.heldout_size = {}: {} has {} rows, and at most half of them are held \
                     out: {count}{}",
                    data.heldout_size,
                    path.display(),
                    train.len(),
                    if count == 0 { "; nothing is evaluated" } else { "" }
                ));
            }
            if let Some(split) = &data.heldout_split {
                let name = path.display();
                let _ = notes.send(format!(
                    "data.heldout_split: {name} is one file and has no split {split}: its last {count} prompts are held out"
                ));
            }

            train.split_off(train.len() - count)
        }
        (heldout, split) => {
            let subset = match heldout {
                Some(_) => &data.heldout_subset,
                None => &data.subset,
            };
            let part = Part { subset: subset.clone(), split, default_split: "test" };
            let set = read("data.heldout", heldout.as_ref().unwrap_or(path), &part)?;
            if set.duplicates > 0 {
                let kept = set.problems.len();
                let left = set.duplicates;
                let _ =
                    notes.send(format!("data.heldout: {kept} prompts, {left} duplicates left out"));
            }
            set.problems
        }
    };

    Ok(ProblemSets { train, heldout, dropped })
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
        recipe::Task::Guessing { numbers } => firebrick_data::Task::Guessing { numbers },
        recipe::Task::Environment => return None,
    })
}

fn format(
    data: &recipe::Data,
    folder: Option<&Path>,
    now: DateTime,
) -> Result<PromptFormat, Error> {
    let chat = match (data.template, folder) {
        (recipe::Template::Plain, _) | (_, None) => None,
        (_, Some(folder)) => ChatTemplate::from_folder(folder)?,
    };

    if data.template == recipe::Template::Chat && chat.is_none() {
        return Err(Error::NoChatTemplate {
            folder: folder.map(Path::to_owned).unwrap_or_default(),
        });
    }
    known_options("data.template_options", &data.template_options, chat.as_ref())?;

    let default = PromptFormat::default();
    Ok(PromptFormat {
        text: data.prompt.clone().unwrap_or(default.text),
        system: data.system.clone(),
        chat: chat.map(|chat| chat.with_date(now)),
        kwargs: data.template_options.clone(),
    })
}

/// Checks that the template reads every option. Templates take the options that they know and leave the rest, so a
/// misspelt one would go unnoticed. `key` is the key under which they were given.
///
/// # Errors
/// When it does not read one of them.
pub fn known_options(
    key: &'static str,
    options: &Map<String, Value>,
    chat: Option<&ChatTemplate>,
) -> Result<(), Error> {
    // A text would be spelt out letter by letter, as if each were a tool.
    if let Some(Value::String(_)) = options.get("tools") {
        let problem =
            format!("{key}: tools is a text, expected a list of objects; is a bracket missing?");
        return Err(DataError::Format { problem }.into());
    }

    let variables = chat.map(ChatTemplate::variables).unwrap_or_default();
    match options.keys().find(|name| !variables.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Error::TemplateOption {
            key,
            name: name.clone(),
            place: chat.map_or("a plain prompt".into(), |chat| chat.place().to_owned()),
            variables,
        }),
    }
}
