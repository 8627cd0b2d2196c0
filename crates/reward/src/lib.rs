//! Verifiers, which judge the completions of a policy, and shapers, which change the reward.
//!
//! Every completion is untrusted: a model in training finds each way to make a verifier hang, panic or eat
//! memory. So a verifier here is a bounded, pure function of two texts. Lengths are capped before any work
//! that costs more than linear time, and depth before any recursion. The maths verifier asks a budget before
//! each step. Two are exceptions, and have a clock: [`Command`] asks another program, and [`Code`] runs the completion.
//!
//! | verifier | judges |
//! |---|---|
//! | [`math::Verifier`] | mathematical answers, by value |
//! | [`AnswerLine`], [`StrictBox`] | answers, by DAPO's published rules |
//! | [`Gsm8k`] | answers, by GSM8K's published rules |
//! | [`Choice`] | the letter of a multiple-choice question |
//! | [`Exact`], [`Regex`] | a text, or the part of it that a pattern finds |
//! | [`Integer`], [`Countdown`] | whole numbers, and the numbers game |
//! | [`Format`] | only the format, for partial credit |
//! | [`Weighted`] | several of these, added up |
//! | [`Code`] | programs, by running them on tests in a sandbox |
//! | [`Command`] | anything, by a program of your own |
//!
//! Shapers then change the rewards. [`Overlong`] penalises or leaves out completions near the token limit.
//! [`StopProperly`] penalises completions that reached it. [`LengthPenalty`] penalises completions that are longer than
//! a target.
//!
//! ```
//! use firebrick_core::{Completion, FinishReason, Prompt, Verdict, Verifier};
//! use firebrick_reward::Countdown;
//!
//! let prompt = Prompt { reference: "3 7 25 : 96".into(), ..Prompt::default() };
//! let completion = Completion::of_text("25 + 7 is 32, and three times that is 96.\n(25 + 7) * 3 = 96");
//! assert_eq!(Countdown::default().score(&prompt, &completion).verdict, Verdict::Right);
//! ```

mod choice;
mod code;
mod command;
mod countdown;
mod dapo;
mod environment;
mod error;
mod exact;
mod family;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod gsm8k;
mod integer;
mod length;
mod overlong;
mod penalty;
mod process;
mod regex;
mod stop;
mod text;
mod weighted;

pub use choice::Choice;
pub use code::{Code, CodeOptions, SandboxKind};
pub use command::{Command, CommandOptions, PythonFunction};
pub use countdown::{Countdown, CountdownProblem, calculate};
pub use dapo::{AnswerFork, AnswerLine, StrictBox};
pub use environment::{FromEnvironment, OfConversations};
pub use error::RewardError;
pub use exact::Exact;
pub use family::become_subreaper;
pub use firebrick_math as math;
pub use format::Format;
pub use gsm8k::{Gsm8k, Gsm8kMode};
pub use integer::Integer;
pub use length::LengthPenalty;
pub use overlong::{Overlong, soft_overlong_penalty};
pub use penalty::PenaltyForm;
pub use regex::{Regex, RegexGroup, RegexOptions};
pub use stop::{StopPenalty, StopProperly};
pub use weighted::{Part, Weighted};

#[cfg(test)]
mod tests {
    use firebrick_core::{
        Completion, FinishReason, Group, Prompt, RewardScale, RewardShaper, Score, Verdict,
        Verifier,
    };
    use proptest::prelude::*;

    use super::*;

    /// Returns the verdict of `verifier` on two bare texts.
    pub(crate) fn verdict(verifier: &dyn Verifier, reference: &str, text: &str) -> Verdict {
        let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
        let score = verifier.score(&prompt, &completion(0, text, FinishReason::Stop));
        assert!((0.0..=1.0).contains(&score.credit));
        assert!(score.credit > 0.0 || score.verdict != Verdict::Right);
        score.verdict
    }

