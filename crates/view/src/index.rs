//! Completions of runs: a list of all, and their texts in blocks.

use std::collections::BTreeMap;

use firebrick_core::{Completion, Verdict};
use firebrick_runs::{Listed, ListedGroup, Looked, PromptFrame, TRAIN};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    ViewError,
    run::{RecipeRuns, Run},
};

/// Number of completions of a block.
const BLOCK: usize = 500;

/// Number of characters of texts after which a block is closed sooner.
const BLOCK_LETTERS: u64 = 2 << 20;

/// A list of all judged completions, for a script to sort and to filter. It consists of columns, in which words are
/// stored as indices.
#[derive(Serialize)]
pub(crate) struct Index {
    runs: Vec<String>,
    /// For each run the name of its recipe.
    recipes: Vec<String>,
    /// For each run the text around its questions.
    frames: Vec<PromptFrame>,
    names: Names,
    prompts: Vec<Prompt>,
    groups: Groups,
    rows: Rows,
    /// First row of each block.
    blocks: Vec<usize>,
    /// Number of the list among those that a server has sent.
    pub(crate) id: u64,
    /// Number of characters of the texts in the last block.
    #[serde(skip)]
    letters: u64,
    /// For each completion the run's number, the group, and the position in the group.
    #[serde(skip)]
    keys: Vec<(usize, i64, u64)>,
    /// Prompts of the run that is being listed, by their numbers and texts.
    #[serde(skip)]
    known: BTreeMap<(u64, String), usize>,
}

#[derive(Default, Serialize)]
struct Names {
    sources: Vec<String>,
    finishes: Vec<String>,
    verdicts: Vec<String>,
    statuses: Vec<String>,
}

/// A prompt with its history: for each training step that sampled it, the numbers of right and of judged
/// completions.
#[derive(Serialize)]
struct Prompt {
    text: String,
    reference: String,
    history: Vec<(u64, usize, usize)>,
}

#[derive(Default, Serialize)]
struct Groups {
    run: Vec<usize>,
    source: Vec<usize>,
    step: Vec<u64>,
    /// Draw of the group's prompt, which tells the groups of a step apart. Evaluations draw no prompts, so
    /// they have the prompt's number instead. The draw is a text, because a script would round a number beyond
    /// 2⁵³.
    draw: Vec<String>,
    prompt: Vec<usize>,
    status: Vec<Option<usize>>,
    spread: Vec<Option<f64>>,
}

#[derive(Default, Serialize)]
struct Rows {
    group: Vec<usize>,
    completion: Vec<u64>,
    tokens: Vec<u64>,
    finish: Vec<usize>,
    verdict: Vec<usize>,
    reward: Vec<Option<f64>>,
    advantage: Vec<Option<f64>>,
}

impl Index {
    /// Lists the completions of these runs.
    pub(crate) fn of_runs(runs: &[Run], id: u64) -> Result<Self, ViewError> {
        let mut recipes = vec![String::new(); runs.len()];
        for recipe in RecipeRuns::of(runs) {
            recipe.runs.iter().for_each(|&run| recipes[run].clone_from(&recipe.name));
        }
        let mut index = Index {
            recipes,
            runs: runs.iter().map(|run| run.name.clone()).collect(),
            frames: runs.iter().map(Run::frame).collect(),
            names: Names::default(),
            prompts: Vec::new(),
            groups: Groups::default(),
            rows: Rows::default(),
            blocks: Vec::new(),
            id,
            letters: 0,
            keys: Vec::new(),
            known: BTreeMap::new(),
        };

        for (number, run) in runs.iter().enumerate() {
            index.known.clear();
            run.store.list(&mut |group, completions| index.add(number, group, completions))?;
        }
        Ok(index)
    }

    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the texts of block `number`; `None` beyond the last block.
    pub(crate) fn block(&self, runs: &[Run], number: usize) -> Result<Option<Value>, ViewError> {
        let Some(&first) = self.blocks.get(number) else { return Ok(None) };
        let end = self.blocks.get(number + 1).map_or(self.keys.len(), |end| *end);
        let keys = &self.keys[first..end];

        let mut rows = Vec::with_capacity(keys.len());
        for of_group in keys.chunk_by(|one, other| (one.0, one.1) == (other.0, other.1)) {
            let (run, group, _) = of_group[0];
            let store = &runs[run].store;
            let pieces = runs[run].pieces();
            // Tokens are kept by group, so they are read once for all its completions.
            let sampled = if pieces.is_some() { store.tokens(group)? } else { None };

            for &(_, _, completion) in of_group {
                let mut row = match store.written(group, completion)? {
                    Some(written) => {
                        let parts = written.parts.as_deref().map(serde_json::from_str::<Value>);
                        json!({
                            "text": written.text, "extracted": written.extracted,
                            "parts": parts.and_then(Result::ok),
                        })
                    }
                    None => json!({ "text": "", "extracted": "", "parts": null, "gone": true }),
                };

                let sampled = sampled.as_ref().and_then(|all| all.get(completion as usize));
                if let (Some(sampled), Some(pieces)) = (sampled, pieces) {
                    let looked = store.looked_at(group, completion)?;
                    row["pieces"] = shaded(sampled, &pieces(&sampled.tokens), looked.as_ref());
                }
                rows.push(row);
            }
        }

        Ok(Some(Value::Array(rows)))
    }

