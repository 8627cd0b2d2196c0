//! Hints: what a teacher reads besides the question.

use serde_json::Value;

use crate::{DataError, PromptFormat, Question};

/// A text around a question that only a teacher reads.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The text, with `{prompt}` for the question and `{reference}` for its reference.
    text: String,
    /// The text around a plain question, which belongs to the question here.
    around: String,
    /// The format of a question with the hint.
    pub(crate) format: PromptFormat,
}

impl Hint {
    /// Makes a hint for questions in this format. In `text`, `{prompt}` stands for the question and `{reference}` for its
    /// reference.
    pub fn new(text: String, format: &PromptFormat) -> Self {
        let around = format.text.clone();
        let format = PromptFormat { text: "{prompt}".into(), ..format.clone() };
        Hint { text, around, format }
    }

    pub(crate) fn has_reference(&self) -> bool {
        self.text.contains("{reference}")
    }

    /// Puts the hint around a question: around the last message of the user, if it is a conversation.
    ///
    /// # Errors
    /// Fails if the conversation has no such message, or one with more than text.
    pub(crate) fn around(
        &self,
        question: &Question,
        reference: &str,
    ) -> Result<Question, DataError> {
        let mut messages = match question {
            Question::Text(text) => {
                let asked = self.around.replace("{prompt}", text);
                return Ok(Question::Text(self.fill(&asked, reference)));
            }
            Question::Messages(messages) => messages.clone(),
        };

        let mut list = messages.as_array_mut().into_iter().flatten();
        let last = list.rfind(|message| message["role"] == "user");
        let content = last.map(|message| &mut message["content"]);
        let Some(Value::String(words)) = content else {
            let problem = "teacher.hint needs a user's message that is a text, and there is none";
            return Err(DataError::Format { problem: problem.into() });
        };
        *words = self.fill(words, reference);
        Ok(Question::Messages(messages))
    }

    /// Fills in both, each only where the hint itself names it.
    fn fill(&self, question: &str, reference: &str) -> String {
        let parts = self.text.split("{prompt}");
        let parts: Vec<String> = parts.map(|part| part.replace("{reference}", reference)).collect();
        parts.join(question)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_hint_is_around_the_question_and_nothing_else() {
        let format = PromptFormat { text: "Q: {prompt}".into(), ..PromptFormat::default() };
        let hint = Hint::new("{prompt} ({reference}!)".into(), &format);
        let text = |text: &str| Question::Text(text.into());
        assert_eq!(hint.around(&text("2+2?"), "4").unwrap(), text("Q: 2+2? (4!)"));
        // Names in the data are words like others.
        let odd = hint.around(&text("{reference}"), "{prompt}").unwrap();
        assert_eq!(odd, text("Q: {reference} ({prompt}!)"));

        let said = |role: &str, words: &str| json!({"role": role, "content": words});
        let messages = |last: Value| {
            Question::Messages(json!([said("user", "Hi"), said("assistant", "Hi"), last]))
        };
        let hinted = hint.around(&messages(said("user", "2+2?")), "4").unwrap();
        assert_eq!(hinted, messages(said("user", "2+2? (4!)")));

        let silent = Question::Messages(json!([said("system", "Hi")]));
        assert!(hint.around(&silent, "4").unwrap_err().to_string().contains("teacher.hint"));
    }
}
