//! Commands that a user may type next, with their words quoted for a shell.

use std::path::Path;

/// Returns the command that goes on with the run in the folder `run`. It names the folder around the run if that is
/// not `runs`, where the program looks by itself.
pub fn resume(run: &Path) -> String {
    let path_word = |path: &Path| word(&path.display().to_string());
    let runs = run.parent().filter(|runs| *runs != Path::new("runs"));
    let runs = runs.map_or_else(String::new, |runs| format!(" --runs {}", path_word(runs)));
    format!("firebrick train {}{runs} --resume", path_word(&run.join("recipe.toml")))
}

/// Quotes a text as one word of a command for a POSIX shell. A text without special letters stays as it is, so any
/// other shell takes it too.
pub fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_alphanumeric() || "/\\:._-+=@%,".contains(letter);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_outside_runs_is_found_again() {
        assert_eq!(resume(Path::new("runs/a")), "firebrick train runs/a/recipe.toml --resume");
        let elsewhere = "firebrick train 'my runs/a/recipe.toml' --runs 'my runs' --resume";
        assert_eq!(resume(Path::new("my runs/a")), elsewhere);
    }

    #[test]
    fn a_text_with_a_blank_is_one_word() {
        assert_eq!(word("runs/a.b/step-000001"), "runs/a.b/step-000001");
        assert_eq!(word("my runs/it's"), r"'my runs/it'\''s'");
        assert_eq!(word(""), "''");
    }
}
