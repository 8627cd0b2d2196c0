//! Saved files open in Python with the same logits and tokens: models of every family in `transformers`,
//! adapters in `peft`.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use burn::{
    module::{Module as _, ModuleMapper, Param},
    tensor::{Device, Int, Tensor},
};
use firebrick_core::{Seed, SftExample};
use firebrick_data::Tokenizer;
use firebrick_gguf::FileType;
use firebrick_models::{
    Biases, Decoder, DecoderConfig, ExpertSizes, Family, GlobalHeads, LayerKind, Llama3, LongRope,
    Lora, PerLayerSizes, QueryGrowth, RopeKind, RopeScaling, RouterScores, SaveOptions, Sizes,
    WeightDtype, Yarn, load, load_adapter, load_config, parameters, random, save, save_adapter,
    save_gguf,
};
use firebrick_tests::{
    close::report,
    computed::{MICRO_BATCHING, read},
    expected::Tokens,
    fixture::for_each_checkpoint,
    gguf::GgufFile,
    transformers::Transformers,
};
use firebrick_train::learner::{AdamW, OptimConfig, sft_step};
use serde_json::{Value, json};

#[test]
fn interop_saved_checkpoint_opens_in_transformers() {
    let Some(transformers) = Transformers::find() else { return };
    for_each_checkpoint("tokenizer", |fixture, expected: Tokens| {
        let (_, config) = load_config(&fixture.folder).unwrap();
        let texts: Vec<String> = expected.encode.into_iter().map(|text| text.text).collect();
        let decoder = fixture.decoder(&Device::flex());
        let folder = tempfile::tempdir().unwrap();
        save(&decoder, &config, folder.path(), &SaveOptions::default()).unwrap();
        fixture.tokenizer().save(folder.path()).unwrap();

        let answer = transformers.check(folder.path(), &decoder, &fixture.tokenizer(), &texts);
        report(&format!("{}: {answer}", fixture.name));
    });
}

#[test]
fn interop_new_models_open_in_transformers() {
    let Some(transformers) = Transformers::find() else { return };
    for (config, options) in models() {
        let folder = tempfile::tempdir().unwrap();
        let decoder = written(&config, &options, folder.path());
        let answer = transformers.check(folder.path(), &decoder, &tokenizer(), &texts());
        report(&format!("a new {:?}, tied = {}: {answer}", config.family, config.tied));
    }
}

/// Reads the same file here and with `transformers`, for the architectures that both read.
#[test]
fn interop_gguf_files_open_in_transformers() {
    let Some(transformers) = Transformers::find() else { return };
    let texts =
        ["What is 17 + 25?", "  two\n\nlines, café 😀", "<|im_start|>user"].map(String::from);

    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Path::new("fixtures/qwen2-f32");
        let (qwen2, _) = load_config(fixture).unwrap();
        let sizes = Sizes {
            vocab_size: qwen2.vocab_size,
            hidden_size: 48,
            layers: 2,
            heads: 6,
            kv_heads: 3,
            // transformers takes 128 for Qwen3, whatever the file says.
            head_dim: if family == Family::Qwen3 { 128 } else { 8 },
            intermediate_size: 80,
            max_position_embeddings: 256,
            rope_theta: 10_000.0,
            tied: false,
        };

        written(&DecoderConfig::new(family, sizes), &SaveOptions::default(), folder.path());
        for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
            fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
        }

        let path = folder.path().join("model.gguf");
        fs::write(&path, GgufFile::of_folder(folder.path(), Some("qwen2")).bytes()).unwrap();
        let decoder = load(&path, &Device::flex()).unwrap();
        let tokenizer = Tokenizer::from_folder(&path).unwrap();

        let answer = transformers.check_gguf(&path, &decoder, &tokenizer, &texts);
        report(&format!("{family:?} in GGUF: {answer}"));

        let saved = folder.path().join("saved.gguf");
        save_gguf(&decoder, tokenizer.vocabulary(None), "tiny", &saved, FileType::F32).unwrap();
        let answer = transformers.check_gguf(&saved, &decoder, &tokenizer, &texts);
        report(&format!("{family:?} saved as GGUF: {answer}"));
    }
}

