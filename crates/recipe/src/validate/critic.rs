//! Checks of the critic's settings, and of groups of one.

use super::Checks;
use crate::{ComputeType, CriticKind, Dynamic};

impl Checks<'_> {
    /// Checks the settings that make sense only with a critic, and those that a critic needs.
    pub(super) fn critic(&mut self) {
        let recipe = self.recipe;
        if recipe.has_critic() {
            if recipe.critic.kind == CriticKind::Separate
                && recipe.model.dtype == ComputeType::Float16
            {
                self.fail(
                    &["critic.kind", "model.dtype"],
                    "critic.kind is \"separate\", expected \"head\" for model.dtype = \"float16\""
                        .into(),
                    "its own trunk's gradients are not scaled",
                    "small gradients would be lost: choose the other kind, or another model.dtype",
                );
            }

            if recipe.rollout.group_size == 1 && recipe.sampling.dynamic != Dynamic::Off {
                self.fail(
                    &["sampling.dynamic", "rollout.group_size"],
                    format!(
                        "sampling.dynamic is \"{}\", expected \"off\" for rollout.group_size = 1",
                        recipe.sampling.dynamic.name()
                    ),
                    "a group of one has no spread to be kept for",
                    "add `dynamic = \"off\"` under [sampling], or sample more completions per prompt",
                );
            }

            return;
        }

        if recipe.rollout.group_size == 1 {
            self.fail(
                &["rollout.group_size", "advantage.kind"],
                "rollout.group_size is 1, expected at least 2".into(),
                "a group of one has no advantage",
                "only a critic gives a lone completion an advantage: advantage.kind = \"gae\"",
            );
        }
    }
}
