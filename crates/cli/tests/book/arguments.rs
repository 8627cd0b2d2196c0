//! The program takes the arguments of each command, and the built-in recipe that it names has the keys that it sets.

use std::path::Path;

use clap::Parser as _;
use firebrick::Recipe;
use firebrick_cli::commands::Arguments;

use crate::Page;

/// Settings that a page sets wrongly on purpose.
const MISSPELT: [&str; 1] = ["rollout.group_siz=4"];

#[test]
fn the_program_takes_every_command_of_the_pages() {
    let (mut count, mut refused) = (0, Vec::new());
    for page in Page::all() {
        for command in commands(&page) {
            count += 1;
            let problem = match Arguments::try_parse_from(&command) {
                Err(error) if error.use_stderr() => Some(error.to_string()),
                Err(_) => None,
                Ok(_) => wrong_setting(&command),
            };
            if let Some(problem) = problem {
                refused.push(format!("{}: {}\n{problem}", page.name, command.join(" ")));
            }
        }
    }

    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
    assert!(count > 100, "only {count} commands were found: are they written otherwise?");
}

#[test]
fn a_command_that_is_made_up_is_refused() {
    let text = "```console\n$ X=1 cargo run --release -- train quickstart \\\n    --set \"rollout.no='1 2'\" 2> log | head\n```\n";
    let commands = |text: &str| commands(&Page { name: "page.md".into(), text: text.into() });

    let command = commands(text).remove(0);
    assert_eq!(command, ["firebrick", "train", "quickstart", "--set", "rollout.no='1 2'"]);
    assert!(wrong_setting(&command).unwrap().contains("unknown key"));

    let command =
        commands("```console\n$ firebrick plan gsm8k --set train.steps=abc\n```\n").remove(0);
    assert!(wrong_setting(&command).is_some());

    assert!(
        Arguments::try_parse_from(["firebrick", "train", "quickstart", "--sett", "a"]).is_err()
    );
}

#[test]
fn the_program_takes_the_command_that_it_advises() {
    for run in ["runs/a", "my runs/a", "a"] {
        let command = firebrick_runs::resume_command(Path::new(run));
        let taken = Arguments::try_parse_from(words(&command));
        assert!(taken.is_ok(), "{command}: {}", taken.err().unwrap());
    }
}

/// Returns the error in a command's settings, for any built-in recipe that it names.
fn wrong_setting(command: &[String]) -> Option<String> {
    let set = command.windows(2).filter(|pair| pair[0] == "--set").map(|pair| pair[1].clone());
    let known = |set: &String| !MISSPELT.contains(&set.as_str()) && !set.contains('$');
    let set: Vec<String> = set.filter(known).collect();

    let names = command.iter().map(|word| {
        word.strip_prefix("recipes/").and_then(|file| file.strip_suffix(".toml")).unwrap_or(word)
    });

    names
        .filter_map(firebrick_recipes::find)
        .find_map(|recipe| Recipe::parse(Path::new("recipe.toml"), recipe.text, &set).err())
        .map(|error| error.to_string())
}

/// Returns the program's commands on a page: after `firebrick`, `cargo run … --`, and variables before them, up to a
/// pipe, a redirection or the next command.
fn commands(page: &Page) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for shown in page.commands() {
        for line in shown.command.lines() {
            let mut words = words(line);
            // Variables before a command, and those that stand for several arguments.
            let first = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
            words.drain(..first);
            words.retain(|word| !word.starts_with('$'));

            let own = words.iter().any(|word| word == "-p");
            if words.starts_with(&["cargo".into(), "run".into()]) && !own {
                let end = words.iter().position(|word| word == "--").unwrap_or(words.len() - 1);
                words.splice(..=end, ["firebrick".to_owned()]);
            }

            if words.first().is_some_and(|word| word == "firebrick") {
                found.push(words);
            }
        }
    }
    found
}

/// Splits a line as a shell does, up to the end of its first command.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut open = false;

    for letter in line.chars() {
        match (quote, letter) {
            (Some(mark), _) if letter == mark => quote = None,
            (Some(_), _) => word.push(letter),
            (None, '\'' | '"') => (quote, open) = (Some(letter), true),
            (None, '#') if word.is_empty() => break,
            (None, '|' | '>' | '<' | '&' | ';') => {
                // The number of a redirection is no argument.
                if word == "2" {
                    word.clear();
                }
                break;
            }
            (None, ' ') => {
                if open || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                open = false;
            }
            (None, _) => word.push(letter),
        }
    }

    if open || !word.is_empty() {
        words.push(word);
    }
    words
}
