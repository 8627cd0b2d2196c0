//! The overrides that stand in a shell script, with the variables that the script itself sets.
//!
//! Nothing is executed: no command is run, no file opened, no variable of the environment read. Lines
//! are taken from top to bottom, so what stands in an `if` counts as if it were true. What depends on
//! anything else stays in the value as `${NAME}`, for the user to see.

mod arithmetic;
mod words;

use std::collections::HashMap;

use super::{notes::Notes, settings::is_key};
use words::{Piece, Word};

/// Bytes of one value. `a=$a$a` doubles with every line.
const MOST_BYTES: usize = 64 << 10;

/// Words behind which a shell may not do what stands there, or more than once.
const CONDITIONS: [&str; 7] = ["if", "elif", "else", "for", "while", "until", "case"];

/// Words that an assignment may stand behind.
const BEFORE_ASSIGNMENTS: [&str; 7] =
    ["export", "local", "declare", "readonly", "then", "else", "do"];

/// `key` and `value` of every word such as `a.b=${X}`, in their order.
pub(super) fn overrides(script: &str, notes: &mut Notes) -> Vec<(String, String)> {
    let mut variables = Variables::default();
    let mut found = Vec::new();
    for command in words::commands(script) {
        let mut assigns = true;
        for (index, word) in command.iter().enumerate() {
            let plain = word.plain().unwrap_or_default();
            if index == 0 && CONDITIONS.contains(&plain) {
                notes.general(format!(
                    "the script has `{plain}`: its lines were taken from top to bottom, whether or not \
                     a shell would"
                ));
            }
            if assigns && BEFORE_ASSIGNMENTS.contains(&plain) {
                continue;
            }
            match word.assignment() {
                Some((name, value)) if assigns => {
                    let value = variables.expand(&value);
                    variables.0.insert(name, value);
                }
                _ => {
                    assigns = false;
                    if let Some((key, value)) = word.split_at_equals()
                        && is_key(&key)
                    {
                        found.push((key, variables.expand(&value)));
                    }
                }
            }
        }
    }
    found
}

/// What the script has set so far.
#[derive(Default)]
struct Variables(HashMap<String, String>);

impl Variables {
    fn expand(&self, word: &Word) -> String {
        let mut text = String::new();
        for piece in &word.0 {
            match piece {
                Piece::Text(part) => text.push_str(part),
                Piece::Variable { name, or } => match (self.0.get(name), or) {
                    (Some(value), _) => text.push_str(value),
                    (None, Some(or)) => text.push_str(&self.expand(or)),
                    (None, None) => text.push_str(&format!("${{{name}}}")),
                },
                Piece::Arithmetic(sum) => {
                    let value = arithmetic::value(sum, &|name| self.0.get(name).cloned());
                    text.push_str(
                        &value.map_or_else(|| format!("$(({sum}))"), |value| value.to_string()),
                    );
                }
                Piece::Foreign(code) => text.push_str(code),
            }
            if text.len() > MOST_BYTES {
                return "${…}".into();
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Vec<(String, String)> {
        overrides(script, &mut Notes::default())
    }

    fn value(script: &str) -> String {
        let mut found = read(script);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0).1
    }

    #[test]
    fn variables_of_the_script_are_filled_in() {
        for (script, expected) in [
            ("n=16\nrun x.y=$n", "16"),
            ("n=16; run x.y=${n}", "16"),
            ("export n=16 m=2\nrun \\\n  x.y=\"${n}\" \\\n  -v\n", "16"),
            ("n=$((1024 * 4))\nrun x.y=$((n / 2 + 1))", "2049"),
            ("run x.y=${N:-16}", "16"),
            ("a=b\nrun x.y=${N:-\"${a}/c\"}", "b/c"),
            ("run x.y='${N}'", "${N}"),
            ("run x.y=$HOME/data", "${HOME}/data"),
            ("run x.y=$(date +%s)", "$(date +%s)"),
            ("run x.y=`date`", "$(date)"),
            ("f=t.parquet\nrun x.y=\"['$f']\"", "['t.parquet']"),
            ("run x.y='[\"console\",\"wandb\"]'", "[\"console\",\"wandb\"]"),
            ("run x.y=1 # x.z=2", "1"),
            ("run +x.y=1", "1"),
            ("A=(\n  x.y=1\n)\n", "1"),
            ("A=(\"x.y=$((2 * 3))\")\n", "6"),
            ("a=1\na=2\nrun x.y=$a", "2"),
            ("n=0x10\nrun x.y=$((n))", "$((n))"),
            ("run x.y=$((1 / 0))", "$((1 / 0))"),
        ] {
            assert_eq!(value(script), expected, "{script}");
        }
        assert_eq!(read("a.b\na=1\n./run --x.y=3 http://a.b/?c=d $@\n"), []);
    }

    #[test]
    fn a_script_can_neither_hang_nor_fill_the_memory() {
        let doubled = format!("a=xxxxxxxxxx\n{}run x.y=$a", "a=$a$a\n".repeat(100));
        assert!(value(&doubled).len() <= 2 * MOST_BYTES);
        for deep in ["${a:-", "$((", "(", "$((1+(", "\"", "'", "$(", "`", "\\", "x.y=$((-"] {
            read(&format!("run x.y={}", deep.repeat(100_000)));
        }
    }
}
