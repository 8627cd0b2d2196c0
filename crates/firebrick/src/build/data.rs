//! Reads the prompts of a run, and the tokenizer for them.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, mpsc::Sender},
};

use firebrick_core::{Prompt, Seed, SftExample};
use firebrick_data::{
    ChatTemplate, DataError, DateTime, Hint, Part, Preparation, Problem, PromptFormat,
    PromptReport, Prompts, Tokenizer, read_problems, shared_questions,
};
use serde_json::{Map, Value};

use super::{
    environment::alphabet,
    judges::Judges,
    problems::{DataRequest, ProblemSets, column_names, generator, problems, shares},
    references, sft,
};
use crate::{
    Error,
    model::Folders,
    recipe,
    recipe::{Recipe, TrainData, TrainSource},
    source::Sources,
};

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

        let format = prompt_format(&recipe.data, text, now)?;
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
        if recipe.eval.prompts > 0 {
            heldout = first_of_each(&heldout, recipe.eval.prompts, |problem| &problem.data_source);
        }

        // The episodes of an environment may all open with the same text.
        let compared: &[Problem] = if request.environment.is_none() { &train } else { &[] };
        let tell = |set: &str, problems: &[Problem]| {
            tell_shared(set, "training questions", compared, problems, notes);
            if let (Some(rows), None) = (&sft_rows, request.environment) {
                tell_shared(set, "questions of sft.data", rows, problems, notes);
            }
        };
        tell("data.heldout", &heldout);

        let data = &recipe.data;
        let lost = |file: Option<&Path>, error| no_prompts(data, file, error);
        let hint = recipe.teacher.as_ref().and_then(|teacher| teacher.hint.clone());
        let hint = hint.map(|text| Hint::new(text, &format));
        let (prompts, report) = if request.train {
            // Nobody teaches on held-out prompts.
            let preparation = Preparation { hint: hint.as_ref(), ..preparation };
            let mut prompts = Vec::new();
            let mut report = PromptReport::default();
            // Each data set has to have a prompt left.
            for (file, problems) in by_source(data, &train) {
                let (of_source, report_of_source) =
                    preparation.prompts(problems).map_err(|error| lost(file, error))?;
                prompts.extend(of_source);
                report += report_of_source;
            }
            report.read += dropped.duplicates + dropped.conflicting;
            report.duplicates = dropped.duplicates;
            report.conflicting = dropped.conflicting;
            (prompts, Some(report))
        } else {
            (Vec::new(), None)
        };

        let file = first_path(data);
        let heldout = if heldout.is_empty() || !request.heldout {
            Vec::new()
        } else {
            let file = data.heldout.as_deref().or(file);
            let (prompts, report) =
                preparation.prompts(&heldout).map_err(|error| lost(file, error))?;
            if report.kept < report.read {
                let _ = notes.send(format!("held out: {report}"));
            }
            prompts
        };

        let (sft_examples, sft_prompts) = match &sft_rows {
            Some(rows) => sft::examples(rows, recipe, &preparation, notes)?,
            None if sft_examples => {
                let examples =
                    preparation.sft_examples(&train).map_err(|error| lost(file, error))?.0;
                examples.into_iter().unzip()
            }
            None => (Vec::new(), Vec::new()),
        };

        let sets = if request.heldout {
            eval_sets(recipe, sources, request, &preparation, &tell, notes)?
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
        judges: &Judges,
        notes: &Sender<String>,
    ) -> Result<(), Error> {
        let own = [("data.train", &mut self.train), ("data.heldout", &mut self.heldout)];
        let further = self.sets.iter_mut().map(|set| (set.name.as_str(), &mut set.prompts));
        let mut tried = HashSet::new();

        for (key, prompts) in own.into_iter().chain(further) {
            let mut rest = std::mem::take(prompts);
            while let Some(first) = rest.first() {
                let source = first.data_source.clone();
                let verifier = judges.of(&source);
                let count = rest.iter().take_while(|prompt| prompt.data_source == source).count();
                let others = rest.split_off(count);
                let mut of_source = std::mem::replace(&mut rest, others);

                // A task generates its own answers.
                let made = recipe.data.task.is_some();
                let kind = recipe.reward_kind_of(&source);
                let key = if source.is_empty() { key } else { &format!("{key} ({source})") };
                if !made {
                    references::leave_out(key, &mut of_source, &kind, verifier, notes)?;
                }
                if let Some(first) = of_source.first()
                    && tried.insert(source.clone())
                {
                    references::probe(verifier, first)?;
                }
                if !made {
                    references::check(key, &of_source, &kind, verifier, notes)?;
                }
                prompts.append(&mut of_source);
            }
        }
        Ok(())
    }
}

