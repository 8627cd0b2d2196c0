use rand::{Rng, RngExt};

use super::Sketch;

pub(super) fn addition(rng: &mut impl Rng, digits: u32, worked: bool) -> Sketch {
    let (a, b) = (number(rng, digits), number(rng, digits));
    let sum = a + b;
    Sketch {
        key: vec![a.min(b), a.max(b)],
        prompt: format!("{a}+{b}="),
        reference: sum.to_string(),
        worked: if worked { addition_chain(a, b) } else { sum.to_string() },
    }
}

pub(super) fn multiplication(rng: &mut impl Rng, digits: u32, worked: bool) -> Sketch {
    let (a, b) = (number(rng, digits), number(rng, digits));
    let product = a * b;
    Sketch {
        key: vec![a.min(b), a.max(b)],
        prompt: format!("{a}*{b}="),
        reference: product.to_string(),
        worked: if worked { multiplication_chain(a, b) } else { product.to_string() },
    }
}

/// A number of 1 to `digits` digits, each count equally likely.
fn number(rng: &mut impl Rng, digits: u32) -> u64 {
    let length = rng.random_range(1..=digits);
    let lowest = if length == 1 { 0 } else { 10u64.pow(length - 1) };
    rng.random_range(lowest..10u64.pow(length))
}

/// Columns from the right, `digit+digit+carry=sum`, then the answer.
///
/// Every column has the same eight characters, the sum always two digits: a small model learns by
/// position what it would otherwise have to learn by cases.
fn addition_chain(a: u64, b: u64) -> String {
    let mut columns = Vec::new();
    let (mut left, mut right, mut carry) = (a, b, 0);
    while left > 0 || right > 0 || columns.is_empty() {
        let sum = left % 10 + right % 10 + carry;
        columns.push(format!("{}+{}+{carry}={sum:02}", left % 10, right % 10));
        (left, right, carry) = (left / 10, right / 10, sum / 10);
    }
    format!("{};{}", columns.join(","), a + b)
}

/// Partial products from the right, each followed by the sum so far, then the answer.
fn multiplication_chain(a: u64, b: u64) -> String {
    let mut steps = Vec::new();
    let (mut rest, mut place, mut sum) = (b, 1, 0);
    while rest > 0 || steps.is_empty() {
        let factor = rest % 10 * place;
        let partial = a * factor;
        steps.push(format!("{a}*{factor}={partial}"));
        if place > 1 {
            steps.push(format!("{sum}+{partial}={}", sum + partial));
        }
        sum += partial;
        (rest, place) = (rest / 10, place * 10);
    }
    format!("{};{sum}", steps.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_written_as_documented() {
        assert_eq!(addition_chain(47, 85), "7+5+0=12,4+8+1=13;132");
        assert_eq!(addition_chain(5, 100), "5+0+0=05,0+0+0=00,0+1+0=01;105");
        assert_eq!(addition_chain(0, 0), "0+0+0=00;0");
        assert_eq!(multiplication_chain(47, 85), "47*5=235,47*80=3760,235+3760=3995;3995");
        assert_eq!(multiplication_chain(47, 0), "47*0=0;0");
        assert_eq!(
            multiplication_chain(12, 304),
            "12*4=48,12*0=0,48+0=48,12*300=3600,48+3600=3648;3648"
        );
    }
}
