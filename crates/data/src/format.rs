//! Format of prompts: how a question becomes the text that the policy reads.

use firebrick_core::TokenId;
use serde_json::{Map, Value, json};

use crate::{ChatTemplate, DataError, Question, Tokenizer, tokens_up_to};

/// Number of bytes starting at which a question or an answer is measured before its chat template is rendered.
pub(crate) const LONG: usize = 1 << 20;

/// Stands for the policy's text in a conversation.
const SPOKEN: &str = "FIREBRICK_SPOKEN";

/// How a question becomes the text that the policy reads.
#[derive(Clone, Debug)]
pub struct PromptFormat {
    /// Text around a plain-text question. `{prompt}` in it stands for the question. Questions that are already
    /// messages are left as they are.
    pub text: String,
    /// System message of a conversation that has none. It needs a chat template.
    pub system: Option<String>,
    /// Chat template. Without one, the text is the prompt.
    pub chat: Option<ChatTemplate>,
    /// Further variables of the chat template, such as `enable_thinking`.
    pub kwargs: Map<String, Value>,
}

impl Default for PromptFormat {
    /// Returns the format of the bare question.
    fn default() -> Self {
        PromptFormat { text: "{prompt}".into(), system: None, chat: None, kwargs: Map::new() }
    }
}

impl PromptFormat {
    /// Makes the text of a prompt. If the last message of a conversation is the assistant's, the model is to continue
    /// it, so the prompt ends with the text of that message.
    ///
    /// # Errors
    /// Fails if messages come without a chat template, or the template refuses them.
    pub fn render(&self, question: &Question) -> Result<String, DataError> {
        let error = |problem: &str| Err(DataError::Format { problem: problem.into() });
        if !self.text.contains("{prompt}") {
            return error(&format!(
                "the prompt's text format {:?} lacks the question: write {{prompt}} \
                 where the question goes",
                self.text
            ));
        }

        let Some(template) = &self.chat else {
            return match question {
                Question::Messages(_) => error(
                    "a prompt that is a list of messages needs a chat template, and none is used: set \
                     data.template = \"auto\" with a model that has one, or take a data set of plain texts",
                ),
                Question::Text(_) if self.system.is_some() => error(
                    "a system message needs a chat template, and there is none: put the message into \
                     the prompt's text format (data.prompt) instead",
                ),
                Question::Text(text) => Ok(self.text.replace("{prompt}", text)),
            };
        };

        let messages = self.messages(question);
        let last = messages.as_array().and_then(|messages| messages.last());
        if last.is_some_and(|message| message["role"] == "assistant") {
            template.render_unfinished(&messages, &self.kwargs)
        } else {
            template.render(&messages, true, &self.kwargs)
        }
    }

    /// Makes the text of a prompt and its tokens. If there are more than `limit`, it stops as soon as it knows, and the
    /// text may be empty.
    ///
    /// # Errors
    /// Fails as [`PromptFormat::render`] and [`Tokenizer::encode`] do.
    pub fn encode_up_to(
        &self,
        question: &Question,
        tokenizer: &Tokenizer,
        limit: usize,
    ) -> Result<(String, Vec<TokenId>), DataError> {
        // A template has its own bounds, so a long question is measured before it reaches them.
        if question.texts().map(str::len).sum::<usize>() > LONG {
            let mut tokens = Vec::new();
            for text in question.texts() {
                tokens.extend(tokens_up_to(text, limit, |text| tokenizer.encode(text, false))?);
                if tokens.len() > limit {
                    return Ok((String::new(), tokens));
                }
            }
        }

        let text = self.render(question)?;
        // A chat template has written the special tokens already.
        let adds_special_tokens = self.chat.is_none();
        let tokens =
            tokens_up_to(&text, limit, |text| tokenizer.encode(text, adds_special_tokens))?;
        Ok((text, tokens))
    }

    /// Says what to do about a question that the chat template refuses.
    pub(crate) fn remedy(&self, question: &Question) -> &'static str {
        let is_system = |message: &Value| message["role"] == "system";
        let has_own_system = match question {
            Question::Messages(messages) => {
                messages.as_array().is_some_and(|all| all.iter().any(is_system))
            }
            Question::Text(_) => false,
        };