/// Returns the source of the training prompts: one set of them all, or the data sets of the recipe by their weights.
///
/// # Errors
/// When there is no prompt.
pub(super) fn source(recipe: &Recipe, train: Vec<Prompt>, seed: Seed) -> Result<Prompts, Error> {
    let weights = recipe.train_sources().iter().map(|source| source.weight);
    let Some(weights) = weights.collect::<Option<Vec<f64>>>().filter(|all| !all.is_empty()) else {
        return Ok(Prompts::new(train, seed)?);
    };

    let sets = train.chunk_by(|one, next| one.data_source == next.data_source);
    let sets = weights.into_iter().zip(sets.map(<[Prompt]>::to_vec));
    Ok(Prompts::weighted(sets.collect(), seed)?)
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
    tell: &dyn Fn(&str, &[Problem]),
    notes: &Sender<String>,
) -> Result<Vec<EvalSet>, Error> {
    let columns = column_names(recipe.data.columns.as_ref(), request.judges.of(""));
    let read = |set: &recipe::EvalSet| {
        let subset = set.subset.clone();
        let split = set.split.clone();
        let part = Part { subset, split, default_split: "test" };
        let files = sources.data_files("eval.sets", &set.data, &part)?;
        let mut problems = read_problems(&files, &columns, recipe.data.deduplicate)?.problems;
        if set.prompts > 0 {
            problems.truncate(set.prompts);
        }

        tell(&set.name, &problems);
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

/// Returns the problems of each data set, which are in the order of the data sets, with where it is.
fn by_source<'a>(
    data: &'a recipe::Data,
    problems: &'a [Problem],
) -> Vec<(Option<&'a Path>, &'a [Problem])> {
    let several = data.train.as_ref().map_or(&[][..], TrainData::several);
    if several.is_empty() {
        return vec![(first_path(data), problems)];
    }

    let of = |source: &'a TrainSource| {
        let name = source.name();
        let is_own = |problem: &Problem| problem.data_source == name;
        let begin = problems.iter().position(is_own).unwrap_or(problems.len());
        let count = problems[begin..].iter().take_while(|problem| is_own(problem)).count();
        (Some(source.path.as_path()), &problems[begin..begin + count])
    };
    several.iter().map(of).collect()
}

/// Returns where the first data set is that is trained on, if there is any.
fn first_path(data: &recipe::Data) -> Option<&Path> {
    data.train.as_ref().and_then(|train| train.paths().first().copied())
}

/// Returns the first `limit` of some prompts or problems, which are ordered by their data sets. Of several data sets,
/// each has its share of that number.
pub(crate) fn first_of_each<T: Clone>(
    all: &[T],
    limit: usize,
    source: fn(&T) -> &String,
) -> Vec<T> {
    if all.len() <= limit {
        return all.to_vec();
    }
    let sources: Vec<&[T]> = all.chunk_by(|one, next| source(one) == source(next)).collect();
    let shares = shares(limit, sources.len());
    let first = |(of, share): (&&[T], usize)| of[..share.min(of.len())].to_vec();
    sources.iter().zip(shares).flat_map(first).collect()
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
fn no_prompts(data: &recipe::Data, file: Option<&Path>, error: DataError) -> Error {
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

/// Returns the form of a recipe's prompts for the model whose tokenizer is in `folder`.
///
/// # Errors
/// When the recipe wants a chat template and there is none, or the template can't be read or lacks an option.
pub fn prompt_format(
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
