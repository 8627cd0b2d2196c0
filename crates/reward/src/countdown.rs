//! `Countdown`, a verifier that computes an expression over given numbers exactly.

use std::{fmt, str::FromStr};

use firebrick_core::{Completion, Prompt, Score, Verdict, Verifier};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero;
use serde::{Deserialize, Serialize};

use crate::RewardError;

/// Maximum length of an expression, in bytes.
const MAX_LENGTH: usize = 1024;
/// Maximum nesting of brackets.
const MAX_DEPTH: usize = 64;
/// Maximum number of numbers in a problem.
const MAX_NUMBERS: usize = 64;

/// Judges the numbers game: make the target from the numbers with `+ - * /` and brackets.
///
/// The reference is a [`CountdownProblem`]. The answer is the last line of the completion that is not blank: an
/// expression over whole numbers, optionally followed by `= 82`. `×`, `÷` and `−` are accepted; signs before a number
/// are not. The value is computed exactly, in rationals.
///
/// A proper expression is wrong if it has another value, uses numbers that were not given or not that often, or divides
/// by zero. A right expression is wrong if its `=` claims another value. An answer that is not an expression is
/// unparsable. An answer is over budget if it is longer than 1024 bytes or nests more than 64 brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Countdown {
    /// True if every number must be used. Otherwise each number may be used at most once.
    pub use_all: bool,
}

impl Default for Countdown {
    fn default() -> Self {
        Countdown { use_all: true }
    }
}

impl Verifier for Countdown {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let Ok(problem) = prompt.reference.parse::<CountdownProblem>() else {
            return Score::none(Verdict::Error);
        };

        let Some(line) = completion.text.lines().map(str::trim).rfind(|line| !line.is_empty())
        else {
            return Score::none(Verdict::Unparsable);
        };

        if line.len() > MAX_LENGTH {
            return Score::none(Verdict::OverBudget);
        }

        let (expression, claim) = match line.split_once('=') {
            Some((expression, claim)) => match parse_claim(claim) {
                Some(claim) => (expression, Some(claim)),
                None => return Score::none(Verdict::Unparsable),
            },
            None => (line, None),
        };

        let postfix = match parse(expression) {
            Ok(postfix) => postfix,
            Err(verdict) => return Score::none(verdict),
        };

        let target = BigRational::from_integer(problem.target.into());
        // The numbers are checked first, so that the arithmetic never has larger numbers than the problem, or more of
        // them.
        let right = self.numbers_fit(&problem, &postfix)
            && value(&postfix).is_some_and(|value| value == target)
            && claim.is_none_or(|claim| target.is_integer() && claim == *target.numer());

        if right { Score::right(line) } else { Score::wrong(line) }
    }
}

impl Countdown {
    fn numbers_fit(self, problem: &CountdownProblem, postfix: &[Symbol]) -> bool {
        let mut left: Vec<BigInt> = problem.numbers.iter().map(|&number| number.into()).collect();
        for symbol in postfix {
            if let Symbol::Number(number) = symbol {
                let Some(index) = left.iter().position(|given| given == number) else {
                    return false;
                };
                // A number that is given twice may be used twice.
                left.swap_remove(index);
            }
        }
        left.is_empty() || !self.use_all
    }
}

/// Computes the exact value of an expression over whole numbers, with `+ - * /` and brackets: `3995`, or `7/2` if it is
/// not a whole number. Returns `None` if the expression can't be read, divides by zero, is longer than 1024 bytes or
/// nested deeper than 64 brackets.
///
/// ```
/// assert_eq!(firebrick_reward::calculate("47 * (80 + 5)").as_deref(), Some("3995"));
/// ```
pub fn calculate(expression: &str) -> Option<String> {
    let expression = Some(expression).filter(|expression| expression.len() <= MAX_LENGTH)?;
    value(&parse(expression).ok()?).map(|value| value.to_string())
}

