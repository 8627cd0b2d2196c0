//! The pages of options, keys and metrics must name every one that there is.
//!
//! `FIREBRICK_UPDATE=1 cargo test --release --workspace --test pages` writes the pages of options and of keys again.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use firebrick::{build::build_run, recipe::Recipe};
use firebrick_book::assert_current;
use firebrick_import::Origin;
use serde_json::{Map, Value};

#[test]
fn the_page_of_options_is_current() {
    let page = Options::new().page();
    let path = repository().join("book/src/options.md");
    assert_current(&path, &page);
}

#[test]
fn the_page_of_keys_is_current_and_names_keys_that_exist() {
    let options = Options::new().keys();
    for origin in [Origin::Verl, Origin::Skyrl] {
        for key in origin.keys() {
            for here in key.here.split(", ").filter(|here| !here.is_empty()) {
                assert!(options.contains(here), "{} is said to be `{here}`", key.name);
            }
            assert!(key.says.matches(". ").count() < 3, "more than three sentences: {}", key.says);
        }
    }

    let page = page_of_keys();
    let path = repository().join("book/src/parts/keys.md");
    assert_current(&path, &page);
}

/// Writes the page: for each program, the names that its keys have here; then the keys that mean nothing here,
/// by the reason.
fn page_of_keys() -> String {
    let mut page = String::from(
        "<!-- Made from the tables in crates/import/src; a change here is overwritten.\n     \
         FIREBRICK_UPDATE=1 cargo test --release --workspace --test pages --test names -->\n\n# From verl and SkyRL\n\n\
         `firebrick recipes import` translates a configuration by these tables. For each key that \
         is not the same here, it says what is different. A key that is left out has *its* \
         default. If our default differs, the recipe says so. `a.*` stands for every key below `a` \
         that has no row of its own. A key that is in no row is reported as unknown.\n",
    );

    for origin in [Origin::Verl, Origin::Skyrl] {
        let name = origin.name();
        let _ = write!(page, "\n## {name}\n\nRead in {}\n\n", origin.source());
        let _ = writeln!(
            page,
            "| {name} | its default | here | what is different |\n|---|---|---|---|"
        );

        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        for key in origin.keys().filter(|key| !key.idle) {
            let here: Vec<String> = key.here.split(", ").map(code).collect();
            let here = if key.here.is_empty() { "–".into() } else { here.join(", ") };
            let says = key.says.replace('|', "\\|");
            let _ = writeln!(page, "| `{}` | {} | {here} | {says} |", key.name, code(key.default));
        }

        page.push_str("\nThese mean nothing here:\n\n");
        // Grouped by reason, in the order in which reasons first come up.
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for key in origin.keys().filter(|key| key.idle) {
            match reasons.iter_mut().find(|(why, _)| *why == key.says) {
                Some((_, keys)) => keys.push(code(&key.name)),
                None => reasons.push((key.says, vec![code(&key.name)])),
            }
        }
        for (why, keys) in reasons {
            let _ = writeln!(page, "- {why}: {}", keys.join(", "));
        }
    }

    page
}

/// A block of Rust that is not `ignore`d is compiled only if its page is in the list of chapters.
#[test]
fn every_page_with_rust_is_compiled() {
    let chapters = fs::read_to_string(repository().join("book/listings/src/lib.rs")).unwrap();
    for page in firebrick_book::pages() {
        let text = fs::read_to_string(&page).unwrap();
        let compiled = text.lines().any(|line| {
            line.trim_start().strip_prefix("```rust").is_some_and(|rest| !rest.contains("ignore"))
        });

        let name = page.display().to_string();
        let name = name.rsplit_once("/src/").unwrap().1;
        let listed = chapters.contains(&format!(" = \"{name}\";"));
        assert_eq!(compiled, listed, "{name}: is it in `chapters!`, and does it have Rust?");
    }
}

#[test]
fn the_settings_of_papers_are_recipes() {
    let page = fs::read_to_string(repository().join("book/src/papers.md")).unwrap();
    let page = page.replace("\r\n", "\n");
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();

    for block in &blocks {
        let recipe = format!("model.path = \"model\"\ndata.train = \"train.jsonl\"\n{block}");
        if let Err(error) = Recipe::parse("papers.md".as_ref(), &recipe, &[]) {
            panic!("{block}{error}");
        }
    }

    assert!(blocks.len() > 3, "the page has lost its blocks");
}

