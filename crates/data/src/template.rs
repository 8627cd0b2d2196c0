//! Chat templates: Jinja as `transformers` renders it, within limits of time and memory.

mod guard;
mod print;
mod python;
mod text;
mod weight;

use std::{collections::BTreeMap, path::Path};

use jiff::civil::DateTime;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Template, Value,
    machinery::{eval, get_compiled_template, make_string_output},
    syntax::SyntaxConfig,
};
use serde_json::Map;

pub use text::TextTemplate;

use crate::{DataError, folder, number, python_json::tojson};

/// Limit on the template instructions of one rendering. A long conversation takes some thousands.
const FUEL: u64 = 4_000_000;
/// Limit on the nesting of a template's calls.
const MAX_RECURSION: usize = 100;
/// Limit on the text of a rendering, in bytes.
const MAX_OUTPUT: usize = 16 << 20;
/// Variables that every template is given.
const GIVEN: [&str; 2] = ["messages", "add_generation_prompt"];
/// Marks the end of a text that a template is to leave open. It is the mark of `transformers`, because some
/// templates look for it.
const END_OF_TEXT: &str = "CONTINUE_FINAL_MESSAGE_TAG";

/// A model's chat template. It turns a conversation into the text that the model was trained on.
///
/// It renders as `transformers` does: Jinja with `trim_blocks` and `lstrip_blocks`, Python's
/// string methods, `raise_exception`, `strftime_now`, `{% generation %}` blocks, and `tojson` as
/// Python writes JSON. Templates come with checkpoints and are not trusted: the number of
/// instructions and the length of the output are bounded.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// File that the template is from, for messages.
    origin: String,
    source: String,
    special_tokens: Map<String, serde_json::Value>,
}

impl ChatTemplate {
    /// Reads the template of a model folder: `chat_template.jinja`, else `chat_template` in
    /// `tokenizer_config.json`, which is a text or a list of named templates. Returns `None` if there is neither,
    /// as for a base model.
    ///
    /// # Errors
    /// Fails if a file is broken or the template has a syntax error.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Option<Self>, DataError> {
        let folder = folder.as_ref();
        let special_tokens = folder::special_tokens(folder)?;

        let path = folder.join("chat_template.jinja");
        if let Some(source) = folder::read_text(&path)? {
            let origin = path.display().to_string();
            return Self::named(origin, &[("default", &source)], special_tokens).map(Some);
        }

