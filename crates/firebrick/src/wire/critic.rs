//! The critic of a recipe.

use std::path::Path;

use firebrick_models::Decoder;
use firebrick_train::{AdamW, Critic, CriticConfig, Gae, TrainError, ValueLoss, ValueModel};

use super::algorithm::optim;
use crate::recipe::{Advantage, CriticKind, Recipe};

/// The critic that training begins with, beside `policy` as it is at that moment; none where the
/// recipe asks for none.
pub fn critic(recipe: &Recipe, policy: &Decoder) -> Option<Critic<Decoder>> {
    let Advantage::Gae { gamma, lambda, normalise } = recipe.advantage else { return None };
    let critic = &recipe.critic;
    Some(Critic {
        model: match critic.kind {
            CriticKind::Head { .. } => ValueModel::on(policy),
            CriticKind::Separate => ValueModel::beside(policy.clone().trunk()),
        },
        optimizer: AdamW::new(optim(&recipe.optim)),
        config: CriticConfig {
            gae: Gae { gamma, lambda, normalise },
            loss: ValueLoss { clip: critic.clip },
            coef: critic.coef,
            lr: critic.lr.unwrap_or(recipe.optim.lr),
            warmup_steps: critic.warmup_steps,
            detach: critic.kind == CriticKind::Head { detach: true },
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
