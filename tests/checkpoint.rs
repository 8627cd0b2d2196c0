//! Model folders: a saved model reads back as the same bytes, and every fault of a folder is a clear error.

#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use firebrick_core::Seed;
use firebrick_models::{
    Decoder, DecoderConfig, Family, FrozenFormat, Inventory, Loaded, SaveOptions, Sizes,
    WeightDtype, inventory, load, load_config, load_noting, parameters, random, save, save_as,
    unread_tensors,
};
use serde_json::{Map, Value, json};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Tensors of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tensors(BTreeMap<String, Stored>);

#[derive(Clone, Debug, PartialEq)]
struct Stored {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Tensors {
    fn read(path: &Path) -> Self {
        let (header, data) = split(path);
        let tensor = |(name, info): (&String, &Value)| {
            let numbers = |key: &str| -> Vec<usize> {
                info[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|it| it.as_u64().unwrap() as usize)
                    .collect()
            };

            let offsets = numbers("data_offsets");
            let bytes = data[offsets[0]..offsets[1]].to_vec();
            let dtype = info["dtype"].as_str().unwrap().to_owned();
            (name.clone(), Stored { dtype, shape: numbers("shape"), bytes })
        };
        Tensors(header.iter().filter(|(name, _)| *name != "__metadata__").map(tensor).collect())
    }

    fn write(&self, path: &Path) {
        let mut header = Map::new();
        let mut data = Vec::new();
        for (name, Stored { dtype, shape, bytes }) in &self.0 {
            let offsets = [data.len(), data.len() + bytes.len()];
            header.insert(
                name.clone(),
                json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}),
            );
            data.extend_from_slice(bytes);
        }
        join(path, &header, &data);
    }

    fn add(&mut self, name: &str, dtype: &str, shape: &[usize], bytes: Vec<u8>) {
        self.0.insert(name.into(), Stored { dtype: dtype.into(), shape: shape.into(), bytes });
    }
}

/// Splits a safetensors file into its header and its data.
fn split(path: &Path) -> (Map<String, Value>, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    (serde_json::from_slice(header).unwrap(), data.to_vec())
}

fn join(path: &Path, header: &Map<String, Value>, data: &[u8]) {
    let header = serde_json::to_vec(header).unwrap();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length[..], &header, data].concat()).unwrap();
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// A copy of a fixture's model, to be broken.
struct Folder(tempfile::TempDir);

impl Folder {
    fn of(fixture_name: &str) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        for name in ["config.json", SINGLE] {
            fs::copy(fixture(fixture_name).join(name), folder.path(name)).unwrap();
        }
        folder
    }

    /// Saves the model of `qwen2-f32` in three shards.
    fn in_shards() -> Self {
        let (decoder, config) = model("qwen2-f32");
        let folder = Folder(tempfile::tempdir().unwrap());
        let options = SaveOptions { max_shard_bytes: 200_000, ..SaveOptions::default() };
        save(&decoder, &config, folder.0.path(), &options).unwrap();
        assert!(folder.path(&shard(3)).exists() && !folder.path(&shard(4)).exists());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self, edit: impl FnOnce(&mut Map<String, Value>)) {
        self.json("config.json", edit);
    }

    fn json(&self, name: &str, edit: impl FnOnce(&mut Map<String, Value>)) {
        let mut fields = serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap();
        edit(&mut fields);
        fs::write(self.path(name), serde_json::to_vec(&fields).unwrap()).unwrap();
    }

    fn weight_map(&self, edit: impl FnOnce(&mut Map<String, Value>)) {
        self.json(INDEX, |index| edit(index["weight_map"].as_object_mut().unwrap()));
    }

    fn bytes(&self, edit: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(SINGLE)).unwrap();
        edit(&mut bytes);
        fs::write(self.path(SINGLE), bytes).unwrap();
    }

    fn header(&self, edit: impl FnOnce(&mut Map<String, Value>)) {
        let (mut header, data) = split(&self.path(SINGLE));
        edit(&mut header);
        join(&self.path(SINGLE), &header, &data);
    }

    fn tensors(&self, edit: impl FnOnce(&mut Tensors)) {
        self.tensors_of(SINGLE, edit);
    }

    fn tensors_of(&self, file: &str, edit: impl FnOnce(&mut Tensors)) {
        let mut tensors = Tensors::read(&self.path(file));
        edit(&mut tensors);
        tensors.write(&self.path(file));
    }

    /// Checks that loading fails with an error that holds all of `words`.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let error = load(self.0.path(), &Device::flex()).expect_err("it was loaded").to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in: {error}");
        }
        assert!(error.len() < 600, "{error}");
        // The functions that read only headers meet the same files, and must not panic.
        let _ = (inventory(self.0.path()), unread_tensors(self.0.path()));
    }
}

fn shard(number: usize) -> String {
    format!("model-{number:05}-of-00003.safetensors")
}

fn model(name: &str) -> (Decoder, Value) {
    let folder = fixture(name);
    (load(&folder, &Device::flex()).unwrap(), load_config(&folder).unwrap().1)
}

const NORM: &str = "model.norm.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

