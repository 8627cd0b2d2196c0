//! Rules by which a text is right or wrong.
//!
//! Each rule gets a new model whose tokens are the texts to be judged. The model says every one of them in a step, so
//! the texts come to the verifier as a run brings them, and the run's record has the verdicts.

use std::collections::BTreeMap;

use crate::bench::{Bench, LETTERS};

/// Verdicts of a rule on some texts.
pub(crate) struct Judged {
    /// Options that are tried, and the options that they are tried against, in the form of `--set`.
    pub(crate) tries: &'static [&'static str],
    against: &'static [&'static str],
    reference: &'static str,
    /// Texts, each with its verdict under `tries` and its verdict under `against`.
    texts: &'static [(&'static str, &'static str, &'static str)],
}

pub(crate) const fn judged(
    tries: &'static [&'static str],
    against: &'static [&'static str],
    reference: &'static str,
    texts: &'static [(&'static str, &'static str, &'static str)],
) -> Judged {
    Judged { tries, against, reference, texts }
}

pub(crate) const RIGHT: &str = "right";
pub(crate) const WRONG: &str = "wrong";
pub(crate) const NONE: &str = "unparsable";
pub(crate) const OVER: &str = "over_budget";

const MATH: &[&str] = &["reward={kind='math'}"];
const DAPO: &[&str] = &["reward={kind='dapo'}"];
const EXACT: &[&str] = &["reward={kind='exact'}"];

