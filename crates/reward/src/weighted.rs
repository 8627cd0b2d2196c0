//! `Weighted`, a weighted mean of other verifiers.

use firebrick_core::{Completion, Metrics, Prompt, Score, Verdict, Verifier, VerifierFailed};

use crate::RewardError;

/// Adds up several verifiers.
///
/// The credit is Σ w·credit / Σ w over the parts. The verdict and the extracted answer are those of the first
/// part: it says whether the task was solved, and the others add credit. If a part has no verdict
/// ([`Verdict::Error`]), the sum is not known, and the weighted verifier has no verdict either.
/// [`Score::parts`] notes every part's credit under the part's name.
///
/// ```
/// use firebrick_core::{Completion, Prompt, Verdict, Verifier};
/// use firebrick_reward::{Format, Integer, Part, Weighted};
///
/// let answer = Integer { marker: Some("Answer:".into()) };
/// let form = Format { think: true, boxed: false, answer_line: true, nothing_after: true };
/// let weighted = Weighted::new(vec![
///     Part { name: "answer".into(), weight: 3.0, verifier: Box::new(answer) },
///     Part { name: "form".into(), weight: 1.0, verifier: Box::new(form) },
/// ])?;
/// let prompt = Prompt { reference: "12".into(), ..Prompt::default() };
/// let completion = Completion::of_text("<think>A dozen is more.</think>\nAnswer: 11");
/// let score = weighted.score(&prompt, &completion);
/// assert_eq!(score.verdict, Verdict::Wrong);
/// assert_eq!(score.credit, 0.25);
/// # Ok::<(), firebrick_reward::RewardError>(())
/// ```
pub struct Weighted {
    parts: Vec<Part>,
}

/// A part of a weighted verifier.
pub struct Part {
    /// Name of the part in metrics. No two parts have the same name, and [`Weighted::allows`] it.
    pub name: String,
    /// Share of the part in relation to the shares of the others, above 0.
    pub weight: f32,
    /// Verifier of the part.
    pub verifier: Box<dyn Verifier>,
}

impl Weighted {
    /// Puts the parts together. The first part leads.
    ///
    /// # Errors
    ///
    /// Fails with [`RewardError::Weighted`] if there is no part, if a weight is not a finite number above 0, if two
    /// names are the same, or if a name is not allowed ([`Weighted::allows`]).
    pub fn new(parts: Vec<Part>) -> Result<Self, RewardError> {
        let error = |problem| Err(RewardError::Weighted { problem });
        if parts.is_empty() {
            return error("there are no parts".into());
        }

        for (index, Part { name, weight, .. }) in parts.iter().enumerate() {
            if !(weight.is_finite() && *weight > 0.0) {
                return error(format!(
                    "the weight of `{name}` is {weight}, expected a number above 0"
                ));
            }

            if parts[..index].iter().any(|other| other.name == *name) {
                return error(format!("two parts are named `{name}`"));
            }

            if !Weighted::allows(name) {
                return error(format!(
                    "a part is named `{name}`, expected a name without `/` that is neither `shaping` \
                     nor `credit`"
                ));
            }
        }

        Ok(Weighted { parts })
    }

    /// Returns true if a part may have this name. Advantages that compare part by part would treat a name with a `/` as
    /// a part of a part, and the names `shaping` and `credit` as parts that every reward has.
    pub fn allows(name: &str) -> bool {
        !name.contains('/') && !["shaping", "credit"].contains(&name)
    }
}

impl Verifier for Weighted {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        self.join(self.parts.iter().map(|part| part.verifier.score(prompt, completion)).collect())
    }

    /// Asks each part about all completions together, since a part may judge them in a batch. If a part returns too few
    /// scores, there are no more scores than it returned, so that the caller sees that some are missing.
    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        let of_part = |part: &Part| part.verifier.score_all(pairs);
        let of_parts: Vec<Vec<Score>> = self.parts.iter().map(of_part).collect::<Result<_, _>>()?;
        let count = of_parts.iter().map(Vec::len).min().unwrap_or(0);

        let mut of_parts: Vec<_> = of_parts.into_iter().map(Vec::into_iter).collect();
        let join = |_| self.join(of_parts.iter_mut().filter_map(Iterator::next).collect());
        Ok((0..count).map(join).collect())
    }

    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        self.parts[0].verifier.same(prompt, one, other)
    }

    /// All parts get the same reference.
    fn takes_json(&self) -> bool {
        self.parts.iter().all(|part| part.verifier.takes_json())
    }

    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        self.parts.iter().try_for_each(|part| part.verifier.probe(prompt, completion))
    }

    fn take_costs(&self) -> Metrics {
        let costs = self.parts.iter().map(|part| part.verifier.take_costs());
        costs.fold(Metrics::default(), Metrics::plus)
    }

    fn cancel(&self) {
        self.parts.iter().for_each(|part| part.verifier.cancel());
    }
}

