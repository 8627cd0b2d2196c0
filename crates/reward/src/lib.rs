//! Verifiers, which judge what a policy wrote, and shaping, which adds to their reward.
//!
//! Every completion is untrusted: a model in training finds each way to make a verifier hang,
//! panic or eat memory. So a verifier here is a bounded, pure function of two texts, with a length
//! cap before anything that costs more than linear time, and no recursion.
//!
//! ```
//! use firebrick_core::{Completion, FinishReason, Prompt, Verdict, Verifier};
//! use firebrick_reward::Countdown;
//!
//! let prompt = Prompt { reference: "3 7 25 : 96".into(), ..Prompt::default() };
//! let completion = Completion {
//!     tokens: vec![],
//!     logprobs: vec![],
//!     text: "25 + 7 is 32, and three times that is 96.\n(25 + 7) * 3 = 96".into(),
//!     finish: FinishReason::Stop,
//! };
//! assert_eq!(Countdown::default().score(&prompt, &completion).verdict, Verdict::Right);
//! ```

mod countdown;
mod decimal;
mod error;
mod gsm8k;
mod integer;
pub mod math;
mod overlong;

pub use countdown::{Countdown, CountdownProblem};
pub use error::RewardError;
pub use gsm8k::{Gsm8k, Gsm8kMode};
pub use integer::Integer;
pub use overlong::{Overlong, soft_overlong_penalty};

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, FinishReason, Prompt, Verdict, Verifier};
    use proptest::prelude::*;

    use super::*;

    /// The verdict of `verifier` on two bare texts.
    pub(crate) fn verdict(verifier: &dyn Verifier, reference: &str, text: &str) -> Verdict {
        let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
        let completion = Completion {
            tokens: vec![],
            logprobs: vec![],
            text: text.into(),
            finish: FinishReason::Stop,
        };
        let score = verifier.score(&prompt, &completion);
        assert_eq!(score.credit > 0.0, score.verdict == Verdict::Right);
        score.verdict
    }

    fn every_verifier() -> Vec<Box<dyn Verifier>> {
        vec![
            Box::new(Integer::default()),
            Box::new(Integer { marker: Some("=>".into()) }),
            Box::new(Countdown { use_all: false }),
            Box::new(Countdown { use_all: true }),
            Box::new(Gsm8k { mode: Gsm8kMode::Strict, published: false }),
            Box::new(Gsm8k { mode: Gsm8kMode::Flexible, published: false }),
            Box::new(Gsm8k { mode: Gsm8kMode::Strict, published: true }),
            Box::new(Gsm8k { mode: Gsm8kMode::Flexible, published: true }),
        ]
    }

    proptest! {
        #[test]
        fn no_text_makes_a_verifier_panic(
            any in ".{0,200}",
            near in "[-+*/()=#,.$ 0-9×÷−>\n:٣]{0,200}",
        ) {
            for verifier in every_verifier() {
                for text in [&any, &near] {
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
        for piece in ["9", "(", "((1)", "1+", "-", "#### ", "=>", "1,", ".", "é", "\n"] {
            let text = piece.repeat(1_000_000 / piece.len());
            for verifier in every_verifier() {
                assert_ne!(verdict(verifier.as_ref(), "1 2 3 : 6", &text), Verdict::Right);
                verdict(verifier.as_ref(), &text, &text);
            }
        }
    }
}