/// Files of the library `gguf`, which knows nothing of the code here, hold the same models.
#[test]
fn interop_gguf_files_of_the_gguf_library_are_the_models_that_transformers_opens() {
    let Some(transformers) = Transformers::find() else { return };
    for (family, heads, kv_heads) in [
        (Family::Gemma3, 6, 1),
        (Family::Olmo2, 6, 3),
        (Family::Phi3, 6, 2),
        (Family::Qwen2, 6, 3),
        (Family::Qwen3, 4, 2),
        (Family::Qwen3Moe, 6, 3),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let sizes = Sizes {
            // Another tokenizer is written into the files, and needs as many.
            vocab_size: 520,
            hidden_size: 48,
            layers: 3,
            heads,
            kv_heads,
            head_dim: 48 / heads,
            // Whole blocks, while the rows of 48 have none.
            intermediate_size: 96,
            max_position_embeddings: 256,
            rope_theta: 10_000.0,
            tied: family == Family::Gemma3,
        };

        let config = DecoderConfig::new(family, sizes);
        written(&config, &SaveOptions::default(), folder.path());
        let file = folder.path().join("model.gguf");
        transformers.make_gguf(folder.path(), &file);
        assert_eq!(load_config(&file).unwrap().0, config, "{family:?}");

        let decoder = load(&file, &Device::flex()).unwrap();
        let words = Tokenizer::from_folder("fixtures/qwen2-f32").unwrap();
        for file_type in [FileType::F32, FileType::F16, FileType::BF16, FileType::Q8_0] {
            let ours = folder.path().join("ours.gguf");
            save_gguf(&decoder, words.vocabulary(None), "tiny", &ours, file_type).unwrap();
            let answer = transformers.compare_gguf(&ours, &file);
            report(&format!("{family:?} saved as {file_type:?}: {answer}"));
            fs::remove_file(&ours).unwrap();
        }

        fs::remove_file(&file).unwrap();
        let answer = transformers.check(folder.path(), &decoder, &tokenizer(), &texts());
        report(&format!("{family:?} in GGUF by the library: {answer}"));
    }
}

#[test]
fn interop_adapters_open_in_peft() {
    let Some(transformers) = Transformers::find() else { return };
    let targets: [&[&str]; 3] = [&["q_proj", "v_proj"], &Lora::PROJECTIONS, &["up_proj", "o_proj"]];

    for (index, (config, options)) in models().into_iter().enumerate() {
        let base = tempfile::tempdir().unwrap();
        let decoder = written(&config, &options, base.path());
        let lora = Lora {
            rank: 1 + index,
            alpha: 2.5,
            targets: targets[index % 3].iter().map(ToString::to_string).collect(),
            rslora: index % 2 == 0,
            rank_pattern: vec![("layers.1.self_attn.v_proj".into(), 5)],
            alpha_pattern: vec![("o_proj".into(), 7.0)],
            modules_to_save: if config.tied {
                Vec::new()
            } else {
                Lora::WHOLE[..1 + index % 2].iter().map(ToString::to_string).collect()
            },
            ..Lora::default()
        };
        let new = decoder.with_lora(lora, Seed::run(5));

        for (what, decoder) in [("new", new.clone()), ("trained", trained(new))] {
            let folder = tempfile::tempdir().unwrap();
            save_adapter(&decoder, &base.path().to_string_lossy().as_ref().into(), folder.path())
                .unwrap();
            let answer = transformers.check_adapter(
                base.path(),
                folder.path(),
                &decoder,
                &tokenizer(),
                &texts(),
            );
            report(&format!("a {what} adapter of {:?}: {answer}", config.family));
        }
    }
}

