//! Model card of a checkpoint: its `README.md`, which the Hugging Face Hub shows.

use std::{fmt, path::PathBuf};

use firebrick_core::{Step, counted};
use firebrick_data::HubName;
use firebrick_models::WeightDtype;
use firebrick_runs::Heldout;
use firebrick_train::TrainerState;

use crate::{
    CustomPart, FileFormat,
    recipe::{LossKind, Recipe, RewardKind, TrainData},
    source::data_name,
};

/// File of the card in a checkpoint.
pub const CARD: &str = "README.md";

/// What a checkpoint's card says of the folder [`TRAINER`](crate::layout::TRAINER).
const RESUMES: &str =
    "The folder `trainer` is needed to resume the run and can be left out otherwise.";

/// What the card of an adapter says whose model has no name on the Hub.
const LOCAL_BASE: &str = "`adapter_config.json` names the model under the adapter by its path on the machine that \
                          trained it: set `base_model_name_or_path` there to the model's folder on yours.";

/// Returns the card of a checkpoint for a folder without what a resumed run needs, and with the weights in another
/// format, if there is one. A card that is no checkpoint's stays as it is.
pub fn exported(card: &str, dtype: Option<WeightDtype>) -> String {
    let Some((before, after)) = card.split_once(&format!("{RESUMES}\n\n")) else {
        return card.to_owned();
    };

    let card = format!("{before}{after}");
    let all = [WeightDtype::F32, WeightDtype::BF16, WeightDtype::F16];
    match dtype {
        Some(dtype) => all
            .iter()
            .fold(card, |card, other| card.replacen(&of_weights(*other), &of_weights(dtype), 1)),
        None => card,
    }
}

/// Says which format the weights have.
fn of_weights(dtype: WeightDtype) -> String {
    match dtype {
        WeightDtype::F32 => " The weights are float32.".into(),
        dtype => {
            format!(" The weights are {}, rounded from the float32 that was trained.", dtype.name())
        }
    }
}

/// Content of a model card. Its [`Display`](fmt::Display) is the file.
pub struct Card<'a> {
    /// Name of the run.
    pub name: &'a str,
    /// Recipe of the run.
    pub recipe: &'a Recipe,
    /// Format of the checkpoint's files.
    pub format: FileFormat<'a>,
    /// Parts of the run that the program brought instead of the recipe's.
    pub replaced: &'a [CustomPart],
    /// Steps and completions so far.
    pub state: &'a TrainerState,
    /// Number of supervised steps so far.
    pub sft_steps: Step,
    /// Number of held-out prompts that accuracies are measured on.
    pub prompts: usize,
    /// Accuracies so far.
    pub heldout: &'a Heldout,
}

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.front_matter(f)?;
        writeln!(f, "\n# {}\n", escaped(self.name))?;
        self.summary(f)?;
        self.results(f)?;
        self.usage(f)?;

        // The recipe has its defaults, because another version may have other ones.
        let recipe = self.recipe.without_folders().to_toml();
        let fence = fence(&recipe);
        let recipe = recipe.trim_end();

        let custom_note = match self.replaced {
            [] => String::new(),
            parts => format!(
                "The program that ran it brought parts of its own, which the recipe does not describe: {}.\n\n",
                parts.iter().map(CustomPart::to_string).collect::<Vec<_>>().join(", ")
            ),
        };

        writeln!(
            f,
            "## How it was made\n\n{custom_note}The recipe:\n\n{fence}toml\n{recipe}\n{fence}"
        )
    }
}

