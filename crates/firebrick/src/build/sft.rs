//! Examples of supervised fine-tuning (SFT) that are rows of the user's own.

use std::{path::Path, sync::mpsc::Sender};

use firebrick_core::{Prompt, SftExample};
use firebrick_data::{DataError, Part, Preparation, Question, SftColumns, SftRow, read_sft_rows};

use crate::{Error, recipe, recipe::Recipe, source::Sources};

/// Reads the rows of `sft.data`, which is `path`.
pub(super) fn rows(
    sft: &recipe::Sft,
    path: &Path,
    sources: &Sources,
) -> Result<Vec<SftRow>, Error> {
    let (subset, split) = (sft.subset.clone(), sft.split.clone());
    let part = Part { subset, split, default_split: "train" };
    let recipe::SftColumns { prompt, completion } = sft.columns.clone().unwrap_or_default();

    let files = sources.data_files("sft.data", path, &part)?;
    Ok(read_sft_rows(&files, &SftColumns { prompt, completion })?)
}

/// Makes examples of the rows, each with its prompt, and says how many were left out.
///
/// # Errors
/// When a row makes no example, or every row is too long.
pub(super) fn examples(
    rows: &[SftRow],
    recipe: &Recipe,
    preparation: &Preparation<'_>,
    notes: &Sender<String>,
) -> Result<(Vec<SftExample>, Vec<Prompt>), Error> {
    let is_conversation = |row: &SftRow| matches!(row.problem.question, Question::Messages(_));
    if recipe.data.prompt.is_some() && rows.iter().any(is_conversation) {
        let _ = notes.send(
            "sft.data: prompts that are messages are left as they are, without the text of data.prompt"
                .into(),
        );
    }

    match preparation.examples(rows, recipe.longest_completion()) {
        Ok((examples, report)) => {
            let _ = notes.send(format!("sft.data: {report}"));
            Ok(examples.into_iter().unzip())
        }
        Err(DataError::NoSftExamples { report }) => {
            let remedy = if report.long_completions > 0 {
                "raise rollout.max_completion_tokens, or shorten the examples: SFT shows only what the policy may write"
            } else if report.max_prompt_tokens < recipe.data.max_prompt_tokens {
                "lower rollout.max_completion_tokens: prompt and completion share the model's context"
            } else {
                "raise data.max_prompt_tokens"
            };
            let path = recipe.sft.data.clone().unwrap_or_default();
            Err(Error::LongSftExamples { path, report, remedy })
        }
        Err(error) => Err(error.into()),
    }
}
