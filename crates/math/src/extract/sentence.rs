//! Finds the answer within a sentence that holds one: “The volume of $ABCDEFGH$ is 120.”

use std::ops::Range;

use super::{
    formula::{self, Formula},
    negation,
    prose::{Kind, Token, Tokens, operator},
    trim,
};

/// What part of a sentence is its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// One or several formulas in delimiters.
    Formula,
    /// Mathematics in plain text.
    Plain,
    /// Words.
    Words,
    /// The whole sentence, because its words change the meaning of its mathematics.
    Changed,
}

/// Finds the answer in a sentence: the part after the verb, or else the last mathematics, or else the whole sentence.
/// If a word before the mathematics changes its meaning, the answer is the whole sentence as well.
pub(super) fn answer(
    text: &str,
    within: Range<usize>,
    formulas: &[Formula],
) -> Option<(Range<usize>, String, AnswerKind)> {
    let tokens: Vec<Token> = Tokens::new(text, within.clone(), formulas).collect();
    let word = |token: &Token| token.kind == Kind::Word;
    let is = |token: &Token, words: &[&str]| {
        word(token)
            && words.iter().any(|known| text[token.range.clone()].eq_ignore_ascii_case(known))
    };

    let mut from = 0;
    let mut affirmed = false;
    while let Some(token) = tokens.get(from) {
        let run = run_at(&tokens, from);
        if token.kind == Kind::Break
            || is(token, &ADVERBS)
            || run > from && !substance(text, &tokens[from..run])
        {
            from = run.max(from + 1);
        } else if run > from {
            // In “$n$ is 34” the answer follows the verb, while in “5 is the smallest” it precedes the verb.
            let value = |token: &Token| matches!(token.kind, Kind::Maths | Kind::Formula);
            let verb = tokens.get(run).is_some_and(|token| is(token, &VERBS));
            if verb && tokens.get(run + 1).is_some_and(value) {
                from = run + 1;
                continue;
            }

            if compound(text, &tokens[from..], run - from) {
                break;
            }
            return unchanged(text, within, &tokens[from..run], formulas);
        } else {
            // The first word answers a sentence such as “Yes, as $n$ is odd”.
            let next = tokens.get(from + 1).map_or("", |token| &text[token.range.clone()]);
            affirmed = is(token, &["yes", "no", "true", "false"]) && matches!(next, "" | "," | ".");
            if affirmed {
                break;
            }
            let verb = |token: &Token| is(token, &VERBS) || &text[token.range.clone()] == "=";
            match tokens[from..].iter().position(verb) {
                Some(verb) if from + verb + 1 < tokens.len() => from += verb + 1,
                _ => break,
            }
        }
    }

    // Words are left, so the last mathematics among them counts.
    let first = tokens.get(from)?;
    let words = affirmed || first.kind == Kind::Maths;
    if let Some(run) = last_run(text, &tokens[from..]).filter(|_| !words) {
        return unchanged(text, within, run, formulas);
    }

    let end = if affirmed { first.range.end } else { within.end };
    let range = trim::trim_around(text, first.range.start..end);
    let read = trim::read(text, range.clone(), true);
    (!read.is_empty()).then_some((range, read, AnswerKind::Words))
}

/// Returns the mathematics in `run`, or the whole sentence if the sentence changes its meaning.
fn unchanged(
    text: &str,
    sentence: Range<usize>,
    run: &[Token],
    formulas: &[Formula],
) -> Option<(Range<usize>, String, AnswerKind)> {
    let found = finish(text, run, formulas)?;
    if !negation::changes_meaning(&text[sentence.start..found.0.start]) {
        return Some(found);
    }

    let range = trim::trim_around(text, sentence);
    let read = trim::read(text, range.clone(), true);
    Some((range, read, AnswerKind::Changed))
}

/// Finds the last mathematics in a text: a formula, or plain mathematics with a number in it. If the text is `cut` out
/// of a longer one, mathematics that may have begun before the cut doesn't count.
pub(super) fn last(
    text: &str,
    within: Range<usize>,
    formulas: &[Formula],
    cut: bool,
) -> Option<(Range<usize>, String, AnswerKind)> {
    let tokens: Vec<Token> = Tokens::new(text, within, formulas).collect();
    let whole = if cut { run_at(&tokens, 0) } else { 0 };
    finish(text, last_run(text, &tokens[whole..])?, formulas)
}

