//! From groups to rewarded groups: judged, scaled and shaped.

use firebrick_core::{
    Group, RewardScale, RewardShaper, RewardedGroup, Score, Step, Verdict, Verifier,
};

use crate::TrainError;

/// Judges all completions of `groups` at once, and says that the policy of `step` wrote them. What a
/// credit is worth is `scale`'s; `shapers` come after it, in their order. A completion that could not be judged is out of
/// the loss, whatever they say; so is one whose credit is no number, which is none.
///
/// # Errors
/// When the verifier can judge no more, and when it does not give one score for each completion: a missing
/// one would shift every later reward onto another completion.
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
            .for_each(|reward| reward.live = false);
        RewardedGroup { group, rewards }
    };
    Ok(groups.into_iter().map(&mut rewarded).collect())
}

/// A credit that is not finite would make every advantage of its group so.
fn sound(score: Score) -> Score {
    match score.credit.is_finite() {
        true => score,
        false => Score { verdict: Verdict::Error, credit: 0.0, ..score },
    }
}