#[test]
fn a_damaged_header() {
    let case = || Folder::of("qwen2-f32");
    let folder = case();
    folder.bytes(|bytes| bytes.truncate(100));
    folder.refused(&[SINGLE, "its header would have ", "and the file has 92 after its length"]);

    let folder = case();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    folder.bytes(|bytes| *bytes = pointer.as_bytes().to_vec());
    folder.refused(&[SINGLE, "it is a pointer of Git LFS: fetch the file with git lfs pull"]);

    let folder = case();
    folder.bytes(|bytes| bytes.truncate(5));
    folder.refused(&["it has 5 bytes, and the header's length takes 8"]);
    let folder = case();
    folder.bytes(|bytes| bytes.clear());
    folder.refused(&["it has 0 bytes", "download or copy it again"]);

    // Nothing may be allocated for such a length.
    for length in [u64::MAX, 1 << 62, 100_000_001] {
        let folder = case();
        folder.bytes(|bytes| bytes[..8].copy_from_slice(&length.to_le_bytes()));
        folder.refused(&[&format!("would have {length} bytes, and the format allows 100000000")]);
    }
    let folder = case();
    folder.bytes(|bytes| bytes[..8].copy_from_slice(&99_999_999u64.to_le_bytes()));
    folder.refused(&["would have 99999999 bytes, and the file has 512"]);

    let folder = case();
    folder.bytes(|bytes| bytes[8] = b'<');
    folder.refused(&["its header is wrong: expected value at line 1 column 1"]);
    let folder = case();
    folder.bytes(|bytes| bytes[12] = 0xff);
    folder.refused(&["its header is wrong: invalid unicode code point"]);
}

#[test]
fn tensors_that_do_not_lie_one_behind_the_other() {
    let case = || Folder::of("qwen2-f32");
    /// Shifts a tensor's offsets by some bytes.
    fn shift(header: &mut Map<String, Value>, name: &str, begin: i64, end: i64) {
        let offsets = &mut header[name]["data_offsets"];
        *offsets =
            json!([offsets[0].as_i64().unwrap() + begin, offsets[1].as_i64().unwrap() + end]);
    }
    let invalid = format!("invalid offset for tensor `{NORM}`");

    // Entries overlap, or leave a hole.
    let folder = case();
    folder.header(|header| shift(header, NORM, -8, -8));
    folder.refused(&["its header is wrong", "invalid offset for tensor"]);
    let folder = case();
    folder.tensors(|tensors| tensors.add("zero", "F32", &[2], vec![0; 8]));
    folder.header(|header| header.remove("zero").map(drop).unwrap());
    folder.refused(&["promises ", "bytes of tensors, and "]);
    let folder = case();
    folder.tensors(|tensors| tensors.add("a hole", "F32", &[2], vec![0; 8]));
    folder.header(|header| header.remove("a hole").map(drop).unwrap());
    folder.refused(&["its header is wrong: invalid offset for tensor"]);

    // An entry lies beyond the data, or ends before it begins.
    let folder = case();
    folder.header(|header| shift(header, NORM, 0, 1 << 40));
    folder.refused(&["its header is wrong"]);
    let folder = case();
    folder.header(|header| shift(header, NORM, 8, -1000));
    folder.refused(&["its header is wrong", &invalid]);

    // The data is shorter or longer than the header says.
    let folder = case();
    folder.bytes(|bytes| bytes.truncate(bytes.len() - 4));
    folder.refused(&["its header promises ", "bytes of tensors, and ", " follow"]);
    let folder = case();
    folder.bytes(|bytes| bytes.extend([0; 3]));
    folder.refused(&["bytes of tensors, and "]);

    // An entry makes no sense by itself.
    let folder = case();
    folder.header(|header| header[NORM]["shape"] = json!([u64::MAX, 4]));
    folder.refused(&["its header is wrong: overflow"]);
    let folder = case();
    folder.header(|header| header[NORM]["data_offsets"] = json!([-1, 4]));
    folder.refused(&["its header is wrong: invalid value: integer `-1`"]);
    let folder = case();
    folder.header(|header| header[NORM]["dtype"] = json!("F128"));
    folder.refused(&["its header is wrong: unknown variant `F128`"]);
}

#[test]
fn tensors_that_are_not_the_configuration_s() {
    let case = || Folder::of("qwen2-f32");
    let folder = case();
    folder.tensors(|tensors| tensors.add(NORM, "I64", &[64], vec![0; 512]));
    folder.refused(&[NORM, "is I64 [64]", "F32, BF16 or F16 [64]"]);
    let folder = case();
    folder.tensors(|tensors| tensors.add(NORM, "F32", &[1, 64], vec![0; 256]));
    folder.refused(&[NORM, "is F32 [1, 64]", "makes it [64]"]);
    let folder = case();
    folder.config(|config| config["intermediate_size"] = json!(168));
    folder.refused(&["mlp.gate_proj.weight", "is F32 [160, 64]", "makes it [168, 64]"]);

    let folder = case();
    folder.tensors(|tensors| tensors.0.remove(NORM).map(drop).unwrap());
    folder.refused(&["has no tensor \"model.norm.weight\"", "num_hidden_layers = 2"]);
    let folder = case();
    folder.config(|config| config["num_hidden_layers"] = json!(1 << 24));
    folder.refused(&["num_hidden_layers is 16777216", "expected 1 to 65536"]);
    let folder = case();
    folder.config(|config| config["num_hidden_layers"] = json!(1 << 16));
    folder.refused(&["has no tensor \"model.layers.2.", "num_hidden_layers = 65536"]);
    let folder = case();
    folder.config(|config| config["tie_word_embeddings"] = json!(false));
    folder.refused(&["has no tensor \"lm_head.weight\""]);

    // If a tensor has a wrong name, the error is about the name that is missing.
    let folder = case();
    folder.tensors(|tensors| {
        let norm = tensors.0.remove(NORM).unwrap();
        tensors.0.insert("model.norm.wait".into(), norm);
    });
    folder.refused(&["has no tensor \"model.norm.weight\""]);

    for deeper in ["model.layers.2.mlp.up_proj.weight", "model.layers.80.any"] {
        let folder = case();
        folder.tensors(|tensors| tensors.add(deeper, "F32", &[1], vec![0; 4]));
        folder.refused(&[deeper, "but config.json has num_hidden_layers = 2"]);
    }

    for foreign in [
        "model.layers.1.self_attn.q_norm.weight",
        "model.layers.01.mlp.up_proj.weight",
        "model.embed_positions.weight",
        "lm_head.bias",
    ] {
        let folder = case();
        folder.tensors(|tensors| tensors.add(foreign, "U8", &[1], vec![0]));
        folder.refused(&[foreign, "does not read"]);
    }
}