        let mut messages = self.messages(question);
        if let Some(messages) = messages.as_array_mut() {
            messages.retain(|message| !is_system(message));
        }

        // Whether the same question passes without any system message tells what to do.
        let without = PromptFormat { system: None, ..self.clone() };
        match without.render(&Question::Messages(messages)) {
            Ok(_) if has_own_system => {
                "the template takes no system message: put its words into the user's message"
            }
            Ok(_) if self.system.is_some() => {
                "the template takes no system message: put the words of data.system into data.prompt"
            }
            _ => "correct the row, or take a model whose template allows it",
        }
    }

    /// Returns the texts of the tokens that give a conversation its form: those that the tokenizer names, and those
    /// that the chat template writes around messages. Tags of a model's thoughts don't count, whether they are special
    /// or not.
    pub(crate) fn control_tokens(&self, tokenizer: &Tokenizer) -> Vec<String> {
        // A small conversation shows which tokens the template writes, whatever the question is.
        let Some(template) = &self.chat else { return Vec::new() };
        let message = |role: &str| json!({"role": role, "content": "-"});
        let messages = json!([message("user"), message("assistant"), message("user")]);
        let form = template.render(&messages, false, &self.kwargs).unwrap_or_default();

        let mut tokens = tokenizer.control_tokens(&form);
        tokens.retain(|token| !token.contains("think"));
        tokens
    }

    /// Makes the text between the policy's turn and its next one, in which somebody of `role` says `words` to it. With
    /// a chat template, the text begins with the end of the policy's message and ends where the policy continues.
    ///
    /// # Errors
    /// Fails if the template refuses such a conversation, or leaves the policy's text out.
    pub fn reply(&self, words: &str, role: &str) -> Result<String, DataError> {
        let Some(template) = &self.chat else { return Ok(words.to_owned()) };
        let messages = json!([
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": SPOKEN},
            {"role": role, "content": words},
        ]);

        let text = template.render(&messages, true, &self.kwargs)?;
        let reply = text.split_once(SPOKEN).map(|(_, reply)| reply.to_owned());
        reply.ok_or_else(|| {
            let problem = format!(
                "{} leaves the model's message out of a conversation of several turns: choose another template",
                template.place()
            );
            DataError::Format { problem }
        })
    }

    /// Makes the text that answers a question: what the chat template writes of `answer`, the assistant's message, after
    /// `prompt`, the text of the question, up to the end of its turn. Without a template it is the answer's content.
    ///
    /// Where the template leaves words of the answer out, as some do with thoughts, or does not continue the prompt, the
    /// answer's content stands as it is.
    ///
    /// # Errors
    /// Fails if the template refuses the conversation, or has no place for the answer's thoughts.
    pub(crate) fn completion(
        &self,
        question: &Question,
        prompt: &str,
        answer: &Value,
    ) -> Result<String, DataError> {
        let content = answer["content"].as_str().unwrap_or_default();
        let Some(template) = &self.chat else { return Ok(content.to_owned()) };
        let rendered = template.render(&self.answered(question, answer), false, &self.kwargs)?;

        let written = rendered.strip_prefix(prompt).unwrap_or_default();
        let beside = beside_content(answer);
        let is_whole = !written.is_empty() && beside.iter().all(|words| written.contains(words));
        if is_whole && parts(content).all(|part| written.contains(part)) {
            return Ok(written.trim_end().to_owned());
        }

        let refused = |problem: &str| {
            let problem = format!("{} {problem}", template.place());
            Err(DataError::Format { problem })
        };
        if !beside.is_empty() || content.trim().is_empty() {
            return refused(
                "leaves out the thoughts of the assistant's last message, or its call of a tool: write them into the \
                 message's content",
            );
        }

        // Other words in the same place show how the template ends the turn.
        let spoken = json!({"role": "assistant", "content": SPOKEN});
        let spoken = template.render(&self.answered(question, &spoken), false, &self.kwargs)?;
        let Some((_, end)) = spoken.rsplit_once(SPOKEN) else {
            return refused("leaves out the assistant's last message: choose another template");
        };

        // A prompt that begins the thoughts itself is continued by them, or by their end if there are none.
        let begun = content.trim_start().strip_prefix(THINK[0]);
        let content = match (prompt.trim_end().ends_with(THINK[0]), begun) {
            (false, _) => content.to_owned(),
            (true, Some(thoughts)) => thoughts.trim_start().to_owned(),
            (true, None) if content.contains(THINK[1]) => content.to_owned(),
            (true, None) => format!("\n{}\n\n{content}", THINK[1]),
        };
        Ok((content + end).trim_end().to_owned())
    }

    /// Returns the conversation in which `answer` answers the question, or continues the answer that it begins with.
    fn answered(&self, question: &Question, answer: &Value) -> Value {
        let mut messages = self.messages(question);
        let Some(list) = messages.as_array_mut() else { return messages };

        let begun = list.pop_if(|last| last["role"] == "assistant");
        let mut answer = answer.clone();
        if let Some(begun) = begun.as_ref().and_then(|begun| begun["content"].as_str()) {
            answer["content"] =
                (begun.to_owned() + answer["content"].as_str().unwrap_or_default()).into();
        }

        list.push(answer);
        messages
    }

    /// Makes the conversation that asks `question`: a list of messages, before any template.
    pub fn messages(&self, question: &Question) -> Value {
        let mut messages = match question {
            Question::Text(text) => {
                vec![json!({"role": "user", "content": self.text.replace("{prompt}", text)})]
            }
            Question::Messages(messages) => messages.as_array().cloned().unwrap_or_default(),
        };

        let has_system = messages.first().is_some_and(|message| message["role"] == "system");
        if let Some(system) = &self.system
            && !has_system
        {
            messages.insert(0, json!({"role": "system", "content": system}));
        }

        messages.into()
    }
}

