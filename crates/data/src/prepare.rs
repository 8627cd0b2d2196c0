//! Turns problems into tokenized prompts and SFT examples, in parallel.

use firebrick_core::{Prompt, SftExample, TokenId};
use rayon::prelude::*;

use crate::{
    error::DataError,
    format::{LONG, PromptFormat},
    hint::Hint,
    number,
    problem::Problem,
    report::{PromptReport, SftReport},
    sft_row::SftRow,
    tokenizer::{Tokenizer, tokens_up_to},
};

/// Turns problems into tokens, in parallel.
#[derive(Clone, Copy)]
pub struct Preparation<'a> {
    /// Tokenizer of the policy.
    pub tokenizer: &'a Tokenizer,
    /// How a question is written as a prompt.
    pub format: &'a PromptFormat,
    /// Limit on a prompt, in tokens. Longer prompts are dropped, because the policy could not read all of them.
    pub max_prompt_tokens: usize,
    /// Limit on an SFT example, prompt and completion together, in tokens. Longer ones are dropped.
    pub max_tokens: usize,
    /// True if prompts keep the messages that they were made from.
    pub keep_messages: bool,
    /// What a teacher reads around the question, if there is such a teacher. With it, too, a prompt has to fit its limit.
    pub hint: Option<&'a Hint>,
}

impl<'a> Preparation<'a> {
    /// Makes a preparation without a limit on length.
    pub fn new(tokenizer: &'a Tokenizer, format: &'a PromptFormat) -> Self {
        let most = usize::MAX;
        Preparation {
            tokenizer,
            format,
            max_prompt_tokens: most,
            max_tokens: most,
            keep_messages: false,
            hint: None,
        }
    }

    /// Returns the prompts of the problems that can be used, in the same order, and a report on all problems.
    ///
    /// # Errors
    /// Fails if a problem does not fit the format or the tokenizer, or none is left.
    pub fn prompts(&self, problems: &[Problem]) -> Result<(Vec<Prompt>, PromptReport), DataError> {
        let mut report = PromptReport { read: problems.len(), ..PromptReport::default() };
        let mut prompts = self.each(problems, |problem| self.prompt(problem))?;

        prompts.retain(|prompt| {
            // An empty prompt stays empty, whatever its hint adds.
            let longer = if prompt.tokens.is_empty() { 0 } else { prompt.teacher_prompt.len() };
            self.fits(prompt.tokens.len().max(longer), &mut report)
        });
        self.unless_empty(prompts, report)
    }

    /// Returns the examples that SFT imitates, each with its prompt: the prompts of the problems that are short enough,
    /// with the tokens of their solutions.
    ///
    /// # Errors
    /// Fails as [`Preparation::prompts`] does.
    pub fn sft_examples(
        &self,
        problems: &[Problem],
    ) -> Result<(Vec<(SftExample, Prompt)>, PromptReport), DataError> {
        let mut report = PromptReport { read: problems.len(), ..PromptReport::default() };

        let mut examples = self.each(problems, |problem| {
            let prompt = self.prompt(problem)?;
            let tokens = prompt.tokens.clone();

            let room = self.max_tokens.saturating_sub(tokens.len());
            if tokens.len() > self.max_prompt_tokens || room == 0 {
                return Ok((SftExample::new(tokens, Vec::new()), prompt));
            }

            let mut completion =
                tokens_up_to(problem.solution(), room, |text| self.tokenizer.encode(text, false))?;
            completion.push(self.tokenizer.eos());
            Ok((SftExample::new(tokens, completion), prompt))
        })?;

        examples.retain(|(example, _)| {
            // An example that is too long counts as a prompt that is too long, whichever part makes it so.
            let tokens = example.prompt.len().saturating_add(example.completion.len());
            let counted = if tokens > self.max_tokens { usize::MAX } else { example.prompt.len() };
            self.fits(counted, &mut report)
        });
        self.unless_empty(examples, report)
    }