/// A key of a recipe is a table's name, a dot and more, in backticks; a value may follow it. The pages of keys and of
/// metrics name those of other programs as well.
#[test]
fn the_pages_name_keys_that_exist() {
    let keys = Options::new().keys();
    let tables: BTreeSet<&str> =
        keys.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    let mut named = 0;
    let mut unknown = Vec::new();
    let others = ["keys.md", "metrics.md", "from-trl.md"];

    for page in firebrick_book::pages() {
        if others.iter().any(|other| page.ends_with(other)) {
            continue;
        }

        // Every second part between backticks is code. Blocks are left out.
        let text = fs::read_to_string(&page).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for code in prose.split('`').skip(1).step_by(2) {
            let key = code.split([' ', '=', ',']).next().unwrap_or_default();
            let dotted = key.split_once('.').is_some_and(|(table, _)| tables.contains(table));
            let plain = key
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '_' || c == '.' || c.is_ascii_digit());
            let file = [".rs", ".toml", ".md", ".json", ".py", ".gguf", ".safetensors"];

            if !dotted || !plain || file.iter().any(|ending| key.ends_with(ending)) {
                continue;
            }

            named += 1;
            if !keys.contains(key) {
                unknown.push(format!("{}: {key}", page.display()));
            }
        }
    }

    assert!(unknown.is_empty(), "no recipe has these keys: {unknown:#?}");
    assert!(named > 100, "only {named} keys were found: are they written otherwise?");
}