/// Question of a countdown prompt: the given numbers and the wanted number.
///
/// [`Prompt::reference`] holds it as text: the numbers with spaces between them, a colon and the target, as in
/// `3 7 25 50 : 82`. There may be up to 64 numbers below 2⁶⁴.
///
/// ```
/// use firebrick_reward::CountdownProblem;
///
/// let problem: CountdownProblem = "3 7 25:96".parse()?;
/// assert_eq!(problem.numbers, [3, 7, 25]);
/// assert_eq!(problem.to_string(), "3 7 25 : 96");
/// # Ok::<(), firebrick_reward::RewardError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountdownProblem {
    /// Numbers that may be used, at least one.
    pub numbers: Vec<u64>,
    /// Value to reach.
    pub target: i64,
}

impl fmt::Display for CountdownProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for number in &self.numbers {
            write!(f, "{number} ")?;
        }
        write!(f, ": {}", self.target)
    }
}

impl FromStr for CountdownProblem {
    type Err = RewardError;

    fn from_str(text: &str) -> Result<Self, RewardError> {
        // An error quotes at most 80 characters: a reference may be a page.
        let error = |problem: String| RewardError::CountdownProblem {
            text: text.chars().take(80).collect(),
            problem,
        };

        let (numbers, target) =
            text.split_once(':').ok_or_else(|| error("there is no colon".into()))?;
        let target = target.trim();
        let target =
            target.parse().map_err(|_| error("the target is not a whole number".into()))?;

        let numbers = numbers
            .split_ascii_whitespace()
            .take(MAX_NUMBERS + 1)
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
            .map_err(|_| error("a number before the colon is not a whole number".into()))?;

        match numbers.len() {
            0 => Err(error("there is no number before the colon".into())),
            count if count > MAX_NUMBERS => {
                Err(error(format!("there are more than {MAX_NUMBERS} numbers before the colon")))
            }
            _ => Ok(CountdownProblem { numbers, target }),
        }
    }
}

/// One element of an expression in postfix order, where operators follow their operands.
#[derive(Clone, Debug, PartialEq)]
enum Symbol {
    Number(BigInt),
    Operator(Operator),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    fn of(c: char) -> Option<Operator> {
        match c {
            '+' => Some(Operator::Add),
            '-' | '−' => Some(Operator::Subtract),
            '*' | '×' => Some(Operator::Multiply),
            '/' | '÷' => Some(Operator::Divide),
            _ => None,
        }
    }

    fn precedence(self) -> u8 {
        match self {
            Operator::Add | Operator::Subtract => 1,
            Operator::Multiply | Operator::Divide => 2,
        }
    }
}

/// Turns infix text into postfix symbols by Dijkstra's shunting yard, with an explicit stack instead of recursion.
fn parse(text: &str) -> Result<Vec<Symbol>, Verdict> {
    let mut postfix = Vec::new();
    // Operators that wait for their right operand. `None` is an open bracket.
    let mut waiting: Vec<Option<Operator>> = Vec::new();
    let mut depth = 0;
    let mut expects_operand = true;

    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        match c {
            '0'..='9' if expects_operand => {
                length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let number = rest[..length].parse().map_err(|_| Verdict::Unparsable)?;
                postfix.push(Symbol::Number(number));
                expects_operand = false;
            }
            '(' if expects_operand => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(Verdict::OverBudget);
                }
                waiting.push(None);
            }
            // Everything since the open bracket is an operand now.
            ')' if !expects_operand => {
                loop {
                    match waiting.pop() {
                        Some(Some(operator)) => postfix.push(Symbol::Operator(operator)),
                        Some(None) => break,
                        None => return Err(Verdict::Unparsable),
                    }
                }
                depth -= 1;
            }
            _ if !expects_operand => {
                // Operators that bind as tightly are applied first, because all of them associate to the left.
                let operator = Operator::of(c).ok_or(Verdict::Unparsable)?;
                while let Some(&Some(earlier)) = waiting.last()
                    && earlier.precedence() >= operator.precedence()
                {
                    postfix.push(Symbol::Operator(earlier));
                    waiting.pop();
                }
                waiting.push(Some(operator));
                expects_operand = true;
            }
            _ => return Err(Verdict::Unparsable),
        }

        rest = rest[length..].trim_start();
    }

    if expects_operand {
        return Err(Verdict::Unparsable);
    }

    while let Some(operator) = waiting.pop() {
        postfix.push(Symbol::Operator(operator.ok_or(Verdict::Unparsable)?));
    }
    Ok(postfix)
}