    /// Returns the examples of rows that show what to answer, each with its prompt, and a report on all rows. A completion
    /// of more than `max_completion_tokens` is left out, as is one whose prompt is too long.
    ///
    /// A completion ends with the token at which the policy's own completions stop: the one that the chat template writes
    /// at the end of a turn, or the tokenizer's end token.
    ///
    /// # Errors
    /// Fails if a row does not fit the format or the tokenizer, or none is left.
    pub fn examples(
        &self,
        rows: &[SftRow],
        max_completion_tokens: usize,
    ) -> Result<(Vec<(SftExample, Prompt)>, SftReport), DataError> {
        let max_prompt_tokens = self.max_prompt_tokens;
        let mut report = SftReport {
            read: rows.len(),
            max_prompt_tokens,
            max_completion_tokens,
            ..SftReport::default()
        };

        let control = self.format.control_tokens(self.tokenizer);
        let mut examples = self.each(rows, |row| {
            let answer = row.answer["content"].as_str().unwrap_or_default();
            let remedy = "remove it: the chat template ends the turn itself";
            refuse_control_token("answer", answer, &control, remedy)?;

            let prompt = self.prompt(&row.problem)?;
            // The rest of a prompt that is too long was not read, so nothing can be put after it.
            let completion = if self.may_ask(prompt.tokens.len()) {
                self.completion(row, &prompt, max_completion_tokens)?
            } else {
                Vec::new()
            };
            Ok((SftExample::new(prompt.tokens.clone(), completion), prompt))
        })?;

        examples.retain(|(example, _)| {
            let asks = self.may_ask(example.prompt.len());
            let ends = example.completion.len() <= max_completion_tokens;
            let (count, keeps) = match (asks, ends) {
                (false, _) => (&mut report.long_prompts, false),
                (true, false) => (&mut report.long_completions, false),
                (true, true) => (&mut report.kept, true),
            };

            *count += 1;
            keeps
        });

        if examples.is_empty() {
            Err(DataError::NoSftExamples { report })
        } else {
            Ok((examples, report))
        }
    }

    fn may_ask(&self, tokens: usize) -> bool {
        (1..=self.max_prompt_tokens).contains(&tokens)
    }

    /// Returns the tokens with which a row answers its prompt, or more than `limit` of them if there are more.
    fn completion(
        &self,
        row: &SftRow,
        prompt: &Prompt,
        limit: usize,
    ) -> Result<Vec<TokenId>, DataError> {
        let encode = |text: &str| self.tokenizer.encode(text, false);
        let content = row.answer["content"].as_str().unwrap_or_default();

        // A template has its own bounds, so a long answer is measured before it reaches them.
        if content.len() > LONG {
            let tokens = tokens_up_to(content, limit, encode)?;
            if tokens.len() > limit {
                return Ok(tokens);
            }
        }

        let text = self.format.completion(&row.problem.question, &prompt.text, &row.answer)?;
        let mut tokens = tokens_up_to(&text, limit, encode)?;
        self.end_turn(&mut tokens);
        Ok(tokens)
    }

    /// Ends a completion where the policy would: after the first stop token behind its last word, which is added if
    /// there is none. Some templates write more behind the end of a turn, such as the end of the text.
    fn end_turn(&self, tokens: &mut Vec<TokenId>) {
        let is_stop = |token: &TokenId| self.tokenizer.stop_tokens().contains(token);
        let is_word = |token: &TokenId| {
            !is_stop(token) && !self.tokenizer.decode(&[*token], true).trim().is_empty()
        };

        let words = tokens.iter().rposition(is_word).map_or(0, |last| last + 1);
        match tokens[words..].iter().position(is_stop) {
            Some(stop) => tokens.truncate(words + stop + 1),
            None => tokens.push(self.tokenizer.eos()),
        }
    }

    /// Does `work` for each problem, in parallel. An error names the row of its problem. Of several errors, the first
    /// row's is returned, so that you can correct a file from its top.
    fn each<P: AsRef<Problem> + Sync, T: Send>(
        &self,
        problems: &[P],
        work: impl Fn(&P) -> Result<T, DataError> + Sync,
    ) -> Result<Vec<T>, DataError> {
        let control = self.format.control_tokens(self.tokenizer);
        let checked = |problem: &P| {
            for text in problem.as_ref().question.texts() {
                let remedy = "remove it, or set data.template = \"plain\" if the text is a whole prompt already";
                refuse_control_token("question", text, &control, remedy)?;
            }
            if self.hint.is_some_and(Hint::has_reference) {
                let remedy = "remove it: teacher.hint puts the reference into the prompt";
                refuse_control_token("reference", &problem.as_ref().reference, &control, remedy)?;
            }
            work(problem)
        };

        // All are done before the first error is looked for, so which one is named does not depend on the threads.
        let results: Vec<Result<T, DataError>> = problems.par_iter().map(checked).collect();
        let of_row = |(problem, result): (&P, Result<T, DataError>)| {
            result.map_err(|error| self.of_row(problem.as_ref(), error))
        };

        problems.iter().zip(results).map(of_row).collect()
    }