#[test]
fn tensors_that_nobody_reads_are_listed() {
    let folder = Folder::of("qwen2-f32");
    let names = ["lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq", "score.weight"];
    folder.tensors(|tensors| {
        names[1..].iter().for_each(|name| tensors.add(name, "F64", &[1], vec![0; 8]));
        let embedding = tensors.0[EMBEDDING].clone();
        tensors.0.insert(names[0].into(), embedding);
    });

    assert_eq!(unread_tensors(folder.0.path()).unwrap(), names);
    let loaded = load_noting(folder.0.path(), FrozenFormat::F32, &Device::flex()).unwrap();
    assert_eq!((loaded.unread.len(), loaded.nonfinite.len()), (3, 0));
    assert_eq!(unread_tensors(&fixture("qwen2-bf16")).unwrap(), Vec::<String>::new());
}

#[test]
fn weights_that_are_no_numbers_are_told() {
    let folder = Folder::of("qwen2-f32");
    let up = "model.layers.1.mlp.up_proj.weight";
    folder.tensors(|tensors| {
        for (name, value) in [(NORM, f32::NAN), (up, f32::NEG_INFINITY)] {
            let bytes = &mut tensors.0.get_mut(name).unwrap().bytes;
            let last = bytes.len() - 4;
            bytes[last..].copy_from_slice(&value.to_le_bytes());
        }
    });

    let Loaded { nonfinite, .. } =
        load_noting(folder.0.path(), FrozenFormat::F32, &Device::flex()).unwrap();
    assert_eq!(nonfinite, [up, NORM]);

    let whole = load_noting(&fixture("qwen2-f32"), FrozenFormat::F32, &Device::flex()).unwrap();
    assert_eq!(whole.nonfinite, Vec::<String>::new());
}

#[test]
fn an_index_that_leads_astray() {
    let case = Folder::in_shards;
    load(case().0.path(), &Device::flex()).unwrap();

    for outside in ["../x", "/etc/passwd", "a/b", "..", ".hidden", "", "c:x", "a\\b"] {
        let folder = case();
        folder.weight_map(|map| map[NORM] = json!(outside));
        folder.refused(&[INDEX, &format!("{outside:?}"), "must be a file in the same folder"]);
    }

    let folder = case();
    folder.weight_map(|map| map[NORM] = json!("model-00004-of-00003.safetensors"));
    folder.refused(&[INDEX, "there is no \"model-00004-of-00003.safetensors\""]);
    let folder = case();
    fs::remove_file(folder.path(&shard(2))).unwrap();
    folder.refused(&[&format!("there is no {:?}", shard(2)), "download the folder again"]);
    let folder = case();
    fs::remove_file(folder.path(&shard(2))).unwrap();
    fs::create_dir(folder.path(&shard(2))).unwrap();
    folder.refused(&["00002", "it is not a file"]);
    let folder = case();
    fs::write(folder.path(&shard(2)), "").unwrap();
    folder.refused(&["00002", "it has 0 bytes"]);

    let folder = case();
    folder.weight_map(|map| map[NORM] = json!(shard(1)));
    folder.refused(&[NORM, &format!("should be in {:?}, but {:?} has it", shard(1), shard(3))]);
    let folder = case();
    folder.weight_map(|map| map.insert("ghost".into(), json!(shard(1))).map_or((), drop));
    folder.refused(&["tensor \"ghost\" should be in", "but none of the shards has it"]);
    let folder = case();
    folder.tensors_of(&shard(1), |tensors| tensors.add(NORM, "F32", &[64], vec![0; 256]));
    folder.refused(&[NORM, " is in ", "00001-of-00003", " and again in ", "00003-of-00003"]);

    for (map, words) in [
        (json!({}), "its weight_map is empty"),
        (json!({"a": 3}), "invalid type: integer `3`, expected a string"),
        (json!(["a"]), "invalid type: sequence, expected a map"),
    ] {
        let folder = case();
        folder.json(INDEX, |index| index["weight_map"] = map);
        folder.refused(&[INDEX, words]);
    }

    let folder = case();
    fs::write(folder.path(INDEX), "{}").unwrap();
    folder.refused(&["missing field `weight_map`"]);
    let folder = case();
    fs::write(folder.path(INDEX), "{\"weight_map\": {").unwrap();
    folder.refused(&["is not valid JSON"]);
}

