//! The critic of a recipe.

use std::path::Path;

use firebrick_models::{Decoder, PolicyModel as _};
use firebrick_train::{Critic, CriticConfig, Gae, TrainError, ValueLoss, ValueModel};

use super::algorithm::{optimizer, schedule};
use crate::recipe::{AdvantageKind, CriticKind, Recipe};

/// The critic that training begins with, beside `policy` as it is at that moment; none where the
/// recipe asks for none.
pub fn critic(recipe: &Recipe, policy: &Decoder) -> Option<Critic<Decoder>> {
    if recipe.advantage.kind != AdvantageKind::Gae {
        return None;
    }
    let (critic, advantage) = (&recipe.critic, &recipe.advantage);
    Some(Critic {
        model: match critic.kind {
            CriticKind::Head => ValueModel::on(policy),
            CriticKind::Separate => ValueModel::beside(policy.clone().trunk()),
        },
        optimizer: optimizer(&recipe.optim),
        schedule: schedule(&recipe.optim, critic.lr.unwrap_or(recipe.optim.lr)),
        config: CriticConfig {
            gae: Gae {
                gamma: advantage.gamma,
                lambda: advantage.lambda,
                normalise: advantage.normalise,
            },
            loss: ValueLoss { clip: critic.clip },
            coef: critic.coef,
            warmup_steps: critic.warmup_steps,
            detach: critic.detach,
        },
    })
}

/// The same as it was when the checkpoint was written whose `trainer` folder this is.
pub(super) fn resumed(
    recipe: &Recipe,
    policy: &Decoder,
    trainer: &Path,
) -> Result<Option<Critic<Decoder>>, TrainError> {
    let mut critic = critic(recipe, policy);
    if let Some(critic) = &mut critic {
        critic.load(trainer)?;
    }
    Ok(critic)
}
