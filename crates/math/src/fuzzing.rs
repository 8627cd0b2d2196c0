//! Properties that hold for every input. Fuzz targets call these functions with generated inputs, while the tests below
//! call them with inputs that once broke something.

use crate::{
    algebra::{self, Decision},
    budget::Budget,
    extract::{self, Extraction},
    judgement::{Certainty, Judgement, Verdict},
    parse,
    value::Value,
    verifier::Verifier,
};

/// Checks that extraction returns a part of the text, and the same part each time.
pub fn extract(text: &str) {
    use Extraction::*;
    for extraction in [Auto, Boxed, AfterThinking, Bare, Latex, Plain] {
        let answer = extract::extract(text, extraction);
        if let Some(answer) = &answer {
            assert!(text.get(answer.span.range.clone()).is_some(), "{extraction:?}: {text:?}");
        }

        let again = extract::extract(text, extraction);
        assert_eq!(answer.map(|answer| answer.span), again.map(|answer| answer.span));
    }
}

/// Checks that parsing terminates, and so does all work on the value that was read.
pub fn parse(text: &str) {
    for decimal_comma in [false, true] {
        let mut budget = Budget::new(200_000);
        let reading = parse::Reading { decimal_comma };
        if let Ok(value) = parse::parse(text, reading, &mut budget) {
            value.canonical(&mut budget);
            let small = Verifier { budget: 200_000, ..Verifier::default() };
            small.decide(&value, &value, &mut budget);
        }
    }
}

/// Checks that a comparison is symmetric, that a value equals itself unless it has none, and that evaluation
/// agrees with the proofs of exact arithmetic.
pub fn compare(a: &str, b: &str) {
    let verifier =
        Verifier { extraction: Extraction::Bare, budget: 400_000, ..Verifier::default() };
    let judge = |gold: &str, response: &str| verifier.judge(gold, response);
    let forward = judge(a, b);
    let backward = judge(b, a);

    let settled = |judgement: &Judgement| {
        matches!(judgement.verdict, Verdict::Right | Verdict::Wrong)
            && judgement.certainty != Certainty::Undecided
    };

    // Only verdicts that are settled in both directions have to agree.
    if settled(&forward) && settled(&backward) {
        assert_eq!(forward.verdict, backward.verdict, "{a} and {b}:\n{forward:?}\n{backward:?}");
    }

    let read =
        |text: &str| parse::parse(text, parse::Reading::default(), &mut Budget::new(400_000)).ok();
    let (Some(Value::Scalar(a)), Some(Value::Scalar(b))) = (read(a), read(b)) else { return };

    let itself = algebra::equal(&a, &a, &mut Budget::new(400_000));
    assert!(!matches!(itself, Decision::Different(_)), "{a:?} is not itself");

    if let Some((proved, evaluated)) = algebra::both_ways(&a, &b, &mut Budget::new(2_000_000)) {
        assert_eq!(proved, evaluated, "{a:?} and {b:?}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Signs of one byte, and of two to four. A search that steps by bytes stumbles where they meet.
    const SIGNS: &str = "aApPmMxfeE019\\\\{}()[].,:;'/*-=<>|_^$%#& \n²≥∪·×–é√π，。：．𝑥５½°′…μ答案";

    /// Words that each begin a rule, which looks at the text after it.
    const PIECES: [&str; 34] = [
        "\\boxed{",
        "\\boxed ",
        "\\fbox[",
        "\\text{",
        "\\mathrm{",
        "\\rm ",
        "\\frac",
        "\\sqrt[",
        "\\overline",
        "\\bar",
        "\\mathbb",
        "\\left",
        "\\right.",
        "\\\\",
        "\\begin{cases}",
        "\\end{cases}",
        "\\(",
        "\\)",
        "$$",
        "**",
        "Answer: ",
        "the answer is ",
        "#### ",
        "答案：",
        "<think>",
        "</think>",
        "a.m.",
        "p.",
        "min",
        "sec",
        "June ",
        " not ",
        "(A)",
        "0.",
    ];

    fn mixed() -> impl Strategy<Value = String> {
        let signs: Vec<String> = SIGNS.chars().map(String::from).collect();

        let piece = prop_oneof![
            4 => prop::sample::select(signs),
            1 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        ];
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
    }

    /// Puts both texts through every entry point, as an answer, in a box, and after a marker.
    fn take_through(a: &str, b: &str) {
        use Extraction::*;
        for text in [a.to_owned(), format!("\\boxed{{{a}}}"), format!("Answer: ${a}$, {b}")] {
            extract(&text);
            parse(&text);
            for extraction in [Auto, Boxed, AfterThinking, Bare, Latex, Plain] {
                let verifier = Verifier { extraction, budget: 100_000, ..Verifier::default() };
                verifier.judge(b, &text);
                verifier.judge(&text, b);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn signs_of_any_length_may_meet(a in mixed(), b in mixed()) {
            take_through(&a, &b);
        }
    }

    #[test]
    fn a_letter_may_stand_before_a_sign_of_many_bytes() {
        for letter in
            ["a", "p", "A", "P", "x", "1", "1.", "a.", "\\text{a", "\\", "$", "(", "\\bar"]
        {
            for sign in SIGNS.chars().filter(|sign| !sign.is_ascii()) {
                for text in [format!("{letter}{sign}"), format!("{letter}{sign}m")] {
                    take_through(&text, "5");
                    take_through(&text, &text);
                }
            }
        }
    }

    #[test]
    fn what_once_broke_something() {
        // The formula begins before the window that is searched for the last formula.
        let long = "a\\\\".repeat(22_000);
        extract(&format!("Answer: $\\begin{{pmatrix}}{long}\\end{{pmatrix}}$"));

        for (a, b) in [
            // A bare infinity is compared with one inside a sum.
            ("\\infty", "\\sum_{k=1}^{3}(\\infty-\\sum_{k=1}^{4}(x+k)+k)"),
            // Nothing is known of the second value, because an intermediate number is astronomical.
            ("-2", "7077888^{\\sum_{k=1}^{4}(\\sin((\\sum_{k=1}^{4}(1728000^{x}+k))!)+k)}"),
            // A term is too small to show at any precision.
            ("2\\cdot2", "\\sum_{k=1}^{2}(\\exp(-9801)+k)+1"),
        ] {
            extract(a);
            parse(a);
            compare(a, b);
        }
    }
}
