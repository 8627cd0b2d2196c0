//! Python's `transformers`, if it is installed: does it open what Firebrick saves?

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::{
    env,
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    sync::{LazyLock, Mutex, PoisonError},
};

use firebrick_core::TokenId;
use firebrick_data::Tokenizer;
use firebrick_models::{Decoder, Padding, PolicyModel as _, TokenBatch};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use crate::fixture::aloud;

/// A Python that can `import torch, transformers, peft`. It is one process for all tests of a program, because the
/// imports take longer than a comparison.
pub struct Transformers {
    session: Mutex<Session>,
}

/// A process with `interop/session.py`, and its answers.
struct Session {
    process: Child,
    answers: BufReader<ChildStdout>,
}

static FOUND: LazyLock<Option<Transformers>> = LazyLock::new(Transformers::start);

impl Transformers {
    /// Finds `FIREBRICK_PYTHON`, or else `python3`. Says aloud if it has no transformers.
    ///
    /// # Panics
    /// If `FIREBRICK_PYTHON` is set and has none: a stage of CI that asks for this must not pass by skipping
    /// it.
    pub fn find() -> Option<&'static Self> {
        FOUND.as_ref()
    }

    fn start() -> Option<Self> {
        let named = env::var_os("FIREBRICK_PYTHON");
        let python: OsString = named.clone().unwrap_or_else(|| "python3".into());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/session.py");
        let process = Command::new(&python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();

        if let Ok(mut process) = process {
            let mut answers = BufReader::new(process.stdout.take().unwrap());
            if answer(&mut answers) == Some(json!("ready")) {
                return Some(Transformers { session: Session { process, answers }.into() });
            }
        }

        assert!(
            named.is_none(),
            "FIREBRICK_PYTHON, {python:?}, cannot import torch, transformers, peft"
        );
        aloud(&format!(
            "skipped: {python:?} cannot import torch, transformers and peft, which would open what was \
             saved; FIREBRICK_PYTHON names another interpreter"
        ));
        None
    }

    /// Compares Python with the code here, through `interop/roundtrip.py`: the logits of `texts`, right-padded,
    /// and their tokens. `decoder` and its tokenizer were saved in `folder`. Returns the script's words.
    ///
    /// # Panics
    /// If they differ, with the script's words.
    pub fn check(
        &self,
        folder: &Path,
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        self.compare(folder, &[], decoder, tokenizer, texts)
    }

    /// Works like [`Transformers::check`] for a PEFT adapter that was saved into `adapter`. Opened by `peft` on
    /// the checkpoint in `base`, it computes what `decoder` does, and so does the merged model.
    ///
    /// # Panics
    /// As for [`Transformers::check`].
    pub fn check_adapter(
        &self,
        base: &Path,
        adapter: &Path,
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        self.compare(base, &["--adapter", text(adapter)], decoder, tokenizer, texts)
    }

    /// Works like [`Transformers::check_adapter`], with the base opened by the class `auto` of `transformers`.
    ///
    /// # Panics
    /// As for [`Transformers::check`].
    pub fn check_adapter_of(
        &self,
        auto: &str,
        [base, adapter]: [&Path; 2],
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        let more = ["--adapter", text(adapter), "--auto", auto];
        self.compare(base, &more, decoder, tokenizer, texts)
    }

    /// Makes `peft` write an adapter of random values into `adapter`, for the class `auto` of the folder `base`, with
    /// these arguments of its `LoraConfig`.
    ///
    /// # Panics
    /// If it fails, with its words.
    pub fn make_adapter(&self, auto: &str, base: &Path, adapter: &Path, arguments: &Value) {
        let arguments = arguments.to_string();
        self.make("make_adapter.py", &[auto, text(base), text(adapter), &arguments]);
    }

    /// Writes the model of `folder` as a GGUF file by the library `gguf`, through `interop/make_gguf.py`.
    ///
    /// # Panics
    /// If it fails, with its words.
    pub fn make_gguf(&self, folder: &Path, file: &Path) {
        self.make("make_gguf.py", &[text(folder), text(file)]);
    }

    /// Compares a GGUF file that was written here with one of the library `gguf` in f32, through
    /// `interop/compare_gguf.py`. Returns the script's words.
    ///
    /// # Panics
    /// If they differ, with the script's words.
    pub fn compare_gguf(&self, ours: &Path, theirs: &Path) -> String {
        self.make("compare_gguf.py", &[text(ours), text(theirs)])
    }

    /// Runs a script, and returns its words.
    fn make(&self, script: &str, arguments: &[&str]) -> String {
        let request = json!([&[script], arguments].concat());
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(session.process.stdin.as_mut().unwrap(), "{request}").unwrap();

        let answer = answer(&mut session.answers);
        drop(session);
        let answer = answer.and_then(|it| serde_json::from_value::<(bool, String)>(it).ok());
        let (worked, words) = answer.expect("Python answers every request");
        assert!(worked, "{request}: {words}");
        words.trim().to_owned()
    }

    /// Works like [`Transformers::check`] for a GGUF file that was read here.
    ///
    /// # Panics
    /// As for [`Transformers::check`].
    pub fn check_gguf(
        &self,
        file: &Path,
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        let name = file.file_name().unwrap();
        let more = ["--gguf", name.to_str().unwrap()];
        self.compare(file.parent().unwrap(), &more, decoder, tokenizer, texts)
    }

    fn compare(
        &self,
        folder: &Path,
        more: &[&str],
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        let scratch = tempfile::tempdir().unwrap();
        let expected = scratch.path().join("expected.safetensors");
        write_expected(&expected, decoder, tokenizer, texts);
        self.make("roundtrip.py", &[&[text(folder), text(&expected)], more].concat())
    }
}

