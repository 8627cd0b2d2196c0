//! GGUF files that are wrong, or would take more memory than there is, are refused, and cheaply. They have a test
//! program of their own, because the test measures the memory of the whole process.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use burn::tensor::Device;
use firebrick_data::Tokenizer;
use firebrick_models::{load, load_config, unread_tensors};
use firebrick_tests::{
    fixture::aloud,
    gguf::{GgufFile, TensorOfFile, array_bytes},
    memory::{peak, reset_peak},
};

/// Name, change of a good file, and the words that its error must have.
type Hostile = (&'static str, fn(&mut GgufFile), &'static [&'static str]);

/// Changes of a good file. Each is refused, with a position and a reason.
const HOSTILE: &[Hostile] = &[
    ("another magic", |it| it.magic = *b"GGML", &["byte 0", "begins with GGUF", "GGML"]),
    ("a pointer", |it| it.magic = *b"vers", &["byte 0", "git lfs pull"]),
    ("version 1", |it| it.version = 1, &["byte 4", "version 1, expected 2 or 3"]),
    ("version 4", |it| it.version = 4, &["byte 4", "version 4"]),
    ("the other end first", |it| it.version = 3u32.swap_bytes(), &["byte 4", "big-endian"]),
    ("many keys", |it| it.says_keys = Some(u64::MAX), &["keys, expected at most 4096"]),
    ("a key more", |it| it.says_keys = Some(it.keys.len() as u64 + 1), &["byte"]),
    ("a key less", |it| it.says_keys = Some(it.keys.len() as u64 - 1), &["byte"]),
    (
        "many tensors",
        |it| it.says_tensors = Some(1 << 60),
        &["byte 8", "tensors, expected at most 65536"],
    ),
    ("a tensor more", |it| it.says_tensors = Some(it.tensors.len() as u64 + 1), &["byte"]),
    ("a key twice", |it| it.keys.push(it.keys[0].clone()), &["occurs twice"]),
    ("a type that is none", |it| it.key("x", 13, vec![0; 8]), &["\"x\" has the type 13"]),
    ("a flag of 2", |it| it.key("x", 7, vec![2]), &["\"x\" should be 0 or 1, but is 2"]),
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
        &["should be a text, but is 2"],
    ),
    (
        "no layers",
        |it| it.keys.retain(|key| key.0 != "qwen2.block_count"),
        &["it has no qwen2.block_count"],
    ),
    ("many layers", |it| it.number("qwen2.block_count", u32::MAX), &["num_hidden_layers"]),
    ("a layer too many", |it| it.number("qwen2.block_count", 3), &["has no tensor"]),
    ("a layer too few", |it| it.number("qwen2.block_count", 1), &["num_hidden_layers = 1"]),
    ("no heads", |it| it.number("qwen2.attention.head_count", 0), &["num_attention_heads"]),
    (
        "heads by layer",
        |it| it.numbers("qwen2.attention.head_count_kv", &[1, 2]),
        &["should be a whole number from 0, but is an array of 2 elements"],
    ),
    (
        "an epsilon that is none",
        |it| it.float("qwen2.attention.layer_norm_rms_epsilon", f32::NAN),
        &["should be a number, but is NaN"],
    ),
    (
        "half of a head rotated",
        |it| it.number("qwen2.rope.dimension_count", 4),
        &["qwen2.rope.dimension_count is 4, expected"],
    ),
    ("experts", |it| it.number("qwen2.expert_count", 8), &["mixture of experts"]),
    (
        "frequencies of another kind",
        |it| it.text("qwen2.rope.scaling.type", "longrope"),
        &["longrope"],
    ),
    (
        "YaRN without a context",
        |it| it.text("qwen2.rope.scaling.type", "yarn"),
        &["it has no qwen2.rope.scaling.original_context_length"],
    ),
    ("no alignment", |it| it.number("general.alignment", 0), &["general.alignment is 0"]),
    ("an odd alignment", |it| it.number("general.alignment", 24), &["general.alignment is 24"]),
    (
        "no embedding",
        |it| it.tensors.retain(|it| it.name != "token_embd.weight"),
        &["no token_embd.weight"],
    ),
    ("a tensor twice", |it| it.tensors.push(it.tensors[0].clone()), &["occurs twice"]),
    (
        "a tensor of another model",
        |it| {
            let name = "blk.0.attn_q_norm.weight".into();
            it.tensors.push(TensorOfFile { name, ..it.tensors[0].clone() });
        },
        &["q_norm"],
    ),
    (
        "a name without end",
        |it| it.tensors[0].name = "a".repeat(65),
        &["65 bytes, expected at most 64"],
    ),
    ("a type that is not read", |it| it.tensors[0].kind = 10, &["type 10 (Q2_K)", "take another"]),
    ("a type that is no type", |it| it.tensors[0].kind = 4_000_000, &["has the type 4000000"]),
    ("rows that no blocks fill", |it| it.tensors[0].kind = 12, &["blocks of 256"]),
    ("five sizes", |it| it.tensors[0].sizes = vec![1; 5], &["has 5 sizes"]),
    ("no sizes", |it| it.tensors[0].sizes = vec![], &["has 0 sizes"]),
    (
        "a size of nothing",
        |it| it.tensors[0].sizes[0] = 0,
        &["has a size of 0, expected at least 1"],
    ),
    (
        "sizes beyond all measure",
        |it| it.tensors[0].sizes = vec![1 << 40, 1 << 40],
        &[
            "has the sizes [1099511627776, 1099511627776], which make more than 2^64 values or bytes",
        ],
    ),
    (
        "sizes beyond the file",
        |it| it.tensors.last_mut().unwrap().sizes = vec![1 << 30, 1 << 20],
        &["would end beyond the file"],
    ),
    ("a tensor over another", |it| it.tensors[1].says_at = Some(0), &["begins at 0, expected"]),
    ("a tensor beyond the file", |it| it.tensors[1].says_at = Some(u64::MAX - 31), &["expected"]),
    ("a tensor between", |it| it.tensors[1].says_at = Some(1), &["begins at 1, expected"]),
    ("a shape of another model", |it| it.tensors[0].sizes.reverse(), &["config.json makes it"]),
    (
        "a token twice",
        |it| {
            it.texts("tokenizer.ggml.tokens", ["a", "a", "b"]);
            it.numbers("tokenizer.ggml.token_type", &[1; 3]);
        },
        &["the token \"a\" occurs twice"],
    ),
    (
        "types for other tokens",
        |it| it.texts("tokenizer.ggml.tokens", ["a", "b"]),
        &["token_type has", "for 2 tokens"],
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
        &["the merge \"ab\" makes no token of two tokens"],
    ),
    (
        "a merge of strangers",
        |it| it.texts("tokenizer.ggml.merges", ["qqq zzz"]),
        &["the merge \"qqq zzz\" makes no token"],
    ),
    (
        "a stranger behind a million merges",
        million_merges,
        &["the merge \"a stranger\" makes no token"],
    ),
    (
        "a scaling of megabytes",
        |it| it.text("qwen2.rope.scaling.type", &"yarn".repeat(1 << 18)),
        &["expected none, linear or yarn"],
    ),
    (
        "a long key twice",
        |it| it.keys.extend(vec![("a".repeat(60_000), 7, vec![1]); 2]),
        &["occurs twice"],
    ),
    (
        "a name that a terminal obeys",
        |it| it.tensors[0].name = "\u{1b}[2J".into(),
        &["has control characters"],
    ),
    (
        "a merge of megabytes",
        |it| it.texts("tokenizer.ggml.merges", ["\u{1}".repeat(20 << 20).as_str()]),
        &["…", "makes no token"],
    ),
    (
        "short tokens made in all ways",
        |it| in_all_ways(it, [32; 3]),
        &["its tokens can be made of each other in more than 1048576 ways"],
    ),
    (
        "long tokens made in all ways",
        |it| in_all_ways(it, [128, 128, 1]),
        &["the ways to make its tokens of each other take more than 67108864 bytes"],
    ),
    (
        "heads beyond all measure",
        |it| {
            it.text("general.architecture", "llama");
            it.key("llama.attention.head_count", 10, (1u64 << 63).to_le_bytes().to_vec());
        },
        &["it has no llama."],
    ),
    ("one file of several", |it| it.number("split.count", 2), &["one of the 2 files", "--merge"]),
    (
        "no epsilon",
        |it| it.keys.retain(|key| !key.0.ends_with("layer_norm_rms_epsilon")),
        &["it has no qwen2.attention.layer_norm_rms_epsilon"],
    ),
    (
        "a factor below nothing",
        |it| it.float("qwen2.rope.scaling.factor", -4.0),
        &["does not define frequencies"],
    ),
    ("factors that are no numbers", factors_of_nothing, &["rope_freqs.weight scales"]),
    (
        "rules that nobody knows",
        |it| it.text("tokenizer.ggml.pre", "poro-chat"),
        &["by the rules \"poro-chat\"", "next to it"],
    ),
    (
        "a tokenizer of another kind",
        |it| it.text("tokenizer.ggml.model", "bert"),
        &["of the kind \"bert\""],
    ),
];

/// Sets as many merges as an array may have. The last one is wrong.
fn million_merges(file: &mut GgufFile) {
    file.texts("tokenizer.ggml.tokens", ["a", "b", "ab"]);
    file.numbers("tokenizer.ggml.token_type", &[1; 3]);
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let texts = [text("a b").repeat(999_999), text("a stranger")].concat();
    file.key("tokenizer.ggml.merges", 9, array_bytes(8, 1_000_000, &texts));
}

/// Adds factors of the frequencies that have the right shape and are no numbers.
fn factors_of_nothing(file: &mut GgufFile) {
    let width = file.keys.iter().find(|(key, ..)| key == "qwen2.attention.key_length").unwrap();
    let width = u32::from_le_bytes(width.2[..].try_into().unwrap()) as usize;
    file.tensor("rope_freqs.weight", &[width / 2], &vec![f32::NAN; width / 2]);
}

/// Sets tokens each of which is made of two others wherever it is cut: all runs of `a`, then of `b`, then of `c`, with
/// fewer letters of each than `most` says.
fn in_all_ways(file: &mut GgufFile, most: [usize; 3]) {
    let token = |index: usize| {
        let [a, b, c] = [index / most[1] / most[2], index / most[2] % most[1], index % most[2]];
        ["a".repeat(a), "b".repeat(b), "c".repeat(c)].concat()
    };
    let tokens: Vec<String> = (1..most.iter().product()).map(token).collect();

    file.text("tokenizer.ggml.model", "llama");
    file.texts("tokenizer.ggml.tokens", tokens.iter().map(String::as_str));
    file.numbers("tokenizer.ggml.token_type", &vec![1; tokens.len()]);
    let scores = vec![0; 4 * tokens.len()];
    file.key("tokenizer.ggml.scores", 9, array_bytes(6, tokens.len() as u64, &scores));
}

#[test]
fn hostile_files_are_refused_within_bounds() {
    let good = GgufFile::of_folder(Path::new("fixtures/qwen2-f32"), Some("qwen2"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let write = |bytes: &[u8]| fs::write(&path, bytes).unwrap();
    let refused = || -> Option<String> {
        let sizes = load_config(&path).err().map(|error| error.to_string());
        let names = || unread_tensors(&path).err().map(|error| error.to_string());
        let weights = || load(&path, &Device::flex()).err().map(|error| error.to_string());
        let texts = || Tokenizer::from_folder(&path).err().map(|error| error.to_string());
        sizes.or_else(names).or_else(weights).or_else(texts)
    };

    write(&good.bytes());
    assert_eq!(refused(), None);

    let mut most = Some(0);
    for (what, change, words) in HOSTILE {
        let mut file = good.clone();
        change(&mut file);
        let size = file.bytes().len() as u64 >> 20;
        write(&file.bytes());
        // The test's own copy must not count as memory of the readers.
        drop(file);

        let before = reset_peak();
        let problem = refused().unwrap_or_else(|| panic!("{what} was taken"));
        let grown = before.zip(peak()).map(|(before, peak)| peak.saturating_sub(before));
        if let Some(grown) = grown {
            let grown = grown >> 20;
            assert!(grown <= 64 + size, "{what}, of {size} MiB, took {grown} MiB");
        }
        most = most.zip(grown).map(|(most, grown)| most.max(grown));

        for part in *words {
            assert!(problem.contains(part), "{what}: {problem}");
        }
        assert!(problem.contains("model.gguf") && problem.len() < 1000, "{what}: {problem}");

        // Downloading a file again does not help where its format is the problem.
        let whole = ["expected 2 or 3", "git lfs", "take another", "array of the type"];
        if whole.iter().any(|part| words.iter().any(|word| word.contains(part))) {
            assert!(!problem.contains("download or copy"), "{what}: {problem}");
        }

        // No reader panics on the file.
        firebrick_gguf::fuzzing::open(&path);
    }

    // A good file that is cut off anywhere is refused too.
    let whole = good.bytes();
    for end in (0..whole.len()).step_by(whole.len() / 200) {
        write(&whole[..end]);
        let problem = refused().unwrap_or_else(|| panic!("{end} bytes were taken"));
        assert!(problem.contains("model.gguf, byte"), "{end}: {problem}");
    }

    match most {
        Some(most) => aloud(&format!("the files took {} MiB at most", most >> 20)),
        None => aloud("skipped: the system does not tell how much memory was used"),
    }
}