#[test]
fn a_configuration_that_makes_no_model() {
    let case = || Folder::of("qwen2-f32");
    for (key, value, words) in [
        ("num_attention_heads", json!(0), "num_attention_heads is 0; expected 1 to 16777216"),
        ("num_key_value_heads", json!(0), "num_key_value_heads is 0"),
        ("hidden_size", Value::Null, "\"hidden_size\" should be a whole number"),
        ("hidden_size", json!(-1), "should be a whole number, but is -1"),
        ("vocab_size", json!(u64::MAX), "vocab_size is 18446744073709551615"),
        ("intermediate_size", json!(1e300), "should be a whole number"),
    ] {
        let folder = case();
        folder.config(|config| config[key] = value);
        folder.refused(&["config.json", words]);
    }

    // Each of these sizes is possible alone.
    let folder = case();
    folder.config(|config| {
        config["vocab_size"] = json!(1 << 24);
        config["hidden_size"] = json!(1 << 20);
        config.insert("head_dim".into(), json!(16));
    });
    folder.refused(&["config.json", "the sizes make a matrix of 17592186044416 values"]);

    let folder = case();
    fs::write(folder.path("config.json"), "[]").unwrap();
    folder.refused(&["config.json is not valid JSON", "invalid type: sequence, expected a map"]);
    let folder = case();
    fs::write(folder.path("config.json"), "[".repeat(1 << 20)).unwrap();
    folder.refused(&["config.json is not valid JSON"]);
    let folder = case();
    fs::File::create(folder.path("config.json")).unwrap().set_len(1 << 40).unwrap();
    folder.refused(&["config.json has 1099511627776 bytes, expected at most 16777216"]);

    for name in ["config.json", SINGLE] {
        let folder = case();
        fs::remove_file(folder.path(name)).unwrap();
        folder.refused(&["cannot read ", name, "expected a Hugging Face model folder"]);
    }
}

/// Loads a model, saves it with the type of its folder, and compares the bytes of every tensor.
#[test]
fn what_is_saved_as_it_was_has_the_same_bytes() {
    let halves = tempfile::tempdir().unwrap();
    let (decoder, config) = model("qwen2-f32");
    let options = |dtype| SaveOptions { dtype, ..SaveOptions::default() };
    save(&decoder, &config, halves.path(), &options(WeightDtype::F16)).unwrap();

    for (folder, dtype) in [
        (fixture("qwen2-f32"), WeightDtype::F32),
        (fixture("qwen2-bf16"), WeightDtype::BF16),
        (halves.path().to_owned(), WeightDtype::F16),
    ] {
        assert_eq!(inventory(&folder).unwrap().dtype(), Some(dtype));
        let decoder = load(&folder, &Device::flex()).unwrap();
        let (_, config) = load_config(&folder).unwrap();

        let again = tempfile::tempdir().unwrap();
        save(&decoder, &config, again.path(), &options(dtype)).unwrap();
        let before = Tensors::read(&folder.join(SINGLE));
        let after = Tensors::read(&again.path().join(SINGLE));

        // The message of assert_eq! would be all of the weights.
        assert!(before == after, "{dtype:?}");
        assert_eq!(load_config(again.path()).unwrap().1, config);
        let (header, _) = split(&again.path().join(SINGLE));
        assert_eq!(header["__metadata__"], json!({"format": "pt"}));
    }
}

/// Converts f32 bytes to bf16. The digits that this loses are lost before anything is compared.
fn in_bf16(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(4).flat_map(|value| value[2..].to_vec()).collect()
}

/// Loads the model of a folder, checks whether its head is the embedding, and that a saved copy is the same model.
fn loaded_with_head(folder: &Folder, tied: bool) -> Tensors {
    let (config, fields) = load_config(folder.0.path()).unwrap();
    let decoder = load(folder.0.path(), &Device::flex()).unwrap();
    assert_eq!((config.tied, decoder.config().tied), (tied, tied));
    unread_tensors(folder.0.path()).unwrap();

    let saved = tempfile::tempdir().unwrap();
    save(&decoder, &fields, saved.path(), &SaveOptions::default()).unwrap();
    assert_eq!(load_config(saved.path()).unwrap().0, config);
    Tensors::read(&saved.path().join(SINGLE))
}

/// transformers 5.23 does the same in each of these cases.
#[test]
fn a_head_with_other_values_is_no_embedding() {
    let tie = |folder: &Folder| {
        folder.config(|config| drop(config.insert("tie_word_embeddings".into(), json!(true))));
    };
    // Llama's head has other values, in one format or in two.
    let folder = Folder::of("llama-f32-linear");
    tie(&folder);
    assert!(loaded_with_head(&folder, false) == Tensors::read(&folder.path(SINGLE)));
    folder.tensors(|tensors| {
        let head = tensors.0.remove(HEAD).unwrap();
        tensors.add(HEAD, "BF16", &head.shape, in_bf16(&head.bytes));
    });
    assert!(loaded_with_head(&folder, false).0.contains_key(HEAD));

    // A head with the same values is the embedding once more, in whatever format.
    let folder = Folder::of("qwen2-bf16");
    folder.tensors(|tensors| {
        let embedding = tensors.0[EMBEDDING].clone();
        tensors.0.insert(HEAD.into(), embedding);
    });
    assert!(!loaded_with_head(&folder, true).0.contains_key(HEAD));
    folder.tensors(|tensors| {
        let embedding = tensors.0[EMBEDDING].clone();
        let widened = embedding.bytes.chunks(2).flat_map(|two| [0, 0, two[0], two[1]]).collect();
        tensors.add(HEAD, "F32", &embedding.shape, widened);
    });
    assert!(!loaded_with_head(&folder, true).0.contains_key(HEAD));

    // A head without an embedding is both.
    folder.tensors(|tensors| drop(tensors.0.remove(EMBEDDING)));
    assert!(loaded_with_head(&folder, true).0.contains_key(EMBEDDING));
    folder.config(|config| config["tie_word_embeddings"] = json!(false));
    folder.refused(&["has no tensor \"model.embed_tokens.weight\""]);

    // A head that is not one is no reason to guess.
    let folder = Folder::of("qwen2-f32");
    folder.tensors(|tensors| tensors.add(HEAD, "F32", &[1, 64], vec![0; 256]));
    folder.refused(&[HEAD, "is F32 [1, 64]", "config.json makes it F32, BF16 or F16 ["]);
}

