//! Checks of the environment's settings.

use super::Checks;
use crate::{Environment, EnvironmentKind, Task};

impl Checks<'_> {
    /// Checks the settings that an environment needs, and the settings that need an environment.
    pub(super) fn environment(&mut self) {
        let environment = &self.recipe.environment;
        let kind = environment.kind;
        if kind == EnvironmentKind::OpenEnv {
            self.environment_servers(environment);
        }

        let needs = |task: &Task| match task {
            // A server or a program may play the game too.
            Task::Guessing { .. }
                if !matches!(kind, EnvironmentKind::OpenEnv | EnvironmentKind::Own) =>
            {
                Some(EnvironmentKind::Guessing)
            }
            Task::Environment { .. } => Some(EnvironmentKind::OpenEnv),
            _ => None,
        };

        if let Some(needed) = self.recipe.data.task.as_ref().and_then(needs)
            && needed != kind
        {
            let needed = needed.name();
            self.fail(
                &["data.task", "environment.kind"],
                format!(
                    "environment.kind is \"{}\", expected \"{needed}\" for the problems of data.task",
                    kind.name()
                ),
                "need that environment",
                &format!("set environment.kind = \"{needed}\", or take another task"),
            );
        }

        let asks = matches!(self.recipe.data.task, Some(Task::Environment { .. }));
        if asks && !self.recipe.eval.sets.is_empty() {
            self.fail(
                &["eval.sets", "data.task"],
                "eval.sets has questions from files, expected none with data.task.kind = \
                 \"environment\""
                    .into(),
                "are no episodes of the environment",
                "leave eval.sets out; data.heldout_size says how many episodes are held out",
            );
        }

        if let Some(Task::Environment { split: Some(split), heldout_split }) =
            &self.recipe.data.task
        {
            if heldout_split.as_ref() == Some(split) {
                self.fail(
                    &["data.task"],
                    format!("data.task.heldout_split is \"{split}\", expected another split"),
                    "these tasks are trained on",
                    "leave it out, and the last tasks of the split are held out",
                );
            }
            if !environment.reset.contains("index") {
                self.fail(
                    &["environment.reset", "data.task"],
                    "environment.reset names no task, expected `index` in it for data.task.split".into(),
                    "would begin other episodes than those of the tasks",
                    "leave it out, or add `\"split\": {{ split | tojson }}, \"index\": {{ index }}`",
                );
            }
        }

        let pays = self.recipe.reward_kind().asks_environment();

        if pays && matches!(kind, EnvironmentKind::None | EnvironmentKind::Calculator) {
            self.fail(
                &["reward.kind", "environment.kind"],
                format!(
                    "reward.kind is \"environment\" and environment.kind is \"{}\", expected an \
                     environment that gives rewards",
                    kind.name()
                ),
                "would get no reward from it",
                "set environment.kind = \"openenv\" with its servers, or take another verifier",
            );
        }
    }

    fn environment_servers(&mut self, environment: &Environment) {
        let servers = &environment.servers;
        if servers.is_empty() {
            self.fail(
                &["environment.servers", "environment"],
                "environment has no servers, expected at least one address".into(),
                "no server to talk to",
                "add `servers = [\"http://127.0.0.1:8000\"]`, or take another environment.kind",
            );
        }

        let twice = |text: &&String| servers.iter().filter(|it| it == text).count() > 1;
        if let Some(server) = servers.iter().find(twice) {
            self.fail(
                &["environment.servers"],
                format!("environment.servers has {server} twice"),
                "named once before",
                "name each server once; environment.sessions says how many episodes each plays at once",
            );
        }
    }
}
