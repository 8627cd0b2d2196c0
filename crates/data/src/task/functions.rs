//! Generates functions of one whole number, described in words, to be written in a line of Python.

use rand::{Rng, RngExt};

use super::Sketch;

/// Arguments whose values a program is tested on.
const TESTED: [i64; 8] = [0, 1, 2, 3, 5, 8, 10, -3];

/// Draws up to `operations` operations, which are applied to the argument one after the other.
pub(super) fn function(rng: &mut impl Rng, operations: u32) -> Sketch {
    let mut words = Vec::new();
    let mut code = Code { text: "x".to_owned(), binding: 4 };
    let mut values = TESTED;

    for _ in 0..rng.random_range(1..=operations) {
        let kind = rng.random_range(0..5);
        let number = rng.random_range(2..=9);
        let (word, next) = match kind {
            0 => (format!("add {number}"), code.then(1, &format!("+{number}"))),
            1 => (format!("subtract {number}"), code.then(1, &format!("-{number}"))),
            2 => (format!("multiply by {number}"), code.then(2, &format!("*{number}"))),
            3 => (format!("divide by {number}"), code.then(2, &format!("//{number}"))),
            _ => ("square".to_owned(), code.then(3, "**2")),
        };
        words.push(word);
        code = next;

        for value in &mut values {
            *value = match kind {
                0 => *value + number,
                1 => *value - number,
                2 => *value * number,
                // Python rounds down, and the number is above 0.
                3 => value.div_euclid(number),
                _ => *value * *value,
            };
        }
    }

    let inputs = TESTED.map(|argument| [argument]);
    let tests = serde_json::json!({ "inputs": inputs, "outputs": values, "fn_name": "f" });
    Sketch {
        // Two descriptions of the same function are the same problem.
        key: values.map(i64::cast_unsigned).to_vec(),
        prompt: format!("{}:", words.join(", ")),
        reference: tests.to_string(),
        worked: format!("def f(x): return {}", code.text),
    }
}

/// An expression in Python.
struct Code {
    text: String,
    /// How strongly it binds: 4 for a name or brackets, 3 for a power, 2 for a product or quotient, 1 for a sum or difference.
    binding: u8,
}

impl Code {
    /// Applies an operator of this binding, with its right side.
    fn then(&self, binding: u8, operation: &str) -> Code {
        // Python reads powers from the right, and everything else from the left.
        let needs_brackets = self.binding < binding || self.binding == 3 && binding == 3;
        let left = if needs_brackets { format!("({})", self.text) } else { self.text.clone() };
        Code { text: format!("{left}{operation}"), binding }
    }
}
