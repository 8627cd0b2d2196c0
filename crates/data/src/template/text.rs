//! Text templates: texts with gaps, in the language of chat templates and within their limits.

use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};

use super::{environment, evaluated, guard, syntax, template_error, with_line_feeds};
use crate::DataError;

/// Text with gaps, in the language of chat templates and with their bounds. A missing variable is an error, not an
/// empty text.
///
/// ```
/// use firebrick_data::TextTemplate;
/// use serde_json::json;
///
/// let action = TextTemplate::new("action", "{\"message\": {{ completion | tojson }}}")?;
/// let variables = json!({ "completion": "say \"5\"" });
/// let text = action.fill(variables.as_object().unwrap())?;
/// assert_eq!(text, "{\"message\": \"say \\\"5\\\"\"}");
/// # Ok::<(), firebrick_data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextTemplate {
    environment: Environment<'static>,
    origin: String,
}

impl TextTemplate {
    /// Makes a template from its text. Messages say that it is from `origin`.
    ///
    /// # Errors
    /// Fails if the template has a syntax error.
    pub fn new(origin: impl Into<String>, source: &str) -> Result<Self, DataError> {
        let origin = origin.into();
        let mut environment = environment();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);

        let source = with_line_feeds(source);
        guard::check_source(&source, syntax()).map_err(|error| template_error(&origin, &error))?;
        let added = environment.add_template_owned("text", source);
        added.map_err(|error| template_error(&origin, &error))?;
        Ok(TextTemplate { environment, origin })
    }

    /// Fills the gaps of the text.
    ///
    /// # Errors
    /// Fails if a variable is missing, or the template is wrong or runs out of its budget.
    pub fn fill(&self, variables: &Map<String, Value>) -> Result<String, DataError> {
        let template = self.environment.get_template("text");
        template
            .and_then(|template| evaluated(&self.environment, &template, variables))
            .map_err(|error| template_error(&self.origin, &error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_an_error() {
        let fill = |source: &str| {
            let template = TextTemplate::new("environment.observation", source)?;
            template.fill(json!({"observation": {"message": "higher"}}).as_object().unwrap())
        };
        assert_eq!(fill("It is {{ observation.message }}.").unwrap(), "It is higher.");

        for source in [
            "{{ observation.text }}",
            "{{ message }}",
            "{{ observation",
            "{% for i in range(9999999) %}{% endfor %}",
        ] {
            let error = fill(source).unwrap_err().to_string();
            assert!(error.starts_with("environment.observation: "), "{source}: {error}");
        }
    }
}
