//! Verifiers for conversations: an environment's reward, and no verdict if the environment failed.

use firebrick_core::{
    Completion, Metrics, Outcome, Prompt, Score, Verdict, Verifier, VerifierFailed,
};

/// Takes an environment's reward. The credit is `scale` · sum + `offset`, kept within 0 and 1.
///
/// A completion counts as right if its credit is at least `threshold`, and as wrong below. The sum is 0 if there is no
/// reward. The part `environment` of the score is the unscaled sum. A completion without an environment has no verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FromEnvironment {
    /// Factor on the sum.
    pub scale: f64,
    /// Added to the product.
    pub offset: f64,
    /// Minimum credit that is right.
    pub threshold: f64,
}

impl Verifier for FromEnvironment {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        let Some(Outcome { reward, .. }) = &completion.outcome else {
            return Score::none(Verdict::Error);
        };
        let sum = reward.unwrap_or(0.0);
        let credit = (self.scale * f64::from(sum) + self.offset).clamp(0.0, 1.0);

        let right = credit >= self.threshold;
        let verdict = if right { Verdict::Right } else { Verdict::Wrong };

        let mut score = Score::partial(verdict, credit as f32, "");
        score.parts.push(("environment".into(), sum));
        score
    }
}

/// Judges as another verifier does, but returns no verdict on completions whose environment failed.
pub struct OfConversations<V> {
    verifier: V,
    report: Box<dyn Fn(&str) + Send + Sync>,
}

impl<V: Verifier> OfConversations<V> {
    /// Makes a verifier. `report` is called with the reason each time that an environment failed.
    pub fn new(verifier: V, report: impl Fn(&str) + Send + Sync + 'static) -> Self {
        OfConversations { verifier, report: Box::new(report) }
    }

    fn failed(&self, completion: &Completion) -> bool {
        let failure = completion.outcome.as_ref().map(|outcome| outcome.failure.as_str());
        let failure = failure.filter(|failure| !failure.is_empty());
        failure.inspect(|failure| (self.report)(failure)).is_some()
    }
}

impl<V: Verifier> Verifier for OfConversations<V> {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        if self.failed(completion) {
            Score::none(Verdict::Error)
        } else {
            self.verifier.score(prompt, completion)
        }
    }

    fn score_all(&self, pairs: &[(&Prompt, &Completion)]) -> Result<Vec<Score>, VerifierFailed> {
        // Failed conversations are not judged, but keep their positions among the scores.
        let failed: Vec<bool> =
            pairs.iter().map(|(_, completion)| self.failed(completion)).collect();
        let sound = pairs.iter().zip(&failed).filter(|(_, failed)| !**failed);
        let sound: Vec<_> = sound.map(|(pair, _)| *pair).collect();

        let mut scores = self.verifier.score_all(&sound)?.into_iter();
        let score = |failed| if failed { Some(Score::none(Verdict::Error)) } else { scores.next() };
        // The caller finds out if the verifier returns too few scores.
        Ok(failed.into_iter().map_while(score).collect())
    }

    fn same(&self, prompt: &Prompt, one: &str, other: &str) -> bool {
        self.verifier.same(prompt, one, other)
    }

    fn takes_json(&self) -> bool {
        self.verifier.takes_json()
    }

    fn probe(&self, prompt: &Prompt, completion: &Completion) -> Result<(), VerifierFailed> {
        self.verifier.probe(prompt, completion)
    }

    fn take_costs(&self) -> Metrics {
        self.verifier.take_costs()
    }

    fn cancel(&self) {
        self.verifier.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use firebrick_core::score_each;

    use super::*;

    fn completion(reward: Option<f32>, failure: &str) -> Completion {
        let mut completion = Completion::of_text("5>7");
        completion.outcome =
            Some(Outcome { reward, turns: 2, failure: failure.into(), ..Outcome::default() });
        completion
    }

    #[test]
    fn rewards_become_credits_and_failures_have_no_verdict() {
        let verifier = FromEnvironment { scale: 0.1, offset: 0.5, threshold: 0.9 };
        let reported = Arc::new(Mutex::new(Vec::new()));
        let reports = reported.clone();
        let verifier = OfConversations::new(verifier, move |why| {
            reports.lock().unwrap().push(why.to_owned());
        });

        let cases = [
            (completion(Some(4.0), ""), Verdict::Right, 0.9),
            (completion(Some(-1.0), ""), Verdict::Wrong, 0.4),
            (completion(Some(1.0), "it hung"), Verdict::Error, 0.0),
            (completion(Some(40.0), ""), Verdict::Right, 1.0),
            (completion(None, ""), Verdict::Wrong, 0.5),
            (Completion::of_text("7"), Verdict::Error, 0.0),
        ];

        let prompt = Prompt::default();
        let pairs: Vec<_> = cases.iter().map(|(completion, ..)| (&prompt, completion)).collect();
        let scores = verifier.score_all(&pairs).unwrap();
        assert_eq!(scores, score_each(&verifier, &pairs));

        for (score, (_, verdict, credit)) in scores.iter().zip(&cases) {
            assert_eq!(score.verdict, *verdict);
            assert!((score.credit - credit).abs() < 1e-6, "{score:?}");
        }
        assert_eq!(*reported.lock().unwrap(), ["it hung", "it hung"]);
    }
}
