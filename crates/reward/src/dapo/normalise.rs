//! Normalisation of answers in DAPO's rule, in linear time.

use std::sync::LazyLock;

use regex::Regex;

use super::is_python_space;

/// Replaced first, in this order. `a ` is meant as the article, but is also removed inside words.
const REPLACED: [(&str, &str); 10] = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    (r"\$", ""),
    (r"\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (r",\text{and}", ","),
    (r"\text{and}", ","),
    (r"\text{m}", r"\text{}"),
];

/// Deleted next, in this order, wherever they occur.
const DELETED: [&str; 41] = [
    "square",
    "ways",
    "integers",
    "dollars",
    "mph",
    "inches",
    "hours",
    "km",
    "units",
    r"\ldots",
    "sue",
    "points",
    "feet",
    "minutes",
    "digits",
    "cents",
    "degrees",
    "cm",
    "gm",
    "pounds",
    "meters",
    "meals",
    "edges",
    "students",
    "childrentickets",
    "multiples",
    r"\text{s}",
    r"\text{.}",
    "\\text{\ns}",
    r"\text{}^2",
    r"\text{}^3",
    "\\text{\n}",
    r"\text{}",
    r"\mathrm{th}",
    r"^\circ",
    r"^{\circ}",
    r"\;",
    r",\!",
    "{,}",
    "\"",
    r"\dots",
];

/// Deleted last, by the fork that strips end tokens.
const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// Matches a number as Python's `str.isdigit` has it, with commas anywhere. The digits are those of every
/// script, and also the characters with the value of a digit in Unicode: superscripts, circled digits, ...
static DIGITS_AND_COMMAS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"\A,*(?:[\p{Nd}\x{B2}\x{B3}\x{B9}\x{2070}\x{2074}-\x{2079}\x{2080}-\x{2089}",
        r"\x{1369}-\x{1371}\x{19DA}\x{2460}-\x{2468}\x{2474}-\x{247C}\x{2488}-\x{2490}",
        r"\x{24EA}\x{24F5}-\x{24FD}\x{24FF}\x{2776}-\x{277E}\x{2780}-\x{2788}",
        r"\x{278A}-\x{2792}\x{10A40}-\x{10A43}\x{10E60}-\x{10E68}\x{11052}-\x{1105A}",
        r"\x{1F100}-\x{1F10A}],*)+\z",
    ))
    .expect("the pattern is a constant")
});

/// Returns the normalised answer, which DAPO's rule compares. Every step takes one pass over the text.
pub(super) fn normalise(answer: &str, strip_end_tokens: bool) -> String {
    let mut text = answer.rsplit('=').next().unwrap_or(answer).to_owned();
    let end_tokens = if strip_end_tokens { &END_TOKENS[..] } else { &[] };
    let deleted = DELETED.iter().chain(end_tokens).map(|deleted| (*deleted, ""));

    for (from, to) in REPLACED.into_iter().chain(deleted) {
        if text.contains(from) {
            text = text.replace(from, to);
        }
    }

    // The order of the steps is the original's: some of them undo what another one did.
    text = each_line(&text, first_formula);
    for opener in [r"\text{", r"\textbf{", r"\overline{"] {
        text = without_wrapping(&text, opener);
    }
    text = each_line(&text, without_box);
    text = with_braces(&text, "frac", 2);
    text = with_braces(&text, "sqrt", 1);
    text = text.replace('$', "");

    if text.contains(',') && DIGITS_AND_COMMAS.is_match(&text) {
        text = text.replace(',', "");
    }
    text.trim_matches(is_python_space).to_owned()
}

/// Changes a text line by line, because a dot in the original's expressions matches anything but a line feed.
fn each_line(text: &str, change: impl Fn(&str, &mut String)) -> String {
    let mut result = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            result.push('\n');
        }
        change(line, &mut result);
    }
    result
}

/// Keeps the first `$…$` of a line that has one, and drops the rest of the line.
fn first_formula(line: &str, result: &mut String) {
    let mut parts = line.splitn(3, '$').skip(1);
    match (parts.next(), parts.next()) {
        (Some(formula), Some(_)) => result.extend(["$", formula, "$"]),
        _ => result.push_str(line),
    }
}

/// Removes the first `\boxed{` of a line and the last brace after it.
fn without_box(line: &str, result: &mut String) {
    let boxed = line.split_once(r"\boxed{").and_then(|(before, inside)| {
        inside.rsplit_once('}').map(|(inside, after)| [before, inside, after])
    });
    match boxed {
        Some(parts) => result.extend(parts),
        None => result.push_str(line),
    }
}

/// Replaces every `opener…}` by its inside, up to the first brace. The inside is not searched again. An opener that
/// isn't closed on its line is kept.
fn without_wrapping(text: &str, opener: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once(opener) {
        let Some(end) = inside.find(['}', '\n']) else { break };
        result.push_str(before);
        if inside[end..].starts_with('}') {
            result.push_str(&inside[..end]);
        } else {
            // Any other opener on this line isn't closed either.
            result.push_str(&rest[before.len()..][..opener.len() + end + 1]);
        }

        rest = &inside[end + 1..];
    }
    result + rest
}

/// Puts braces around each of the one or two characters that follow `word`, unless the first is a brace already,
/// or the second a line feed: `frac12` becomes `frac{1}{2}`.
fn with_braces(text: &str, word: &str, count: usize) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(word) {
        result.push_str(before);
        result.push_str(word);

        let mut left = after.chars();
        let characters: Vec<char> = left.by_ref().take(count).collect();
        // The original's expressions match any character but a brace first, and any but a line feed second.
        let bare = characters.len() == count
            && characters[0] != '{'
            && characters[1..].iter().all(|second| *second != '\n');

        rest = if bare {
            characters.iter().for_each(|c| result.extend(['{', *c, '}']));
            left.as_str()
        } else {
            after
        };
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_kept() {
        for (answer, normal) in [
            ("x=4=5", "5"),
            ("banana x", "bananx"),
            ("always", "al"),
            ("1,2,3", "123"),
            ("1,2,x", "1,2,x"),
            (",", ","),
            ("１,²,①", "１²①"),
            ("½,1", "½,1"),
            ("5.$", "5"),
            (r"a $1$ b $2$", "1"),
            ("a$1$\n2$", "1\n2"),
            (r"x\mbox{and}1", "x,1"),
            (r"5\text{ m}", "5"),
            (r"\text{a\text{b}c}", r"a\text{bc}"),
            ("\\text{a\nb}\\text{c}", "\\text{a\nb}c"),
            (r"\boxed{{1}} and} 2", "{1}}and2"),
            (r"\frac1{2}", r"\frac{1}{{}2}"),
            (r"\frac{1}2", r"\frac{1}2"),
            ("frac1\n", "frac1"),
            ("frac\n1", "frac{\n}{1}"),
            ("fracfrac12", "frac{f}{r}ac12"),
            (r"\sqrt3\sqrt{3}\sqrt", r"\sqrt{3}\sqrt{3}\sqrt"),
            ("\u{1f}7\t", "7"),
            ("=", ""),
        ] {
            assert_eq!(normalise(answer, false), normal, "{answer:?}");
        }

        assert_eq!(normalise("7<|im_end|>", false), "7<|im_end|>");
        assert_eq!(normalise("7<|im_end|>", true), "7");
    }
}
