//! The recipe that `firebrick init` writes for a model, with numbers that fit it and its device.

use std::{fmt::Write as _, path::Path};

use firebrick::{
    build,
    plan::{Memory, Models, Plan, compute, remedy},
    recipe::{Loaded, Recipe},
    thousands,
};
use firebrick_core::printable;
use firebrick_data::ChatTemplate;
use firebrick_device::{Kind, Name, Precision, gibibytes, open};
use firebrick_models::Compute;

use crate::ProgramError;

/// What a recipe is written for.
pub(super) struct ModelRecipe<'a> {
    /// Path or name of the model.
    pub(super) model: &'a Path,
    pub(super) device: Name,
    /// Memory of the device in bytes; `None` asks the device.
    pub(super) memory: Option<u64>,
    /// True if the judge is a crate.
    pub(super) rust: bool,
}

/// A recipe that was written.
pub(super) struct Written {
    pub(super) text: String,
    /// What it is for and what it needs, in lines.
    pub(super) decided: String,
}

/// Numbers that follow from the model's size and the device's kind.
struct Sizes {
    prompt_tokens: usize,
    completion_tokens: usize,
    group_size: usize,
    prompts_per_step: usize,
    /// Completions of each held-out question in an evaluation.
    samples: usize,
    steps: u64,
    lr: f64,
}

impl Sizes {
    /// Chooses sizes with which a step takes seconds to a minute. Those for small models on the CPU are measured with
    /// SmolLM2-135M on two cores; the others follow from them in proportion to the parameters.
    fn of(parameters: u128, kind: Kind) -> Self {
        let small = parameters < 500_000_000;
        // Thinking Machines ("LoRA Without Regret", 2025) and the runs in the book agree on the order of magnitude: the
        // rate falls slowly with the model's width.
        let lr = if small { 3e-4 } else { 1e-4 };
        let on_cpu = Sizes {
            prompt_tokens: 256,
            completion_tokens: 48,
            group_size: 16,
            prompts_per_step: 10,
            samples: 20,
            steps: 25,
            lr,
        };

        match kind {
            Kind::Cpu if parameters < 250_000_000 => on_cpu,
            Kind::Cpu => Sizes { group_size: 8, prompts_per_step: 8, samples: 8, ..on_cpu },
            Kind::Vulkan | Kind::Wgpu | Kind::Metal | Kind::Cuda | Kind::Rocm => Sizes {
                prompt_tokens: 512,
                completion_tokens: 256,
                prompts_per_step: 16,
                steps: 60,
                ..on_cpu
            },
        }
    }
}