/// What the text part says about the head counts for nothing, because the head lies outside of it.
#[test]
fn the_whole_model_says_whether_its_head_is_the_embedding() {
    let say = |folder: &Folder, whole: Option<Value>, text: Option<Value>| {
        folder.config(|config| {
            let set = |fields: &mut Map<String, Value>, tied: Option<Value>| match tied {
                Some(tied) => drop(fields.insert("tie_word_embeddings".into(), tied)),
                None => drop(fields.remove("tie_word_embeddings")),
            };
            set(config, whole);
            set(config["text_config"].as_object_mut().unwrap(), text);
        });
    };

    let tied = |folder: &Folder| load_config(folder.0.path()).map(|(config, _)| config.tied);
    for (name, silent) in [
        ("gemma3-f32-pictures", true),
        ("gemma4-f32-pictures", true),
        ("mistral3-f32-pictures", true),
        ("qwen3_5-f32-pictures", false),
    ] {
        let folder = Folder::of(name);
        folder.tensors(|tensors| tensors.0.retain(|name, _| !name.contains(HEAD)));

        say(&folder, None, None);
        assert_eq!(tied(&folder).unwrap(), silent, "{name}");
        for (whole, text) in [(true, false), (false, true)] {
            say(&folder, Some(json!(whole)), Some(json!(text)));
            assert_eq!(tied(&folder).unwrap(), whole, "{name}");
        }
        say(&folder, None, Some(json!(!silent)));
        assert_eq!(tied(&folder).unwrap(), silent, "{name}");
        say(&folder, Some(Value::Null), None);

        match name {
            "gemma3-f32-pictures" => assert!(!tied(&folder).unwrap()),
            _ => folder.refused(&["\"tie_word_embeddings\" should be true or false, but is null"]),
        }
    }

    // Published files of Mistral 3 say nothing, and have a head.
    let folder = Folder::of("mistral3-f32-pictures");
    say(&folder, None, None);
    loaded_with_head(&folder, false);
}

#[test]
fn a_list_of_types_does_not_count_in_a_whole_mistral() {
    let folder = Folder::of("mistral3-f32-pictures");
    let types = |types: Value| {
        folder.config(|config| config["text_config"]["layer_types"] = types);
    };

    let plain = load_config(folder.0.path()).unwrap().0;
    types(json!(["full_attention", "sliding_attention", "full_attention"]));
    let (config, fields) = load_config(folder.0.path()).unwrap();
    assert_eq!(config, plain);
    // By itself, the text part would count.
    assert_eq!(fields["layer_types"], json!(["sliding_attention"; 3].to_vec()));

    types(json!(["full_attention", "sliding_attention"]));
    folder.refused(&["layer_types has 2 entries, but num_hidden_layers is 3"]);
    types(json!(["full_attention", "chunked_attention", "full_attention"]));
    folder.refused(&["layer_types has \"chunked_attention\" for layer 1"]);
}

/// Loads a model whose tensors have several formats, saves it as it was, and compares the bytes of every tensor.
/// The text part of Mistral 3 is a Mistral, or a Ministral 3.
#[test]
fn a_whole_model_has_a_text_part_of_one_family_or_another() {
    let folder = Folder::of("mistral3-f32-pictures");
    folder.config(|config| {
        let text = config["text_config"].as_object_mut().unwrap();
        text.insert("model_type".into(), "ministral3".into());
        let rope = text["rope_parameters"].as_object_mut().unwrap();
        rope.insert("llama_4_scaling_beta".into(), 0.25.into());
        rope.insert("original_max_position_embeddings".into(), 4.into());
    });
    let (config, fields) = load_config(folder.0.path()).unwrap();
    let growth = config.query_growth.unwrap();
    assert_eq!((config.family, growth.beta, growth.context), (Family::Ministral3, 0.25, 4));
    assert_eq!(fields["architectures"], json!(["Ministral3ForCausalLM"]));
    load(folder.0.path(), &Device::flex()).unwrap();

    folder.config(|config| config["text_config"]["model_type"] = "llama".into());
    folder.refused(&["mistral3"]);

    // The text part of this type has fewer fields, and computes the same.
    let folder = Folder::of("gemma4-f32-pictures");
    let gemma4 = load_config(folder.0.path()).unwrap().0;
    folder.config(|config| {
        config["model_type"] = "gemma4_unified".into();
        let text = config["text_config"].as_object_mut().unwrap();
        text.insert("model_type".into(), "gemma4_unified_text".into());
        text.remove("hidden_size_per_layer_input");
    });
    assert_eq!(load_config(folder.0.path()).unwrap().0, gemma4);
    load(folder.0.path(), &Device::flex()).unwrap();
}

