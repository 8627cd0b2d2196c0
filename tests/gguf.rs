//! GGUF files: the same model as the folder that they were made of, and nothing worse than an error where they
//! are wrong.

#![allow(clippy::unwrap_used)]

use std::{env, fs, path::Path};

use burn::tensor::Device;
use firebrick_data::Tokenizer;
use firebrick_gguf::Gguf;
use firebrick_models::{Family, load, load_config, parameters, unread_tensors};
use firebrick_tests::{
    expected::Tokens,
    fixture::{aloud, for_each_checkpoint},
    gguf::{GgufFile, array_bytes},
    memory::{peak, reset_peak},
};

#[test]
fn a_checkpoint_as_gguf_is_the_same_model() {
    for_each_checkpoint("tokenizer", |fixture, expected: Tokens| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let family = fixture.config().family;
        let pre = match family {
            Family::Qwen2 | Family::Qwen3 => "qwen2",
            // The other fixtures cut texts as Llama 3 does; only of its own merges may pass over tokens.
            _ => "llama-bpe",
        };
        let bytes = GgufFile::of_folder(&fixture.folder, Some(pre)).bytes();
        fs::write(&path, &bytes).unwrap();
        if let Some(seeds) = env::var_os("FIREBRICK_GGUF_SEEDS") {
            fs::create_dir_all(&seeds).unwrap();
            fs::write(Path::new(&seeds).join(&fixture.name), &bytes).unwrap();
        }

        let (theirs, _) = load_config(&fixture.folder).unwrap();
        let (ours, _) = load_config(&path).unwrap();
        assert_eq!(ours, theirs, "{}", fixture.name);
        let values = |path: &Path| -> Vec<(String, Vec<f32>)> {
            let decoder = load(path, &Device::flex()).unwrap();
            let parameters = parameters(&decoder);
            parameters
                .iter()
                .map(|it| (it.path.clone(), it.values.to_data().try_to_vec::<f32>().unwrap()))
                .collect()
        };
        let (ours, theirs) = (values(&path), values(&fixture.folder));
        for ((name, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
            // One was added to the norms and taken away again.
            let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() < 1e-7;
            assert!(ours.iter().zip(&theirs).all(near), "{}: {name}", fixture.name);
        }
        let tokenizer = Tokenizer::from_folder(&path).unwrap();
        assert_eq!(tokenizer.eos(), expected.eos_id, "{}", fixture.name);
        for text in expected.encode {
            let ids = tokenizer.encode(&text.text, true).unwrap();
            assert_eq!(ids, text.ids, "{}: {:?}", fixture.name, text.text);
            assert_eq!(tokenizer.decode(&ids, true), text.decoded_skip_special, "{}", fixture.name);
        }
    });
}

/// Without a tokenizer of its own, a file takes the one in its folder.
#[test]
fn a_tokenizer_may_lie_beside_the_file() {
    let fixture = Path::new("fixtures/qwen2-f32");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, GgufFile::of_folder(fixture, None).bytes()).unwrap();
    let problem = Tokenizer::from_folder(&path).err().unwrap().to_string();
    assert!(problem.contains("holds no tokenizer") && problem.contains("beside it"), "{problem}");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }
    let beside = Tokenizer::from_folder(&path).unwrap();
    let own = Tokenizer::from_folder(fixture).unwrap();
    assert_eq!(beside.encode("2 + 2", true).unwrap(), own.encode("2 + 2", true).unwrap());
}