impl Card<'_> {
    /// Writes the front matter. Nothing in it needs escaping, because a name of the Hub has only letters,
    /// digits and `-_.`.
    fn front_matter(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "---")?;
        if let Some(base) = self.base_model() {
            writeln!(f, "base_model: \"{base}\"")?;
        }

        let datasets = self.datasets();
        if !datasets.is_empty() {
            writeln!(f, "datasets:")?;
            datasets.iter().try_for_each(|name| writeln!(f, "- \"{name}\""))?;
        }

        match self.format {
            FileFormat::HuggingFace { adapter: true, .. } => writeln!(f, "library_name: peft")?,
            FileFormat::HuggingFace { adapter: false, .. } => {
                writeln!(f, "library_name: transformers")?
            }
            FileFormat::Own => {}
        }

        writeln!(f, "pipeline_tag: text-generation\ntags:")?;
        let algorithm = self.algorithm().map(str::to_lowercase);
        let tags = algorithm.iter().map(String::as_str).chain(["rl", "firebrick", "burn"]);
        let tags: String = tags.map(|tag| format!("- {tag}\n")).collect();
        writeln!(f, "{tags}---")
    }

    /// Lists the data sets that others can find, as far as the run read them. The paths of this machine do not concern
    /// a reader.
    fn datasets(&self) -> Vec<String> {
        let own = |part| self.replaced.contains(&part);
        let Recipe { data, sft, .. } = self.recipe;
        let imitates = self.sft_steps > 0 && !own(CustomPart::SftExamples);
        let imitated = sft.data.as_ref().filter(|_| imitates);

        let solutions = imitates && imitated.is_none();
        let train = data.train.as_ref().filter(|_| !own(CustomPart::Source) || solutions);
        let train = train.map(TrainData::paths).unwrap_or_default();
        let heldout = data.heldout.as_deref().filter(|_| !own(CustomPart::Heldout));

        let read = train.into_iter().chain(heldout).chain(imitated.map(PathBuf::as_path));
        let mut names: Vec<String> = Vec::new();
        for name in read.filter_map(data_name) {
            if !names.iter().any(|known| known == name.repository()) {
                names.push(name.repository().to_owned());
            }
        }
        names
    }

    fn usage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## How to use it\n")?;
        let (library, class) = match self.format {
            FileFormat::HuggingFace { adapter: true, .. } => ("peft", "AutoPeftModelForCausalLM"),
            FileFormat::HuggingFace { adapter: false, .. } => {
                ("transformers", "AutoModelForCausalLM")
            }
            FileFormat::Own => {
                return writeln!(
                    f,
                    "The policy is the program's own, and that program reads its weights \
                     from this folder.\n"
                );
            }
        };

        writeln!(
            f,
            "```python\nfrom {library} import {class}\nfrom transformers import AutoTokenizer\n"
        )?;
        writeln!(
            f,
            "folder = \"…\"  # this folder, or its name on the Hub\n\
             tokenizer = AutoTokenizer.from_pretrained(folder)\n\
             model = {class}.from_pretrained(folder, dtype=\"auto\")\n```\n"
        )?;
        if self.base_model().is_none()
            && matches!(self.format, FileFormat::HuggingFace { adapter: true, .. })
        {
            writeln!(f, "{LOCAL_BASE}\n")?;
        }
        writeln!(f, "{RESUMES}\n")
    }

    /// Returns the name by which others can find the model that the run began with.
    fn base_model(&self) -> Option<&str> {
        let FileFormat::HuggingFace { base, .. } = self.format else { return None };
        HubName::parse(&base.name).map(|_| base.name.as_str())
    }

    /// Returns the name of the loss, or `None` if it is the program's own.
    fn algorithm(&self) -> Option<&'static str> {
        if self.replaced.contains(&CustomPart::Loss) {
            return None;
        }
        Some(match self.recipe.loss.kind {
            LossKind::Dapo { .. } => "DAPO",
            LossKind::Gspo { .. } => "GSPO",
            LossKind::Cispo { .. } => "CISPO",
            LossKind::DppoTv { .. } | LossKind::DppoKl { .. } => "DPPO",
            LossKind::Sapo { .. } => "SAPO",
        })
    }

    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match (self.base_model(), &self.recipe.model.new, self.format) {
            (Some(base), ..) => format!("the model {base}"),
            (None, Some(_), _) => "random weights".into(),
            (None, None, FileFormat::Own) => "a policy of the program's own".into(),
            (None, None, _) => "another model".into(),
        };

        let TrainerState { step, generated, trained, .. } = *self.state;
        let sft = match self.sft_steps {
            0 => String::new(),
            steps => format!("{} and ", counted(steps, "supervised step")),
        };
        let steps = counted(step, "step");

        let weights = match self.format {
            FileFormat::Own => String::new(),
            FileFormat::HuggingFace { dtype, .. } => of_weights(dtype),
        };

        let rewards = if self.recipe.reward_kinds().iter().any(RewardKind::asks_model) {
            "reinforcement learning"
        } else {
            "reinforcement learning from verifiable rewards"
        };
        let method = match &self.recipe.teacher {
            None => rewards.to_owned(),
            Some(_) if self.recipe.rewards_only_measure() => "on-policy distillation".to_owned(),
            Some(_) => format!("{rewards} and on-policy distillation"),
        };

        writeln!(
            f,
            "Trained from {base} by Firebrick {} with {method}: {sft}{steps} of {}, in which {generated} completions were sampled and {trained} \
             trained on.{weights}\n",
            env!("CARGO_PKG_VERSION"),
            self.algorithm().unwrap_or("a loss of the program's own"),
        )
    }

    fn results(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Results\n")?;
        let measured = [
            ("before training", self.heldout.initial),
            ("after the supervised steps", self.heldout.after_sft),
            ("last measured in training", self.heldout.r#final),
        ];

        if measured.iter().all(|(_, accuracy)| accuracy.is_none()) {
            return writeln!(f, "Nothing was measured on held-out prompts.\n");
        }

        writeln!(f, "| held-out accuracy | |\n|---|---|")?;
        for (when, accuracy) in measured {
            if let Some(accuracy) = accuracy {
                writeln!(f, "| {when} | {accuracy:.4} |")?;
            }
        }

        let eval = &self.recipe.eval;
        writeln!(
            f,
            "\nPrompts: {}. Completions of each: {}, at temperature {} and top_p {}.\n",
            self.prompts,
            eval.samples.max(1),
            eval.temperature,
            eval.top_p
        )
    }
}