/// Bases of adapters that see pictures, and the classes of transformers that open them as the book does.
const SEEING: [(&str, &str); 4] = [
    ("gemma3-f32-pictures", "AutoModelForCausalLM"),
    ("gemma4-f32-pictures", "AutoModelForCausalLM"),
    ("mistral3-f32-pictures", "AutoModelForImageTextToText"),
    ("qwen3_5-f32-pictures", "AutoModelForCausalLM"),
];

/// Copies a fixture whose `config.json` says outside of its text part that the head is the embedding. The text class
/// of transformers looks into the text part.
fn copied(fixture: &str, to: &Path) {
    let from = Path::new("fixtures").join(fixture);
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }

    let path = to.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    if let (Some(tied), Some(text)) =
        (config.get("tie_word_embeddings").cloned(), config.get_mut("text_config"))
    {
        text["tie_word_embeddings"] = tied;
    }
    fs::write(&path, config.to_string()).unwrap();
}

/// peft skips tensors that it does not know, so the logits are compared, and have to move.
#[test]
fn interop_adapters_of_models_that_see_pictures_move_them_in_peft() {
    let Some(transformers) = Transformers::find() else { return };
    for (fixture, auto) in SEEING {
        let base = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        copied(fixture, base.path());

        let decoder = load(base.path(), &Device::flex().autodiff()).unwrap();
        let rank_pattern = vec![("layers.1.self_attn.v_proj".into(), 3)];
        let targets = Lora::PROJECTIONS.iter().map(ToString::to_string).collect();
        let lora = Lora { rank: 2, alpha: 6.0, targets, rank_pattern, ..Lora::default() };
        let decoder = trained(decoder.with_lora(lora, Seed::run(5)));
        save_adapter(&decoder, &base.path().to_string_lossy().as_ref().into(), folder.path())
            .unwrap();

        let tokenizer = Tokenizer::from_folder(base.path()).unwrap();
        let folders = [base.path(), folder.path()];
        let answer =
            transformers.check_adapter_of(auto, folders, &decoder, &tokenizer, &short_texts());
        report(&format!("an adapter of {fixture}: {answer}"));
    }
}

