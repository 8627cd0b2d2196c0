//! Turns problems into tokenized prompts and worked examples, in parallel.

use std::fmt;

use firebrick_core::{Prompt, WorkedExample};
use rayon::prelude::*;

use crate::{DataError, Problem, PromptFormat, Tokenizer, number};

/// The preparation of problems. It turns them into tokens, in parallel.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    /// The policy's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The way in which a question is written.
    pub format: &'a PromptFormat,
    /// The most tokens of a prompt. Longer prompts are dropped, because the policy could not read them whole.
    pub max_prompt_tokens: usize,
    /// True if prompts keep the messages that they were made from.
    pub keep_messages: bool,
}

impl<'a> Preparation<'a> {
    /// Makes a preparation without a limit on length.
    pub fn new(tokenizer: &'a Tokenizer, format: &'a PromptFormat) -> Self {
        Preparation { tokenizer, format, max_prompt_tokens: usize::MAX, keep_messages: false }
    }

    /// Returns the prompts of the problems that can be used, in the same order, and a report on all problems.
    ///
    /// # Errors
    /// Fails if a problem does not fit the format or the tokenizer, or none is left.
    pub fn prompts(&self, problems: &[Problem]) -> Result<(Vec<Prompt>, PromptReport), DataError> {
        let mut report = PromptReport { read: problems.len(), ..PromptReport::default() };
        let mut prompts = problems
            .par_iter()
            .map(|problem| self.prompt(problem))
            .collect::<Result<Vec<Prompt>, DataError>>()?;
        prompts.retain(|prompt| self.fits(prompt.tokens.len(), &mut report));
        self.unless_empty(prompts, report)
    }

    /// Returns the examples that the supervised warm-up imitates: the prompts of the problems that are short
    /// enough, with the tokens of their solutions.
    ///
    /// # Errors
    /// Fails as [`Preparation::prompts`] does.
    pub fn worked_examples(
        &self,
        problems: &[Problem],
    ) -> Result<(Vec<WorkedExample>, PromptReport), DataError> {
        let mut report = PromptReport { read: problems.len(), ..PromptReport::default() };
        let mut examples = problems
            .par_iter()
            .map(|problem| {
                let prompt = self.prompt(problem)?.tokens;
                let mut completion = self.tokenizer.encode(problem.solution(), false)?;
                completion.push(self.tokenizer.eos());
                Ok(WorkedExample::new(prompt, completion))
            })
            .collect::<Result<Vec<WorkedExample>, DataError>>()?;
        examples.retain(|example| self.fits(example.prompt.len(), &mut report));
        self.unless_empty(examples, report)
    }

    // ANCHOR: tour
    fn prompt(&self, problem: &Problem) -> Result<Prompt, DataError> {
        let (text, tokens) = self.format.encode(&problem.question, self.tokenizer)?;
        let messages = match self.keep_messages {
            true => number::to_json(&self.format.messages(&problem.question)),
            false => String::new(),
        };
        let words = problem.question.words();
        let question = if words == text { String::new() } else { words.to_owned() };
        let Problem { id, reference, difficulty, .. } = problem.clone();
        Ok(Prompt { id, text, tokens, reference, question, messages, difficulty })
    }
    // ANCHOR_END: tour

    /// Tells whether a prompt of that many tokens is kept, and counts it in the report.
    fn fits(&self, tokens: usize, report: &mut PromptReport) -> bool {
        let count = match tokens {
            0 => &mut report.empty,
            _ if tokens > self.max_prompt_tokens => &mut report.too_long,
            _ => &mut report.kept,
        };
        *count += 1;
        (1..=self.max_prompt_tokens).contains(&tokens)
    }

    fn unless_empty<T>(
        &self,
        kept: Vec<T>,
        report: PromptReport,
    ) -> Result<(Vec<T>, PromptReport), DataError> {
        let max_prompt_tokens = self.max_prompt_tokens;
        match kept.len() {
            0 => Err(DataError::NoPrompts { report, max_prompt_tokens }),
            _ => Ok((kept, report)),
        }
    }
}

/// A report on the problems that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptReport {
    /// The number of problems that were read.
    pub read: usize,
    /// The number of prompts that were kept.
    pub kept: usize,
    /// The number of prompts dropped because they are longer than `max_prompt_tokens`.
    pub too_long: usize,
    /// The number of prompts dropped because they have no token.
    pub empty: usize,
    /// The number of prompts dropped because an earlier one has the same question.
    pub duplicates: usize,
    /// The number of prompts dropped because another one has the same question and another reference.
    pub conflicting: usize,
}

impl fmt::Display for PromptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} prompts kept", self.kept, self.read)?;
        for (count, why) in [
            (self.too_long, "too long"),
            (self.empty, "empty"),
            (self.duplicates, "duplicates"),
            (self.conflicting, "with conflicting references"),
        ] {
            if count > 0 {
                write!(f, ", {count} {why}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Question;

    fn problems(texts: &[(&str, &str)]) -> Vec<Problem> {
        texts
            .iter()
            .zip(0..)
            .map(|((text, reference), id)| Problem {
                id,
                question: Question::Text(text.to_string()),
                reference: reference.to_string(),
                worked: None,
                difficulty: String::new(),
            })
            .collect()
    }

    #[test]
    fn dropped_prompts_are_counted_by_their_reason() {
        let tokenizer = Tokenizer::characters("0123456789+=").unwrap();
        let format = PromptFormat::default();
        let mut preparation = Preparation::new(&tokenizer, &format);
        preparation.max_prompt_tokens = 4;
        let problems = problems(&[("1+1=", "2"), ("10+1=", "11"), ("2+2=", "4"), ("", "0")]);
        let (prompts, report) = preparation.prompts(&problems).unwrap();
        assert_eq!(prompts.iter().map(|prompt| prompt.id).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(report.to_string(), "2 of 4 prompts kept, 1 too long, 1 empty");
        preparation.max_prompt_tokens = 3;
        assert_eq!(
            preparation.prompts(&problems).unwrap_err().to_string(),
            "no prompt is left to train on (0 of 4 prompts kept, 3 too long, 1 empty); raise \
             `max_prompt_tokens`, now 3, or check the data"
        );
    }

    #[test]
    fn a_worked_example_ends_with_the_end_token() {
        let tokenizer = Tokenizer::characters("0123456789+=").unwrap();
        let format = PromptFormat::default();
        let (examples, _) = Preparation::new(&tokenizer, &format)
            .worked_examples(&problems(&[("1+1=", "2")]))
            .unwrap();
        let expected = WorkedExample::new(vec![3, 12, 3, 13], vec![4, tokenizer.eos()]);
        assert_eq!(examples, [expected]);
    }
}