/// Reads the next answer. `None` if the process has ended.
fn answer(answers: &mut BufReader<ChildStdout>) -> Option<Value> {
    let mut line = String::new();
    answers.read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Writes `input_ids`, `attention_mask` and `logits`, with the texts and their tokens in the metadata.
fn write_expected(path: &Path, decoder: &Decoder, tokenizer: &Tokenizer, texts: &[String]) {
    let encoded = texts.iter().map(|text| {
        let ids = tokenizer.encode(text, true).unwrap();
        json!({"text": text, "decoded": tokenizer.decode(&ids, true), "ids": ids})
    });
    let metadata = [("texts".to_owned(), Value::from_iter(encoded).to_string())].into();

    let rows: Vec<Vec<TokenId>> =
        texts.iter().map(|text| tokenizer.encode(text, true).unwrap()).collect();
    let rows: Vec<&[TokenId]> =
        rows.iter().map(Vec::as_slice).filter(|row| !row.is_empty()).collect();
    let batch = TokenBatch::new(&rows, Padding::Right, &decoder.device());
    let logits = decoder.logits(&batch);
    let [count, width, vocab] = logits.dims();
    let logits: Vec<f32> =
        logits.reshape([count * width * vocab]).try_into_vec_as::<f32>().unwrap();
    // Padding has the token 0 and the mask 0.
    let padded = |value: &dyn Fn(TokenId) -> i64| -> Vec<u8> {
        let row = |row: &&[TokenId]| {
            let padding = std::iter::repeat_n(0, width - row.len());
            row.iter().map(|&id| value(id)).chain(padding).collect::<Vec<i64>>()
        };
        rows.iter().flat_map(row).flat_map(i64::to_le_bytes).collect()
    };

    let ids = padded(&i64::from);
    let mask = padded(&|_| 1);
    let logits: Vec<u8> = logits.into_iter().flat_map(f32::to_le_bytes).collect();
    let tensors = [
        ("input_ids", TensorView::new(Dtype::I64, vec![count, width], &ids).unwrap()),
        ("attention_mask", TensorView::new(Dtype::I64, vec![count, width], &mask).unwrap()),
        ("logits", TensorView::new(Dtype::F32, vec![count, width, vocab], &logits).unwrap()),
    ];
    safetensors::serialize_to_file(tensors, Some(metadata), path).unwrap();
}