/// Adapters that peft makes are read here and written again, and compute the same in peft both times.
#[test]
fn interop_adapters_of_peft_are_read_and_written_again() {
    let Some(transformers) = Transformers::find() else { return };
    let [gemma3, gemma4, mistral3, qwen3_5] = SEEING;
    let whole = "AutoModelForImageTextToText";
    let cases = [
        (gemma3, json!({ "target_modules": ["q_proj", "down_proj"], "layers_to_transform": [1] })),
        (gemma3, json!({ "target_modules": "all-linear" })),
        (
            gemma3,
            json!({
                "target_modules": r"model\.language_model\.(?!.*\.1\.).*\.(q|v|up)_proj",
                "rank_pattern": { r"model.language_model.layers.\d.self_attn.q_proj": 3 },
            }),
        ),
        (gemma4, json!({ "target_modules": r"model\.language_model\..*\.(v|o)_proj" })),
        (mistral3, json!({ "target_modules": ["k_proj", "gate_proj"], "use_rslora": true })),
        (
            qwen3_5,
            json!({
                "target_modules": ["in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "o_proj"],
                "exclude_modules": ["layers.1.self_attn.q_proj"],
            }),
        ),
        (
            ("qwen3_5-f32-pictures", whole),
            json!({
                "target_modules": ["in_proj_qkv", "up_proj"],
                "layers_to_transform": 0,
                "layers_pattern": "layers",
                "alpha_pattern": { "model.language_model.layers.0.mlp.up_proj": 11 },
            }),
        ),
        // Rows that are in another order here than in the file.
        (("glm4-f32", "AutoModelForCausalLM"), json!({ "target_modules": "all-linear" })),
        (
            ("qwen3_next-f32", "AutoModelForCausalLM"),
            json!({ "target_modules": ["in_proj_qkvz", "k_proj"] }),
        ),
        (
            ("lfm2-f32", "AutoModelForCausalLM"),
            json!({ "target_modules": ["in_proj", "out_proj", "w1"] }),
        ),
        (
            ("qwen2-f32", "AutoModelForCausalLM"),
            json!({ "target_modules": ["q_proj"], "init_lora_weights": "mica" }),
        ),
    ];

    for ((fixture, auto), mut arguments) in cases {
        let folder = tempfile::tempdir().unwrap();
        let [base, made, again] = ["base", "made", "again"].map(|name| folder.path().join(name));
        fs::create_dir(&base).unwrap();
        fs::create_dir(&again).unwrap();
        copied(fixture, &base);
        arguments["r"] = 2.into();
        transformers.make_adapter(auto, &base, &made, &arguments);

        let decoder = load_adapter(load(&base, &Device::flex()).unwrap(), &made).unwrap();
        save_adapter(&decoder, &base.to_string_lossy().as_ref().into(), &again).unwrap();

        // What is written here opens in the class that the book names.
        let (_, auto) = SEEING.into_iter().find(|(name, _)| *name == fixture).unwrap_or(("", auto));
        let tokenizer = Tokenizer::from_folder(&base).unwrap();
        let answer = transformers.check_adapter_of(
            auto,
            [&base, &again],
            &decoder,
            &tokenizer,
            &short_texts(),
        );
        report(&format!("{fixture} with {arguments}: {answer}"));
    }
}

fn short_texts() -> Vec<String> {
    ["What is 17 + 25?", "two\nlines"].map(String::from).into()
}

/// Makes models of each family with everything that it may have, with heads and files of both kinds.
fn models() -> Vec<(DecoderConfig, SaveOptions)> {
    let whole = SaveOptions::default();
    let parts = SaveOptions { dtype: WeightDtype::BF16, max_shard_bytes: 20_000 };
    let new = |family, kv_heads, head_dim, tied| {
        DecoderConfig::new(
            family,
            Sizes {
                vocab_size: tokenizer().len() + 3,
                hidden_size: 48,
                layers: 2,
                heads: 6,
                kv_heads,
                head_dim,
                intermediate_size: 80,
                max_position_embeddings: 256,
                rope_theta: 10_000.0,
                tied,
            },
        )
    };
    let kinds = |windows: [Option<usize>; 2]| {
        windows.map(|window| LayerKind { window, ..LayerKind::default() }).to_vec()
    };

    let mut qwen2 = new(Family::Qwen2, 3, 8, true);
    qwen2.kinds = kinds([None, Some(5)]);
    let mut qwen3 = new(Family::Qwen3, 1, 10, false);
    qwen3.kinds = kinds([Some(4), None]);
    qwen3.biases = Biases { qkv: true, output: true, mlp: false };

    let mut llama = new(Family::Llama, 6, 16, false);
    llama.biases = Biases { qkv: true, output: true, mlp: true };
    llama.rope.scaling = RopeScaling::Llama3(Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 16,
    });

    let mut mistral = new(Family::Mistral, 2, 8, true);
    mistral.kinds = kinds([Some(3); 2]);
    let gemma = new(Family::Gemma, 1, 12, true);
    let mut untied = new(Family::Gemma, 2, 8, false);
    untied.biases = Biases { qkv: true, output: true, mlp: false };

    let mut gemma3 = new(Family::Gemma3, 1, 12, true);
    gemma3.kinds[0].window = Some(4);
    gemma3.kinds[1] = LayerKind::default();
    gemma3.rope.scaling = RopeScaling::Linear { factor: 8.0 };
    gemma3.query_scale = (12.0f64 / 7.0).sqrt();

    let mut gemma4 = new(Family::Gemma4, 2, 8, true);
    gemma4.kinds[0].window = Some(4);
    gemma4.biases = Biases { qkv: true, output: true, mlp: false };
    gemma4.global_heads = Some(GlobalHeads { kv_heads: 3, head_dim: 12, values_are_keys: true });
    gemma4.rope.share = 0.5;
    gemma4.rope.scaling = RopeScaling::Proportional { factor: 2.0 };
    gemma4.logit_cap = Some(2.0);
    let mut gemma4_with_values = new(Family::Gemma4, 3, 8, false);
    gemma4_with_values.global_heads =
        Some(GlobalHeads { kv_heads: 3, head_dim: 10, values_are_keys: false });

    let mut gemma4_small = gemma4_with_values.clone();
    gemma4_small.layers = 5;
    gemma4_small.kinds = [0, 1, 0, 0, 1].map(|kind| gemma4_with_values.kinds[kind]).to_vec();
    gemma4_small.per_layer = Some(PerLayerSizes { vocab_size: tokenizer().len() + 3, width: 7 });
    gemma4_small.double_wide_mlp = true;
    gemma4_small.share_kv(2);

    let mut smollm3 = new(Family::SmolLm3, 3, 8, true);
    smollm3.kinds[1].rope = RopeKind::None;

    let mut olmo3 = new(Family::Olmo3, 2, 8, false);
    olmo3.kinds[0].window = Some(4);
    olmo3.kinds[1] = LayerKind::default();
    olmo3.rope.scaling = RopeScaling::Yarn(Yarn {
        factor: 8.0,
        beta_fast: 16.0,
        beta_slow: 2.0,
        truncate: true,
        attention_factor: 1.2,
        original_max_position_embeddings: 32,
    });

    let mut phi3 = new(Family::Phi3, 2, 8, false);
    phi3.rope.share = 0.75;
    phi3.rope.scaling = RopeScaling::LongRope(LongRope {
        short_factor: vec![1.0, 1.1, 1.2],
        long_factor: vec![2.0; 3],
        attention_factor: 1.1,
        original_max_position_embeddings: 128,
    });

    let mut moe = new(Family::Qwen3Moe, 3, 8, false);
    moe.kinds[1].sparse = false;
    let mut qwen3_5 = new(Family::Qwen35, 2, 8, true);
    qwen3_5.kinds[1].recurrent = false;

    let qwen2_moe = new(Family::Qwen2Moe, 2, 8, false);
    let mut qwen3_next = new(Family::Qwen3Next, 2, 8, false);
    qwen3_next.kinds[1].recurrent = false;
    let mut qwen3_5_moe = new(Family::Qwen35Moe, 2, 8, true);
    qwen3_5_moe.kinds[1].recurrent = false;
    let mut ministral3 = new(Family::Ministral3, 2, 8, true);
    ministral3.query_growth = Some(QueryGrowth { beta: 0.4, context: 3 });
    let mut granite = new(Family::Granite, 2, 8, true);
    granite.embedding_scale = 3.0;
    granite.residual_scale = 0.4;
    granite.query_scale = 1.5;
    granite.logit_scale = 0.5;
    let mut hybrid = new(Family::GraniteHybrid, 1, 8, true);
    hybrid.kinds.iter_mut().for_each(|kind| kind.rope = RopeKind::None);
    let mut lfm2 = new(Family::Lfm2, 2, 8, true);
    lfm2.kinds[1].recurrent = false;
    let mut glm4_moe = new(Family::Glm4Moe, 2, 8, false);
    let scores = RouterScores::Sigmoid { scale: 2.5 };
    glm4_moe.experts = glm4_moe.experts.map(|experts| ExpertSizes { scores, ..experts });
    let mut exaone4 = new(Family::Exaone4, 2, 8, false);
    exaone4.kinds[0].window = Some(4);
    exaone4.kinds[1] = LayerKind { rope: RopeKind::None, ..LayerKind::default() };

    vec![
        (gemma3, whole),
        (gemma4, parts),
        (gemma4_with_values, whole),
        (gemma4_small, parts),
        (smollm3, parts),
        (new(Family::Olmo2, 2, 8, false), whole),
        (olmo3, parts),
        (phi3, parts),
        (new(Family::Qwen2, 3, 8, false), whole),
        (qwen2, parts),
        (qwen3, parts),
        (llama, whole),
        (mistral, parts),
        (gemma, whole),
        (untied, parts),
        (moe, parts),
        (qwen3_5, parts),
        (qwen2_moe, parts),
        (ministral3, parts),
        (qwen3_next, parts),
        (qwen3_5_moe, whole),
        (new(Family::Mixtral, 1, 8, false), whole),
        (new(Family::GptOss, 1, 8, false), whole),
        (new(Family::Olmoe, 2, 8, false), parts),
        (granite, whole),
        (hybrid, parts),
        (new(Family::Glm4, 2, 8, false), whole),
        (glm4_moe, parts),
        (new(Family::MiniMaxM2, 2, 8, false), whole),
        (new(Family::Ernie45, 2, 8, true), parts),
        (exaone4, parts),
        (lfm2, parts),
        (new(Family::HunYuan, 1, 8, true), whole),
        (new(Family::SeedOss, 3, 8, false), parts),
        (new(Family::Arcee, 2, 4, false), parts),
    ]
}