/// Tags around a model's thoughts.
const THINK: [&str; 2] = ["<think>", "</think>"];

/// Returns the parts of a message before, between and behind tags of thoughts. Templates trim them, and move the tags.
fn parts(content: &str) -> impl Iterator<Item = &str> {
    content.split(THINK[0]).flat_map(|part| part.split(THINK[1])).map(str::trim)
}

/// Returns what a message of the assistant says beside its content: its thoughts, and the names of the tools that it
/// calls.
fn beside_content(message: &Value) -> Vec<&str> {
    let thoughts = ["reasoning_content", "thinking", "reasoning"];
    let thoughts = thoughts.iter().find_map(|name| message[*name].as_str()).map(str::trim);

    let calls = message["tool_calls"].as_array().into_iter().flatten();
    let names =
        calls.filter_map(|call| call["function"]["name"].as_str().or(call["name"].as_str()));
    thoughts.into_iter().chain(names).filter(|words| !words.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat() -> Option<ChatTemplate> {
        let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]";
        Some(ChatTemplate::new(source, Map::new()).unwrap())
    }

    #[test]
    fn a_question_is_put_into_its_text_and_its_conversation() {
        let asked = Question::Text("2+2?".into());
        let mut format = PromptFormat { text: "{prompt} Think.".into(), ..Default::default() };
        assert_eq!(format.render(&asked).unwrap(), "2+2? Think.");

        format.chat = chat();
        assert_eq!(format.render(&asked).unwrap(), "[user]2+2? Think.[assistant]");
        format.system = Some("Be brief.".into());
        assert_eq!(format.render(&asked).unwrap(), "[system]Be brief.[user]2+2? Think.[assistant]");

        let messages =
            json!([{"role": "system", "content": "A."}, {"role": "user", "content": "B"}]);
        let rendered = format.render(&Question::Messages(messages)).unwrap();
        assert_eq!(rendered, "[system]A.[user]B[assistant]");
    }

    #[test]
    fn the_assistants_last_words_are_continued() {
        let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}\
                      {% if add_generation_prompt %}<assistant>{% endif %}";
        let chat = Some(ChatTemplate::new(source, Map::new()).unwrap());
        let format = PromptFormat { chat, system: Some("S".into()), ..Default::default() };

        let render = |messages: Value| format.render(&Question::Messages(messages));
        let user = json!({"role": "user", "content": "2+2?"});

        for (words, expected) in [
            ("Let me see.\n<think>", "Let me see.\n<think>"),
            ("Well: ", "Well:"), // The template trims, and `transformers` follows it.
            ("", ""),
        ] {
            let messages = json!([user, {"role": "assistant", "content": words}]);
            let prompt = format!("<system>S</><user>2+2?</><assistant>{expected}");
            assert_eq!(render(messages).unwrap(), prompt, "{words:?}");
        }

        // An earlier turn of the assistant is closed as usual.
        let earlier = json!([user, {"role": "assistant", "content": "4"}, user]);
        assert!(render(earlier).unwrap().ends_with("<assistant>4</><user>2+2?</><assistant>"));
        let call = json!([user, {"role": "assistant", "tool_calls": []}]);
        assert!(render(call).unwrap_err().to_string().contains("it cannot be continued"));
    }

    /// Compares with texts that follow from the templates: one that keeps thoughts, one that drops them, and one whose
    /// prompt begins them.
    #[test]
    fn an_answer_is_what_its_template_writes_after_the_prompt() {
        let turns = "{% for m in messages %}<{{ m.role }}>{{ TEXT | trim }}</>\n{% endfor %}\
                     {% if add_generation_prompt %}<assistant>{{ START }}{% endif %}";
        let format = |text: &str, start: &str| {
            let source = turns.replace("TEXT", text).replace("START", start);
            let chat = Some(ChatTemplate::new(&source, Map::new()).unwrap());
            PromptFormat { chat, ..Default::default() }
        };
        let keeps = format("m.content", "''");
        let drops = format("m.content.split('</think>')[-1]", "''");
        let begins = format("m.content.split('</think>')[-1]", "'<think>\n'");
        let thinks = format("((m.thinking or '') + m.content)", "''");

        let asked = Question::Text("2+2?".into());
        let begun = Question::Messages(json!([
            {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "So"},
        ]));
        let completion = |format: &PromptFormat, question: &Question, answer: Value| {
            let prompt = format.render(question).unwrap();
            let completion = format.completion(question, &prompt, &answer);
            completion.map_err(|error| error.to_string())
        };
        let said = |words: &str| json!({"role": "assistant", "content": words});

        for (format, question, words, expected) in [
            (&PromptFormat::default(), &asked, " 4\n", " 4\n"),
            (&keeps, &asked, " 4\n", "4</>"),
            (&keeps, &begun, " 4", " 4</>"),
            (&keeps, &asked, "<think>a</think>4", "<think>a</think>4</>"),
            (&drops, &asked, "4", "4</>"),
            (&drops, &asked, "<think>a</think>4", "<think>a</think>4</>"),
            (&begins, &asked, "<think>\na</think>4", "a</think>4</>"),
            (&begins, &asked, "a</think>4", "a</think>4</>"),
            (&begins, &asked, "4", "\n</think>\n\n4</>"),
        ] {
            assert_eq!(
                completion(format, question, said(words)).as_deref(),
                Ok(expected),
                "{words:?}"
            );
        }

        let thoughtful = json!({"role": "assistant", "content": "4", "reasoning_content": "a"});
        assert_eq!(completion(&thinks, &asked, thoughtful.clone()).as_deref(), Ok("a4</>"));
        let refused = completion(&keeps, &asked, thoughtful).unwrap_err();
        assert!(refused.starts_with("chat template leaves out the thoughts"), "{refused}");
        let call = json!({"role": "assistant", "tool_calls": [{"function": {"name": "add"}}]});
        let refused = completion(&keeps, &asked, call).unwrap_err();
        assert!(refused.contains("or its call of a tool"), "{refused}");
        let refused = completion(&format("'-'", "''"), &asked, said("4")).unwrap_err();
        assert!(refused.starts_with("chat template leaves out the assistant's last"), "{refused}");
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let message =
            |format: PromptFormat, question| format.render(&question).unwrap_err().to_string();
        let messages = Question::Messages(json!([{"role": "user", "content": "2+2?"}]));
        assert!(message(PromptFormat::default(), messages).contains("needs a chat template"));
        let format = PromptFormat { text: "Solve:".into(), ..Default::default() };
        assert!(message(format, Question::Text("2+2?".into())).contains("write {prompt}"));
    }
}
