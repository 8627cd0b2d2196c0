//! Commands that a user may type next, with their words quoted for a shell.

use std::path::{self, Path};

/// Folder of runs where the program looks unless you name another.
pub const RUNS: &str = "runs";

/// Returns the command that continues the run in the folder `run`. It names the folder around the run if that is
/// not [`RUNS`].
pub fn resume_command(run: &Path) -> String {
    let absolute;
    // A single name such as `.` has nothing around it that could be named.
    let run = match run.parent() {
        Some(around) if !around.as_os_str().is_empty() => run,
        _ => {
            absolute = path::absolute(run).unwrap_or_else(|_| run.to_owned());
            &absolute
        }
    };

    let runs = run.parent().filter(|runs| *runs != Path::new(RUNS));
    let runs = runs.map_or_else(String::new, |runs| format!(" --runs {}", path_word(runs)));
    format!("firebrick train {}{runs} --resume", path_word(&run.join("recipe.toml")))
}

/// Quotes a path as one word of a command.
pub fn path_word(path: &Path) -> String {
    shell_word(&path.display().to_string())
}

/// Quotes a text as one word of a command for a POSIX shell. A text without special characters stays as it is, so it
/// is one word for any other shell too.
pub fn shell_word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/\\:._-+=@%,".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        // A shell can't escape a quote inside quotes, so they end, a quote follows, and they begin again.
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_outside_runs_is_found_again() {
        let resume = |run: &str| resume_command(Path::new(run));
        assert_eq!(resume("runs/a"), "firebrick train runs/a/recipe.toml --resume");
        let elsewhere = "firebrick train 'my runs/a/recipe.toml' --runs 'my runs' --resume";
        assert_eq!(resume("my runs/a"), elsewhere);

        // The folder of this crate, by itself and by its name.
        let here = path::absolute(".").unwrap();
        let around = path_word(here.parent().unwrap());
        assert!(resume(".").contains(&format!(" --runs {around} ")), "{}", resume("."));
        assert!(
            resume("src").contains(&format!(" --runs {} ", path_word(&here))),
            "{}",
            resume("src")
        );
    }

    #[test]
    fn a_text_with_a_blank_is_one_word() {
        assert_eq!(shell_word("runs/a.b/step-000001"), "runs/a.b/step-000001");
        assert_eq!(shell_word("my runs/it's"), r"'my runs/it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
