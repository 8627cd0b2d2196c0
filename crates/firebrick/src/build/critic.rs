//! Plans the critic that a recipe asks for.

use std::path::Path;

use firebrick_models::PolicyModel;
use firebrick_train::{
    TrainError,
    algorithm::{Gae, ValueLoss},
    learner::{Critic, CriticConfig, ValueModel},
};

use super::algorithm::{optimizer, schedule};
use crate::recipe::{Advantage, CriticKind, Optim, PolicyOrigin, Recipe};

/// A recipe's critic. It is made when the first step begins, from the policy at that time.
#[derive(Clone, Debug)]
pub struct CriticPlan {
    kind: CriticKind,
    config: CriticConfig,
    optim: Optim,
    lr: f64,
    steps: u64,
}

impl CriticPlan {
    /// Reads the critic of a recipe, whose policy began as `origin`; `None` if the recipe asks for none.
    pub(super) fn from_recipe(recipe: &Recipe, origin: PolicyOrigin) -> Option<Self> {
        let Advantage::Gae { gamma, lambda, normalise } = recipe.advantage else { return None };
        let critic = &recipe.critic;
        let config = CriticConfig {
            gae: Gae { gamma, lambda, normalise },
            loss: ValueLoss { clip: critic.clip },
            coef: critic.coef,
            warmup_steps: critic.warmup_steps,
            detach: critic.kind == CriticKind::Head { detach: true },
        };

        let optim = recipe.optim.clone();
        let lr = critic.lr.unwrap_or_else(|| recipe.optim.learning_rate(origin));
        Some(CriticPlan { kind: critic.kind, config, optim, lr, steps: recipe.train.steps })
    }

    /// Makes a new critic for `policy`.
    pub fn new_critic<M: PolicyModel>(&self, policy: &M) -> Critic<M> {
        Critic {
            model: match self.kind {
                CriticKind::Head { .. } => ValueModel::on(policy),
                CriticKind::Separate => ValueModel::beside(policy.clone().trunk()),
            },
            optimizer: optimizer(&self.optim),
            schedule: schedule(&self.optim, self.lr, self.steps),
            config: self.config,
        }
    }

    /// Reads the critic from a checkpoint's folder `trainer`.
    pub(super) fn resumed<M: PolicyModel>(
        &self,
        policy: &M,
        trainer: &Path,
    ) -> Result<Critic<M>, TrainError> {
        let mut critic = self.new_critic(policy);
        critic.load(trainer)?;
        Ok(critic)
    }
}