/// Escapes text so that Markdown shows it literally.
fn escaped(text: &str) -> String {
    let escape = |letter: char| {
        let backslash = letter.is_ascii_punctuation().then_some('\\');
        backslash.into_iter().chain([letter])
    };
    text.chars().flat_map(escape).collect()
}

/// Returns a fence for a code block that no line of `text` can close: it is longer than every run of backticks.
fn fence(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(3.max(longest + 1))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn card(model: &str, data: &str, prompt: &str) -> String {
        card_of(model, data, prompt, false)
    }

    fn card_of(model: &str, data: &str, prompt: &str, adapter: bool) -> String {
        card_with(model, data, prompt, adapter, &[])
    }

    fn card_with(
        model: &str,
        data: &str,
        prompt: &str,
        adapter: bool,
        replaced: &[CustomPart],
    ) -> String {
        let text = format!(
            "[model]\npath = '{model}'\n[data]\ntrain = '{data}'\nprompt = \"\"\"\n{prompt}\"\"\""
        );
        let recipe = Recipe::parse(Path::new("a.toml"), &text, &[]).unwrap().recipe;
        let state = TrainerState { step: 3, generated: 48, trained: 32, ..Default::default() };
        let heldout = Heldout { initial: Some(0.25), r#final: Some(0.5), ..Heldout::default() };

        let card = Card {
            name: "odd # name_",
            recipe: &recipe,
            format: FileFormat::HuggingFace {
                base: &model.into(),
                adapter,
                dtype: WeightDtype::BF16,
            },
            replaced,
            state: &state,
            sft_steps: 0,
            prompts: 8,
            heldout: &heldout,
        };
        card.to_string()
    }

    #[test]
    fn a_card_names_what_others_can_find_and_no_path() {
        let card_of_hub = card("Qwen/Qwen2.5-0.5B", "openai/gsm8k", "{prompt}");
        let front = card_of_hub.split("---\n").nth(1).unwrap();
        assert_eq!(
            front,
            "base_model: \"Qwen/Qwen2.5-0.5B\"\ndatasets:\n- \"openai/gsm8k\"\n\
             library_name: transformers\npipeline_tag: text-generation\n\
             tags:\n- dapo\n- rl\n- firebrick\n- burn\n"
        );

        for (model, data) in [
            ("/home/anna/qwen", "/home/anna/train.jsonl"),
            ("../anna/qwen", "data/anna.jsonl"),
            // `src/build` is a folder of the package, in which tests are run.
            ("/anna/src/build", "src/build"),
            ("an na/\\nlicense: mit", "anna/b/c"),
        ] {
            let card = card(model, data, "{prompt}");
            assert!(card.starts_with("---\nlibrary_name: transformers\n"), "{card}");

            // The recipe's text shows its values, except for this machine's folders. Nothing else does.
            let (outside, recipe) = card.split_once("The recipe:").unwrap();
            assert!(!outside.contains("anna") && !outside.contains("license"), "{card}");
            assert!(!recipe.contains("\"/anna") && !recipe.contains("/home/"), "{recipe}");
        }
    }

    #[test]
    fn a_card_says_nothing_of_the_recipe_that_the_program_replaced() {
        let card = |replaced: &[CustomPart]| {
            let card = card_with("Qwen/Qwen2.5-0.5B", "openai/gsm8k", "{prompt}", false, replaced);
            // The recipe is shown literally; the parts before it are claims.
            card.split_once("## How it was made").unwrap().0.to_owned()
        };
        let whole = card(&[]);
        assert!(whole.contains("DAPO") && whole.contains("- dapo\n") && whole.contains("gsm8k"));

        let own_loss = card(&[CustomPart::Loss]);
        assert!(!own_loss.to_lowercase().contains("dapo"), "{own_loss}");
        assert!(own_loss.contains("3 steps of a loss of the program's own"), "{own_loss}");

        assert!(!card(&[CustomPart::Source]).contains("gsm8k"));
        assert!(card(&[CustomPart::Heldout]).contains("gsm8k"));
    }

    #[test]
    fn a_card_names_the_examples_that_were_imitated() {
        let text = "[model]\npath = 'a'\n[data]\ntrain = 'a/b'\nheldout = 'c/d'\n[sft]\nsteps = 9\ndata = 'a/b'\n";
        let datasets = |data: &str, sft_steps: Step| {
            let set = [format!("sft.data={data}")];
            let recipe = Recipe::parse(Path::new("a.toml"), text, &set).unwrap().recipe;
            let card = Card {
                name: "a",
                recipe: &recipe,
                format: FileFormat::Own,
                replaced: &[],
                state: &TrainerState::default(),
                sft_steps,
                prompts: 8,
                heldout: &Heldout::default(),
            };
            card.datasets()
        };
        assert_eq!(datasets("e/f", 9), ["a/b", "c/d", "e/f"]);
        assert_eq!(datasets("e/f", 0), ["a/b", "c/d"]);
        assert_eq!(datasets("a/b", 9), ["a/b", "c/d"]);
    }

    #[test]
    fn the_card_of_an_adapter_opens_it_with_peft() {
        let card = card_of("Qwen/Qwen2.5-0.5B", "openai/gsm8k@abc", "{prompt}", true);
        for line in [
            "base_model: \"Qwen/Qwen2.5-0.5B\"",
            "- \"openai/gsm8k\"",
            "library_name: peft",
            "from peft import AutoPeftModelForCausalLM",
            "model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype=\"auto\")",
        ] {
            assert!(card.lines().any(|other| other == line), "{line} is not in {card}");
        }

        assert!(!card.contains("base_model_name_or_path"), "{card}");
        let of_folder = card_of("/anna/qwen", "openai/gsm8k", "{prompt}", true);
        assert!(of_folder.contains("set `base_model_name_or_path`"), "{of_folder}");
    }

    #[test]
    fn an_exported_card_names_no_folder_that_is_not_there() {
        let card = card("Qwen/Qwen2.5-0.5B", "openai/gsm8k", "{prompt}");
        let as_it_is = exported(&card, None);
        assert!(card.contains("`trainer`") && !as_it_is.contains("`trainer`"), "{as_it_is}");
        assert!(as_it_is.contains("The weights are bfloat16, rounded"), "{as_it_is}");
        assert!(as_it_is.contains("```\n\n## How it was made"), "{as_it_is}");

        let wide = exported(&card, Some(WeightDtype::F32));
        assert!(wide.contains("The weights are float32.\n"), "{wide}");
        let other = "# Mine\n\n The weights are float32.\n";
        assert_eq!(exported(other, Some(WeightDtype::F16)), other);
    }

    #[test]
    fn a_card_says_what_was_measured() {
        let card = card("/qwen", "/train.jsonl", "{prompt}");
        for line in [
            "# odd \\# name\\_",
            "| before training | 0.2500 |",
            "| last measured in training | 0.5000 |",
        ] {
            assert!(card.lines().any(|other| other == line), "{line} is not in {card}");
        }

        assert!(!card.contains("supervised"), "{card}");
        assert!(card.contains("3 steps of DAPO, in which 48 completions were sampled and 32 "));
        assert!(card.contains("The weights are bfloat16, rounded from"));
    }

    #[test]
    fn no_recipe_ends_its_code_block() {
        let card = card("/qwen", "/train.jsonl", "```\n````\n# {prompt}\n---\n");
        let block: Vec<&str> = card.split("\n`````").collect();
        assert_eq!(block.len(), 3, "{card}");

        let again = Recipe::parse(Path::new("a.toml"), block[1].strip_prefix("toml").unwrap(), &[]);
        let prompt = again.unwrap().recipe.data.prompt.unwrap();
        assert_eq!(prompt, "```\n````\n# {prompt}\n---\n");
        assert_eq!(block[2], "\n");
    }
}
