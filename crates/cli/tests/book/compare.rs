//! Compares what a command prints with the output that its page shows.

use std::collections::BTreeSet;

use crate::Shown;

/// Commands whose output is the page's, line by line. The page may leave lines out with `…`.
const PRINTED: [&str; 4] =
    ["firebrick plan", "firebrick score --explain", "firebrick inspect tests/", "echo '{\"id\""];

/// Commands whose output has the labels that the page has. The page's numbers come from longer runs. If no line
/// of the page is `…`, the output has no other labels.
const FORMED: [&str; 4] = [
    "firebrick eval",
    "firebrick score answers.jsonl",
    "firebrick train recipe.toml",
    "firebrick train smollm2-arithmetic",
];

/// Compares with the page what a command printed, and what it said on standard error. Returns `None` if the page
/// shows nothing or the command is not in a list above. The error says what the page has and the program does not
/// print, or the other way round.
pub(crate) fn compare(shown: &Shown, printed: &str, said: &str) -> Option<Result<(), String>> {
    let is = |starts: &[&str]| starts.iter().any(|start| shown.command.starts_with(start));
    let compared = match () {
        () if shown.output.trim().is_empty() => return None,
        () if is(&PRINTED) => lines(&shown.output, printed),
        () if is(&FORMED) => labels(&shown.output, &format!("{said}{printed}")),
        () => return None,
    };

    let command = &shown.command;
    Some(compared.map_err(|what| format!("{what}\n$ {command}\nwhich prints\n{said}{printed}")))
}

fn lines(shown: &str, printed: &str) -> Result<(), String> {
    let mut printed = printed.lines().map(str::trim_end);
    let held = |line: &&str| !line.is_empty() && !line.contains('…');
    for line in shown.lines().map(str::trim_end).filter(held) {
        if !printed.any(|other| other == line) {
            return Err(format!("the page shows {line:?} after"));
        }
    }
    Ok(())
}

fn labels(shown: &str, printed: &str) -> Result<(), String> {
    let whole = !shown.lines().any(|line| line.trim() == "…");
    let shown = labels_of(shown);
    let printed = labels_of(printed);
    if let Some(label) = shown.difference(&printed).next() {
        return Err(format!("the page shows {label:?} after"));
    }
    match printed.difference(&shown).next() {
        Some(label) if whole => Err(format!("the page lacks {label:?} after")),
        _ => Ok(()),
    }
}

/// Returns the labels of an output's lines. Examples of what a model wrote have none.
fn labels_of(output: &str) -> BTreeSet<String> {
    output.lines().filter(|line| !line.contains(['→', '…'])).filter_map(label).collect()
}

/// Returns a line up to its first number or gap. The first word stays, with `#` for its numbers. A line of three or
/// more columns without a number is a heading, and is kept as it is.
fn label(line: &str) -> Option<String> {
    let digit = |letter: char| letter.is_ascii_digit();
    let columns: Vec<&str> =
        line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    if columns.len() > 2 && !line.contains(digit) {
        return Some(columns.join(" "));
    }

    let mut words = columns.first()?.split(' ');
    let mut found = String::new();
    for letter in words.next()?.chars() {
        if !digit(letter) {
            found.push(letter);
        } else if !found.ends_with('#') {
            found.push('#');
        }
    }

    for word in words.take_while(|word| !word.contains(digit)) {
        found += " ";
        found += word;
    }
    Some(found)
}

#[test]
fn a_form_differs_by_its_labels_and_not_by_its_numbers() {
    let page = "pass@1   0.95 ± 0.01\npass@2   0.9\nlength   21 tokens\n";
    let program = "pass@1   0.5 ± 0.03\nlength   7 tokens, 0 cut off\n  right   1 → 2\n";
    assert_eq!(labels(page, program), Ok(()));
    assert!(labels(page, "pass@1   0.5\n").is_err_and(|what| what.contains("shows \"length\"")));

    let more = "pass@1   0.5\nprompts  5 never right\nlength   7\n";
    assert!(labels(page, more).is_err_and(|what| what.contains("lacks \"prompts\"")));
    assert_eq!(labels(&format!("{page}…\n"), more), Ok(()));
    assert_eq!(label("suite  rows  µs max").as_deref(), Some("suite rows µs max"));
}
