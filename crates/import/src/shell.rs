//! The overrides in a shell script, with the variables that the script itself sets.
//!
//! Nothing is executed: no command is run, no file opened, no variable of the environment read. Lines are taken from
//! top to bottom, so the lines in an `if` count as if its condition were true. Anything that depends on more than the
//! script is kept in the value as `${NAME}`, for the user to see.

mod arithmetic;
mod words;

use std::collections::{HashMap, HashSet};

use super::{
    budget::Budget,
    notes::{self, Notes},
};
use firebrick_recipe::Problem;
use words::{Piece, Substitution, Unset, Word};

/// Words after which a shell may skip or repeat commands.
const CONDITIONS: [&str; 7] = ["if", "elif", "else", "for", "while", "until", "case"];

/// Words that may precede an assignment.
const BEFORE_ASSIGNMENTS: [&str; 7] =
    ["export", "local", "declare", "readonly", "then", "else", "do"];

/// Commands whose arguments are not configuration.
const OTHERS: [&str; 9] = ["[", "[[", "test", "echo", "cd", "mkdir", "set", "unset", "exit"];

/// Arguments that choose the configuration that the overrides apply to.
const CHOOSES: [&str; 6] = ["--config-name", "--config-path", "--config-dir", "-cn", "-cp", "-cd"];

