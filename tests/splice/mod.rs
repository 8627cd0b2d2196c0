//! Responses spliced from solutions: the working as it was published, and an answer of our own.

mod dress;

use firebrick_core::Seed;
use rand::{Rng, RngExt as _, seq::SliceRandom as _};
use serde::Deserialize;

use dress::{Dress, Position, Value};

/// A published solution, taken apart.
pub(crate) struct Solution {
    /// Text before the last line, without the calculator's annotations.
    working: String,
    /// Number of the last line, as it stands there.
    gold: String,
    value: i64,
    /// Whole numbers that the calculator gave on the way.
    intermediate: Vec<i64>,
}

/// A response, and the facts about it.
pub(crate) struct Response {
    pub(crate) gold: String,
    pub(crate) text: String,
    pub(crate) right: bool,
    /// Name of the answer's dress, for a message.
    pub(crate) dress: String,
}

impl Solution {
    /// Reads the solution in a row of the data set. `None` if it cannot be spliced: its answer is no whole
    /// number, or its working speaks of "the answer" itself.
    pub(crate) fn parse(row: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Row {
            answer: String,
        }

        let row: Row = serde_json::from_str(row).unwrap();
        let (annotated, gold) = row.answer.rsplit_once("\n#### ")?;
        let value = gold.replace(',', "").parse().ok()?;
        if annotated.to_lowercase().contains("answer") {
            return None;
        }

        let mut working = String::new();
        let mut intermediate = Vec::new();
        // An annotation is a calculation with its result: `<<3*4=12>>`.
        let mut pieces = annotated.split("<<");
        working += pieces.next()?;
        for piece in pieces {
            let (annotation, text) = piece.split_once(">>")?;
            working += text;
            intermediate.extend(
                annotation.rsplit('=').next().and_then(|number| number.parse::<i64>().ok()),
            );
        }

        Some(Solution { working, gold: gold.trim().to_owned(), value, intermediate })
    }

    /// Draws a wrong number that somebody might have come to.
    fn mistake(&self, rng: &mut impl Rng) -> i64 {
        let right = self.value;
        let wrong = match rng.random_range(0..5) {
            0 => right + [-1, 1][rng.random_range(0..2)],
            1 => change_a_digit(right, rng),
            2 => -right,
            3 if !self.intermediate.is_empty() => {
                self.intermediate[rng.random_range(0..self.intermediate.len())]
            }
            _ => 10 * right,
        };
        // Some of these may be right: zero has no other sign, and the last intermediate value is mostly the answer.
        if wrong == right { right + 1 } else { wrong }
    }
}

fn change_a_digit(number: i64, rng: &mut impl Rng) -> i64 {
    let digits = number.unsigned_abs().to_string().len() as u32;
    let unit = 10_i64.pow(rng.random_range(0..digits));
    let digit = number.abs() / unit % 10;
    // Adding 1 to 9 modulo 10 never comes back to the same digit.
    let other = (digit + rng.random_range(1..10)) % 10;
    number.signum() * (number.abs() + (other - digit) * unit)
}

/// Makes `count` responses, every second one right. Right and wrong ones wear each dress about equally often.
pub(crate) fn responses(solutions: &[Solution], count: usize) -> Vec<Response> {
    let seed = Seed::run(17).derive("splice", &[]);
    let mut order: Vec<&Solution> = solutions.iter().collect();
    order.shuffle(&mut seed.rng());
    let dresses = dress::wardrobe();
    let mut worn = vec![[0; 2]; dresses.len()];

    let solutions = order.iter().cycle().take(count);
    solutions
        .enumerate()
        .map(|(index, solution)| {
            let right = index % 2 == 0;
            let mut rng = seed.derive("response", &[index as u64]).rng();
            let suited = (0..dresses.len()).filter(|&index| dresses[index].suits(solution.value));
            // Taking the dress that was worn least keeps all of them about equally frequent.
            let chosen = suited.min_by_key(|&index| worn[index][usize::from(right)]);
            let chosen = chosen.expect("the plainest dress suits every number");
            worn[chosen][usize::from(right)] += 1;
            response(solution, &dresses[chosen], right, &mut rng)
        })
        .collect()
}

fn response(solution: &Solution, dress: &Dress, right: bool, rng: &mut impl Rng) -> Response {
    let mistake = solution.mistake(rng);
    let (given, other) = if right { (solution.value, mistake) } else { (mistake, solution.value) };
    let gold = match dress.value() {
        Value::Whole => solution.gold.clone(),
        Value::Half => format!("{}.5", solution.value),
        Value::Percent => format!("{}\\%", solution.value),
    };

    let text = format!(
        "{}{}\n{}{}",
        before(dress.position(), other, rng),
        solution.working,
        dress.write(given, rng),
        after(dress.position(), rng)
    );
    Response { gold, text, right, dress: dress.name() }
}

/// Writes the text before the working: mostly none, sometimes thoughts in which the `other` number is the
/// answer, in a form that the real answer outranks or comes after.
fn before(position: Position, other: i64, rng: &mut impl Rng) -> String {
    let thought = match position {
        Position::Box => format!("So that makes \\boxed{{{other}}}"),
        Position::Marker => format!("So the answer is {other}"),
        Position::End => format!("So that makes {other}"),
    };
    match rng.random_range(0..6) {
        0 => format!("<think>\nLet me see. {thought}, I guess. But is it?\n</think>\n\n"),
        1 => format!("<think>{thought}. Hmm, wait.</think>"),
        2 => format!("{thought}. No, that can't be it; let me do it step by step.\n\n"),
        _ => String::new(),
    }
}

/// Writes the text after the answer: mostly none. Only special tokens or a line break may follow an answer that
/// is the last number of its text.
fn after(position: Position, rng: &mut impl Rng) -> &'static str {
    const TOKENS: [&str; 5] =
        ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "\n<|im_end|>\n"];
    const CHATTER: [&str; 6] = [
        "\n\nLet me know if you have any questions!",
        "\n\nI hope this helps! 😊",
        "\n\n---\n*Happy to explain any of the steps.*",
        "\n\nWould you like to try 2 more problems like this one?",
        "\n\nThis took 3 steps.",
        "\n\n```\nDone.\n```",
    ];

    match (rng.random_range(0..6), position) {
        (0, _) => TOKENS[rng.random_range(0..TOKENS.len())],
        (1 | 2, Position::Box | Position::Marker) => CHATTER[rng.random_range(0..CHATTER.len())],
        (3, _) => "\n",
        _ => "",
    }
}