impl ModelRecipe<'_> {
    /// Writes the recipe, and what was decided about it.
    ///
    /// # Errors
    /// When the model is not found, or does not fit into the memory.
    pub(super) fn text(&self) -> Result<Written, ProgramError> {
        let sources = crate::commands::sources::alone();
        let file = Path::new("recipe.toml");

        // Any recipe of the model says how large it is.
        let draft = self.filled(&Sizes::of(0, self.device.kind));
        let draft = Recipe::parse(file, &draft, &[])?.recipe;
        let models = build::model_sizes(&draft, &sources)?;
        let (compute, _) = compute(&draft);
        let parameters = Plan::new(&models, &draft, compute, None).facts.parameters;

        let text = self.filled(&Sizes::of(parameters, self.device.kind));
        let recipe = Recipe::parse(file, &text, &[])?.recipe;
        let memory = self.memory.or_else(|| Memory::of_device(self.device).bytes);
        let settings = match memory {
            // A plan is an estimate, and other programs need memory too, so a tenth of it is left if possible.
            Some(bytes) => fitting(&models, &recipe, compute, bytes - bytes / 10)
                .or_else(|| fitting(&models, &recipe, compute, bytes))
                .ok_or_else(|| ProgramError::TooLarge {
                    model: self.model.to_owned(),
                    memory: bytes,
                })?,
            None => Vec::new(),
        };
        let Loaded { recipe, text, .. } = Recipe::parse(file, &text, &settings)?;

        let decided = self.in_words(&models, &recipe, compute, memory, &settings);
        Ok(Written { text, decided })
    }

    /// Says what the recipe is for and what it needs, in lines.
    fn in_words(
        &self,
        models: &Models,
        recipe: &Recipe,
        compute: Compute,
        memory: Option<u64>,
        settings: &[String],
    ) -> String {
        let plan = Plan::new(models, recipe, compute, memory);
        let device = self.device;
        let parameters = thousands(u64::try_from(plan.facts.parameters).unwrap_or(u64::MAX));
        let needed = gibibytes(plan.peak().0);
        let of = memory.map_or(String::new(), |bytes| format!(" of {}", gibibytes(bytes)));

        let mut text = format!(
            "the recipe trains an adapter beside {parameters} parameters on {device}, for which it needs about \
             {needed}{of}\n"
        );
        if !settings.is_empty() {
            let _ = writeln!(text, "so that this fits, it has {}", settings.join(", "));
        }
        if models.published {
            text +=
                "the model's sizes are built in; the first run fetches its weights from the Hub\n";
        }
        if let Err(problem) = open(device, Precision::F32) {
            let remedy = problem.remedy();
            let _ = writeln!(text, "it can't run here as things are: {problem}\n  {remedy}");
        }
        text
    }

    /// Fills in the file's text.
    fn filled(&self, sizes: &Sizes) -> String {
        let &Sizes { group_size, prompts_per_step, completion_tokens, .. } = sizes;
        let judge = if self.rust { "judge.rs" } else { "judge.py" };
        let reward = if self.rust {
            "kind = \"command\"\nprogram = [\"target/release/judge\"]"
        } else {
            "kind = \"python\"\nfile = \"judge.py\""
        };
        // The recipe lies in another folder than the one in which the path was given.
        let path = if self.model.exists() { std::path::absolute(self.model).ok() } else { None };
        let path = path.unwrap_or_else(|| self.model.to_owned());
        let options = if thinks(self.model) {
            "template_options = { enable_thinking = false }   # answers without thoughts, which are shorter\n"
        } else {
            ""
        };

        let values = [
            ("{model}", printable(&self.model.to_string_lossy())),
            ("{path}", toml_edit::Value::from(path.to_string_lossy().into_owned()).to_string()),
            ("{judge}", judge.into()),
            ("{kind}", self.device.kind.to_string()),
            ("{index}", self.device.index.to_string()),
            ("{prompt_tokens}", sizes.prompt_tokens.to_string()),
            ("{template_options}", options.into()),
            ("{group_size}", group_size.to_string()),
            ("{completion_tokens}", completion_tokens.to_string()),
            ("{prompts_per_step}", prompts_per_step.to_string()),
            ("{reward}", reward.into()),
            ("{buffer}", (completion_tokens / 6).to_string()),
            ("{lr}", format!("{:e}", sizes.lr)),
            ("{steps}", sizes.steps.to_string()),
            ("{mini_batch}", (group_size * prompts_per_step).to_string()),
            ("{samples}", sizes.samples.to_string()),
        ];
        fill(include_str!("model/recipe.toml"), &values)
    }
}

/// Replaces the keys in a text by their values. What a value contains stays as it is.
fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some(begin) = rest.find('{') {
        text += &rest[..begin];
        rest = &rest[begin..];

        let value = values.iter().find(|(key, _)| rest.starts_with(key));
        let (key, value) = value.map_or(("{", "{"), |(key, value)| (key, value));
        text += value;
        rest = &rest[key.len()..];
    }
    text + rest
}

/// Finds settings with which the run of `recipe` fits into `bytes`: smaller batches, which do not change what is
/// learnt, or else whatever else helps. `None` if nothing does.
fn fitting(models: &Models, recipe: &Recipe, compute: Compute, bytes: u64) -> Option<Vec<String>> {
    let plan = Plan::new(models, recipe, compute, Some(bytes));
    if plan.fits(bytes) {
        return Some(Vec::new());
    }
    if plan.least().fits(bytes) {
        let advice = plan.advice(bytes).into_iter();
        return Some(advice.map(|advice| format!("{}={}", advice.key, advice.to)).collect());
    }
    let settings = remedy(models, recipe, compute, bytes)?.settings.into_iter();
    Some(settings.map(|(key, value)| format!("{key}={value}")).collect())
}

/// Tells whether the model's chat template lets it think unless it is told not to: by the template if it is on this
/// machine, or else by the names of those models that are known to.
fn thinks(model: &Path) -> bool {
    if model.exists() {
        let template = ChatTemplate::from_folder(model).ok().flatten();
        return template
            .is_some_and(|it| it.variables().iter().any(|name| name == "enable_thinking"));
    }
    const QWEN3: [&str; 8] = ["0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"];
    let name = model.to_string_lossy();
    let qwen3 = name.strip_prefix("Qwen/Qwen3-").is_some_and(|size| QWEN3.contains(&size));
    qwen3 || name == "HuggingFaceTB/SmolLM3-3B"
}