/// Experts of a layer in one tensor are as many as their sizes say, and not as many as a small file may claim.
#[test]
fn stacked_experts_are_those_of_a_layer() {
    let of_experts = "model.layers.0.mlp.experts.gate_up_proj";
    let folder = Folder::of("qwen3_5_moe-f32");
    let names: Vec<String> =
        inventory(folder.0.path()).unwrap().tensors.into_iter().map(|it| it.name).collect();
    assert!(names.contains(&"model.layers.0.mlp.experts.4.up_proj.weight".to_owned()));
    assert!(!names.contains(&of_experts.to_owned()));

    folder.tensors(|tensors| {
        let bytes = vec![0; 4 * 4096 * 2];
        tensors.add("x.mlp.experts.gate_up_proj", "F32", &[4096, 2, 1], bytes);
    });
    let unread = unread_tensors(folder.0.path()).unwrap();
    assert_eq!(unread, ["x.mlp.experts.gate_up_proj"]);

    // Sizes of nothing would be as many tensors as anybody likes.
    for shape in
        [vec![5, 40, 0], vec![1 << 40, 0, 40], vec![5, 0, 40], vec![5, 39, 40], vec![200, 40]]
    {
        let folder = Folder::of("qwen3_5_moe-f32");
        folder.tensors(|tensors| {
            let bytes = vec![0; 4 * shape.iter().product::<usize>()];
            tensors.add(of_experts, "F32", &shape, bytes);
        });
        folder.refused(&["model.layers.0.mlp.experts."]);
    }
}

/// A layer of GLM-4.5 after the last one is passed over if it predicts the token after the next one, as in
/// transformers, and refused if it is one that `config.json` does not count.
#[test]
fn layers_that_predict_further_tokens_are_passed_over() {
    let surplus = ["model.layers.2.input_layernorm.weight", "model.layers.2.mlp.gate.weight"];
    let add = |folder: &Folder, name: &str| {
        folder.tensors(|tensors| tensors.add(name, "F32", &[1], vec![0; 4]));
    };

    let folder = Folder::of("glm4_moe-f32");
    surplus.iter().for_each(|name| add(&folder, name));
    folder.refused(&[surplus[0], "but config.json has num_hidden_layers = 2"]);

    let projection = "model.layers.2.eh_proj.weight";
    add(&folder, projection);
    let unread = unread_tensors(folder.0.path()).unwrap();
    assert_eq!(unread.len(), 3, "{unread:?}");
    let decoder = load(folder.0.path(), &Device::flex()).unwrap();
    let mut config = load_config(folder.0.path()).unwrap().1;
    config["num_nextn_predict_layers"] = 1.into();
    let saved = tempfile::tempdir().unwrap();
    save(&decoder, &config, saved.path(), &SaveOptions::default()).unwrap();
    assert_eq!(load_config(saved.path()).unwrap().1["num_nextn_predict_layers"], 0);

    // In a layer that is counted, such a projection is of another model.
    add(&folder, "model.layers.1.eh_proj.weight");
    folder.refused(&["model.layers.1.eh_proj.weight"]);

    // No other family has such layers.
    let folder = Folder::of("minimax_m2-f32");
    add(&folder, projection);
    folder.refused(&[projection, "but config.json has num_hidden_layers = 2"]);
}

/// As in Ministral 3: one scale for a matrix, and one for its input, which is not needed.
#[test]
fn a_matrix_of_eight_bits_needs_its_scales() {
    let name = "model.layers.0.self_attn.o_proj.weight";
    let [scale, of_input] = ["weight_scale_inv", "activation_scale"]
        .map(|part| format!("model.layers.0.self_attn.o_proj.{part}"));
    let with = |scale_of: Option<(&str, &[usize], Vec<u8>)>| {
        let folder = Folder::of("qwen2-f32");
        folder.tensors(|tensors| {
            let shape = tensors.0[name].shape.clone();
            let ones = vec![0x38; shape.iter().product()];
            tensors.0.remove(name);
            tensors.add(name, "F8_E4M3", &shape, ones);
            tensors.add(&of_input, "BF16", &[], vec![0; 2]);
            if let Some((dtype, shape, bytes)) = scale_of {
                tensors.add(&scale, dtype, shape, bytes);
            }
        });
        folder
    };

    let half = with(Some(("BF16", &[], vec![0x00, 0x3f])));
    let decoder = load(half.0.path(), &Device::flex()).unwrap();
    let parameters = parameters(&decoder);
    let read = parameters.iter().find(|it| it.path == "layers.0.attention.output.weight").unwrap();
    let values = read.values.to_data().try_to_vec::<f32>().unwrap();
    assert!(values.iter().all(|value| *value == 0.5));

    for wrong in [None, Some(("F32", &[1, 2][..], vec![0; 8])), Some(("U8", &[], vec![0]))] {
        with(wrong).refused(&[name, "with a \"…_scale_inv\" in F32, BF16 or F16"]);
    }
}

