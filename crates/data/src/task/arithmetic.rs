//! Generates additions and multiplications, with worked solutions.

use rand::{Rng, RngExt};

use super::Sketch;

/// Makes an addition. Its solution shows its working if there is a `second_look`: the share of solutions that are
/// worked twice.
pub(super) fn addition(rng: &mut impl Rng, digits: u32, second_look: Option<f64>) -> Sketch {
    let a = number(rng, digits);
    let b = number(rng, digits);
    let sum = a + b;

    let worked = match second_look {
        None => sum.to_string(),
        Some(share) if share > 0.0 && rng.random::<f64>() < share => {
            // Half of the first workings have a slip. It may be in any column of the longer summand.
            let slip = rng.random::<bool>().then(|| slip(rng, a.max(b)));
            format!("{}?{};{sum}", columns(a, b, slip), columns(a, b, None))
        }
        Some(_) => format!("{};{sum}", columns(a, b, None)),
    };

    Sketch {
        key: vec![a.min(b), a.max(b)],
        prompt: format!("{a}+{b}="),
        reference: sum.to_string(),
        worked,
    }
}

pub(super) fn multiplication(rng: &mut impl Rng, digits: u32, worked: bool) -> Sketch {
    let a = number(rng, digits);
    let b = number(rng, digits);

    let product = a * b;
    Sketch {
        key: vec![a.min(b), a.max(b)],
        prompt: format!("{a}*{b}="),
        reference: product.to_string(),
        worked: if worked { multiplication_chain(a, b) } else { product.to_string() },
    }
}

/// Draws a number of 1 to `digits` digits. Each number of digits is equally likely.
fn number(rng: &mut impl Rng, digits: u32) -> u64 {
    let length = rng.random_range(1..=digits);
    let lowest = if length == 1 { 0 } else { 10u64.pow(length - 1) };
    rng.random_range(lowest..10u64.pow(length))
}

/// Writes the columns from the right, `digit+digit+carry=sum`.
///
/// Every column has the same eight characters, and the sum always has two digits, so a small model learns by
/// position what it would otherwise have to learn by cases. A `slip` replaces the sum of its column, and the next
/// column carries it.
fn columns(a: u64, b: u64, slip: Option<Slip>) -> String {
    let mut columns = Vec::new();
    let mut left_digits = a;
    let mut right_digits = b;
    let mut carry = 0;

    while left_digits > 0 || right_digits > 0 || columns.is_empty() {
        let mut sum = left_digits % 10 + right_digits % 10 + carry;
        if let Some(slip) = slip.filter(|slip| slip.column == columns.len()) {
            sum = (sum + slip.offset) % 20;
        }
        columns.push(format!("{}+{}+{carry}={sum:02}", left_digits % 10, right_digits % 10));
        (left_digits, right_digits, carry) = (left_digits / 10, right_digits / 10, sum / 10);
    }

    columns.join(",")
}

/// A wrong sum of a column.
#[derive(Clone, Copy)]
struct Slip {
    /// Column, counted from 0 from the right.
    column: usize,
    /// Number that is added to the sum, modulo 20.
    offset: u64,
}

/// Draws one slip somewhere in the columns of a sum. `larger` is its larger summand.
fn slip(rng: &mut impl Rng, larger: u64) -> Slip {
    let columns = larger.checked_ilog10().unwrap_or(0) as usize + 1;
    Slip { column: rng.random_range(0..columns), offset: rng.random_range(1..20) }
}

/// Writes the partial products from the right, each followed by the sum so far, then the answer.
fn multiplication_chain(a: u64, b: u64) -> String {
    let mut steps = Vec::new();
    let mut remaining_digits = b;
    let mut power = 1;
    let mut sum = 0;

    while remaining_digits > 0 || steps.is_empty() {
        let factor = remaining_digits % 10 * power;
        let partial = a * factor;
        steps.push(format!("{a}*{factor}={partial}"));
        if power > 1 {
            steps.push(format!("{sum}+{partial}={}", sum + partial));
        }
        sum += partial;
        (remaining_digits, power) = (remaining_digits / 10, power * 10);
    }

    format!("{};{sum}", steps.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_written_as_documented() {
        assert_eq!(columns(47, 85, None), "7+5+0=12,4+8+1=13");
        assert_eq!(columns(5, 100, None), "5+0+0=05,0+0+0=00,0+1+0=01");
        assert_eq!(columns(0, 0, None), "0+0+0=00");

        let slip = |column, offset| Some(Slip { column, offset });
        assert_eq!(columns(47, 85, slip(0, 17)), "7+5+0=09,4+8+0=12");
        assert_eq!(columns(47, 85, slip(1, 1)), "7+5+0=12,4+8+1=14");
        assert_eq!(multiplication_chain(47, 85), "47*5=235,47*80=3760,235+3760=3995;3995");
        assert_eq!(multiplication_chain(47, 0), "47*0=0;0");

        assert_eq!(
            multiplication_chain(12, 304),
            "12*4=48,12*0=0,48+0=48,12*300=3600,48+3600=3648;3648"
        );
    }

    /// Checks that a solution that is worked twice ends with the right answer, although half of the first workings are
    /// wrong.
    #[test]
    fn a_second_look_mends_a_slip() {
        let mut rng = firebrick_core::Seed::run(7).rng();
        let mut twice = 0;
        let mut slips = 0;
        for _ in 0..1000 {
            let sketch = addition(&mut rng, 3, Some(0.5));
            let (working, answer) = sketch.worked.split_once(';').unwrap();
            assert_eq!(answer, sketch.reference);

            if let Some((first, second)) = working.split_once('?') {
                twice += 1;
                slips += usize::from(first != second);
                assert_eq!(first.len(), second.len());
            }
        }

        assert!((440..560).contains(&twice) && (200..300).contains(&slips), "{twice} {slips}");
    }
}