    fn add(&mut self, run: usize, group: ListedGroup, completions: Vec<Listed>) {
        let prompt = self.prompt(&group);
        let number = self.groups.run.len();

        if group.source == TRAIN {
            let count =
                |is: fn(&str) -> bool| completions.iter().filter(|of| is(&of.verdict)).count();
            let right = count(|verdict| verdict == Verdict::Right.name());
            let judged = count(|verdict| verdict != Verdict::Error.name());
            self.prompts[prompt].history.push((group.step, right, judged));
        }

        let names = &mut self.names;
        self.groups.run.push(run);
        self.groups.source.push(position_of(&mut names.sources, &group.source));
        self.groups.step.push(group.step);
        let draw = if group.source == TRAIN { group.draw } else { group.prompt_id };
        self.groups.draw.push(draw.to_string());
        self.groups.prompt.push(prompt);
        self.groups
            .status
            .push(group.status.map(|status| position_of(&mut names.statuses, &status)));
        self.groups.spread.push(group.spread);

        for of in completions {
            let row = self.keys.len();
            // A block is closed when its rows or its characters reach their limit, whichever is first.
            if self.blocks.last().is_none_or(|first| row - first >= BLOCK)
                || self.letters > BLOCK_LETTERS
            {
                self.blocks.push(row);
                self.letters = 0;
            }

            self.letters += of.letters;
            self.rows.group.push(number);
            self.rows.completion.push(of.completion);
            self.rows.tokens.push(of.tokens);
            self.rows.finish.push(position_of(&mut names.finishes, &of.finish));
            self.rows.verdict.push(position_of(&mut names.verdicts, &of.verdict));
            self.rows.reward.push(of.reward);
            self.rows.advantage.push(of.advantage);
            self.keys.push((run, group.id, of.completion));
        }
    }

    fn prompt(&mut self, group: &ListedGroup) -> usize {
        let key = (group.prompt_id, group.prompt.clone());
        let prompts = &mut self.prompts;
        *self.known.entry(key).or_insert_with(|| {
            let text = group.prompt.clone();
            let reference = group.reference.clone();
            prompts.push(Prompt { text, reference, history: Vec::new() });
            prompts.len() - 1
        })
    }
}

/// Returns the position of a word among the known words. A new word is added.
fn position_of(words: &mut Vec<String>, word: &str) -> usize {
    words.iter().position(|known| known == word).unwrap_or_else(|| {
        words.push(word.to_owned());
        words.len() - 1
    })
}

/// Returns each token's text. If the policy wrote the token, its log-probability, ratio and entropy follow, if they are
/// known.
fn shaded(sampled: &Completion, pieces: &[String], looked: Option<&Looked>) -> Value {
    let of_token = |(index, piece): (usize, &String)| {
        if !sampled.mask.get(index).copied().unwrap_or(false) {
            return json!([piece, null, null, null]);
        }
        let ratio = looked.and_then(|looked| looked.ratios.get(index));
        let entropy = looked.and_then(|looked| looked.entropies.get(index));
        json!([piece, sampled.logprobs.get(index), ratio, entropy])
    };
    pieces.iter().enumerate().map(of_token).collect()
}