#[test]
fn the_page_of_metrics_names_every_metric() {
    // Switch on everything that reports a metric, at the smallest size.
    let overrides = [
        "train.steps=1",
        "reward.overlong.buffer=2",
        "reward.overlong.penalty=1.0",
        // The tiny task's model is new. All groups are kept, so that there is an update.
        "sampling.dynamic=false",
        "sampling.curriculum.kind=posterior",
        "advantage.kind=gae",
        "critic.clip=0.2",
        "loss.kl={ kind = \"k3\", coef = 0.1 }",
        "loss.tis_cap=2.0",
        "loss.tis_mask=[0.5, 2.0]",
        "model.new.family=qwen3_moe",
        "loss.router_aux_loss_coef=0.001",
        "train.adaptive={}",
        "observe.phrases=[\"PHRASE\"]",
        "environment={kind='calculator',max_observation_tokens=16,stop=['=']}",
        "reward.kind=weighted",
        "reward.parts=[{ name = \"NAME\", weight = 1.0, kind = \"integer\" }]",
    ];

    let recipe = repository().join("recipes/ci/tiny.toml");
    let recipe = Recipe::load(&recipe, &overrides.map(String::from)).unwrap().recipe;
    let mut built = build_run(
        &recipe,
        None,
        &firebrick::source::Sources::here(),
        firebrick_data::DateTime::default(),
    )
    .unwrap();

    built.trainer.learner.reference =
        Some(burn::module::Module::valid(&built.trainer.learner.policy));
    built.trainer.learner.critic =
        built.critic.map(|plan| plan.new_critic(&built.trainer.learner.policy));
    let report = built.trainer.step(&mut ()).unwrap();

    let page = fs::read_to_string(repository().join("book/src/metrics.md")).unwrap();
    for name in report.metrics.0.keys() {
        assert!(page.contains(&format!("| `{name}` |")), "book/src/metrics.md lacks `{name}`");
    }

    // The page has no other metrics except these. The first ten are the program's and not the step's. The next needs a
    // reward model's checkpoint, the next three several data sets. Then come those of a gate by importance, of programs
    // that are run, of a language model that judges, of a teacher and of servers, and the next needs no adaptive
    // updates. The last two are missing because a new model gets nothing right and says nothing twice.
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let name = row.split('`').next().unwrap_or_default();
        let elsewhere = [
            "time/record",
            "time/clock",
            "memory/peak_bytes",
            "eval/heldout_accuracy",
            "eval/heldout_credit",
            "eval/data_source/NAME",
            "eval/difficulty/LEVEL",
            "eval/NAME/accuracy",
            "eval/NAME/majority",
            "eval/NAME/pass_at_K",
            "reward/part/score",
            "data_source/NAME/credit",
            "data_source/NAME/kept",
            "data_source/NAME/completions",
            "rollout/tis_gated",
            "code/programs",
            "code/seconds",
            "judge/requests",
            "judge/retries",
            "judge/prompt_tokens",
            "judge/cost",
            "teacher/reverse_kl",
            "teacher/forward_kl",
            "loss/teacher",
            "rollout/refused",
            "update/logprob_moved",
            "rollout/length_right",
            "observe/credit_with",
        ]
        .contains(&name);
        assert!(elsewhere || report.metrics.get(name).is_some(), "no step reports `{name}`");
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Schema of recipes, as the program prints it.
struct Options(Value);

impl Options {
    fn new() -> Self {
        Options(Recipe::schema())
    }

    fn page(&self) -> String {
        let mut page = String::from(
            "<!-- Made from the recipe's JSON schema; a change here is overwritten.\n     \
             FIREBRICK_UPDATE=1 cargo test --release --workspace --test pages --test names -->\n\n# Every option\n\n\
             Made from the same types that the program reads a recipe with. A key without a \
             default may be left out, unless it says *required*.\n",
        );
        self.table("", &self.0, &mut page);
        page
    }

    /// Lists every key that may stand in a recipe, tables too, dotted.
    fn keys(&self) -> BTreeSet<String> {
        let mut page = String::new();
        self.table("", &self.0, &mut page);
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut keys = BTreeSet::new();
        let mut table = String::new();

        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                table =
                    heading.split('`').nth(1).unwrap_or_default().trim_matches(['[', ']']).into();
                keys.insert(table.clone());
            } else if line.starts_with("**`kind = ") {
                keys.insert(format!("{table}.kind"));
            } else if let Some(key) = line.strip_prefix("| `") {
                let key = key.split('`').next().unwrap_or_default();
                keys.insert(if table.is_empty() { key.into() } else { format!("{table}.{key}") });
            }
        }

        assert!(rows.count() > 40, "the page of options has no rows");
        keys
    }

    /// Writes a section for the table at `path`, and then those of the tables inside it.
    fn table(&self, path: &str, schema: &Value, page: &mut String) {
        let heading = if path.is_empty() { "Top level".to_owned() } else { format!("`[{path}]`") };
        self.section(&heading, path, schema, &shapes(schema), page);
    }

    /// Writes a section for the tables under `[[path]]`. Their kinds are those of the table around them.
    fn tables(&self, path: &str, schema: &Value, page: &mut String) {
        self.section(&format!("`[[{path}]]`"), path, schema, &shapes(schema)[..1], page);
    }

    fn section(
        &self,
        heading: &str,
        path: &str,
        schema: &Value,
        shapes: &[&Value],
        page: &mut String,
    ) {
        let _ = write!(page, "\n## {heading}\n\n{}\n", text(schema));

        let mut inner = Vec::new();
        for &shape in shapes {
            let kind = shape["properties"]["kind"]["const"].as_str();
            if let Some(kind) = kind {
                let default = if shape["required"].is_null() { ", the default" } else { "" };
                let _ = write!(page, "\n**`kind = \"{kind}\"`**{default}: {}\n", text(shape));
            }

            // The shapes of a table that has no `kind` are alternatives of one key each.
            let alternative = kind.is_none() && !std::ptr::eq(shape, schema);
            let keys =
                || object(&shape["properties"]).filter(|(key, _)| kind.is_none() || *key != "kind");
            if keys().next().is_some() && (!alternative || std::ptr::eq(shape, shapes[0])) {
                page.push_str("\n| key | value | default | what it does |\n|---|---|---|---|\n");
            }

            let required = list(&shape["required"]);
            for (key, property) in keys() {
                let target = self.resolve(property);
                let default = match &property["default"] {
                    Value::Null if alternative => "*one of them*".to_owned(),
                    Value::Null if required.contains(&key.as_str()) => "*required*".to_owned(),
                    Value::Null => String::new(),
                    value => format!("`{value}`"),
                };
                // A property without a description has that of its shape.
                let described = if property["description"].is_null() { shape } else { property };
                let mut meaning = text(described);
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };

                // A value may be a text, or a list instead.
                let mut forms = target["anyOf"].as_array().into_iter().flatten();
                let array = forms.find(|shape| shape["type"] == "array");
                let items = self.resolve(&array.unwrap_or(target)["items"]);
                // The kinds of a data set's own reward are those of `[reward]`.
                if below == "data.train.reward" {
                    meaning += " `[reward]` has the kinds.";
                } else if is_table(target) {
                    inner.push((below, target, false));
                } else if is_table(items) {
                    inner.push((below, items, true));
                }

                if let Some(choices) = choices(target).or_else(|| choices(items)) {
                    for (name, what) in choices {
                        let _ = write!(meaning, "<br>`{name}`: {what}");
                    }
                }

                let value = kind_of(target, items, property);
                let _ = writeln!(page, "| `{key}` | {value} | {default} | {meaning} |");
            }
        }

        for (path, schema, several) in inner {
            if several {
                self.tables(&path, schema, page);
            } else {
                self.table(&path, schema, page);
            }
        }
    }

    fn resolve<'a>(&'a self, property: &'a Value) -> &'a Value {
        let name = property["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        name.map_or(property, |name| &self.0["$defs"][name])
    }
}

