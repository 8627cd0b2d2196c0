//! Generates functions of one whole number, to be written in a line of Python from a few of their values.

use rand::{Rng, RngExt};

use super::Sketch;

/// Arguments whose values a prompt shows.
const SHOWN: [i64; 3] = [1, 2, 3];

/// Arguments whose values a program is tested on.
const TESTED: [i64; 8] = [0, 1, 2, 3, 4, 5, 10, -3];

/// Draws up to `operations` operations, which are applied to the argument one after the other.
pub(super) fn function(rng: &mut impl Rng, operations: u32) -> Sketch {
    let mut text = "x".to_owned();
    let mut values = TESTED;
    // Strength of binding: 3 for the argument alone, 2 for a product, 1 for a sum or difference.
    let mut binding = 3;
    for _ in 0..rng.random_range(1..=operations) {
        let operator = ['+', '-', '*'][rng.random_range(0..3)];
        // The other operand is a digit, or sometimes the argument itself.
        let digit = rng.random_range(1..=10);
        let operand = if digit == 10 { "x".to_owned() } else { digit.to_string() };
        if operator == '*' && binding == 1 {
            text = format!("({text})");
        }
        text = format!("{text}{operator}{operand}");
        binding = if operator == '*' { 2 } else { 1 };

        for (value, argument) in values.iter_mut().zip(TESTED) {
            let other = if digit == 10 { argument } else { digit };
            *value = match operator {
                '+' => *value + other,
                '-' => *value - other,
                _ => *value * other,
            };
        }
    }

    let shown = SHOWN.map(|argument| {
        let place = TESTED.iter().position(|tested| *tested == argument);
        format!("f({argument})={}", place.map_or(0, |place| values[place]))
    });
    let inputs: Vec<[i64; 1]> = TESTED.map(|argument| [argument]).to_vec();
    let tests = serde_json::json!({ "inputs": inputs, "outputs": values, "fn_name": "f" });
    Sketch {
        // Two texts of the same function are the same problem.
        key: values.map(i64::cast_unsigned).to_vec(),
        prompt: format!("{}:", shown.join(" ")),
        reference: tests.to_string(),
        worked: format!("def f(x): return {text}"),
    }
}
