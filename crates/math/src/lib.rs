//! Judges mathematical answers: is the answer in a text that a language model wrote the one that a data set holds?
//!
//! ```
//! use firebrick_math::{Certainty, Verdict, Verifier};
//!
//! let verifier = Verifier::default();
//! let judgement = verifier.judge(r"\frac{1}{2}", r"Three of six, that is $\boxed{50\%}$.");
//! assert_eq!(judgement.verdict, Verdict::Right);
//! assert_eq!(judgement.certainty, Certainty::Proved);
//! assert_eq!(judgement.extracted.map(|span| span.text).as_deref(), Some(r"50\%"));
//! assert_eq!(judgement.canonical.as_deref(), Some("1/2"));
//!
//! // Floats cannot tell these two apart: they have 40 digits in common.
//! let near = verifier.judge("10^{20}", r"\boxed{\sqrt{10^{40}+1}}");
//! assert_eq!((near.verdict, near.certainty), (Verdict::Wrong, Certainty::Proved));
//!
//! // A tower of powers costs no more than its few signs.
//! let tower = verifier.judge("9^{9^{9^9}}", r"\boxed{9^{9^{9^9}}+1}");
//! assert_eq!(tower.verdict, Verdict::Wrong);
//! ```
//!
//! The text is untrusted. A model in training finds every way to be rewarded without being right, and
//! every way to make its judge hang, panic or eat memory. Four decisions follow from that.
//!
//! **A text has one answer or none.** A rule picks the position of the answer, and the text there is judged, readable
//! or not. A verifier that tries every number in a text rewards a model that writes down many.
//! [`Judgement::extracted`] says which bytes were judged.
//!
//! **An answer is read whole or not at all.** A number is never picked out of a formula that could not
//! be read: `1 - 1/e` would otherwise be `1`, and equal to `1 + 1/e`.
//!
//! **Values are compared, and a verdict says how sure it is.** Rational numbers are compared exactly. Everything else
//! is compared by intervals that shrink until they exclude each other, at fixed points if there are variables. No
//! algebra is done: two forms of one value need not be brought into one form to be seen as equal, and where the values
//! themselves show nothing, the question stays open. [`Certainty`] tells a proof from strong evidence, and both from an
//! open question, which counts as wrong. Sets, intervals, tuples, equations, inequalities, units, matrices and words
//! are compared by their own rules.
//!
//! **Costs are counted in operations and not in seconds.** Code that is about to do something costly asks the budget
//! ([`Verifier::budget`]) first, and does not start what was not granted. So the same two texts get the same verdict on
//! every machine, on any number of threads. A time limit would lead to another verdict on a busy machine, and enforcing
//! it would take a thread or a process.
//!
//! No other part of Firebrick is needed. With the feature `core`, a [`Verifier`] is also a verifier of
//! `firebrick-core`, the kind that training calls.

mod algebra;
mod budget;
mod compare;
mod decimal;
mod expr;
mod extract;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod judgement;
mod moment;
mod parse;
#[cfg(feature = "core")]
mod score;
mod set;
pub mod thoughts;
mod unit;
mod value;
mod verifier;

pub use decimal::Decimal;
pub use extract::Extraction;
pub use judgement::{Certainty, Judgement, Span, Verdict};
pub use verifier::{Gold, Verifier};
