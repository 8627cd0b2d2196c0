//! Words that make of a number another one, or none: “not 5”, “minus 5”, “half of 5”, “at least 5”.
//! To read the number alone would be to misread what is said, and to reward a refusal.

/// How far before the mathematics such a word may begin.
const REACH: usize = 96;

/// How many idle words may stand between.
const BETWEEN: usize = 5;

/// Whether what stands `before` some mathematics in its sentence changes its meaning.
pub(super) fn changed(before: &str) -> bool {
    let mut linked = false;
    decided(before, |word, earlier, stopped| {
        let known = |list: &[&str]| list.contains(&word);
        if denial(word, earlier) || !stopped && known(&CHANGES) {
            return Some(true);
        }
        if stopped {
            return Some(false);
        }
        if word == "but" {
            return Some(EVERYTHING.contains(&last_word(earlier).to_ascii_lowercase().as_str()));
        }
        if linked && known(&OPERATIONS) {
            return Some(true);
        }
        let link = known(&LINKS);
        linked |= link;
        (!link && !known(&IDLE)).then_some(false)
    })
}

/// Whether what stands `before` some mathematics denies it.
pub(super) fn denied(before: &str) -> bool {
    decided(before, |word, earlier, stopped| {
        if denial(word, earlier) {
            return Some(true);
        }
        (stopped || !IDLE.contains(&word)).then_some(false)
    })
}

/// Goes back word by word until one decides. It is asked with the word in lower case, with what
/// precedes it, and with whether a colon stands behind it.
fn decided(before: &str, mut decide: impl FnMut(&str, &str, bool) -> Option<bool>) -> bool {
    let mut from = before.len().saturating_sub(REACH);
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let mut rest = &before[from..];
    let mut stopped = false;
    for _ in 0..=BETWEEN {
        let bare = rest.trim_end_matches(wrapping);
        // A blank line parts what stands around it.
        if rest[bare.len()..].matches('\n').count() > 1 && !bare.ends_with(':') {
            return false;
        }
        let colon = bare.trim_end_matches([':', '：']);
        stopped |= colon.len() < bare.len();
        rest = colon.trim_end_matches(wrapping);
        let word = last_word(rest);
        rest = &rest[..rest.len() - word.len()];
        let word = word.to_lowercase().replace('’', "'");
        if word.is_empty() {
            return false;
        }
        if let Some(decision) = decide(&word, rest, stopped) {
            return decision;
        }
    }
    false
}

/// The word at the end of a text.
fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let letter = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’');
    &text[text.trim_end_matches(letter).len()..]
}

/// What may stand around words and mathematics: space, Markdown, delimiters, an opening bracket.
fn wrapping(c: char) -> bool {
    c.is_whitespace() || "*_`$\\([{\"“'‘=≈~".contains(c)
}

fn denial(word: &str, earlier: &str) -> bool {
    DENIALS.contains(&word)
        || word.ends_with("n't")
        || word == "longer" && last_word(earlier).eq_ignore_ascii_case("no")
}

const DENIALS: [&str; 8] =
    ["not", "cannot", "cant", "never", "neither", "nor", "incorrect", "wrong"];

/// Words that change a value right behind them.
const CHANGES: [&str; 33] = [
    "minus",
    "plus",
    "times",
    "negative",
    "half",
    "twice",
    "thrice",
    "double",
    "triple",
    "quadruple",
    "root",
    "least",
    "most",
    "less",
    "more",
    "greater",
    "fewer",
    "larger",
    "smaller",
    "bigger",
    "lower",
    "higher",
    "than",
    "between",
    "except",
    "excluding",
    "without",
    "over",
    "under",
    "above",
    "below",
    "exceeds",
    "exceeding",
];

/// Words that change a value behind “of”, “by”, “from”: “a third of 5”, “divided by 5”. Without one
/// they may precede a value harmlessly, as in “in the third quarter 5 goals were scored”.
const OPERATIONS: [&str; 35] = [
    "third",
    "thirds",
    "quarter",
    "quarters",
    "fourth",
    "fourths",
    "fifth",
    "fifths",
    "sixth",
    "tenth",
    "halves",
    "square",
    "cube",
    "reciprocal",
    "inverse",
    "opposite",
    "logarithm",
    "log",
    "factorial",
    "multiple",
    "multiples",
    "factor",
    "divisor",
    "power",
    "instead",
    "divided",
    "multiplied",
    "divisible",
    "increased",
    "decreased",
    "reduced",
    "different",
    "far",
    "away",
    "subtracted",
];

/// Words before “but” with which it means “except”.
const EVERYTHING: [&str; 7] = ["anything", "everything", "all", "any", "every", "number", "value"];

/// Words that link an operation with its operand.
const LINKS: [&str; 4] = ["of", "by", "from", "for"];

/// Words that change nothing themselves.
const IDLE: [&str; 23] = [
    "a",
    "an",
    "the",
    "be",
    "been",
    "equal",
    "equals",
    "to",
    "exactly",
    "approximately",
    "about",
    "roughly",
    "precisely",
    "simply",
    "just",
    "only",
    "even",
    "quite",
    "really",
    "actually",
    "necessarily",
    "always",
    "either",
];
