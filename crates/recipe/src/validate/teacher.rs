//! Checks of the teachers' settings.

use super::Checks;
use crate::{Dynamic, Task, TeacherKind};

impl Checks<'_> {
    /// Checks that each teacher is named, and that the teachers' part of the advantages is not filtered away.
    pub(super) fn teachers(&mut self) {
        let recipe = self.recipe;
        for (index, source) in recipe.train_sources().iter().enumerate() {
            let Some(kind) = &source.teacher else { continue };
            let key = format!("data.train.{index}.teacher");
            self.teacher_kind(&key, kind);
            if recipe.teacher.is_none() {
                self.fail(
                    &[&key],
                    format!("{key} is set, expected only next to a table [teacher]"),
                    "how much it counts, and who teaches on the other prompts, is in [teacher]",
                    "add `[teacher]` with the teacher of all other prompts",
                );
            }
        }

        if let Some(teacher) = &recipe.teacher {
            self.teacher_kind("teacher", &teacher.kind);
            let is_asked = matches!(recipe.data.task, Some(Task::Environment { .. }));
            if is_asked && teacher.hint.as_ref().is_some_and(|hint| hint.contains("{reference}")) {
                self.fail(
                    &["teacher.hint"],
                    "teacher.hint has {reference} in it, and an environment's tasks have no references".into(),
                    "would be empty",
                    "write a hint without it",
                );
            }
            if teacher.hint.as_ref().is_some_and(|hint| !hint.contains("{prompt}")) {
                self.fail(
                    &["teacher.hint"],
                    "teacher.hint lacks the question".into(),
                    "expected `{prompt}` in it",
                    "write {prompt} where the question goes, and {reference} where the reference goes",
                );
            }
        }
        if recipe.rewards_only_measure() && recipe.sampling.dynamic != Dynamic::Off {
            self.fail(
                &["sampling.dynamic", "teacher.task_weight", "teacher"],
                format!(
                    "sampling.dynamic is \"{}\", expected \"off\" for teacher.task_weight = 0.0",
                    recipe.sampling.dynamic.name()
                ),
                "would drop groups for their rewards, from which nothing is learnt here",
                "add `dynamic = \"off\"` under [sampling], or raise teacher.task_weight",
            );
        }
    }

    fn teacher_kind(&mut self, key: &str, kind: &TeacherKind) {
        if let TeacherKind::Local { path, .. } = kind
            && path.as_os_str().is_empty()
        {
            self.fail(
                &[&format!("{key}.path"), key],
                format!("{key} has no path, expected a model"),
                "who teaches?",
                "add `path = \"…\"`, a model with the policy's tokenizer",
            );
        }

        let hint = self.recipe.teacher.as_ref().and_then(|teacher| teacher.hint.as_ref());
        if *kind == TeacherKind::Policy && hint.is_none() {
            self.fail(
                &[&format!("{key}.kind"), key],
                format!("{key} is the policy itself, expected teacher.hint with it"),
                "it would think what the policy thinks",
                "add a hint under [teacher], such as `hint = \"{prompt}\\nThe answer is {reference}.\"`",
            );
        }

        let Some(servers) = kind.servers() else { return };
        if self.recipe.has_divergence() {
            self.fail(
                &["teacher.loss", key],
                "teacher.loss is a divergence, expected \"policy_gradient\" for a teacher on servers"
                    .into(),
                "servers say how likely given tokens are, and not all tokens",
                "leave teacher.loss out, or take a teacher of kind \"local\"",
            );
        }
        if servers.servers.is_empty() {
            self.fail(
                &[&format!("{key}.servers"), key],
                format!("{key} has no servers, expected at least one address"),
                "no server to ask",
                "add `servers = [\"http://127.0.0.1:8000\"]`",
            );
        }
        self.no_server_twice(&format!("{key}.servers"), &servers.servers, "name each server once");
        // Servers give the log-probabilities of a prompt at temperature 1, whatever they sample at.
        let temperature = self.recipe.rollout.temperature;
        if temperature != 1.0 {
            self.fail(
                &["rollout.temperature", key],
                format!(
                    "rollout.temperature is {temperature:?}, expected 1.0 for a teacher on servers"
                ),
                "the teacher's log-probabilities are those at 1.0",
                "set it to 1.0, or take a teacher of kind \"local\"",
            );
        }
    }
}
