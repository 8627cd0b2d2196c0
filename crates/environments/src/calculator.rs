//! The environment `Calculator`, a tool that the policy can ask for the value of an expression.

use firebrick_core::{Environment, EnvironmentFailed, Episode, Prompt, Reply};
use firebrick_reward::calculate;

/// A calculator: if the policy's turn ends with `=`, the reply is the value of the expression before it.
///
/// An expression has whole numbers, `+ - * /` and brackets. It begins after the last character that can't belong to
/// one. Its value is exact, a fraction such as `7/2` if it is not a whole number. The reply is `?` if the expression
/// can't be read or divides by zero. A turn that does not end with `=` is the policy's last. It ends the episode
/// without a reward, because a tool does not know the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calculator;

impl Calculator {
    /// Characters of the calculator's replies.
    pub const ALPHABET: &str = "0123456789-/?";
}

impl Environment for Calculator {
    fn begin(&self, _: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        Ok(Box::new(Calculator))
    }
}

impl Episode for Calculator {
    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed> {
        let Some(expression) = action.trim_end().strip_suffix('=') else {
            return Ok(Reply { over: true, ..Reply::default() });
        };

        let other = |c: char| !(c.is_ascii_digit() || "+-*/()×÷− ".contains(c));
        let begin = expression
            .rfind(other)
            .map_or(0, |at| at + expression[at..].chars().next().map_or(0, char::len_utf8));

        Ok(Reply::observation(calculate(expression[begin..].trim()).unwrap_or_else(|| "?".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expression_before_the_sign_is_computed() {
        for (action, reply) in [
            ("47*85=", Some("3995")),
            ("235,47*80= ", Some("3760")),
            ("So that is é (3 + 4) * 2 =", Some("14")),
            ("1-3=", Some("-2")),
            ("6/4=", Some("3/2")),
            ("1/0=", Some("?")),
            ("1+=", Some("?")),
            ("=", Some("?")),
            ("3995", None),
            ("", None),
        ] {
            let actual = Calculator.step(action).unwrap();
            let expected = Reply {
                observation: reply.unwrap_or("").into(),
                reward: None,
                over: reply.is_none(),
            };

            assert_eq!(actual, expected, "{action:?}");
        }

        let long = format!("{}1=", "1+".repeat(1000));
        assert_eq!(Calculator.step(&long).unwrap().observation, "?");
    }
}
