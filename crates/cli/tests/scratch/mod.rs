//! A scratch folder for the program to run in.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Map, Value};

/// A temporary folder, which is the program's current directory.
pub(crate) struct Scratch(tempfile::TempDir);

/// Exit code of a process, and its output.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Copies the model `name` of the tests' fixtures into a folder, without the files of its expected results.
    pub(crate) fn fixture(&self, name: &str, folder: &str) {
        for entry in fs::read_dir(repository(&format!("tests/fixtures/{name}"))).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap().to_str().unwrap();
            if !file.starts_with("expected") {
                self.write(&format!("{folder}/{file}"), fs::read(&path).unwrap());
            }
        }
    }

    /// Writes the `config.json` of a Qwen2 of this shape into a folder, without weights. The sizes are those of the
    /// hidden states, the layers, the heads, the heads of keys, the feed-forward layer, the vocabulary and the context.
    pub(crate) fn shape(&self, folder: &str, sizes: [u64; 7], tied: bool) {
        let config = fs::read(repository("tests/fixtures/qwen2-f32/config.json")).unwrap();
        let mut config: Value = serde_json::from_slice(&config).unwrap();

        for (key, size) in [
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
        ]
        .into_iter()
        .zip(sizes)
        {
            config[key] = size.into();
        }

        config["max_window_layers"] = sizes[1].into();
        config["tie_word_embeddings"] = tied.into();
        self.write(&format!("{folder}/config.json"), config.to_string());
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().unwrap())
    }

    /// Runs the program, which has to succeed.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> Outcome {
        let outcome = self.run(arguments);
        assert_eq!(outcome.code, Some(0), "{arguments:?}: {}", outcome.stderr);
        outcome
    }

    /// Trains `recipes/ci/tiny.toml` as the run `name`; `more` has settings in the form of `--set`, and
    /// `--resume`.
    pub(crate) fn train_tiny(&self, name: &str, more: &[&str]) -> Outcome {
        let recipe = repository("recipes/ci/tiny.toml");
        let name = format!("name={name}");

        let mut arguments = vec!["train", &recipe, "--set", &name];
        for &argument in more {
            if argument != "--resume" {
                arguments.push("--set");
            }
            arguments.push(argument);
        }
        self.run(&arguments)
    }

    /// Starts the program, and returns it as soon as `ready` holds; `None` if the program ended before that.
    pub(crate) fn start_until(
        &self,
        arguments: &[&str],
        ready: impl Fn() -> bool,
    ) -> Option<Child> {
        let mut child = self.command(arguments).spawn().unwrap();
        loop {
            if ready() {
                return Some(child);
            }
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firebrick"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());

        // The appearance of errors depends on these variables.
        command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("RUST_BACKTRACE", "0");
        for name in ["FORCE_COLOR", "CLICOLOR_FORCE", "NO_GRAPHICS", "TERM"] {
            command.env_remove(name);
        }
        command
    }

    /// Returns the metrics of a run by step, as `firebrick metrics` prints them. It leaves out the machine's
    /// metrics: the memory, and everything measured with a clock.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Map<String, Value>> {
        let text = self.succeed(&["metrics", &format!("runs/{run}")]).stdout;
        let mut steps: Vec<Map<String, Value>> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();

        for metrics in &mut steps {
            metrics.retain(|name, _| {
                !name.starts_with("time/")
                    && !name.starts_with("memory/")
                    && !name.ends_with("tokens_per_second")
            });
        }
        steps
    }

    /// Returns a metric's value at every step.
    #[track_caller]
    pub(crate) fn values(&self, run: &str, metric: &str) -> Vec<f64> {
        let steps = self.metrics(run);
        let value = |step: &Map<String, Value>| step.get(metric).and_then(Value::as_f64);
        steps.iter().map(|step| value(step).unwrap_or_else(|| panic!("{metric}"))).collect()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    /// Returns the step of the newest checkpoint of a run.
    pub(crate) fn newest(&self, run: &str) -> Option<u64> {
        let entries = fs::read_dir(self.path(&format!("runs/{run}/checkpoints"))).ok()?;
        let steps = entries.filter_map(|entry| {
            entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse().ok()
        });
        steps.max()
    }

    /// Returns everything that has to be equal, bit for bit, for two runs that did the same: the final checkpoint,
    /// the metrics, and the result.
    pub(crate) fn result(&self, run: &str) -> Vec<(String, Vec<u8>)> {
        let checkpoint = format!("runs/{run}/checkpoints/step-{:06}", self.newest(run).unwrap());
        let mut result = Vec::new();

        // The file of an adapter says where its model is, and folders are moved.
        let model: &[&str] = if self.path(&format!("{checkpoint}/config.json")).exists() {
            &["config.json", "model.safetensors"]
        } else {
            &["adapter_model.safetensors"]
        };

        // The optimizer of a policy on a server is there.
        let there = self.path(&format!("{checkpoint}/trainer/weights/server.json")).exists();
        let optimizer = if there { None } else { Some("trainer/optimizer.safetensors") };
        let others = ["tokenizer.json", "trainer/state.json"].into_iter().chain(optimizer);
        // Only actor-critic training has these two.
        let critic = ["trainer/critic.safetensors", "trainer/critic_optimizer.safetensors"];
        let critic =
            critic.iter().filter(|file| self.path(&format!("{checkpoint}/{file}")).exists());

        for name in model.iter().copied().chain(others).chain(critic.copied()) {
            let bytes = fs::read(self.path(&format!("{checkpoint}/{name}"))).unwrap();
            result.push((format!("step {:?}: {name}", self.newest(run)), bytes));
        }

        // Only a curriculum remembers prompts.
        let memory = "trainer/prompts.safetensors";
        if let Ok(bytes) = fs::read(self.path(&format!("{checkpoint}/{memory}"))) {
            result.push((format!("step {:?}: {memory}", self.newest(run)), bytes));
        }

        for metrics in self.metrics(run) {
            result.push((metrics["step"].to_string(), serde_json::to_vec(&metrics).unwrap()));
        }

        let summary = self.json(&format!("runs/{run}/summary.json"));
        for key in ["heldout", "steps", "completions", "stopped_because"] {
            result.push((key.to_owned(), summary[key].to_string().into_bytes()));
        }
        result
    }
}

impl Outcome {
    /// Checks that the process succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Outcome { code: output.status.code(), stdout, stderr }
    }

    /// Returns the text on standard error in one line, whatever its width was.
    pub(crate) fn said(&self) -> String {
        let words: Vec<&str> = self.stderr.split_whitespace().filter(|&word| word != "│").collect();
        words.join(" ")
    }
}

/// Returns the path of a file or folder of the repository.
pub(crate) fn repository(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(path).to_str().unwrap().to_owned()
}

/// Checks that two results are equal. The message names only the entries that differ, so that it fits on a screen.
#[track_caller]
pub(crate) fn assert_same(left: &[(String, Vec<u8>)], right: &[(String, Vec<u8>)]) {
    let names = |result: &[(String, Vec<u8>)]| -> Vec<String> {
        result.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(left), names(right));

    let different: Vec<&String> =
        left.iter().zip(right).filter(|(a, b)| a.1 != b.1).map(|(a, _)| &a.0).collect();
    assert!(different.is_empty(), "these differ: {different:?}");
}