        let path = folder.join("tokenizer_config.json");
        let config = folder::read_object(&path)?;
        let origin = path.display().to_string();
        match config.get("chat_template") {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(source)) => {
                Self::named(origin, &[("default", source)], special_tokens).map(Some)
            }
            Some(list) => {
                let templates: Vec<(&str, &str)> = list
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|entry| {
                        Some((entry["name"].as_str()?, entry["template"].as_str()?))
                    })
                    .collect();
                Self::named(origin, &templates, special_tokens).map(Some)
            }
        }
    }

    /// Makes a template from its text. `special_tokens` are the globals that it may print, such as `bos_token`.
    ///
    /// # Errors
    /// Fails if the template has a syntax error.
    pub fn new(
        source: &str,
        special_tokens: Map<String, serde_json::Value>,
    ) -> Result<Self, DataError> {
        Self::named("chat template".to_owned(), &[("default", source)], special_tokens)
    }

    fn named(
        origin: String,
        templates: &[(&str, &str)],
        special_tokens: Map<String, serde_json::Value>,
    ) -> Result<Self, DataError> {
        let mut environment = environment();
        let mut default = String::new();

        for (name, source) in templates {
            if *name == "default" {
                default = source.to_string();
            }
            let source = with_line_feeds(source);
            guard::check_source(&source, syntax())
                .map_err(|error| template_error(&origin, &error))?;
            environment
                .add_template_owned(name.to_string(), without_generation_tags(&source))
                .map_err(|error| template_error(&origin, &error))?;
        }

        if environment.get_template("default").is_err() {
            let problem = "`chat_template` should be a text, or a list of {name, template} with \
                           one named `default`"
                .to_owned();
            return Err(DataError::Template { origin, problem });
        }

        Ok(ChatTemplate { environment, origin, source: default, special_tokens })
    }

    /// Sets `now` as the date that `strftime_now` prints. Otherwise that function is an error, because nothing here
    /// reads the clock.
    pub fn with_date(mut self, now: DateTime) -> Self {
        self.environment.add_function("strftime_now", move |format: &str| {
            jiff::fmt::strtime::format(format, now).map_err(|error| {
                Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}"))
            })
        });
        self
    }

    /// Makes the text of a conversation.
    ///
    /// `messages` is a list of objects with `role` and `content`. With `add_generation_prompt` the text ends where
    /// the model is to speak. `kwargs` are further variables of the template, such as `enable_thinking` or
    /// `tools`. If there are tools and a template named `tool_use`, that template is taken.
    ///
    /// # Errors
    /// Fails if there is no message, or the template raises an exception, is wrong, or runs out of its budget.
    pub fn render(
        &self,
        messages: &serde_json::Value,
        add_generation_prompt: bool,
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, DataError> {
        self.fill(conversation(messages), add_generation_prompt, kwargs)
    }

    /// Makes the text of a conversation up to the end of its last message's `content`, for the model to continue
    /// it. This is `continue_final_message` in `transformers`.
    ///
    /// # Errors
    /// Fails as [`ChatTemplate::render`] does, and if the template leaves the last message out.
    pub fn render_unfinished(
        &self,
        messages: &serde_json::Value,
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, DataError> {
        let error = |problem: &str| {
            let problem = format!("{problem}: it cannot be continued");
            DataError::Template { origin: self.origin.clone(), problem }
        };

        let mut messages = conversation(messages);
        let content = messages.last_mut().and_then(last_text);
        let content = content.ok_or_else(|| error("the last message has no text"))?;
        let final_text = content.trim_matches(python::is_space).to_owned();

        // The space after the mark shows whether the template trims the text.
        *content += END_OF_TEXT;
        *content += " ";
        let text = self.fill(messages, false, kwargs)?;

        match text.rfind(END_OF_TEXT) {
            Some(cut) if text.contains(&final_text) => {
                let trimmed = !text[cut + END_OF_TEXT.len()..].starts_with(' ');
                let text = &text[..cut];
                Ok(if trimmed { text.trim_end_matches(python::is_space) } else { text }.to_owned())
            }
            _ => Err(error("the template leaves out text of the last message")),
        }
    }

    /// Returns the text of the template. If there are several, returns the text of the one named `default`.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the file that the template is from.
    pub fn place(&self) -> &str {
        &self.origin
    }

    /// Returns the variables that may be given as `kwargs`, sorted: those that the template reads and that nothing else
    /// sets.
    pub fn variables(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .environment
            .templates()
            .flat_map(|(_, template)| template.undeclared_variables(false))
            .filter(|name| !GIVEN.contains(&name.as_str()))
            .filter(|name| !self.special_tokens.contains_key(name))
            .filter(|name| !folder::SPECIAL_TOKENS.contains(&name.as_str()))
            .filter(|name| self.environment.globals().all(|(global, _)| global != name))
            .collect();

        names.sort();
        names.dedup();
        names
    }

    fn fill(
        &self,
        messages: Vec<serde_json::Value>,
        add_generation_prompt: bool,
        kwargs: &Map<String, serde_json::Value>,
    ) -> Result<String, DataError> {
        if messages.is_empty() {
            let problem = "a conversation needs at least one message".to_owned();
            return Err(DataError::Template { origin: self.origin.clone(), problem });
        }

        // Templates ask whether these are none, so they are null and not undefined.
        let mut context = Map::new();
        for name in ["tools", "documents"] {
            context.insert(name.into(), serde_json::Value::Null);
        }
        for (name, value) in self.special_tokens.iter().chain(kwargs) {
            context.insert(name.clone(), value.clone());
        }
        context.insert("messages".into(), messages.into());
        context.insert("add_generation_prompt".into(), add_generation_prompt.into());

        let has_tools = kwargs.get("tools").is_some_and(|tools| !tools.is_null());
        let template = match self.environment.get_template("tool_use") {
            Ok(template) if has_tools => Ok(template),
            _ => self.environment.get_template("default"),
        };
        template
            .and_then(|template| evaluated(&self.environment, &template, &context))
            .map_err(|error| template_error(&self.origin, &error))
    }
}

/// Makes the text of a template with `variables`, within its budget.
fn evaluated(
    environment: &Environment<'_>,
    template: &Template<'_, '_>,
    variables: &Map<String, serde_json::Value>,
) -> Result<String, Error> {
    let program = guard::guarded(&get_compiled_template(template).instructions)?;

    let mut text = String::new();
    eval(
        environment,
        &program,
        Value::from_pairs(
            variables.iter().map(|(name, value)| (name.as_str(), number::to_template(value))),
        ),
        &BTreeMap::new(),
        &mut make_string_output(&mut text),
        AutoEscape::None,
    )?;
    Ok(text)
}

/// Prepares messages for a template as `transformers` does. Keys without a value are left out. A model's thoughts get
/// the names `thinking` and `reasoning_content`, under which templates look for them.
fn conversation(messages: &serde_json::Value) -> Vec<serde_json::Value> {
    let mut messages = messages.as_array().cloned().unwrap_or_default();
    for message in messages.iter_mut().filter_map(serde_json::Value::as_object_mut) {
        message.retain(|_, value| !value.is_null());

        // Whichever name the data uses, both names are set.
        let thoughts = ["reasoning_content", "thinking", "reasoning"];
        if let Some(thoughts) = thoughts.iter().find_map(|name| message.get(*name)).cloned() {
            if !message.contains_key("thinking") {
                message.shift_insert(0, "thinking".into(), thoughts.clone());
            }
            message.insert("reasoning_content".into(), thoughts);
        }
    }
    messages
}

/// Finds the content of a message, or the content of the last of its parts that has text.
fn last_text(message: &mut serde_json::Value) -> Option<&mut String> {
    let text = match message.get_mut("content")? {
        serde_json::Value::Array(parts) => {
            parts.iter_mut().rev().find_map(|part| part.get_mut("text"))?
        }
        text => text,
    };
    match text {
        serde_json::Value::String(text) => Some(text),
        _ => None,
    }
}

fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("the default delimiters are valid ones")
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_syntax(syntax());
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(write);

    guard::add_guards(&mut environment);
    python::add_words(&mut environment);
    environment.remove_global("debug");

    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |_: &State, _: String| -> Result<Value, Error> {
        Err(Error::new(
            ErrorKind::InvalidOperation,
            "the template prints today's date, which only `ChatTemplate::with_date` gives it",
        ))
    });

    environment
}