/// Tokens that are made by score are made as sentencepiece does, blanks as `▁`.
#[test]
fn a_vocabulary_of_scores_is_merged_by_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = GgufFile::of_folder(Path::new("fixtures/qwen2-f32"), None);
    let tokens: Vec<(String, f32, i32)> = ["<unk>", "<s>", "</s>"]
        .map(|text| (text.to_owned(), 0.0, if text == "<unk>" { 2 } else { 3 }))
        .into_iter()
        .chain((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)))
        .chain(
            [("▁a", -1.0), ("ab", -2.0), ("▁ab", -3.0), ("▁", -4.0), ("a", -5.0), ("b", -6.0)]
                .map(|(text, score)| (text.to_owned(), score, 1)),
        )
        .collect();
    file.text("tokenizer.ggml.model", "llama");
    file.texts("tokenizer.ggml.tokens", tokens.iter().map(|(text, ..)| text.as_str()));
    let scores: Vec<u8> = tokens.iter().flat_map(|(_, score, _)| score.to_le_bytes()).collect();
    file.key("tokenizer.ggml.scores", 9, array_bytes(6, tokens.len() as u64, &scores));
    let kinds: Vec<i32> = tokens.iter().map(|(.., kind)| *kind).collect();
    file.numbers("tokenizer.ggml.token_type", &kinds);
    for (name, id) in [("unknown", 0), ("bos", 1), ("eos", 2)] {
        file.number(&format!("tokenizer.ggml.{name}_token_id"), id);
    }
    fs::write(&path, file.bytes()).unwrap();
    let tokenizer = Tokenizer::from_folder(&path).unwrap();
    // A blank before the text; ▁ab is one token, b is one, é is two bytes.
    let ids = tokenizer.encode("ab bé", true).unwrap();
    assert_eq!(ids, [1, 261, 262, 264, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(tokenizer.decode(&ids, true), "ab bé");
}

/// A file and what has to be said of it.
type Hostile = (&'static str, fn(&mut GgufFile), &'static [&'static str]);

/// Changes of a good file, each of which is refused, with its place and reason.
const HOSTILE: &[Hostile] = &[
    ("another magic", |it| it.magic = *b"GGML", &["byte 0", "begins with GGUF", "GGML"]),
    ("a pointer", |it| it.magic = *b"vers", &["byte 0", "git lfs pull"]),
    ("version 1", |it| it.version = 1, &["byte 4", "version 1, expected 2 or 3"]),
    ("version 4", |it| it.version = 4, &["byte 4", "version 4"]),
    ("the other end first", |it| it.version = 3u32.swap_bytes(), &["byte 4", "highest byte first"]),
    ("many keys", |it| it.says_keys = Some(u64::MAX), &["keys, and there may be 4096"]),
    ("a key more", |it| it.says_keys = Some(it.keys.len() as u64 + 1), &["byte"]),
    ("a key less", |it| it.says_keys = Some(it.keys.len() as u64 - 1), &["byte"]),
    ("many tensors", |it| it.says_tensors = Some(1 << 60), &["byte 8", "there may be 65536"]),
    ("a tensor more", |it| it.says_tensors = Some(it.tensors.len() as u64 + 1), &["byte"]),
    ("a key twice", |it| it.keys.push(it.keys[0].clone()), &["is there twice"]),
    ("a type that is none", |it| it.key("x", 13, vec![0; 8]), &["\"x\" has the type 13"]),
    ("a flag of 2", |it| it.key("x", 7, vec![2]), &["\"x\" should be 0 or 1, and is 2"]),
    (
        "a text beyond all measure",
        |it| it.key("x", 8, u64::MAX.to_le_bytes().to_vec()),
        &["the text of \"x\" would have 18446744073709551615 bytes"],
    ),
    (
        "a text that is none",
        |it| it.key("x", 8, [&2u64.to_le_bytes()[..], &[0xff, 0xfe]].concat()),
        &["the text of \"x\" is not UTF-8"],
    ),
    (
        "texts of megabytes",
        |it| {
            let text = [&(9u64 << 20).to_le_bytes()[..], &vec![b'a'; 9 << 20]].concat();
            it.key("x", 8, text);
        },
        &["would have 9437184 bytes"],
    ),
    (
        "an array beyond the file",
        |it| it.key("x", 9, array_bytes(0, 1 << 40, &[])),
        &["\"x\" would have 1099511627776 elements"],
    ),
    (
        "an array beyond all measure",
        |it| it.key("x", 9, array_bytes(12, u64::MAX / 4, &[])),
        &["\"x\" would have"],
    ),
    (
        "an array of arrays",
        |it| it.key("x", 9, array_bytes(9, 1, &[0; 32])),
        &["an array of the type 9"],
    ),
    (
        "an array of texts that lie",
        |it| it.key("x", 9, array_bytes(8, 1, &u64::MAX.to_le_bytes())),
        &["bytes should follow"],
    ),
    (
        "no architecture",
        |it| it.keys.retain(|key| key.0 != "general.architecture"),
        &["no general.architecture"],
    ),
    (
        "another architecture",
        |it| it.text("general.architecture", "mamba"),
        &["\"mamba\", expected one of llama, qwen2"],
    ),
    (
        "an architecture in numbers",
        |it| it.number("general.architecture", 2),
        &["should be a text, and is 2"],
    ),
    (
        "no layers",
        |it| it.keys.retain(|key| key.0 != "qwen2.block_count"),
        &["it says no qwen2.block_count"],
    ),
    ("many layers", |it| it.number("qwen2.block_count", u32::MAX), &["num_hidden_layers"]),
    ("a layer too many", |it| it.number("qwen2.block_count", 3), &["has no tensor"]),
    ("a layer too few", |it| it.number("qwen2.block_count", 1), &["1 layers"]),
    ("no heads", |it| it.number("qwen2.attention.head_count", 0), &["num_attention_heads"]),
    (
        "heads by layer",
        |it| it.numbers("qwen2.attention.head_count_kv", &[1, 2]),
        &["should be a whole number from 0, and is an array of 2 elements"],
    ),
    (
        "an epsilon that is none",
        |it| it.float("qwen2.attention.layer_norm_rms_epsilon", f32::NAN),
        &["should be a number, and is NaN"],
    ),
    (
        "half of a head turned",
        |it| it.number("qwen2.rope.dimension_count", 4),
        &["qwen2.rope.dimension_count is 4, expected"],
    ),
    ("experts", |it| it.number("qwen2.expert_count", 8), &["mixture of experts"]),
    ("frequencies of another kind", |it| it.text("qwen2.rope.scaling.type", "yarn"), &["yarn"]),
    ("no alignment", |it| it.number("general.alignment", 0), &["general.alignment is 0"]),
    ("an odd alignment", |it| it.number("general.alignment", 24), &["general.alignment is 24"]),
    (
        "no embedding",
        |it| it.tensors.retain(|it| it.name != "token_embd.weight"),
        &["no token_embd.weight"],
    ),
    ("a tensor twice", |it| it.tensors.push(it.tensors[0].clone()), &["is there twice"]),
    (
        "a tensor of another model",
        |it| it.tensors[0].name = "conv1d.weight".into(),
        &["token_embd"],
    ),
    (
        "a name without end",
        |it| it.tensors[0].name = "a".repeat(65),
        &["65 bytes, and may have 64"],
    ),
    ("a type that is not read", |it| it.tensors[0].kind = 10, &["type 10 (Q2_K)", "take another"]),
    ("a type that is no type", |it| it.tensors[0].kind = 4_000_000, &["of the type 4000000"]),
    ("rows that no blocks fill", |it| it.tensors[0].kind = 12, &["blocks of 256"]),
    ("five sizes", |it| it.tensors[0].sizes = vec![1; 5], &["has 5 sizes"]),
    ("no sizes", |it| it.tensors[0].sizes = vec![], &["has 0 sizes"]),
    ("a size of nothing", |it| it.tensors[0].sizes[0] = 0, &["has a size of 0"]),
    (
        "sizes beyond all measure",
        |it| it.tensors[0].sizes = vec![1 << 40, 1 << 40],
        &["beyond all measure"],
    ),
    (
        "sizes beyond the file",
        |it| it.tensors.last_mut().unwrap().sizes = vec![1 << 30, 1 << 20],
        &["would end behind the file"],
    ),
    ("a tensor over another", |it| it.tensors[1].says_at = Some(0), &["begins at 0, expected"]),
    ("a tensor beyond the file", |it| it.tensors[1].says_at = Some(u64::MAX - 31), &["expected"]),
    ("a tensor between", |it| it.tensors[1].says_at = Some(1), &["begins at 1, expected"]),
    ("a shape of another model", |it| it.tensors[0].sizes.reverse(), &["config.json makes it"]),
    (
        "a token twice",
        |it| it.texts("tokenizer.ggml.tokens", ["a", "a", "b"]),
        &["token_type has", "for 3 tokens"],
    ),
    ("no tokens", |it| it.texts("tokenizer.ggml.tokens", []), &["it has 0 tokens"]),
    (
        "tokens that are numbers",
        |it| it.numbers("tokenizer.ggml.tokens", &[1, 2]),
        &["should be an array of texts"],
    ),
    (
        "a merge of one",
        |it| it.texts("tokenizer.ggml.merges", ["ab"]),
        &["the merge \"ab\" is not of two parts"],
    ),
    (
        "a merge of strangers",
        |it| it.texts("tokenizer.ggml.merges", ["qqq zzz"]),
        &["not a tokenizer that can be read"],
    ),
    (
        "rules that nobody knows",
        |it| it.text("tokenizer.ggml.pre", "poro-chat"),
        &["by the rules \"poro-chat\"", "beside it"],
    ),
    (
        "a tokenizer of another kind",
        |it| it.text("tokenizer.ggml.model", "bert"),
        &["of the kind \"bert\""],
    ),
];

#[test]
fn hostile_files_are_refused_within_bounds() {
    let good = GgufFile::of_folder(Path::new("fixtures/qwen2-f32"), Some("qwen2"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let refused = |bytes: &[u8]| -> Option<String> {
        fs::write(&path, bytes).unwrap();
        let sizes = load_config(&path).err().map(|error| error.to_string());
        let names = || unread_tensors(&path).err().map(|error| error.to_string());
        let weights = || load(&path, &Device::flex()).err().map(|error| error.to_string());
        let texts = || Tokenizer::from_folder(&path).err().map(|error| error.to_string());
        sizes.or_else(names).or_else(weights).or_else(texts)
    };
    assert_eq!(refused(&good.bytes()), None);
    let before = reset_peak();
    let mut largest = 0;
    for (what, change, said) in HOSTILE {
        let mut file = good.clone();
        change(&mut file);
        let bytes = file.bytes();
        largest = largest.max(bytes.len() as u64);
        let problem = refused(&bytes).unwrap_or_else(|| panic!("{what} was taken"));
        for part in *said {
            assert!(problem.contains(part), "{what}: {problem}");
        }
        assert!(problem.contains("model.gguf"), "{what}: {problem}");
    }
    // Cut off anywhere, it is refused, too.
    let whole = good.bytes();
    for end in (0..whole.len()).step_by(whole.len() / 200) {
        let problem = refused(&whole[..end]).unwrap_or_else(|| panic!("{end} bytes were taken"));
        assert!(problem.contains("model.gguf, byte"), "{end}: {problem}");
    }
    match (before, peak()) {
        (Some(before), Some(peak)) => {
            let grown = peak.saturating_sub(before + largest);
            assert!(grown <= 64 << 20, "the files took {} MiB at once", grown >> 20);
        }
        _ => aloud("skipped: the system does not tell how much memory was used"),
    }
}

/// What is not refused has as many values as its shape says, whatever its bits are.
#[test]
fn any_bits_are_read_or_refused() {
    let good =
        GgufFile::of_folder(Path::new("fixtures/llama3-f32-scaled"), Some("llama-bpe")).bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut state = 17u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let mut taken = 0;
    for _ in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..1 + next() % 3 {
            // What the file says of itself, mostly.
            let at = if next() % 4 == 0 { next() % bytes.len() } else { next() % 20_000 };
            bytes[at % good.len()] = (next() & 255) as u8;
        }
        fs::write(&path, &bytes).unwrap();
        firebrick_gguf::fuzzing::open(&path);
        taken += usize::from(Gguf::open(&path).is_ok());
    }
    assert!((50..590).contains(&taken), "{taken} of 600 were taken");
}
