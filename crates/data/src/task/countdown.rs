//! Generates countdown problems, in which given numbers make a target; every problem has a solution.

use rand::{Rng, RngExt};

use super::Sketch;

/// Draws numbers and combines them at random until one number is left, which is the target.
pub(super) fn countdown(
    rng: &mut impl Rng,
    numbers: u32,
    max_number: u64,
    max_target: u64,
) -> Sketch {
    let mut given_numbers: Vec<u64> =
        (0..numbers).map(|_| rng.random_range(1..=max_number)).collect();
    given_numbers.sort_unstable();

    let solution = solution(rng, &given_numbers, max_target);
    let list = given_numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let target = solution.value;
    given_numbers.push(target);

    Sketch {
        key: given_numbers,
        prompt: format!("{list}:{target}="),
        reference: format!("{list} : {target}"),
        worked: solution.text,
    }
}

/// An expression and its value, which is at least 1.
#[derive(Clone)]
struct Expression {
    text: String,
    value: u64,
    /// Strength of binding: 3 for a number, 2 for a product or quotient, 1 for a sum or difference.
    binding: u8,
}

fn solution(rng: &mut impl Rng, given_numbers: &[u64], max_value: u64) -> Expression {
    let mut expressions: Vec<Expression> = given_numbers
        .iter()
        .map(|&value| Expression { text: value.to_string(), value, binding: 3 })
        .collect();

    while expressions.len() > 1 {
        let a = expressions.swap_remove(rng.random_range(0..expressions.len()));
        let b = expressions.swap_remove(rng.random_range(0..expressions.len()));
        // The larger one comes first, so a difference is never below 0.
        let (larger, smaller) = if a.value >= b.value { (a, b) } else { (b, a) };
        let ways = ways(larger.value, smaller.value, max_value);
        let (operator, value) = ways[rng.random_range(0..ways.len())];
        expressions.push(combine(&larger, operator, &smaller, value));
    }

    expressions.swap_remove(0)
}

/// Returns the operators that lead from two values to a whole value in range.
///
/// There is always an operator: unequal values can be subtracted, equal values above 1 divided, and two ones
/// added, since `max_value` is at least 2.
fn ways(larger: u64, smaller: u64, max_value: u64) -> Vec<(char, u64)> {
    let quotient = larger.is_multiple_of(smaller) && smaller > 1;
    [
        ('+', Some(larger + smaller)),
        ('-', larger.checked_sub(smaller)),
        ('*', larger.checked_mul(smaller)),
        ('/', quotient.then(|| larger / smaller)),
    ]
    .into_iter()
    .filter_map(|(operator, value)| Some((operator, value?)))
    .filter(|(_, value)| (1..=max_value).contains(value))
    .collect()
}

/// Combines two expressions. Brackets are written only if the value needs them.
fn combine(left: &Expression, operator: char, right: &Expression, value: u64) -> Expression {
    let binding = if matches!(operator, '*' | '/') { 2 } else { 1 };
    let bracketed = |part: &Expression, needed: bool| {
        if needed { format!("({})", part.text) } else { part.text.clone() }
    };
    let regroups = matches!(operator, '-' | '/');

    let left = bracketed(left, left.binding < binding);
    let right = bracketed(right, right.binding < binding || (right.binding == binding && regroups));
    Expression { text: format!("{left}{operator}{right}"), value, binding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_stand_where_they_are_needed() {
        let number = |value: u64| Expression { text: value.to_string(), value, binding: 3 };
        let sum = combine(&number(7), '+', &number(2), 9);
        assert_eq!(combine(&sum, '*', &number(3), 27).text, "(7+2)*3");
        assert_eq!(combine(&number(20), '-', &sum, 11).text, "20-(7+2)");
        assert_eq!(combine(&sum, '-', &number(3), 6).text, "7+2-3");
        assert_eq!(combine(&number(20), '+', &sum, 29).text, "20+7+2");

        let product = combine(&number(2), '*', &number(3), 6);
        assert_eq!(combine(&number(12), '/', &product, 2).text, "12/(2*3)");
        assert_eq!(combine(&number(12), '-', &product, 6).text, "12-2*3");
    }

    #[test]
    fn there_is_always_a_way_on() {
        for max_value in 2..12 {
            for larger in 1..=max_value {
                for smaller in 1..=larger {
                    assert!(!ways(larger, smaller, max_value).is_empty());
                }
            }
        }
    }
}
