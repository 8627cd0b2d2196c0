//! Folders with a checkpoint, and with the numbers that the reference implementation computes from it.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be read fails the test")]

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use burn::tensor::Device;
use firebrick_data::Tokenizer;
use firebrick_models::{Decoder, DecoderConfig, load, load_config};
use safetensors::SafeTensors;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Folder of one checkpoint; see `tests/fixtures/README.md`.
pub struct Fixture {
    /// Name of the folder.
    pub name: String,
    /// Path of the folder.
    pub folder: PathBuf,
    /// Sizes of the model, or the reason why they cannot be read.
    model: Result<DecoderConfig, String>,
    expected: Map<String, Value>,
}

/// Calls `test` with every checkpoint of an implemented family and the `block` of its `expected.json`. Says aloud
/// which folders it skips.
///
/// # Panics
/// If no folder has both, because a test of nothing is not a pass.
pub fn for_each_checkpoint<T: DeserializeOwned>(block: &str, test: impl Fn(&Fixture, T)) {
    for_each(block, |fixture| fixture.model.is_ok(), test);
}

/// Works like [`for_each_checkpoint`] for the tokenizer alone, and so takes folders of every family.
///
/// # Panics
/// If there is no such folder.
pub fn for_each_tokenizer<T: DeserializeOwned>(block: &str, test: impl Fn(&Fixture, T)) {
    for_each(block, |fixture| fixture.folder.join("tokenizer.json").exists(), test);
}

/// Works like [`for_each_checkpoint`] for folders with an adapter instead of a model.
///
/// # Panics
/// If there is no such folder.
pub fn for_each_adapter<T: DeserializeOwned>(block: &str, test: impl Fn(&Fixture, T)) {
    for_each(block, |fixture| firebrick_models::is_adapter(&fixture.folder), test);
}

/// A number of tokens that no text of a fixture reaches.
pub const LONGEST: usize = 1024;

/// Lists the folders, in order: those in `FIREBRICK_FIXTURES_DIR`, or those in this repository.
///
/// # Panics
/// If they cannot be listed.
pub fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(root())
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", root().display()));
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    folders
}

/// Prints past the test harness, which shows a passing test's output to nobody.
#[allow(clippy::explicit_write, reason = "the harness captures what eprintln! writes")]
pub fn aloud(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

impl Fixture {
    /// Returns the model's sizes.
    pub fn config(&self) -> &DecoderConfig {
        self.model.as_ref().unwrap()
    }

    /// Loads the model.
    pub fn decoder(&self, device: &Device) -> Decoder {
        load(&self.folder, device).unwrap().with_longest(LONGEST)
    }

    /// Loads the tokenizer.
    pub fn tokenizer(&self) -> Tokenizer {
        Tokenizer::from_folder(&self.folder).unwrap()
    }

    /// Reads another block of `expected.json`.
    pub fn block<T: DeserializeOwned>(&self, block: &str) -> T {
        let value = self.expected.get(block).unwrap_or(&Value::Null);
        T::deserialize(value).unwrap_or_else(|error| panic!("{}: \"{block}\": {error}", self.name))
    }

    /// Reads a tensor of `expected.safetensors`.
    pub fn tensor(&self, name: &str) -> Vec<f32> {
        let bytes = fs::read(self.folder.join("expected.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let values = tensors.tensor(name).unwrap().data().as_chunks::<4>().0;
        values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

fn for_each<T: DeserializeOwned>(
    block: &str,
    suits: impl Fn(&Fixture) -> bool,
    test: impl Fn(&Fixture, T),
) {
    let mut tested = 0;
    for fixture in FIXTURES.iter().filter(|fixture| suits(fixture)) {
        if fixture.expected.contains_key(block) {
            test(fixture, fixture.block(block));
            tested += 1;
        } else {
            aloud(&format!("skipped: {}: expected.json has no \"{block}\"", fixture.name));
        }
    }

    assert!(
        tested > 0,
        "no folder in {} could be tested for \"{block}\"; does FIREBRICK_FIXTURES_DIR name a \
         folder of checkpoint folders?",
        root().display()
    );
}

static FIXTURES: LazyLock<Vec<Fixture>> =
    LazyLock::new(|| folders().iter().filter_map(|folder| open(folder)).collect());

fn open(folder: &Path) -> Option<Fixture> {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let Ok(expected) = fs::read(folder.join("expected.json")) else {
        aloud(&format!("skipped: {name}: there is no expected.json to compare with"));
        return None;
    };
    let model = load_config(folder).map(|(config, _)| config).map_err(|error| error.to_string());
    if let Err(reason) = &model {
        aloud(&format!("skipped: {name}: {reason}"));
    }
    let expected = serde_json::from_slice(&expected).unwrap();
    Some(Fixture { name, folder: folder.to_owned(), model, expected })
}

fn root() -> PathBuf {
    match env::var_os("FIREBRICK_FIXTURES_DIR") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"),
    }
}
