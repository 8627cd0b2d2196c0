//! Negations and other words that turn a number into another one, or into none: “not 5”, “minus 5”, “half of 5”, “at
//! least 5”. The number alone would be a misreading, and would reward a refusal.

/// Largest distance of such a word from the mathematics after it, in bytes.
const REACH: usize = 96;

/// How many idle words may be between.
const BETWEEN: usize = 5;

/// Tells whether the text `before` some mathematics in its sentence changes its meaning.
pub(super) fn changes_meaning(before: &str) -> bool {
    let mut linked = false;
    decided(before, |word, earlier, stopped| {
        let is_in = |list: &[&str]| list.contains(&word);
        if denial(word, earlier) || !stopped && is_in(&CHANGES) {
            return Some(true);
        }
        if stopped {
            return Some(false);
        }

        // “anything but 5” excludes 5, while “not 4 but 5” affirms it.
        if word == "but" {
            return Some(EVERYTHING.contains(&last_word(earlier).to_ascii_lowercase().as_str()));
        }

        if linked && is_in(&OPERATIONS) {
            return Some(true);
        }

        let link = is_in(&LINKS);
        linked |= link;
        (!link && !is_in(&IDLE)).then_some(false)
    })
}

/// Tells whether the text `before` some mathematics denies it.
pub(super) fn is_denied(before: &str) -> bool {
    decided(before, |word, earlier, stopped| {
        if denial(word, earlier) {
            return Some(true);
        }
        (stopped || !IDLE.contains(&word)).then_some(false)
    })
}

/// Walks back word by word until one decides. `decide` receives the word in lower case, the text before the word, and
/// whether a colon follows it.
fn decided(before: &str, mut decide: impl FnMut(&str, &str, bool) -> Option<bool>) -> bool {
    let mut from = before.len().saturating_sub(REACH);
    // The limit in bytes may fall into a character.
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let mut rest = &before[from..];
    let mut stopped = false;

    for _ in 0..=BETWEEN {
        let bare = rest.trim_end_matches(wrapping);
        // A blank line separates the text before it from the text after it.
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

/// Returns the word at the end of a text.
fn last_word(text: &str) -> &str {
    let text = text.trim_end();
    let letter = |c: char| c.is_alphabetic() || matches!(c, '\'' | '’');
    &text[text.trim_end_matches(letter).len()..]
}

/// Tells whether a character may surround words and mathematics: space, Markdown, a delimiter, an opening bracket.
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

/// Words that change a value right after them.
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

/// Words that change a value after “of”, “by”, “from”: “a third of 5”, “divided by 5”. Without such a link they may
/// precede a value harmlessly, as in “in the third quarter 5 goals were scored”.
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

/// Words after which “but” means “except”.
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