    /// Returns the shaped rewards of two right and two wrong completions of `length` tokens, worth ±1. The second
    /// of each two is truncated.
    pub(crate) fn shaped(shaper: &dyn RewardShaper, length: usize) -> [f32; 4] {
        let completion = |finish| completion(length, "", finish);
        let stop = completion(FinishReason::Stop);
        let cut = completion(FinishReason::Length);

        let group = Group {
            prompt: Prompt::default(),
            completions: vec![stop.clone(), cut.clone(), stop, cut],
            step: 1,
            draw: 0,
        };

        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let mut rewards = [Score::right(""), Score::right(""), Score::wrong(""), Score::wrong("")]
            .map(|score| scale.reward(score));
        let untouched = rewards.clone();

        shaper.shape(&group, &mut rewards);
        for (reward, before) in rewards.iter().zip(untouched) {
            assert_eq!((reward.base_reward, reward.in_loss), (before.base_reward, before.in_loss));
        }
        rewards.map(|reward| reward.reward)
    }

    fn completion(length: usize, text: &str, finish: FinishReason) -> Completion {
        Completion::written(vec![0; length], vec![0.0; length], finish).with_text(text)
    }

    fn every_verifier() -> Vec<Box<dyn Verifier>> {
        let regex = |pattern: &str| RegexOptions { pattern: pattern.into(), ..Default::default() };
        let look_ahead = Regex::new(regex(r"(?s)82.*[^ -~]|\S")).unwrap();
        let anywhere = RegexOptions { matches: true, ..regex("82") };

        let full_format =
            Format { think: true, boxed: true, answer_line: true, nothing_after: true };
        let weighted = [Box::new(Integer::default()) as Box<dyn Verifier>, Box::new(full_format)];
        let names = ["answer", "form"].map(str::to_owned);
        let weighted = names
            .into_iter()
            .zip(weighted)
            .map(|(name, verifier)| Part { name, weight: 1.0, verifier })
            .collect();

        let folded = Exact { after: Some("=>".into()), ignore_case: true, ignore_whitespace: true };
        vec![
            Box::new(AnswerLine { fork: AnswerFork::Published }),
            Box::new(AnswerLine { fork: AnswerFork::StopAtLt }),
            Box::new(AnswerLine { fork: AnswerFork::StripEos }),
            Box::new(StrictBox),
            Box::new(Gsm8k { mode: Gsm8kMode::Strict }),
            Box::new(Gsm8k { mode: Gsm8kMode::Flexible }),
            Box::new(Integer::default()),
            Box::new(Integer { marker: Some("=>".into()) }),
            Box::new(Countdown { use_all: false }),
            Box::new(Countdown { use_all: true }),
            Box::new(Choice::default()),
            Box::new(Choice { lowercase: true, ..Choice::default() }),
            Box::new(Exact::default()),
            Box::new(folded),
            Box::new(look_ahead),
            Box::new(Regex::new(anywhere).unwrap()),
            Box::new(full_format),
            Box::new(Weighted::new(weighted).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn no_text_makes_a_verifier_panic(
            any in ".{0,200}",
            near in "[-+*/()=#,.$ 0-9×÷−>\n:٣]{0,200}",
            mixed in "[aApPmx019\\\\{}.,:;$=#\n²≥∪·×–é√π，。：𝑥]{0,60}",
            said in "((final )?answer:? ?|(is|答案：|option|</?think>|[A-F(){}\\\\$*\n é1-9<])|\\\\(boxed|text|frac)\\{?){0,40}",
        ) {
            for verifier in every_verifier() {
                for text in [&any, &near, &mixed, &said] {
                    verdict(verifier.as_ref(), "3 7 25 50 : 82", text);
                    verdict(verifier.as_ref(), "82", text);
                    verdict(verifier.as_ref(), text, &any);
                    verdict(verifier.as_ref(), text, text);
                }
            }
        }
    }

    #[test]
    fn a_megabyte_of_anything_is_judged_at_once() {
        for piece in [
            "9",
            "(",
            "((1)",
            "1+",
            "-",
            "#### ",
            "=>",
            "1,",
            ".",
            "é",
            "\n",
            "$",
            "a$",
            "a ",
            "=",
            "{",
            r"\boxed{",
            r"\text{",
            "frac",
            "Answer:",
            "Answer: option: ",
            "答案：A or ",
            "answer ",
            "</think>",
            "82",
        ] {
            let text = piece.repeat(1_000_000 / piece.len());
            for verifier in every_verifier() {
                verdict(verifier.as_ref(), "1 2 3 : 6", &text);
                verdict(verifier.as_ref(), &text, &text);
            }
        }
    }
}
