//! Commands of the book's pages, of README and of CONTRIBUTING.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]
#![allow(clippy::print_stderr, reason = "what is not tried is said")]

mod arguments;
#[cfg(unix)]
mod compare;
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(unix)]
mod walk;

use std::{fs, path::PathBuf};

/// A page that has commands.
struct Page {
    /// Path below `book/src`, or the file's name.
    name: String,
    text: String,
}

/// A command on a page.
#[derive(Debug, PartialEq)]
struct Shown {
    /// Command as a shell reads it, without the prompt and with continued lines joined.
    command: String,
    /// Text that the page shows as its output: the rest of its block, and a `text` block behind that.
    output: String,
}

impl Page {
    /// Reads all pages.
    fn all() -> Vec<Page> {
        let own = ["README.md", "CONTRIBUTING.md"].map(scratch::repository).map(PathBuf::from);
        let read = |path: PathBuf| {
            let name = path.to_string_lossy();
            let name = name.rsplit_once("/src/").or(name.rsplit_once('/')).unwrap().1.to_owned();
            Page { name, text: fs::read_to_string(&path).unwrap().replace("\r\n", "\n") }
        };
        own.into_iter().chain(firebrick_book::pages()).map(read).collect()
    }

    /// Returns the commands of the console blocks: what follows `$ `, up to the line that completes it. If a block's
    /// commands have as many `text` blocks behind it in the section, each has one. Otherwise all are the last one's.
    fn commands(&self) -> Vec<Shown> {
        let mut found: Vec<Shown> = Vec::new();
        for block in self.text.split("```console\n").skip(1) {
            let (block, after) = block.split_once("```").unwrap_or((block, ""));
            let mut open = false;
            let first = found.len();

            for line in block.lines() {
                let trimmed = line.trim_start();
                if let Some(command) = trimmed.strip_prefix("$ ") {
                    found.push(Shown { command: command.to_owned(), output: String::new() });
                    open = true;
                } else if let Some(last) = found.last_mut() {
                    let part = if open { &mut last.command } else { &mut last.output };
                    *part += &format!("\n{}", if open { trimmed } else { line });
                }
                open = open && !complete(&found.last().unwrap().command);
            }

            let section = after.split("\n#").next().unwrap_or_default();
            let texts: Vec<&str> = section
                .split("```text\n")
                .skip(1)
                .map(|text| text.split("```").next().unwrap_or_default())
                .collect();

            let shared = texts.len() != found.len() - first;
            for (index, text) in texts.into_iter().enumerate() {
                let owner = if shared { found.last_mut() } else { found.get_mut(first + index) };
                if let Some(shown) = owner {
                    shown.output += text;
                }
            }
        }

        for shown in &mut found {
            shown.command = shown.command.replace("\\\n", "");
        }
        found
    }
}

/// Returns whether a shell would run the text, or wait for another line.
fn complete(command: &str) -> bool {
    assert!(!command.contains("<<"), "{command}: a text of several lines is not understood here");
    let mut quote = None;
    let mut escaped = false;

    for letter in command.chars() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(mark), _) if letter == mark => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            _ => {}
        }
    }

    let in_loop =
        command.starts_with("for ") && !command.lines().any(|line| line.ends_with("done"));
    quote.is_none() && !escaped && !in_loop
}

#[test]
fn commands_are_found_whole_with_what_they_print() {
    let text = "```console\n$ for a in 1 2; do\n    echo $a\n  done\nsaid\n$ X=1 echo 'a\nb' \\\n  c\n```\n\nIt says:\n\n\
                ```text\na\n```\n\n```text\nb\n```\n## Next\n```text\nc\n```\n";

    let page = Page { name: "page.md".into(), text: text.into() };
    let shown =
        |command: &str, output: &str| Shown { command: command.into(), output: output.into() };

    assert_eq!(
        page.commands(),
        [shown("for a in 1 2; do\necho $a\ndone", "\nsaida\n"), shown("X=1 echo 'a\nb' c", "b\n")]
    );
}
