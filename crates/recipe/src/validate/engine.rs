//! Checks of the settings of inference servers, and of the importance range.

use super::Checks;
use crate::{Advantage, Lora, OptimKind, UpdateEngine};

impl Checks<'_> {
    /// Checks that the range of importance goes from below 1 to above 1.
    pub(super) fn importance(&mut self) {
        if let Some([low, high]) = self.recipe.loss.tis_mask
            && !((0.0..1.0).contains(&low) && high > 1.0 && high.is_finite())
        {
            self.fail(
                &["loss.tis_mask"],
                format!(
                    "loss.tis_mask is [{low:?}, {high:?}], expected a number from 0 to \
                     below 1, and a number above 1"
                ),
                "would leave out completions that both policies write alike",
                "[0.5, 2.0] leaves out completions whose tokens are on average less than half or \
                 more than twice as likely",
            );
        }
    }

    /// Checks that no address is named twice in the list at `key`.
    pub(super) fn no_server_twice(&mut self, key: &str, servers: &[String], help: &str) {
        let one = |text: &str| servers.iter().filter(|it| it.as_str() == text).count() == 1;
        if let Some(twice) = servers.iter().find(|server| !one(server)) {
            self.fail(&[key], format!("{key} has {twice} twice"), "named once before", help);
        }
    }

    /// Checks the settings that inference servers need.
    pub(super) fn engine(&mut self) {
        let rollout = &self.recipe.rollout;
        let engine = &rollout.engine;
        if !engine.is_remote() {
            return;
        }

        if engine.servers.is_empty() {
            self.fail(
                &["rollout.engine.servers", "rollout.engine"],
                "rollout.engine has no servers, expected at least one address".into(),
                "no server to ask",
                "add `servers = [\"http://127.0.0.1:8000\"]`, or remove rollout.engine",
            );
        }

        self.no_server_twice(
            "rollout.engine.servers",
            &engine.servers,
            "name each server once; rollout.max_sequences says how many completions each samples at \
             once",
        );

        // The log-probabilities that come with the tokens would belong to another distribution than the trainer's.
        if rollout.top_p < 1.0 || rollout.top_k > 0 {
            let (key, value) = match rollout.top_k {
                0 => ("rollout.top_p", format!("{:?}", rollout.top_p)),
                top_k => ("rollout.top_k", top_k.to_string()),
            };

            self.fail(
                &[key, "rollout.engine"],
                format!(
                    "{key} is {value}, expected no such limit with the servers of rollout.engine"
                ),
                "cuts the distribution that is trained on",
                "remove it: servers that draw from a part of the vocabulary give other \
                 log-probabilities than the trainer computes",
            );
        }

        if self.recipe.model.path.is_none() {
            self.fail(
                &["rollout.engine", "model.new"],
                "rollout.engine is set for a new model, expected a model with a `path`".into(),
                "no server can begin with it",
                "first make a checkpoint of the new model, in a run with train.steps = 1 and \
                 optim.lr = 0.0 and without servers; servers and a recipe can begin with it",
            );
        }
    }

    /// Checks what a server that updates the policy can't do, or does not let anyone choose.
    pub(super) fn update_engine(&mut self) {
        let recipe = self.recipe;
        let UpdateEngine::Tinker(_) = &recipe.engine else { return };
        let lora = recipe.model.lora.as_ref();

        // Whether it is in the way, its key, what is expected, why, and what to do.
        let rules = [
            (
                recipe.model.path.is_none(),
                "model.new",
                "a model with a `path`, whose tokenizer is the server's",
                "the weights are the server's",
                "set model.path to the folder or the name of the server's model",
            ),
            (
                lora.is_none(),
                "model.lora",
                "adapters",
                "a server trains adapters",
                "add `lora = { rank = 32 }` under [model]",
            ),
            (
                lora.is_some_and(|lora| {
                    lora.targets != Lora::of_rank(lora.rank).targets
                        || lora.rslora
                        || !lora.modules_to_save.is_empty()
                }),
                "model.lora",
                "no targets, rslora and modules_to_save",
                "the server decides what its adapters adapt",
                "leave them out: `lora = { rank = 32 }`",
            ),
            (
                recipe.rollout.engine.is_remote(),
                "rollout.engine",
                "the engine that updates to sample too",
                "other servers would need its weights",
                "remove rollout.engine",
            ),
            (
                recipe.rollout.temperature != 1.0,
                "rollout.temperature",
                "1.0",
                "the server's log-probabilities are those at 1.0",
                "set it to 1.0",
            ),
            (
                recipe.rollout.top_p < 1.0,
                "rollout.top_p",
                "no such limit",
                "cuts the distribution that is trained on",
                "remove it",
            ),
            (
                recipe.rollout.top_k > 0,
                "rollout.top_k",
                "no such limit",
                "cuts the distribution that is trained on",
                "remove it",
            ),
            (
                recipe.rollout.max_staleness > 0,
                "rollout.max_staleness",
                "0",
                "some servers sample with the very weights that they train, and would lose a step",
                "remove it",
            ),
            (
                recipe.loss.entropy_coef != 0.0,
                "loss.entropy_coef",
                "0.0",
                "needs the whole distribution, and the server says only how likely a token was",
                "remove it",
            ),
            (
                recipe.loss.top_entropy_quantile < 1.0,
                "loss.top_entropy_quantile",
                "1.0",
                "needs the whole distribution, and the server says only how likely a token was",
                "remove it",
            ),
            (
                recipe.loss.router_aux_loss_coef != 0.0,
                "loss.router_aux_loss_coef",
                "0.0",
                "needs the router's numbers, which the server does not give",
                "remove it",
            ),
            (
                matches!(recipe.advantage, Advantage::Gae { .. }),
                "advantage.kind",
                "an estimator without a critic",
                "the server has no critic",
                "choose another, such as `kind = \"group_norm\"`",
            ),
            (
                recipe.teacher.is_some(),
                "teacher",
                "no teacher",
                "teachers compute next to a policy of this process",
                "remove it",
            ),
            (
                recipe.train.adaptive.is_some(),
                "train.adaptive",
                "a fixed number of updates",
                "needs the entropy, which the server does not give",
                "remove it",
            ),
            (
                !matches!(recipe.optim.kind, OptimKind::AdamW { .. }),
                "optim.kind",
                "\"adamw\"",
                "the server has no other optimizer",
                "remove it",
            ),
        ];
        for (is_wrong, key, expected, why, help) in rules {
            if is_wrong {
                let message = format!("{key}: expected {expected} with engine.kind = \"tinker\"");
                self.fail(&[key, "engine"], message, why, help);
            }
        }
    }
}