/// Returns `key` and `value` of every argument such as `a.b=${X}`, in order. Each part that may hold overrides but
/// can't be read gets a remark.
pub(super) fn overrides(
    script: &str,
    notes: &mut Notes,
    budget: &mut Budget,
) -> Result<Vec<(String, String)>, Problem> {
    let mut variables = Variables { values: HashMap::new(), budget };
    let mut overrides = Vec::new();
    let mut texts = Vec::new();

    for command in words::commands(script) {
        let name = command.first().and_then(Word::plain).unwrap_or_default();
        if CONDITIONS.contains(&name) {
            notes.general(format!(
                "the script has `{name}`: every line was taken from top to bottom, even a line that \
                 a shell would skip"
            ));
        }

        // Arguments of a condition or of a shell's own command are not configuration.
        let is_asked = !CONDITIONS.contains(&name) && !OTHERS.contains(&name);
        // Assignments precede a command's name. After it they are arguments.
        let mut assigns = true;
        for word in &command {
            if assigns && BEFORE_ASSIGNMENTS.contains(&word.plain().unwrap_or_default()) {
                continue;
            }

            match word.assignment() {
                Some((name, value)) if assigns => {
                    let value = variables.expand(&value)?;
                    texts.extend(overrides_within(&value));
                    variables.set(&name, value);
                }
                _ => {
                    assigns = false;
                    for field in variables.fields(word)? {
                        match field.split_once('=') {
                            Some((key, value)) if is_key(key) => {
                                overrides.push((key.to_owned(), value.to_owned()));
                            }
                            _ => {
                                texts.extend(overrides_within(&field));
                                if is_asked {
                                    variables.remark(&field, notes);
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    // A key that is also an argument is in the recipe, and needs no remark.
    let keys: HashSet<&str> = overrides.iter().map(|(key, _)| key.as_str()).collect();
    for key in texts.iter().filter(|key| !keys.contains(key.as_str())) {
        notes.general(format!(
            "`{key}=…` stands in a text that is not an argument of a command: this key is not in the recipe"
        ));
    }

    Ok(overrides)
}

/// Tells whether a line is `a.b=value`, which YAML never has in this form.
pub(super) fn is_override(line: &str) -> bool {
    line.split_once('=').is_some_and(|(key, _)| is_key(key))
}

/// Tells whether a text may be the dotted key of an override, with Hydra's signs in front.
fn is_key(text: &str) -> bool {
    let key = text.trim_start_matches(['+', '~']);
    let mut parts = key.split('.');
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-@/".contains(c))
    };
    key.contains('.') && parts.all(part)
}

/// Returns the keys of overrides in a text that is not an override itself.
fn overrides_within(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace()
        .filter(|part| is_override(part))
        .filter_map(|part| part.split_once('='))
        .map(|(key, _)| key.to_owned())
}

/// Variables that the script has set so far.
struct Variables<'a> {
    values: HashMap<String, String>,
    /// Bounds the values that are filled in. Values written in the script are no larger than the script.
    budget: &'a mut Budget,
}

impl Variables<'_> {
    /// Sets a variable, or adds to it if the name ends in `+`.
    fn set(&mut self, name: &str, value: String) {
        match name.strip_suffix('+') {
            Some(name) => self.values.entry(name.to_owned()).or_default().push_str(&value),
            None => {
                self.values.insert(name.to_owned(), value);
            }
        }
    }

    /// Returns the word as one text.
    fn expand(&mut self, word: &Word) -> Result<String, Problem> {
        let mut text = String::new();
        for piece in &word.0 {
            text.push_str(&self.filled_in(piece)?);
        }
        Ok(text)
    }

    /// Splits a word into the arguments that it becomes: outside of quotes, a variable's value ends at spaces.
    fn fields(&mut self, word: &Word) -> Result<Vec<String>, Problem> {
        let mut fields = Vec::new();
        let mut field: Option<String> = None;

        for piece in &word.0 {
            let text = self.filled_in(piece)?;
            let is_split = matches!(piece, Piece::Variable { quoted: false, .. });
            // Only a variable outside of quotes is split, as in a shell.
            if !is_split {
                field.get_or_insert_default().push_str(&text);
                continue;
            }

            for c in text.chars() {
                if c.is_whitespace() {
                    fields.extend(field.take());
                } else {
                    field.get_or_insert_default().push(c);
                }
            }
        }

        fields.extend(field);
        Ok(fields)
    }

    fn filled_in(&mut self, piece: &Piece) -> Result<String, Problem> {
        Ok(match piece {
            Piece::Text(part) => part.clone(),
            Piece::Variable { name, or, .. } => {
                let unset = match or {
                    Substitution::Default(_, unset)
                    | Substitution::Assigned(_, unset)
                    | Substitution::Instead(_, unset) => *unset,
                    Substitution::Nothing => Unset::Absent,
                };

                let value = self.values.get(name);
                // A sign with a colon treats an empty value as none.
                match (value.filter(|value| unset == Unset::Absent || !value.is_empty()), or) {
                    (Some(_), Substitution::Instead(word, _)) => self.expand(word)?,
                    (None, Substitution::Instead(..)) => String::new(),
                    (Some(value), _) => {
                        self.budget.spend(value.len())?;
                        value.clone()
                    }
                    (None, Substitution::Default(word, _)) => self.expand(word)?,
                    (None, Substitution::Assigned(word, _)) => {
                        let value = self.expand(word)?;
                        self.budget.spend(value.len())?;
                        self.set(name, value.clone());
                        value
                    }
                    (None, Substitution::Nothing) => format!("${{{name}}}"),
                }
            }
            Piece::Arithmetic(sum) => {
                // A longer text is not a number, and would be read again wherever it is used.
                let short =
                    |name: &str| self.values.get(name).filter(|value| value.len() <= 64).cloned();
                let value = arithmetic::value(sum, &short);
                value.map_or_else(|| format!("$(({sum}))"), |value| value.to_string())
            }
            Piece::Foreign(code) => code.clone(),
        })
    }

    /// Adds a remark if something may be lost with an argument that is not an override.
    fn remark(&self, field: &str, notes: &mut Notes) {
        let option = field.split_once('=').map_or(field, |(option, _)| option);
        if CHOOSES.contains(&option) {
            notes.general(format!(
                "`{option}` names a configuration: its settings are not in the recipe, which has the \
                 program's own defaults instead; import that file with these overrides"
            ));
        }

        // A path such as `${HOME}/x` holds no overrides, but a whole value may, and so may one before a `=`.
        let is_whole = field.ends_with(['}', ')']) || field.contains('=');
        // The elements of an array were taken where they are written.
        let array = field.strip_prefix("${").and_then(|rest| rest.split_once('['));
        let is_known = array.is_some_and(|(name, _)| self.values.contains_key(name));
        if (field.starts_with("${") || field.starts_with("$(")) && is_whole && !is_known {
            notes.general(format!(
                "`{}` is an argument whose value the script does not say: if it holds overrides, pass them to \
                 the import too",
                notes::shown(field)
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Vec<(String, String)> {
        overrides(script, &mut Notes::default(), &mut Budget::default()).unwrap()
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
            ("n=3\nrun x.y=$(( ((n+1)) * 2 ))", "8"),
            ("run x.y=\\\n16", "16"),
            ("run x.y=1\\\n6 \\\n  -v", "16"),
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
            ("a=1\na+=2\nrun x.y=$a", "12"),
            ("a=(1)\na+=( x.y=2 )", "2"),
            ("p=x.y\nrun $p=3", "3"),
            ("a=' 1  2 '\nrun x.y=\"$a\"", " 1  2 "),
            ("a='x.y=\"b\"'\nrun $a", "\"b\""),
            ("A=\"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\" && pwd)\"\nrun x.y=1", "1"),
            ("A=$(awk -F= '/^(P|Q)_/{print $1}')\nB=\"a\"\nrun x.y=$B", "a"),
            ("run a=\"w-$(basename \"$(pwd)\")\" x.y=3e-6", "3e-6"),
            ("A=`basename \"$(pwd)\"`\nrun x.y=1", "1"),
            ("A=$(echo ')' \\) # it's )\n)\nrun x.y=1", "1"),
            ("A=$(python - <<'EOF'\nprint(\"it's a ) \")\nx.y=2\nEOF\n)\nrun x.y=1", "1"),
            ("cat > f <<-EOF\n  don't x.y=2\n\tEOF\nrun x.y=1", "1"),
            ("read a <<< \"it's\"\nrun x.y=1", "1"),
            (": \"${n:=\"4\"}\"\nrun x.y=$n", "4"),
            ("run x.y=\"${n:-it's \"4\"}\"", "it's 4"),
            ("run x.y=${1:-4}", "4"),
            ("n=\nrun x.y=${n:-4}${n-5}", "4"),
            ("n=4\nrun x.y=a${n:+-$n}${m:+-$m}", "a-4"),
            ("n=4\nrun x.y=${n:?unset}${m:?unset}", "4${m}"),
            ("run x.y=$'4'", "4"),
            ("n=4\r\nrun \\\r\n  x.y=$n \\\r\n  -v\r\n", "4"),
        ] {
            assert_eq!(value(script), expected, "{script}");
        }

        assert_eq!(read("a.b\na=1\n./run --x.y=3 http://a.b/?c=d $@\n"), []);
    }

    #[test]
    fn a_variable_outside_of_quotes_is_as_many_arguments_as_it_has_words() {
        let both_overrides =
            [("a.b".to_owned(), "1".to_owned()), ("c.d".to_owned(), "2".to_owned())];

        for script in [
            "A='a.b=1 c.d=2'\nrun $A",
            "A=a.b=1\nA+=' c.d=2'\nrun $A",
            "A=a.b=1\nA=\"$A c.d=2\"\nrun ${A}",
            "run ${A:-a.b=1 c.d=2}",
            "A='1 c.d'\nrun a.b=$A=2",
        ] {
            assert_eq!(read(script), both_overrides, "{script}");
        }

        let one = [("a.b".to_owned(), "1 c.d=2".to_owned())];
        assert_eq!(read("A='a.b=1 c.d=2'\nrun \"$A\""), one);
    }

    #[test]
    fn a_script_can_neither_hang_nor_fill_the_memory() {
        let doubled = format!("a=xxxxxxxxxx\n{}run x.y=$a", "a=$a$a\n".repeat(100));
        let copied: String = (0..20_000).map(|n| format!("v{n}=$a\n")).collect();
        let copied = format!("a={}\n{copied}run x.y=1", "x".repeat(32_000));
        let added = format!("a=xx\n{}run x.y=$a", "a+=$a\n".repeat(100));
        let split = format!("a='{}'\nrun {}", "x.y=1 ".repeat(10_000), "$a ".repeat(10_000));

        for script in [doubled, copied, added, split] {
            let outcome = overrides(&script, &mut Notes::default(), &mut Budget::default());
            assert!(outcome.unwrap_err().message.contains("MiB"));
        }

        for deep in [
            "${a:-", "$((", "(", "$((1+(", "\"", "'", "$(", "`", "\\", "x.y=$((-", "\"$(",
            "\"${a:-", "$(<<a\n", "'${a:-",
        ] {
            read(&format!("run x.y={}", deep.repeat(100_000)));
        }
    }
}
