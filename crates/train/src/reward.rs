//! Turns groups into rewarded groups: judged, scaled and shaped.

use firebrick_core::{
    Group, RewardScale, RewardShaper, RewardedGroup, Score, Step, Verdict, Verifier,
};

use crate::TrainError;

/// Judges all completions of `groups` at once, and notes that the policy of `step` wrote them. `scale` turns
/// credits into rewards, and `shapers` change the rewards after that, in their order. A completion that could
/// not be judged is out of the loss, whatever the shapers do. So is a completion whose credit is not finite:
/// it counts as not judged.
///
/// # Errors
/// When the verifier can judge no more, and when it does not give one score for each completion. A missing
/// score would shift every later reward onto another completion.
pub fn reward(
    groups: Vec<Group>,
    verifier: &dyn Verifier,
    scale: RewardScale,
    shapers: &[Box<dyn RewardShaper>],
    step: Step,
) -> Result<Vec<RewardedGroup>, TrainError> {
    let asked: Vec<_> = groups
        .iter()
        .flat_map(|group| group.completions.iter().map(|completion| (&group.prompt, completion)))
        .collect();
    // ANCHOR: tour
    let scores = verifier.score_all(&asked)?;
    if scores.len() != asked.len() {
        return Err(TrainError::Scores { expected: asked.len(), came: scores.len() });
    }
    let mut scores = scores.into_iter();
    let mut rewarded = |mut group: Group| {
        group.step = step;
        let own = scores.by_ref().take(group.completions.len());
        let mut rewards: Vec<_> = own.map(|score| scale.reward(sound(score))).collect();
        for shaper in shapers {
            shaper.shape(&group, &mut rewards);
        }
        rewards
            .iter_mut()
            .filter(|reward| !reward.is_judged())
            .for_each(|reward| reward.in_loss = false);
        RewardedGroup { group, rewards }
    };
    Ok(groups.into_iter().map(&mut rewarded).collect())
    // ANCHOR_END: tour
}

/// Turns a credit that is not finite into an error. It would make every advantage of its group not finite,
/// too.
fn sound(score: Score) -> Score {
    match score.credit.is_finite() {
        true => score,
        false => Score { verdict: Verdict::Error, credit: 0.0, ..score },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firebrick_core::{Completion, Prompt};

    /// Gives the credits of its list, each with a verdict of "right".
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