/// A large parameter is read from the device in parts.
#[test]
fn a_parameter_of_many_values_is_saved_whole() {
    let sizes = Sizes {
        vocab_size: 70_000,
        hidden_size: 64,
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 4,
        intermediate_size: 4,
        max_position_embeddings: 16,
        rope_theta: 10_000.0,
        tied: true,
    };
    let config = DecoderConfig::new(Family::Llama, sizes);
    let decoder = random(&config, Seed::run(1), &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    save(&decoder, &config.to_json(None, 0), folder.path(), &SaveOptions::default()).unwrap();

    let read = load(folder.path(), &Device::flex()).unwrap();
    for (ours, theirs) in parameters(&read).iter().zip(parameters(&decoder)) {
        assert_eq!(ours.values.to_data(), theirs.values.to_data(), "{}", ours.path);
    }
}

#[test]
fn each_tensor_keeps_its_format() {
    let qwen = Folder::of("qwen3_5-f32");
    qwen.tensors(|tensors| {
        for (name, tensor) in &mut tensors.0 {
            if !name.ends_with("norm.weight") && !name.ends_with("A_log") {
                (tensor.dtype, tensor.bytes) = ("BF16".into(), in_bf16(&tensor.bytes));
            }
        }
    });

    // Here most tensors are in f32.
    let gemma = Folder::of("gemma3-f32");
    gemma.tensors(|tensors| {
        let tensor = tensors.0.get_mut("model.layers.0.mlp.up_proj.weight").unwrap();
        (tensor.dtype, tensor.bytes) = ("BF16".into(), in_bf16(&tensor.bytes));
    });

    // Three matrices that are one parameter here have three formats.
    let qwen2 = Folder::of("qwen2-bf16");
    qwen2.tensors(|tensors| {
        let tensor = tensors.0.get_mut("model.layers.1.self_attn.k_proj.weight").unwrap();
        let widened = tensor.bytes.chunks(2).flat_map(|two| [0, 0, two[0], two[1]]).collect();
        (tensor.dtype, tensor.bytes) = ("F32".into(), widened);
    });

    for (folder, most) in
        [(qwen, WeightDtype::BF16), (gemma, WeightDtype::F32), (qwen2, WeightDtype::BF16)]
    {
        let decoder = load(folder.0.path(), &Device::flex()).unwrap();
        let (_, config) = load_config(folder.0.path()).unwrap();
        let formats = inventory(folder.0.path()).unwrap().formats();
        assert_eq!((formats.most(), formats.rounds()), (most, true));
        let before = Tensors::read(&folder.path(SINGLE));
        let again = tempfile::tempdir().unwrap();
        save_as(&decoder, &config, again.path(), &formats, u64::MAX).unwrap();
        assert!(before == Tensors::read(&again.path().join(SINGLE)), "{most:?}");

        // In shards, whose index has the number of all bytes.
        save_as(&decoder, &config, again.path(), &formats, 100_000).unwrap();
        let index: Value =
            serde_json::from_slice(&fs::read(again.path().join(INDEX)).unwrap()).unwrap();
        let bytes: usize = before.0.values().map(|tensor| tensor.bytes.len()).sum();
        assert_eq!(index["metadata"]["total_size"], json!(bytes));
        let shards = index["weight_map"].as_object().unwrap().values();
        let shards: std::collections::BTreeSet<&str> =
            shards.map(|shard| shard.as_str().unwrap()).collect();
        let of_shard = |shard: &&str| Tensors::read(&again.path().join(shard)).0;
        assert!(shards.len() > 1);
        assert!(before.0 == shards.iter().flat_map(of_shard).collect(), "{most:?}");
        load(again.path(), &Device::flex()).unwrap();
    }
}

/// `tests/fixtures.rs` compares what the text part computes.
#[test]
fn a_model_that_sees_pictures_is_saved_as_its_text_part() {
    for (name, model_type, class) in [
        ("gemma3-f32-pictures", "gemma3_text", "Gemma3ForCausalLM"),
        ("gemma4-f32-pictures", "gemma4_text", "Gemma4ForCausalLM"),
        ("mistral3-f32-pictures", "mistral", "MistralForCausalLM"),
        ("qwen3_5-f32-pictures", "qwen3_5_text", "Qwen3_5ForCausalLM"),
    ] {
        let (decoder, config) = model(name);
        assert_eq!(config["model_type"], model_type);
        assert_eq!(config["architectures"], json!([class]));
        assert_eq!(config.get("vision_config"), None);

        let unread = unread_tensors(&fixture(name)).unwrap();
        assert!(unread.iter().any(|name| name.contains("vi")), "{unread:?}");
        let folder = tempfile::tempdir().unwrap();
        save(&decoder, &config, folder.path(), &SaveOptions::default()).unwrap();
        assert_eq!(unread_tensors(folder.path()).unwrap(), Vec::<String>::new());
        assert_eq!(load_config(folder.path()).unwrap().1, config);
    }

    // The file has one tensor under both of its names.
    let folder = Folder::of("qwen3_5-f32-pictures");
    folder.header(|header| {
        let seeing = header.remove("model.visual.pos_embed.weight").unwrap();
        header.insert("language_model.model.norm.weight".into(), seeing);
    });
    folder.refused(&[SINGLE, "norm.weight", "again in"]);

    let original = fs::read_to_string(fixture("gemma3-f32-pictures").join("config.json")).unwrap();
    for (from, to, expected) in [
        ("\"gemma3\"", "\"gemma9\"", "\"gemma9\""),
        ("\"gemma3_text\"", "\"gemma9_text\"", "gemma3"),
        ("\"text_config\"", "\"words\"", "gemma3"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        assert!(original.contains(from));
        fs::write(folder.path().join("config.json"), original.replacen(from, to, 1)).unwrap();
        let error = load_config(folder.path()).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_saved_says_its_type_and_keeps_every_field() {
    for (name, field) in [("qwen2-f32", "torch_dtype"), ("qwen2-bf16", "dtype")] {
        let (decoder, mut config) = model(name);
        config["a field of tomorrow"] = json!({"deep": [1, 2.5, null]});
        let folder = tempfile::tempdir().unwrap();
        let options = SaveOptions { dtype: WeightDtype::F16, ..SaveOptions::default() };
        save(&decoder, &config, folder.path(), &options).unwrap();

        config[field] = json!("float16");
        assert_eq!(load_config(folder.path()).unwrap().1, config);
        let Inventory { tensors } = inventory(folder.path()).unwrap();
        assert!(tensors.iter().all(|tensor| tensor.dtype == "F16"));
    }
}

#[test]
fn shards_are_as_small_as_asked_and_hold_the_same_model() {
    hold_the_same_model("qwen2-bf16", WeightDtype::BF16);
    // The experts of a layer are four tensors, whose entries come in turns.
    hold_the_same_model("gpt_oss-f32", WeightDtype::F32);
}

fn hold_the_same_model(name: &str, dtype: WeightDtype) {
    let (decoder, config) = model(name);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let options = |max_shard_bytes| SaveOptions { dtype, max_shard_bytes };
    let whole = Tensors::read(&fixture(name).join(SINGLE));
    let total: usize = whole.0.values().map(|tensor| tensor.bytes.len()).sum();

    // A limit may fall between two parts of one parameter, so several limits are tried.
    for limit in [1, 20_000, 50_000, total / 2, total - 1] {
        save(&decoder, &config, folder.path(), &options(limit as u64)).unwrap();
        assert!(!path(SINGLE).exists());
        let index: Value = serde_json::from_slice(&fs::read(path(INDEX)).unwrap()).unwrap();
        assert_eq!(index["metadata"]["total_size"], total);

        let mut found = Tensors::default();
        let mut shards: Vec<&str> = index["weight_map"]
            .as_object()
            .unwrap()
            .values()
            .map(|it| it.as_str().unwrap())
            .collect();
        shards.sort_unstable();
        shards.dedup();

        // Only a single tensor may make a shard larger than the limit, and each is where the index says.
        for (number, shard) in shards.iter().enumerate() {
            assert_eq!(
                *shard,
                format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len())
            );
            let tensors = Tensors::read(&path(shard));
            let bytes: usize = tensors.0.values().map(|tensor| tensor.bytes.len()).sum();
            let of_experts = tensors.0.keys().all(|name| name.contains(".experts."));
            let large = tensors.0.len() == 1 || of_experts;
            assert!(bytes <= limit || large, "{shard} has {bytes} of {limit}");
            for (name, tensor) in tensors.0 {
                assert_eq!(index["weight_map"][&name], *shard);
                assert!(found.0.insert(name, tensor).is_none());
            }
        }

        assert!(found == whole, "with shards of {limit} bytes");
        assert_eq!(inventory(folder.path()).unwrap().bytes(), total as u64);
        load(folder.path(), &Device::flex()).unwrap();
        for shard in shards {
            fs::remove_file(path(shard)).unwrap();
        }
    }

    // Each layout removes the files of the other, so that none of them is read instead.
    save(&decoder, &config, folder.path(), &options(total as u64)).unwrap();
    let mut files: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["config.json", SINGLE]);
    assert!(Tensors::read(&path(SINGLE)) == whole);
}

/// In the Hub's cache the files of a model are links to their contents.
#[test]
#[cfg(unix)]
fn files_may_be_links() {
    let shards = Folder::in_shards();
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(cache.path().join("snapshot")).unwrap();
    for (number, entry) in fs::read_dir(shards.0.path()).unwrap().enumerate() {
        let entry = entry.unwrap();
        let blob = format!("blob-{number}");
        fs::copy(entry.path(), cache.path().join(&blob)).unwrap();
        let link = cache.path().join("snapshot").join(entry.file_name());
        std::os::unix::fs::symlink(format!("../{blob}"), link).unwrap();
    }
    load(&cache.path().join("snapshot"), &Device::flex()).unwrap();
}

#[test]
#[cfg(unix)]
fn a_checkpoint_is_for_everybody_who_may_read_files() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::in_shards();
    fs::write(folder.path("plain"), "").unwrap();
    let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().permissions().mode();
    for name in ["config.json", INDEX, &shard(1)] {
        assert_eq!(mode(name), mode("plain"), "{name}");
    }
}

#[test]
fn a_weight_beyond_the_type_is_not_rounded_to_infinity() {
    let folder = Folder::of("qwen2-f32");
    folder.tensors(|tensors| {
        let bytes = &mut tensors.0.get_mut(NORM).unwrap().bytes;
        bytes[..4].copy_from_slice(&70_000f32.to_le_bytes());
    });

    let decoder = load(folder.0.path(), &Device::flex()).unwrap();
    let (_, config) = load_config(folder.0.path()).unwrap();
    let out = tempfile::tempdir().unwrap();
    let options = SaveOptions { dtype: WeightDtype::F16, ..SaveOptions::default() };
    let error = save(&decoder, &config, out.path(), &options).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("tensor \"{NORM}\" holds 7e4, which is beyond float16: save it as bfloat16")
    );

    let left: Vec<_> =
        fs::read_dir(out.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.is_empty(), "half a model is left: {left:?}");

    let options = SaveOptions { dtype: WeightDtype::BF16, ..SaveOptions::default() };
    save(&decoder, &config, out.path(), &options).unwrap();
}

#[test]
fn an_inventory_is_of_headers_alone() {
    let folder = Folder::in_shards();
    let Inventory { tensors } = inventory(folder.0.path()).unwrap();
    let norm = tensors.iter().find(|tensor| tensor.name == NORM).unwrap();
    assert_eq!((norm.dtype.as_str(), norm.shape.as_slice(), norm.bytes), ("F32", &[64][..], 256));
    assert_eq!(norm.file, folder.path(&shard(3)));

    let inventory = inventory(&fixture("qwen2-bf16")).unwrap();
    let decoder = model("qwen2-bf16").0;
    let parameters = burn::module::Module::num_params(&decoder) as u64;
    assert_eq!((inventory.parameters(), inventory.bytes()), (parameters, 2 * parameters));
    assert_eq!(inventory.dtype(), Some(WeightDtype::BF16));
}