    fn of_row(&self, problem: &Problem, error: DataError) -> DataError {
        let Some(origin) = &problem.origin else { return error };
        let remedy = match &error {
            DataError::Template { .. } => format!("; {}", self.format.remedy(&problem.question)),
            _ => String::new(),
        };

        let problem = format!("{error}{remedy}");
        DataError::Row { path: origin.file.to_path_buf(), position: origin.position, problem }
    }

    // ANCHOR: tour
    fn prompt(&self, problem: &Problem) -> Result<Prompt, DataError> {
        let (text, tokens) =
            self.format.encode_up_to(&problem.question, self.tokenizer, self.max_prompt_tokens)?;
        let messages = if self.keep_messages {
            number::to_json(&self.format.messages(&problem.question))
        } else {
            String::new()
        };

        let teacher_prompt = match self.hint {
            Some(hint) => {
                let question = hint.around(&problem.question, &problem.reference)?;
                let limit = self.max_prompt_tokens;
                hint.format.encode_up_to(&question, self.tokenizer, limit)?.1
            }
            None => Vec::new(),
        };

        let words = problem.question.words();
        let question = if words == text { String::new() } else { words.to_owned() };
        let Problem { id, reference, json_reference, difficulty, data_source, .. } =
            problem.clone();
        Ok(Prompt {
            id,
            text,
            tokens,
            teacher_prompt,
            reference,
            json_reference,
            question,
            messages,
            difficulty,
            data_source,
        })
    }
    // ANCHOR_END: tour