/// Tells whether a text is mathematics throughout, apart from delimiters.
pub(super) fn is_maths(text: &str, within: Range<usize>) -> bool {
    let tokens: Vec<Token> = Tokens::new(text, within, &[]).collect();
    tokens.iter().all(|token| token.kind == Kind::Maths) && substance(text, &tokens)
}

/// Tells whether the number in the first `run` tokens is only a part of the answer, and would be misread alone: “12
/// hours 30 minutes”, “3 out of 10”.
fn compound(text: &str, tokens: &[Token], run: usize) -> bool {
    let part = |token: &Token| &text[token.range.clone()];
    if !tokens[..run].iter().all(|token| number(part(token))) {
        return false;
    }

    let words = tokens[run..].iter().take_while(|token| token.kind == Kind::Word);
    let mut count = 0;
    let mut plain = true;
    for word in words.take(4) {
        plain &= !EXPLAINING.iter().any(|known| part(word).eq_ignore_ascii_case(known));
        count += 1;
    }

    let next = tokens.get(run + count).map_or("", part);
    let next =
        if JOINERS.contains(&next) { tokens.get(run + count + 1).map_or("", part) } else { next };
    plain && (1..4).contains(&count) && number(next)
}

/// Words between a number and another number that explains it.
const EXPLAINING: [&str; 18] = [
    "because", "since", "where", "when", "for", "if", "as", "with", "which", "after", "at", "by",
    "in", "not", "is", "per", "from", "so",
];

/// Returns the end of the mathematics that begins at token `from`, or `from` itself if none does.
fn run_at(tokens: &[Token], from: usize) -> usize {
    let maths = |token: &&Token| matches!(token.kind, Kind::Maths | Kind::Formula);
    from + tokens[from..].iter().take_while(maths).count()
}

/// Tells whether mathematics says anything, which a joining word, a comma or a bracket alone doesn't.
fn substance(text: &str, run: &[Token]) -> bool {
    run.iter().any(|token| {
        let part = &text[token.range.clone()];
        let symbol = |c: char| c.is_alphanumeric() || matches!(c, '∞' | '∅');
        let empty = JOINERS.contains(&part) || part.starts_with('\\') && part.contains("box");
        token.kind == Kind::Formula || part.contains(symbol) && !empty
    })
}

const JOINERS: [&str; 2] = ["and", "or"];

/// Finds the last mathematics with a number, or the last formula, that isn't a condition on mathematics before it.
fn last_run<'t>(text: &str, tokens: &'t [Token]) -> Option<&'t [Token]> {
    let telling = |token: &Token| {
        let number = || text[token.range.clone()].contains(char::is_numeric);
        token.kind == Kind::Formula || token.kind == Kind::Maths && number()
    };
    let maths = |token: &Token| matches!(token.kind, Kind::Maths | Kind::Formula);

    let mut last_condition = None;
    let mut end = tokens.len();
    loop {
        // If the mathematics before a condition says nothing, the condition counts.
        let Some(last) = tokens[..end].iter().rposition(telling) else { return last_condition };
        let start = tokens[..last].iter().rposition(|token| !maths(token)).map_or(0, |at| at + 1);
        let run = &tokens[start..run_at(&tokens[..end], last)];
        let word = |token: &Token| token.kind == Kind::Word;
        let words = tokens[..start].iter().rposition(|token| !word(token)).map_or(0, |at| at + 1);

        if words == 0
            || !maths(&tokens[words - 1])
            || !is_condition(text, &tokens[words..start], run)
        {
            return Some(run);
        }
        last_condition = last_condition.or(Some(run));
        end = words;
    }
}

/// Tells whether the mathematics after these words says where the mathematics before them holds: `for all $x>0$`.
fn is_condition(text: &str, words: &[Token], run: &[Token]) -> bool {
    let is = |at: usize, known: &[&str]| {
        let word = words.get(at).map(|word| &text[word.range.clone()]);
        word.is_some_and(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known)))
    };
    let begins = is(0, &["where", "whenever"])
        || is(0, &["for"]) && is(1, &["all", "any", "every", "each", "some"]);

    let (Some(first), Some(last)) = (run.first(), run.last()) else { return false };
    let run =
        text[first.range.start..last.range.end].trim_matches(['$', '\\', '(', ')', ' ', '.', ',']);
    let relates = ["\\in", "\\ge", "\\le", "\\ne", "<", ">", "∈", "≥", "≤", "≠"];
    let letter = run.chars().count() == 1 && run.contains(char::is_alphabetic);

    begins && (letter || relates.iter().any(|sign| run.contains(sign)))
}