#[rustfmt::skip]
pub(crate) const JUDGED: &[Judged] = &[
    judged(MATH, EXACT, "1/2", &[(r"It is $\boxed{0.5}$.", RIGHT, WRONG), ("2", WRONG, WRONG)]),
    judged(&["reward={kind='math',precision=2}"], MATH, "1/3", &[("0.33", RIGHT, WRONG)]),
    judged(&["reward={kind='math',extraction='auto'}"], &["reward={kind='math',extraction='boxed'}"],
        "72", &[("Answer: 72", RIGHT, NONE), (r"\boxed{72}", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',extraction='boxed'}"], MATH, "72",
        &[("Answer: 72", NONE, RIGHT), (r"\boxed{72}", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',extraction='after_thinking'}"], MATH, "72",
        &[(r"\boxed{72}", NONE, RIGHT), (r"</think>\boxed{72}", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',extraction='bare'}"], MATH, "72",
        &[("It is 72", NONE, RIGHT), ("72", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',extraction='latex'}"], MATH, "72",
        &[("It is 72", NONE, RIGHT), ("It is $72$", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',extraction='plain'}"], MATH, "72",
        &[("It is 72", RIGHT, RIGHT), ("It is $7$, or 72", RIGHT, WRONG)]),
    judged(&["reward={kind='math',reduced_fractions=true}"], MATH, "1/2",
        &[("2/4", WRONG, RIGHT), ("1/2", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',evaluated=true}"], MATH, "84",
        &[("25 + 59", WRONG, RIGHT), ("25 + 59 = 84", RIGHT, RIGHT)]),
    judged(&["reward={kind='math',budget=1}"], MATH, "(x+1)^2", &[("x^2+2x+1", OVER, RIGHT)]),
    judged(&["reward={kind='dapo',fork='published'}"], &["reward={kind='dapo_strict_box'}"], "34",
        &[("Answer: 34", RIGHT, NONE), ("Answer: 34<|im_end|>", WRONG, NONE)]),
    judged(&["reward={kind='dapo',fork='stop_at_lt'}"], DAPO, "34",
        &[("Answer: 34<|im_end|>", RIGHT, WRONG), ("Answer: 34<b>", RIGHT, WRONG)]),
    judged(&["reward={kind='dapo',fork='strip_eos'}"], DAPO, "34",
        &[("Answer: 34<|im_end|>", RIGHT, WRONG), ("Answer: 34<b>", WRONG, WRONG)]),
    judged(&["reward={kind='dapo_strict_box'}"], DAPO, "34",
        &[(r"\boxed{34}", RIGHT, NONE), ("Answer: 34", NONE, RIGHT)]),
    judged(&["reward={kind='gsm8k'}"], &["reward={kind='gsm8k_flexible'}"], "72",
        &[("#### 72", RIGHT, RIGHT), ("It is 72", NONE, RIGHT)]),
    judged(&["reward={kind='gsm8k_flexible'}"], &["reward={kind='gsm8k'}"], "72",
        &[("It is 72", RIGHT, NONE), ("It is 73", WRONG, NONE)]),
    judged(&["reward={kind='choice'}"], EXACT, "B",
        &[("Answer: (B)", RIGHT, WRONG), ("Answer: A", WRONG, WRONG)]),
    judged(&["reward={kind='choice',letters=['B','X']}"], &["reward={kind='choice'}"], "B",
        &[("Answer: A", NONE, WRONG), ("Answer: X", WRONG, NONE)]),
    judged(&["reward={kind='choice',lowercase=true}"], &["reward={kind='choice'}"], "B",
        &[("Answer: b", RIGHT, NONE)]),
    judged(EXACT, &["reward={kind='gsm8k'}"], "blue", &[(" blue ", RIGHT, NONE)]),
    judged(&["reward={kind='exact',after=':'}"], EXACT, "blue",
        &[("it is: blue", RIGHT, WRONG), ("blue", NONE, RIGHT)]),
    judged(&["reward={kind='exact',ignore_case=true}"], EXACT, "blue", &[("Blue", RIGHT, WRONG)]),
    judged(&["reward={kind='exact',ignore_whitespace=true}"], EXACT, "blue",
        &[("b lue", RIGHT, WRONG), ("Blue", WRONG, WRONG)]),
    judged(&["reward={kind='regex',pattern='<(.*)>'}"], &["reward={kind='regex',pattern='=(.*)'}"], "blue",
        &[("<blue>", RIGHT, NONE), ("=blue", NONE, RIGHT)]),
    judged(&["reward={kind='regex',pattern='<(.*)>',group=0}"], &["reward={kind='regex',pattern='<(.*)>'}"],
        "<blue>", &[("<blue>", RIGHT, WRONG)]),
    judged(&["reward={kind='regex',pattern='^a',matches=true}"], &["reward={kind='regex',pattern='^a'}"], "b",
        &[("abc", RIGHT, WRONG), ("bca", WRONG, NONE)]),
    judged(&["reward={kind='regex',pattern='a+',tail=3}"], &["reward={kind='regex',pattern='a+'}"], "aa",
        &[("aabbb", NONE, RIGHT), ("aaabaa", RIGHT, RIGHT)]),
    judged(&["reward={kind='format',think=false}"], &["reward={kind='format',think=true}"], "1",
        &[(r"\boxed{1}", RIGHT, WRONG), (r"<think>1</think>\boxed{1}", RIGHT, RIGHT)]),
    judged(&["reward={kind='format',boxed=false}"], &["reward={kind='format',boxed=true}"], "1",
        &[("<think>1</think>2", RIGHT, WRONG), (r"\boxed{1}", WRONG, WRONG)]),
    judged(&["reward={kind='format',answer_line=true,think=false,boxed=false}"],
        &["reward={kind='format',think=false}"], "1",
        &[("Answer: 3", RIGHT, WRONG), (r"\boxed{1}", WRONG, RIGHT)]),
    judged(&["reward={kind='format',nothing_after=true,think=false}"],
        &["reward={kind='format',think=false}"], "1",
        &[(r"\boxed{1} or so", WRONG, RIGHT), (r"\boxed{1}", RIGHT, RIGHT)]),
    judged(&["reward={kind='countdown',use_all=false}"], &["reward={kind='countdown'}"], "3 7 25 : 75",
        &[("25*3", RIGHT, WRONG), ("25*7", WRONG, WRONG)]),
    judged(&["reward={kind='integer'}"], EXACT, "12", &[("012", RIGHT, WRONG)]),
    judged(&["reward={kind='integer',marker='='}"], &["reward={kind='integer'}"], "12",
        &[("7+5=12", RIGHT, NONE), ("12", NONE, RIGHT)]),
];

#[test]
fn texts_are_judged_as_the_options_of_the_verifier_say() {
    judge_all(&Bench::new(), JUDGED);
}

/// Checks the verdicts of all `cases`, and that each case changes one.
pub(crate) fn judge_all(bench: &Bench, cases: &[Judged]) {
    let mut failed = String::new();
    for (index, case) in cases.iter().enumerate() {
        let folder = format!("texts-{index}");
        let rows = format!("texts-{index}.jsonl");
        let mut vocabulary: Vec<&str> = case.texts.iter().map(|(text, ..)| *text).collect();
        vocabulary.push("?");
        bench.tokenizer(&folder, &vocabulary);
        bench.rows(&rows, &[("?", case.reference)]);
        let [tokenizer, rows] =
            [format!("model.new.tokenizer={folder}"), format!("data.train={rows}")];

        let with = [
            &tokenizer,
            &rows,
            "rollout.max_completion_tokens=1",
            "rollout.group_size=16",
            "train.steps=1",
            "sampling.dynamic=false",
        ];

        let verdicts = |tries: &[&str]| -> BTreeMap<String, String> {
            let done = bench.run(LETTERS, &with, tries).completions();
            done.into_iter().map(|done| (done.text, done.verdict)).collect()
        };

        let [now, other] = [case.tries, case.against].map(verdicts);
        for &(text, by_this, by_other) in case.texts {
            if (now[text].as_str(), other[text].as_str()) != (by_this, by_other) {
                let (tries, against) = (case.tries, case.against);
                failed += &format!("\n{text} is {} by {tries:?}", now[text]);
                failed += &format!(", {} by {against:?}", other[text]);
            }
        }

        // A case in which both rules agree on every text shows nothing.
        let parted = case.texts.iter().any(|(_, by_this, by_other)| by_this != by_other);
        assert!(parted, "{:?} changes no verdict", case.tries);
    }

    assert!(failed.is_empty(), "{failed}");
}
