//! The maths verifier from outside: generated pairs of answers that are equal, or unequal, by construction.

use firebrick_math::{Verdict, Verifier};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::Zero as _;
use proptest::prelude::*;

fn verdict(gold: &str, response: &str) -> Verdict {
    Verifier::default().judge(gold, &format!("Answer: ${response}$")).verdict
}

/// Checks that each text is right if the other is the gold answer.
fn assert_same(a: &str, b: &str) {
    assert_eq!(verdict(a, b), Verdict::Right, "{a} and {b}");
    assert_eq!(verdict(b, a), Verdict::Right, "{b} and {a}");
}

/// Checks that each text is wrong if the other is the gold answer.
fn assert_different(a: &str, b: &str) {
    assert_eq!(verdict(a, b), Verdict::Wrong, "{a} and {b}");
    assert_eq!(verdict(b, a), Verdict::Wrong, "{b} and {a}");
}

/// A rational expression and its value.
#[derive(Clone, Debug)]
struct Valued {
    text: String,
    value: BigRational,
}

fn rational(numerator: i64, denominator: i64) -> BigRational {
    BigRational::new(numerator.into(), denominator.into())
}

fn written(value: &BigRational) -> String {
    if value.is_integer() {
        value.to_string()
    } else {
        format!("\\frac{{{}}}{{{}}}", value.numer(), value.denom())
    }
}

fn expression() -> impl Strategy<Value = Valued> {
    let leaf = prop_oneof![
        (-99_i64..100).prop_map(|n| Valued { text: format!("({n})"), value: rational(n, 1) }),
        (0_i64..10_000_000).prop_map(|n| Valued { text: grouped(n), value: rational(n, 1) }),
        (1_i64..10, 1_i64..10)
            .prop_map(|(n, d)| Valued { text: format!("\\frac{n}{d}"), value: rational(n, d) }),
        (1_i64..20, 1_i64..9, 9_i64..20).prop_map(|(w, n, d)| Valued {
            text: format!("{w}\\frac{{{n}}}{{{d}}}"),
            value: rational(w * d + n, d),
        }),
        (1_i64..99).prop_map(|n| Valued { text: format!("{n}\\%"), value: rational(n, 100) }),
    ];

    leaf.prop_recursive(4, 24, 2, |inner| {
        let two = (inner.clone(), inner.clone());

        prop_oneof![
            two.clone().prop_map(|(a, b)| Valued {
                text: format!("{} + {}", a.text, b.text),
                value: a.value + b.value,
            }),
            two.clone().prop_map(|(a, b)| Valued {
                text: format!("{} - \\left({}\\right)", a.text, b.text),
                value: a.value - b.value,
            }),
            two.clone().prop_map(|(a, b)| Valued {
                text: format!("({})\\cdot({})", a.text, b.text),
                value: a.value * b.value,
            }),
            two.prop_filter_map("division by zero", |(a, b)| {
                let value = (!b.value.is_zero()).then(|| &a.value / &b.value)?;
                Some(Valued { text: format!("\\frac{{{}}}{{{}}}", a.text, b.text), value })
            }),
            (inner, 0_i32..4).prop_filter_map("zero to the power of zero", |(a, n)| {
                (n > 0 || !a.value.is_zero()).then(|| Valued {
                    text: format!("({})^{{{n}}}", a.text),
                    value: a.value.pow(n),
                })
            }),
        ]
    })
}

/// Writes `1{,}234{,}567`.
fn grouped(n: i64) -> String {
    let digits = n.to_string();
    let mut text = String::new();

    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push_str("{,}");
        }
        text.push(digit);
    }

    text
}

/// Writes a polynomial in x with these coefficients, the constant first.
fn expanded(coefficients: &[i64], rising: bool) -> String {
    let term = |(power, c): (usize, &i64)| format!("({c})x^{{{power}}}");
    let mut terms: Vec<_> = coefficients.iter().enumerate().map(term).collect();

    if !rising {
        terms.reverse();
    }

    terms.join("+")
}