/// Writes a value that a template prints, into the text or into a variable.
fn write(output: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    weight::weigh(state, value)?;
    let text = print::print(value);
    weight::charge_written(state, text.len(), MAX_OUTPUT)?;
    output.write_str(&text).map_err(Error::from)
}

fn template_error(origin: &str, error: &Error) -> DataError {
    let mut problem = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, None) => {
            format!("the template ran for more than {FUEL} instructions; does it loop?")
        }
        (ErrorKind::OutOfFuel, Some(_)) => {
            "the template makes more than any conversation needs; does it loop?".to_owned()
        }
        // Mostly, this is the message that the template itself passes to `raise_exception`.
        (ErrorKind::InvalidOperation, Some(detail)) => format!("the template stops: {detail}"),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };

    if let Some(line) = error.line() {
        problem.push_str(&format!(" (line {line} of the template)"));
    }
    DataError::Template { origin: origin.to_owned(), problem }
}

/// Returns a template with `\n` as its only line end, as Jinja reads one that was checked out on Windows.
fn with_line_feeds(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// Replaces `{% generation %}` and `{% endgeneration %}` by a plain scope, with the same white space and the same reach
/// of variables. `transformers` marks the model's text with these tags.
fn without_generation_tags(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut remaining = source;

    while let Some(start) = remaining.find("{%") {
        let (text_before, tag) = remaining.split_at(start + 2);
        text.push_str(text_before);
        remaining = tag;

        let Some(tag_end) = tag.find("%}") else { break };
        let tag_text = &tag[..tag_end];
        let name = tag_text.trim_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => "with",
            "endgeneration" => "endwith",
            _ => continue,
        };

        text.push_str(&tag_text.replacen(name, replacement, 1));
        remaining = &tag[tag_end..];
    }

    text.push_str(remaining);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn render(source: &str) -> Result<String, DataError> {
        let special = Map::from_iter([("bos_token".to_owned(), json!("<s>"))]);
        let messages = json!([{"role": "user", "content": " hi "}]);
        ChatTemplate::new(source, special)?
            .with_date("2026-07-04T12:00:00".parse().unwrap())
            .render(&messages, true, &Map::from_iter([("n".to_owned(), json!(2))]))
    }

    #[test]
    fn templates_see_what_transformers_gives_them() {
        let source = "{{ bos_token }}{{ eos_token }}{% for m in messages %}\n  {% if true %}\n\
                      {{ m.role }}:{{ m['content'].strip() }}\n{% endif %}{% endfor %}\
                      {{ n + 1 }}{{ tools is none }}{{ add_generation_prompt }}\
                      {{ strftime_now('%d %b %Y') }}\n";
        assert_eq!(render(source).unwrap(), "<s>user:hi\n3TrueTrue04 Jul 2026");
    }

    #[test]
    fn generation_tags_only_mark() {
        assert_eq!(render("a {% generation %}b{% endgeneration %} c").unwrap(), "a b c");
        assert_eq!(render("a {%- generation -%} b {%-endgeneration-%} c").unwrap(), "abc");

        let not_a_tag = "{% set generation = 1 %}{{ generation }}{% if generation %}!{% endif %}";
        assert_eq!(render(not_a_tag).unwrap(), "1!");
        assert!(render("{% generation").unwrap_err().to_string().contains("syntax error"));
    }

    /// Compares with Jinja's lexer, which does the same, also inside texts. An escape in a text is not a line end.
    #[test]
    fn every_line_end_is_a_line_feed() {
        let source = "{% for m in messages %}\r\n<{{ m.role }}>\r\n{% endfor %}\r\n{{ 'a\r\nb' }}\r{{ 'a\\rb' }}\r\n";
        let text = render(source).unwrap();
        assert_eq!(text, render(&source.replace("\r\n", "\n").replace('\r', "\n")).unwrap());
        assert_eq!(text, "<user>\na\nb\na\rb");

        let messages = json!([{"role": "user", "content": "a\r\nb"}]);
        let template = ChatTemplate::new("{{ messages[0].content }}", Map::new()).unwrap();
        assert_eq!(template.render(&messages, false, &Map::new()).unwrap(), "a\r\nb");
    }

    /// Python prints integers with all their digits, and floats as its `repr` does.
    #[test]
    fn numbers_have_the_digits_of_their_file() {
        let long = "10000000000000000000000000000031";
        let longer = "9".repeat(60);
        let json = format!(
            "[{{\"role\": \"user\", \"content\": \"\", \"n\": [100000000000000000000, -{long}, {longer}, 8.0, 1.50, 1e20]}}]"
        );
        let messages = number::parse(json.as_bytes()).unwrap();

        for (source, expected) in [
            (
                "{{ messages[0].n | tojson }}",
                format!("[100000000000000000000, -{long}, {longer}, 8.0, 1.5, 1e+20]"),
            ),
            ("{{ messages[0].n[2] }}", longer.clone()),
            (
                "{{ messages[0].n }}",
                format!("[100000000000000000000, -{long}, {longer}, 8.0, 1.5, 1e+20]"),
            ),
            (
                "{% for n in messages[0].n %}{{ n }} {% endfor %}",
                format!("100000000000000000000 -{long} {longer} 8.0 1.5 1e+20 "),
            ),
        ] {
            let template = ChatTemplate::new(source, Map::new()).unwrap();
            assert_eq!(
                template.render(&messages, false, &Map::new()).unwrap(),
                expected,
                "{source}"
            );
        }
    }

    #[test]
    fn a_template_that_does_not_end_is_ended() {
        for source in [
            "{% for i in range(10**9) %}{% endfor %}",
            "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
            "{% for i in range(2000) %}{{ 'x' * 10000 }}{% endfor %}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{{ messages|tojson(indent=10**9) }}",
        ] {
            render(source).unwrap_err();
        }
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(
            render("\n{{ raise_exception('no system role') }}").unwrap_err().to_string(),
            "chat template: the template stops: no system role (line 2 of the template)"
        );

        let message = render("{% if %}").unwrap_err().to_string();
        assert!(message.contains("syntax error") && message.contains("line 1"), "{message}");

        let undated = ChatTemplate::new("{{ strftime_now('%Y') }}", Map::new()).unwrap();
        let hello = json!([{"role": "user", "content": "Hello."}]);
        let message = undated.render(&hello, false, &Map::new()).unwrap_err().to_string();
        assert!(message.contains("with_date"), "{message}");
    }
}