impl Weighted {
    /// Makes the score of one completion from the scores of the parts. The parts of a part are noted under
    /// its name, as in `model/score`.
    fn join(&self, scores: Vec<Score>) -> Score {
        let weights = || self.parts.iter().map(|part| f64::from(part.weight));
        let sum: f64 =
            weights().zip(&scores).map(|(weight, score)| weight * f64::from(score.credit)).sum();
        let credit = (sum / weights().sum::<f64>()) as f32;

        let mut parts = Vec::with_capacity(scores.len());
        for (Part { name, .. }, score) in self.parts.iter().zip(&scores) {
            parts.push((name.clone(), score.credit));
            parts.extend(score.parts.iter().map(|(own, value)| (format!("{name}/{own}"), *value)));
        }

        // Without the credit of one part the sum is a guess, so it does not count as a verdict.
        let unknown = scores.iter().any(|score| score.verdict == Verdict::Error);
        let lead = scores.into_iter().next().expect("there is at least one part");
        let verdict = if unknown { Verdict::Error } else { lead.verdict };
        Score { verdict, credit, parts, ..lead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Gsm8k, Regex, RegexOptions};

    /// Returns its credit, whatever was written.
    struct Fixed(f32);

    impl Verifier for Fixed {
        fn score(&self, _: &Prompt, _: &Completion) -> Score {
            let verdict = if self.0 == 1.0 { Verdict::Right } else { Verdict::Unparsable };
            Score::partial(verdict, self.0, format!("{}", self.0))
        }
    }

    fn part(name: &str, weight: f32, credit: f32) -> Part {
        Part { name: name.into(), weight, verifier: Box::new(Fixed(credit)) }
    }

    #[test]
    fn credits_add_up_and_the_first_part_decides() {
        let weighted = Weighted::new(vec![part("a", 1.0, 0.5), part("b", 3.0, 1.0)]).unwrap();
        let completion = Completion::of_text("");
        let score = weighted.score(&Prompt::default(), &completion);
        let parts = vec![("a".to_owned(), 0.5), ("b".to_owned(), 1.0)];
        let expected = Score { parts, ..Score::partial(Verdict::Unparsable, 0.875, "0.5") };
        assert_eq!(score, expected);

        let written = serde_json::to_string(&score).unwrap();
        assert_eq!(serde_json::from_str::<Score>(&written).unwrap(), expected);
        assert!(!serde_json::to_string(&Score::wrong("")).unwrap().contains("parts"));
    }

    #[test]
    fn a_reference_may_be_json_if_every_part_takes_it() {
        let takes = |parts: Vec<Box<dyn Verifier>>| {
            let part = |(index, verifier)| Part { name: format!("{index}"), weight: 1.0, verifier };
            Weighted::new((0..).zip(parts).map(part).collect()).unwrap().takes_json()
        };
        let form = || -> Box<dyn Verifier> { Box::new(Format::default()) };
        let matches = |matches| -> Box<dyn Verifier> {
            let pattern = "a".to_owned();
            Box::new(
                Regex::new(RegexOptions { pattern, matches, ..RegexOptions::default() }).unwrap(),
            )
        };

        assert!(takes(vec![form(), matches(true)]));
        assert!(!takes(vec![form(), matches(false)]));
        assert!(!takes(vec![form(), Box::new(Gsm8k::default())]));
    }

    #[test]
    fn parts_are_checked() {
        for parts in [
            vec![],
            vec![part("a", 0.0, 1.0)],
            vec![part("a", -1.0, 1.0)],
            vec![part("a", f32::NAN, 1.0)],
            vec![part("a", f32::INFINITY, 1.0)],
            vec![part("a", 1.0, 1.0), part("b", 1.0, 1.0), part("a", 1.0, 1.0)],
            vec![part("a", 1.0, 1.0), part("b/c", 1.0, 1.0)],
            vec![part("shaping", 1.0, 1.0)],
            vec![part("credit", 1.0, 1.0)],
        ] {
            assert!(matches!(Weighted::new(parts), Err(RewardError::Weighted { .. })));
        }
    }

    /// A verifier that returns the score of the first completion alone.
    struct Short;

    impl Verifier for Short {
        fn score(&self, _: &Prompt, _: &Completion) -> Score {
            Score::right("")
        }

        fn score_all(&self, _: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
            Ok(vec![Score::right("")])
        }
    }

    #[test]
    fn a_missing_score_is_not_filled_with_that_of_another_part() {
        let short = || Part { name: "short".into(), weight: 1.0, verifier: Box::new(Short) };
        let prompt = Prompt::default();
        let completion = Completion::of_text("");
        let pairs = [(&prompt, &completion); 2];
        let whole = || part("a", 1.0, 0.5);
        for parts in [vec![short()], vec![whole(), short()], vec![short(), whole()]] {
            let count = parts.len();
            let scores = Weighted::new(parts).unwrap().score_all(&pairs).unwrap();
            assert_eq!((scores.len(), scores[0].parts.len()), (1, count));
        }
    }
}