/// Saves a model with its tokenizer in `folder`, and reads it again.
fn written(config: &DecoderConfig, options: &SaveOptions, folder: &Path) -> Decoder {
    let decoder = random(config, Seed::run(11), &Device::flex()).unwrap().map(&mut Stir);
    let json = config.to_json(Some(tokenizer().pad()), tokenizer().eos());
    save(&decoder, &json, folder, options).unwrap();
    tokenizer().save(folder).unwrap();

    let files = fs::read_dir(folder).unwrap().filter(|entry| {
        entry.as_ref().unwrap().path().extension().is_some_and(|it| it == "safetensors")
    });
    assert_eq!(files.count() > 1, *options != SaveOptions::default());
    assert_eq!(load_config(folder).unwrap().0, *config);
    load(folder, &Device::flex().autodiff()).unwrap()
}

/// Changes all vectors, and factors of layers. A new model's biases are 0, and its norms and factors 1, so nobody would
/// miss them.
struct Stir;

impl ModuleMapper for Stir {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D > 1 {
            return param;
        }
        param.map(|vector| {
            let count = vector.shape().num_elements() as i64;
            let waves = Tensor::<1, Int>::arange(1..count + 1, &vector.device()).float().sin();
            let waves = waves.mul_scalar(0.3).reshape(vector.dims());
            vector + waves
        })
    }
}

/// Trains the policy for two steps. In the first step nothing reaches `A`.
fn trained(mut policy: Decoder) -> Decoder {
    let before: Vec<_> = parameters(&policy).into_iter().map(|it| read(it.values)).collect();
    let mut optimizer = AdamW::new(OptimConfig::default());
    let example = SftExample::new(vec![3, 4, 5], vec![6, 7, 8, 9]);
    for _ in 0..2 {
        (policy, _, _) =
            sft_step(policy, &mut optimizer, std::slice::from_ref(&example), 0.1, MICRO_BATCHING)
                .unwrap();
    }

    let adapters = parameters(&policy).into_iter().zip(before);
    let moved = adapters
        .filter(|(it, before)| it.path.contains("adapters") && read(it.values.clone()) != *before);
    assert!(moved.count() > 1, "an adapter should have learnt");
    policy
}

fn tokenizer() -> Tokenizer {
    Tokenizer::characters("0123456789+-= \n").unwrap()
}

fn texts() -> Vec<String> {
    ["12+34=46", "7 - 10\n= -3 + 123 - 456 = 0987654321 + 1", "", "1"].map(String::from).into()
}