/// Lists the shapes of a table: first the keys that it always has, if any, and then its alternatives.
fn shapes(schema: &Value) -> Vec<&Value> {
    let alternatives = schema["oneOf"].as_array().into_iter().flatten();
    let shapes = std::iter::once(schema).chain(alternatives);
    shapes.filter(|shape| shape["properties"].is_object()).collect()
}

fn is_table(schema: &Value) -> bool {
    !shapes(schema).is_empty()
}

/// Lists the values of a choice, each with its meaning.
fn choices(schema: &Value) -> Option<Vec<(&str, String)>> {
    let alternatives = schema["oneOf"].as_array()?;
    // A value that may also be written without quotes is described under the name that it stands for.
    let named = alternatives.iter().filter(|choice| choice["const"].is_string());
    let named: Vec<_> =
        named.filter_map(|choice| Some((choice["const"].as_str()?, text(choice)))).collect();
    (!named.is_empty()).then_some(named)
}

/// Names the kind of an option. `items` is the schema of a list's entries.
fn kind_of(schema: &Value, items: &Value, property: &Value) -> String {
    let kind = match schema["type"].as_str() {
        _ if is_table(schema) && choices(schema).is_some() => return "choice or table".into(),
        _ if is_table(schema) => return "table".into(),
        _ if schema["anyOf"].is_array() => return "text or list of tables".into(),
        Some("object") => return "table".into(),
        _ if choices(schema).is_some() => return "choice".into(),
        Some("string") => return "text".into(),
        Some("boolean") => return "true, false".into(),
        Some("array") if items["type"] == "string" => return "list of text".into(),
        Some("array") if items["type"] == "number" => return "list of numbers".into(),
        Some("array") if choices(items).is_some() => return "list of choices".into(),
        Some("array") => return "list of tables".into(),
        Some("integer") => "whole number",
        _ => "number",
    };

    // A whole number's bound of 0 goes without saying.
    let bound = |name: &str, sign: &str| match &property[name] {
        Value::Null => None,
        bound if kind == "whole number" && bound == 0 => None,
        bound => Some(format!(" {sign} {}", plain(bound))),
    };
    let bounds = [
        bound("minimum", "≥"),
        bound("exclusiveMinimum", ">"),
        bound("maximum", "≤"),
        bound("exclusiveMaximum", "<"),
    ];

    let bounds: Vec<String> = bounds.into_iter().flatten().collect();
    format!("{kind}{}", bounds.join(","))
}

/// Writes 1 and not 1.0.
fn plain(number: &Value) -> String {
    number.to_string().trim_end_matches(".0").to_owned()
}

fn text(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('|', "\\|")
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