fn product(factors: &[(i64, i64)]) -> Vec<i64> {
    factors.iter().fold(vec![1], |poly, (a, b)| {
        let mut next = vec![0; poly.len() + 1];
        for (power, c) in poly.iter().enumerate() {
            next[power] += c * b;
            next[power + 1] += c * a;
        }
        next
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_rational_expression_is_its_value(expression in expression()) {
        assert_same(&written(&expression.value), &expression.text);

        let other = &expression.value + rational(1, 7919);
        assert_different(&written(&other), &expression.text);
    }

    #[test]
    fn a_product_of_factors_is_its_expansion(
        factors in prop::collection::vec((-9_i64..10, -9_i64..10), 1..6),
        change in 0_usize..6,
    ) {
        let text: String = factors.iter().map(|(a, b)| format!("({a}x+({b}))")).collect();
        let mut coefficients = product(&factors);
        assert_same(&expanded(&coefficients, true), &text);
        assert_same(&expanded(&coefficients, false), &text);

        let change = change % coefficients.len();
        coefficients[change] += 1;
        assert_different(&expanded(&coefficients, true), &text);
    }

    #[test]
    fn surds_are_told_apart(a in 2_u32..60, b in 2_u32..60, c in 1_u32..30) {
        // Two identities hold: √a·√b = √(ab), and (c+√a)² = c² + a + 2c√a.
        let root = |n: u32| format!("\\sqrt{{{n}}}");
        assert_same(&root(a * b), &format!("{}\\cdot{}", root(a), root(b)));

        let square = format!("{}+{}\\sqrt{{{a}}}", c * c + a, 2 * c);
        assert_same(&square, &format!("(\\sqrt{{{a}}}+{c})^2"));
        assert_different(&square, &format!("(\\sqrt{{{}}}+{c})^2", a + 1));
    }

    #[test]
    fn sets_have_no_order_and_tuples_have(mut items in prop::collection::hash_set(-50_i64..50, 2..8)) {
        let items: Vec<i64> = items.drain().collect();
        let text = |items: &[i64]| items.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let mut turned = items.clone();
        turned.rotate_left(1);

        assert_same(&text(&items), &format!("\\{{{}\\}}", text(&turned)));
        assert_different(&format!("({})", text(&items)), &format!("({})", text(&turned)));
        assert_different(&text(&items), &text(&items[1..]));
    }

    #[test]
    fn a_verdict_does_not_depend_on_the_threads(pairs in prop::collection::vec((expression(), expression()), 1..20)) {
        let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.text.as_str(), b.text.as_str())).collect();

        let verifier = Verifier::default();
        let alone: Vec<_> = pairs.iter().map(|(gold, response)| verifier.judge(gold, response)).collect();

        prop_assert_eq!(verifier.judge_all(&pairs), alone);
    }
}

#[test]
fn huge_numbers_are_ordinary() {
    for huge in [
        "9^{9^{9^9}}",
        "9^9^9^9",
        "99999999!",
        "10^{10^{10}}",
        "2^{10^9}",
        "1e999999999",
        "e^{e^{e^{e^e}}}",
        "\\binom{10^9}{10^8}",
        "\\sum_{k=1}^{10^{12}}\\frac{1}{k^2}",
        "\\prod_{k=1}^{10^9}k",
        "((((9!)!)!)!)!",
        "(x+1)^{1000000}",
        "\\lfloor(2+\\sqrt3)^{1000}\\rfloor",
    ] {
        assert_ne!(verdict("42", huge), Verdict::Right, "{huge}");
        assert_ne!(verdict(huge, "42"), Verdict::Right, "{huge}");
    }

    assert_same("1000000!", "1000000!");
    assert_different("2^{1000000}", "2^{1000001}");

    let big = BigInt::from(7).pow(500);
    assert_same("7^{500}", &big.to_string());
    assert_different("7^{500}", &(big + 1_i32).to_string());
}