/// Computes the value of a parsed expression. Returns `None` if it divides by zero.
fn value(postfix: &[Symbol]) -> Option<BigRational> {
    let mut stack: Vec<BigRational> = Vec::new();
    for symbol in postfix {
        let value = match symbol {
            Symbol::Number(number) => BigRational::from_integer(number.clone()),
            Symbol::Operator(operator) => {
                let right = stack.pop()?;
                let left = stack.pop()?;
                match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide if right.is_zero() => return None,
                    Operator::Divide => left / right,
                }
            }
        };
        stack.push(value);
    }

    stack.pop()
}

/// Reads the number after `=`.
fn parse_claim(text: &str) -> Option<BigInt> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '−']);
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let magnitude: BigInt =
        digits.or(Some(text)).filter(|digits| all_digits(digits))?.parse().ok()?;
    Some(if digits.is_some() { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::verdict;
    use Verdict::*;

    #[test]
    fn expressions_are_judged_exactly() {
        let game = Countdown::default();
        for (text, expected) in [
            ("(25+7)*3", Right),
            ("first\n ( 25 + 7 ) × 3 = 96 \n\n", Right),
            ("(25+7)*3=95", Wrong),
            ("25+7*3", Wrong),
            ("25*3+7+7+7", Wrong),
            ("96", Wrong),
            ("7/(3-3)", Wrong),
            ("(25+7)*3=", Unparsable),
            ("(25+7)*3=96=96", Unparsable),
            ("(25+7)*-3", Unparsable),
            ("(25+7)3", Unparsable),
            ("(25+7", Unparsable),
            ("25+7)", Unparsable),
            ("()", Unparsable),
            ("so: 25", Unparsable),
            ("", Unparsable),
        ] {
            assert_eq!(verdict(&game, "3 7 25 : 96", text), expected, "{text:?}");
        }
    }

    #[test]
    fn operators_bind_and_associate_as_in_school() {
        let optional = Countdown { use_all: false };
        assert_eq!(verdict(&optional, "9 3 2 : 4", "9-3-2"), Right);
        assert_eq!(verdict(&optional, "24 4 2 : 3", "24÷4/2"), Right);
        assert_eq!(verdict(&optional, "24 4 2 : 16", "24−4*2"), Right);

        // Three eighths over three sixty-fourths would be exact in floating point too, but not every quotient
        // is.
        assert_eq!(verdict(&optional, "3 8 3 64 : 8", "(3/8)/(3/64)"), Right);

        assert_eq!(verdict(&optional, "8 8 3 3 : 24", "8/(3-8/3)"), Right);
        assert_eq!(verdict(&optional, "5 0 : 1", "5/0"), Wrong);
    }

    #[test]
    fn every_number_counts_unless_told_otherwise() {
        assert_eq!(verdict(&Countdown { use_all: true }, "3 7 25 : 28", "25+3"), Wrong);
        assert_eq!(verdict(&Countdown { use_all: false }, "3 7 25 : 28", "25+3"), Right);
        assert_eq!(verdict(&Countdown { use_all: false }, "3 7 25 : 28", "25+3+3-3"), Wrong);
    }

    #[test]
    fn size_is_bounded_and_references_are_checked() {
        let game = Countdown::default();
        let nested = |depth| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));

        assert_eq!(verdict(&game, "1 : 1", &nested(MAX_DEPTH)), Right);
        assert_eq!(verdict(&game, "1 : 1", &nested(MAX_DEPTH + 1)), OverBudget);
        assert_eq!(verdict(&game, "1 : 1", &"9".repeat(MAX_LENGTH + 1)), OverBudget);

        for reference in ["", "1 2", ": 3", "1 x : 3", "1 : ", "1 : 2 : 3", "-1 : 2"] {
            assert_eq!(verdict(&game, reference, "1"), Error, "{reference:?}");
        }

        assert_eq!(
            "1 two : 3".parse::<CountdownProblem>().unwrap_err().to_string(),
            "a countdown reference should look like `3 7 25 50 : 82` (numbers, a colon, the \
             target), but in `1 two : 3` a number before the colon is not a whole number; correct \
             that row, or choose another verifier"
        );
    }
}