/// Returns the range and the text of a run of mathematics.
fn finish(
    text: &str,
    run: &[Token],
    formulas: &[Formula],
) -> Option<(Range<usize>, String, AnswerKind)> {
    // Joining words at the ends lead to words that aren't mathematics.
    let joins = |token: &Token| matches!(&text[token.range.clone()], "and" | "or" | ",");
    let first = run.iter().position(|token| !joins(token))?;
    let run = &run[first..=run.iter().rposition(|token| !joins(token))?];

    let start = run.first()?.range.start;
    let end = run.last()?.range.end;

    // A formula is an answer on its own, unless an operator after its delimiter continues it.
    if run[0].kind == Kind::Formula {
        let first = formulas.partition_point(|formula| formula.outer.start < start);
        let last = formulas.partition_point(|formula| formula.outer.end <= end);
        let count = formula::first_group(text, &formulas[first..last]);
        let group = &formulas[first..first + count];
        let rest = text[group[count - 1].outer.end..end].trim_start();
        let joined = JOINERS.iter().any(|joiner| rest.starts_with(joiner));
        if !(rest.starts_with(operator) || joined && rest.contains(char::is_alphanumeric)) {
            let (range, read) = formula::group(text, group);
            return Some((range, read, AnswerKind::Formula));
        }
    }

    let range = balanced(text, trim::trim_around(text, start..end));
    let mut read = trim::read(text, range.clone(), true);
    let rest = &text[end..];
    if !read.contains('%') && trim::percent_follows(text, end, text.len()) {
        read.push_str(" \\%");
    } else if number(&read)
        && let Some((_, power)) =
            MAGNITUDES.iter().find(|(word, _)| rest.trim_start().starts_with(word))
    {
        read.push_str(" \\cdot 10^{");
        read.push_str(power);
        read.push('}');
    }

    (!read.is_empty()).then_some((range, read, AnswerKind::Plain))
}

/// Tells whether a text is a number in digits.
pub(super) fn number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+', '−']);
    digits.starts_with(|c: char| c.is_numeric() || c == '.')
        && digits.contains(char::is_numeric)
        && digits.chars().all(|c| c.is_numeric() || matches!(c, '.' | ','))
}

/// Strips brackets without a partner from the ends.
fn balanced(text: &str, mut range: Range<usize>) -> Range<usize> {
    let is_opening = |c| matches!(c, '(' | '[' | '{');
    let close = |c| matches!(c, ')' | ']' | '}');
    let escaped = |at: usize| text[..at].ends_with('\\');
    let mut opened = 0usize;
    let mut closed = 0usize;

    for (at, c) in text[range.clone()].char_indices() {
        if !escaped(range.start + at) {
            opened += usize::from(is_opening(c));
            closed += usize::from(close(c));
        }
    }

    loop {
        let part = &text[range.clone()];
        if part.ends_with(is_opening) && !escaped(range.end - 1) {
            range.end -= 1;
            opened -= 1;
        } else if closed > opened && part.ends_with(close) && !escaped(range.end - 1) {
            range.end -= 1;
            closed -= 1;
        } else if opened > closed && part.starts_with(is_opening) {
            range.start += 1;
            opened -= 1;
        } else {
            let shorter = trim::trim_around(text, range.clone());
            if shorter == range {
                return range;
            }
            range = shorter;
        }
    }
}

/// Words before a value.
const VERBS: [&str; 9] = ["is", "are", "was", "be", "equals", "equal", "becomes", "gives", "being"];

/// Words that say nothing about a value.
const ADVERBS: [&str; 22] = [
    "exactly",
    "approximately",
    "about",
    "roughly",
    "simply",
    "just",
    "therefore",
    "thus",
    "hence",
    "indeed",
    "equal",
    "to",
    "given",
    "by",
    "as",
    "follows",
    "option",
    "choice",
    "precisely",
    "then",
    "also",
    "around",
];

/// Words that multiply a number, with their power of ten.
const MAGNITUDES: [(&str, &str); 5] =
    [("hundred", "2"), ("thousand", "3"), ("million", "6"), ("billion", "9"), ("trillion", "12")];