    /// Tells whether a prompt of that many tokens is kept, and counts it in the report.
    fn fits(&self, tokens: usize, report: &mut PromptReport) -> bool {
        // `usize::MAX` stands for an example that is too long, even where prompts have no limit.
        let count = match tokens {
            0 => &mut report.empty,
            _ if tokens > self.max_prompt_tokens || tokens == usize::MAX => &mut report.too_long,
            _ => &mut report.kept,
        };

        *count += 1;
        (1..=self.max_prompt_tokens).contains(&tokens) && tokens < usize::MAX
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

/// Refuses a text that contains a control token, which would end the text, or speak for another role, in the middle of
/// somebody's words.
fn refuse_control_token(
    what: &str,
    text: &str,
    control: &[String],
    remedy: &str,
) -> Result<(), DataError> {
    let Some(token) = control.iter().find(|token| text.contains(*token)) else { return Ok(()) };
    let problem = format!("the {what} contains the control token {token}; {remedy}");
    Err(DataError::Format { problem })
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
                reference: reference.to_string(),
                ..Problem::new(id, Question::Text(text.to_string()))
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
    fn an_example_that_no_context_holds_is_dropped_before_it_is_encoded_whole() {
        let tokenizer = Tokenizer::characters("0123456789+=").unwrap();
        let format = PromptFormat::default();
        let mut preparation = Preparation::new(&tokenizer, &format);
        (preparation.max_prompt_tokens, preparation.max_tokens) = (4, 8);
        let long = "1".repeat(30 << 20);
        let problems =
            problems(&[("1+1=", "2"), ("10+1=", &long), ("2+2=", &long), ("2+2=", "4444")]);

        let (examples, report) = preparation.sft_examples(&problems).unwrap();
        assert_eq!(report.to_string(), "1 of 4 prompts kept, 3 too long");
        assert_eq!(examples.len(), 1);

        // The end of the text counts too.
        preparation.max_tokens = 9;
        assert_eq!(preparation.sft_examples(&problems).unwrap().0.len(), 2);
    }

    fn rows(questions: &[serde_json::Value]) -> Vec<Problem> {
        let rows = questions.iter().zip(1..).map(|(question, line)| {
            let row = serde_json::json!({"prompt": question, "answer": "4"});
            let fields = row.as_object().unwrap().clone();
            let position = crate::Position::Line(line);
            let row =
                crate::Row { file: std::path::Path::new("rows.jsonl").into(), position, fields };
            let columns = crate::ColumnNames::default().find(&row).unwrap();
            Problem::from_row(&row, line, &columns).unwrap()
        });
        rows.collect()
    }

    fn chat(source: &str) -> Option<crate::ChatTemplate> {
        Some(crate::ChatTemplate::new(source, serde_json::Map::new()).unwrap())
    }

    /// Checks that of several wrong rows the first is named, with the way out.
    #[test]
    fn a_row_that_makes_no_prompt_is_named() {
        let tokenizer = Tokenizer::characters("0123456789+=? SUusetrym:").unwrap();
        let template = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}\
                        {% endif %}{{ m.role }}: {{ m.content }}{% endfor %}";
        let user = |words: &str| serde_json::json!({"role": "user", "content": words});
        let system = serde_json::json!({"role": "system", "content": "S"});
        let refused = |format: &PromptFormat, questions: &[serde_json::Value]| {
            let refused = Preparation::new(&tokenizer, format).prompts(&rows(questions));
            refused.unwrap_err().to_string()
        };

        let mut format = PromptFormat { chat: chat(template), ..PromptFormat::default() };
        let plain = serde_json::json!("1+1=");
        assert_eq!(
            refused(
                &format,
                &[plain.clone(), serde_json::json!([system, user("1+1=")]), serde_json::json!("ß")]
            ),
            "rows.jsonl, line 2: chat template: the template stops: System role not supported (line 1 of the \
             template); the template takes no system message: put its words into the user's message"
        );
        assert!(
            refused(&format, &[plain.clone(), serde_json::json!("ß")])
                .starts_with("rows.jsonl, line 2: the tokenizer has no token for 'ß'")
        );

        format.system = Some("S".into());
        assert!(
            refused(&format, std::slice::from_ref(&plain))
                .ends_with("put the words of data.system into data.prompt")
        );

        format = PromptFormat {
            chat: chat("{{ raise_exception('never') }}"),
            ..PromptFormat::default()
        };
        assert!(refused(&format, &[plain]).ends_with("never (line 1 of the template); correct the row, or take a model whose template allows it"));

        format.chat = None;
        assert!(
            refused(&format, &[serde_json::json!([user("1+1=")])])
                .starts_with("rows.jsonl, line 1: a prompt that is a list")
        );
    }

    #[test]
    fn a_question_holds_no_control_token() {
        let tokenizer = Tokenizer::characters("0123456789+=? user:<pado>").unwrap();
        let chat = chat("{% for m in messages %}<pad>{{ m.role }}: {{ m.content }}{% endfor %}");
        let mut format = PromptFormat { chat, ..PromptFormat::default() };
        assert_eq!(format.control_tokens(&tokenizer), ["<eos>", "<pad>"]);

        for token in ["<eos>", "<pad>"] {
            let question = serde_json::json!(format!("1+1= {token}"));
            let error =
                Preparation::new(&tokenizer, &format).prompts(&rows(&[question])).unwrap_err();
            let expected = format!(
                "rows.jsonl, line 1: the question contains the control token {token}; remove it"
            );
            assert!(error.to_string().starts_with(&expected), "{error}");
        }

        // A plain prompt may be complete already, with the special tokens that its author wants.
        format.chat = None;
        let question = serde_json::json!("1+1=<eos>");
        let (prompts, _) =
            Preparation::new(&tokenizer, &format).prompts(&rows(&[question])).unwrap();
        assert_eq!(prompts[0].tokens.last(), Some(&tokenizer.eos()));
    }

    #[test]
    fn a_prompt_that_is_begun_asks_what_the_user_asked() {
        let tokenizer = Tokenizer::characters("0123456789+=? user:aitn").unwrap();
        let chat = chat("{% for m in messages %}{{ m.role }}: {{ m.content }}?{% endfor %}");
        let format = PromptFormat { chat, ..PromptFormat::default() };
        let question = serde_json::json!([{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "1+1= is"}]);
        let (prompts, _) =
            Preparation::new(&tokenizer, &format).prompts(&rows(&[question])).unwrap();

        assert_eq!(
            (prompts[0].text.as_str(), prompts[0].question.as_str()),
            ("user: 1+1=?assistant: 1+1= is", "1+1=")
        );
    }

    #[test]
    fn a_worked_example_ends_with_the_end_token() {
        let tokenizer = Tokenizer::characters("0123456789+=").unwrap();
        let format = PromptFormat::default();
        let (examples, _) = Preparation::new(&tokenizer, &format)
            .sft_examples(&problems(&[("1+1=", "2")]))
            .unwrap();

        let expected = SftExample::new(vec![3, 12, 3, 13], vec![4, tokenizer.eos()]);
        assert_eq!(
            examples.into_iter().map(|(example, _)| example).collect::<Vec<_>>(),
            [expected]
        );
    }

    fn sft_row(prompt: &str, completion: &str) -> SftRow {
        let answer = serde_json::json!({"role": "assistant", "content": completion});
        SftRow { problem: problems(&[(prompt, "")]).remove(0), answer }
    }

    #[test]
    fn examples_that_are_too_long_are_counted_by_their_reason() {
        let tokenizer = Tokenizer::characters("0123456789+=").unwrap();
        let format = PromptFormat::default();
        let mut preparation = Preparation::new(&tokenizer, &format);
        preparation.max_prompt_tokens = 4;
        // A text of this size is never encoded as a whole.
        let long = "1".repeat(30 << 20);
        let rows = [
            sft_row("1+1=", "2"),
            sft_row("10+1=", "11"),
            sft_row("2+2=", "4444"),
            sft_row("2+2=", &long),
            sft_row("2+2=", "444"),
        ];

        let (examples, report) = preparation.examples(&rows, 4).unwrap();
        assert_eq!(
            report.to_string(),
            "2 of 5 examples kept, 1 with a prompt of more than 4 tokens, 2 with a completion of more than 4 tokens"
        );
        // The end of the text counts too.
        let completions: Vec<_> =
            examples.iter().map(|(example, _)| &example.completion[..]).collect();
        assert_eq!(completions, [&[4, tokenizer.eos()][..], &[6, 6, 6, tokenizer.eos()]]);

        assert_eq!(
            preparation.examples(&rows[1..4], 4).unwrap_err().to_string(),
            "no example is left to imitate (0 of 3 examples kept, 1 with a prompt of more than 4 tokens, 2 with a \
             completion of more than 4 tokens)"
        );
    }

    /// The template ends a turn with `<pad>`, at which this policy does not stop, or writes the end of the text behind
    /// its turns.
    #[test]
    fn a_completion_ends_where_the_policy_stops() {
        let tokenizer = Tokenizer::characters("0123456789+=<pados>").unwrap();
        let completion = |template: &str, words: &str| {
            let format = PromptFormat { chat: chat(template), ..PromptFormat::default() };
            let preparation = Preparation::new(&tokenizer, &format);
            let examples = preparation.examples(&[sft_row("1+1=", words)], 99);
            examples.map(|(examples, _)| tokenizer.decode(&examples[0].0.completion, false))
        };

        let turns = "{% for m in messages %}{{ m.content }}TURN{% endfor %}END";
        let with = |turn: &str, end: &str| turns.replace("TURN", turn).replace("END", end);
        for (turn, end, expected) in [
            ("<eos>", "", "2<eos>"),
            ("<eos>", "<pad><eos>", "2<eos>"),
            ("<pad>", "", "2<pad><eos>"),
            ("", "", "2<eos>"),
        ] {
            // The text of a prompt ends behind the question's turn.
            let template =
                with(turn, "{% if not add_generation_prompt %}END{% endif %}").replace("END", end);
            assert_eq!(completion(&template, "2").unwrap(), expected, "{turn:?} {end:?}");
        }

        let error = completion(&with("<eos>", ""), "2<eos>").unwrap_err().to_string();
        assert!(error.ends_with("remove it: the chat template ends the turn itself"), "{error}");

        // A plain completion may bring its end.
        let format = PromptFormat::default();
        let preparation = Preparation::new(&tokenizer, &format);
        let (examples, _) = preparation.examples(&[sft_row("1+1=", "2<eos>")], 99).unwrap();
        assert_eq!(tokenizer.decode(&examples[0].0.completion, false), "2<eos>");
    }
}
