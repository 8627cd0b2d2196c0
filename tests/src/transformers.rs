//! Python's `transformers`, if it is installed: does it open what Firebrick saves?

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::{
    env,
    ffi::{OsStr, OsString},
    path::Path,
    process::Command,
};

use firebrick_core::TokenId;
use firebrick_data::Tokenizer;
use firebrick_models::{Decoder, Padding, PolicyModel as _, TokenBatch};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};

use crate::fixture::aloud;

/// A Python that can `import torch, transformers, peft`.
pub struct Transformers {
    python: OsString,
}

impl Transformers {
    /// Finds `FIREBRICK_PYTHON`, or else `python3`. Says aloud if it has no transformers.
    ///
    /// # Panics
    /// If `FIREBRICK_PYTHON` is set and has none: a stage of CI that asks for this must not pass by skipping
    /// it.
    pub fn find() -> Option<Self> {
        let named = env::var_os("FIREBRICK_PYTHON");
        let python = named.clone().unwrap_or_else(|| "python3".into());
        let probe = Command::new(&python).args(["-c", "import torch, transformers, peft"]).output();
        if probe.is_ok_and(|output| output.status.success()) {
            return Some(Transformers { python });
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
        let adapter = ["--adapter".as_ref(), adapter.as_os_str()];
        self.compare(base, &adapter, decoder, tokenizer, texts)
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
        let more = ["--adapter".as_ref(), adapter.as_os_str(), "--auto".as_ref(), auto.as_ref()];
        self.compare(base, &more, decoder, tokenizer, texts)
    }

    /// Makes `peft` write an adapter of random values into `adapter`, for the class `auto` of the folder `base`, with
    /// these arguments of its `LoraConfig`.
    ///
    /// # Panics
    /// If it fails, with its words.
    pub fn make_adapter(&self, auto: &str, base: &Path, adapter: &Path, arguments: &Value) {
        let arguments = arguments.to_string();
        let words = [auto.as_ref(), base.as_os_str(), adapter.as_os_str(), arguments.as_ref()];
        self.make("make_adapter.py", &words);
    }

    /// Writes the model of `folder` as a GGUF file by the library `gguf`, through `interop/make_gguf.py`.
    ///
    /// # Panics
    /// If it fails, with its words.
    pub fn make_gguf(&self, folder: &Path, file: &Path) {
        self.make("make_gguf.py", &[folder.as_os_str(), file.as_os_str()]);
    }

    /// Compares a GGUF file that was written here with one of the library `gguf` in f32, through
    /// `interop/compare_gguf.py`. Returns the script's words.
    ///
    /// # Panics
    /// If they differ, with the script's words.
    pub fn compare_gguf(&self, ours: &Path, theirs: &Path) -> String {
        self.make("compare_gguf.py", &[ours.as_os_str(), theirs.as_os_str()])
    }

    /// Runs a script, and returns its words.
    fn make(&self, script: &str, arguments: &[&OsStr]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop").join(script);
        let output = Command::new(&self.python).arg(script).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
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
        let name = ["--gguf".as_ref(), file.file_name().unwrap()];
        self.compare(file.parent().unwrap(), &name, decoder, tokenizer, texts)
    }

    fn compare(
        &self,
        folder: &Path,
        more: &[&OsStr],
        decoder: &Decoder,
        tokenizer: &Tokenizer,
        texts: &[String],
    ) -> String {
        let scratch = tempfile::tempdir().unwrap();
        let expected = scratch.path().join("expected.safetensors");
        write_expected(&expected, decoder, tokenizer, texts);

        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/roundtrip.py");
        let mut run = Command::new(&self.python);
        let output = run.arg(script).arg(folder).arg(&expected).args(more).output().unwrap();
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words}{}", String::from_utf8_lossy(&output.stderr));
        words.trim().to_owned()
    }
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
