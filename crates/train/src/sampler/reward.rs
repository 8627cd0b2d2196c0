//! Turns groups into rewarded groups: judged, scaled and shaped.

use firebrick_core::{
    Group, RewardScale, RewardShaper, RewardedGroup, Score, Step, Verdict, Verifier,
};

use crate::error::TrainError;

/// Judges all completions of `groups` together, and notes that the policy of `step` wrote them. `scale` turns
/// credits into rewards, and `shapers` change the rewards after that, in their order. A completion that could
/// not be judged is out of the loss, whatever the shapers do. So is a completion whose credit is not finite:
/// it counts as not judged.
///
/// # Errors
/// When the verifier can no longer judge, and when it does not return one score for each completion: a missing
/// score would shift every later reward onto another completion.
pub fn reward(
    groups: Vec<Group>,
    verifier: &dyn Verifier,
    scale: RewardScale,
    shapers: &[Box<dyn RewardShaper>],
    step: Step,
) -> Result<Vec<RewardedGroup>, TrainError> {
    let pairs: Vec<_> = groups
        .iter()
        .flat_map(|group| group.completions.iter().map(|completion| (&group.prompt, completion)))
        .collect();
    // ANCHOR: tour
    let scores = verifier.score_all(&pairs)?;
    if scores.len() != pairs.len() {
        return Err(TrainError::Scores { expected: pairs.len(), actual: scores.len() });
    }

    let mut scores = scores.into_iter();
    let mut rewarded = |mut group: Group| {
        group.step = step;
        let of_group = scores.by_ref().take(group.completions.len());

        let mut rewards: Vec<_> = of_group.map(|score| scale.reward(checked(score))).collect();
        for shaper in shapers {
            shaper.shape(&group, &mut rewards);
        }

        rewards
            .iter_mut()
            .filter(|reward| !reward.is_judged())
            .for_each(|reward| reward.in_loss = false);
        RewardedGroup { group: group.into(), rewards }
    };

    Ok(groups.into_iter().map(&mut rewarded).collect())
    // ANCHOR_END: tour
}

/// Turns a credit that is not finite, which would spread to every advantage of its group, into an error.
fn checked(score: Score) -> Score {
    if score.credit.is_finite() {
        score
    } else {
        Score { verdict: Verdict::Error, credit: 0.0, ..score }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrick_core::{Completion, Prompt};

    /// Returns the credits of its list, each with a verdict of "right".
    struct Credits(Vec<f32>);

    impl Verifier for Credits {
        fn score(&self, _: &Prompt, completion: &Completion) -> Score {
            Score::partial(Verdict::Right, self.0[completion.text.len()], "")
        }
    }

    #[test]
    fn a_credit_that_is_no_number_has_no_verdict() {
        let credits = vec![1.0, f32::NAN, 0.5, f32::INFINITY, f32::NEG_INFINITY];
        let texts = (0..credits.len()).map(|length| "x".repeat(length));
        let completions = texts.map(Completion::of_text).collect();
        let group = Group { prompt: Prompt::default(), completions, step: 0, draw: 0 };

        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let rewarded = reward(vec![group], &Credits(credits), scale, &[], 3).unwrap();

        let counts: Vec<bool> = rewarded[0].rewards.iter().map(|reward| reward.in_loss).collect();
        assert_eq!(counts, [true, false, true, false, false]);
        for left_out in [1, 3, 4] {
            assert_eq!(rewarded[0].rewards[left_out].score.verdict, Verdict::Error);
        }
    }
}
