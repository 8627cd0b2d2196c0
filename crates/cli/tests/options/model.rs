//! Cases for the model: a checkpoint, adapters next to it, or a new model's shape.

use std::collections::BTreeSet;

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, TINY, case, default},
    made::{Run, assert_near},
};

#[test]
fn a_model_is_what_its_options_say() {
    let bench = Bench::new();
    bench.tokenizer("words", &["tok", "en"]);
    bench.rows("words.jsonl", &[("tok", "en")]);

    let commit = "0123456789abcdef0123456789abcdef01234567";
    bench.scratch.write("hub/hub/models--kiln--tiny/refs/v2", commit);
    let snapshot = format!("hub/hub/models--kiln--tiny/snapshots/{commit}");
    bench.scratch.fixture("qwen2-f32", &snapshot);
    bench.scratch.fixture("qwen3-bf16-sharded", "untied");
    bench.try_all(CASES);
}

const ADAPTERS: &[&str] = &["model.lora.rank=2"];

/// Adapters for a model whose head is not its embedding.
const UNTIED: &[&str] = &["model.path=untied", "model.lora.rank=2", "optim.lr=1e-2"];

const LORA: &[&str] = &["optim.lr=1e-2", "train.steps=2"];

pub(crate) const CASES: &[Case] = &[
    case(&["model.path=half"], CHECKPOINT, &[], |run| {
        assert_eq!(run.json("config.json")["model_type"], "qwen2");
        assert_ne!(run.values("loss/entropy"), run.without().values("loss/entropy"));
    }),
    // The cache of the Hub has that revision of the model, and no other.
    case(&["model.revision=v2"], CHECKPOINT, &["model.path=kiln/tiny"], |run| {
        run.assert_is(&run.bench.run(CHECKPOINT, &[], &[]));
        run.without().fails(1, "HF_HUB_OFFLINE");
    }),
    default(&["model.dtype=auto"], CHECKPOINT, &["device.kind=cpu"], |run| {
        run.assert_is(&run.instead(&["model.dtype=float32"]));
    }),
    default(&["model.dtype=float32"], CHECKPOINT, &[], |run| {
        assert!(run.first("rollout/logprob_diff_max") < 1e-4);
    }),
    case(&["model.dtype=bfloat16"], CHECKPOINT, &[], |run| {
        run.says("multiplied in bfloat16");
        assert_ne!(run.first("loss/entropy"), run.without().first("loss/entropy"));
    }),
    case(&["model.dtype=float16"], CHECKPOINT, &[], |run| {
        run.says("multiplied in float16");
        let (entropy, wide) = (run.first("loss/entropy"), run.without().first("loss/entropy"));
        assert!(entropy != wide && (entropy - wide).abs() < 0.5, "{entropy}, in float32 {wide}");
        assert!(run.first("update/grad_norm").is_normal());
    }),
    // A model computed with fewer bits is another model, but a near one.
    case(&["model.base=int4"], CHECKPOINT, ADAPTERS, near_but_another),
    case(&["model.base=int8"], CHECKPOINT, ADAPTERS, near_but_another),
    case(&["model.base=bfloat16"], CHECKPOINT, ADAPTERS, near_but_another),
    default(&["model.base=float32"], CHECKPOINT, ADAPTERS, |run| run.assert_is(&run.without())),
    default(&["model.base=auto"], CHECKPOINT, ADAPTERS, |run| run.assert_is(&run.without())),
    case(&["model.lora.rank=3"], CHECKPOINT, &[], |run| {
        run.says("(adapters of rank 3)");
        let tensors = run.tensors("adapter_model.safetensors");
        assert!(tensors.values().all(|tensor| tensor.shape.contains(&3)));
        assert_eq!(adapted(run).len(), 7);
    }),
    // The output of an adapter grows with alpha, and so does its gradient. The gradient of a new adapter is that
    // of B alone, because B is 0.
    case(&["model.lora.alpha=2.0"], CHECKPOINT, &["model.lora.rank=2"], |run| {
        assert_eq!(run.json("adapter_config.json")["lora_alpha"], 2.0);
        assert_eq!(run.without().json("adapter_config.json")["lora_alpha"], 4.0);
        let norm = |run: &Run| run.first("update/grad_norm");
        assert_near(2.0 * norm(run), norm(&run.without()));
    }),
    // The factor is α / √4 = 4 instead of α / 4 = 2.
    case(&["model.lora.rslora=true"], CHECKPOINT, &["model.lora.rank=4"], |run| {
        assert_eq!(run.json("adapter_config.json")["use_rslora"], true);
        let norm = |run: &Run| run.first("update/grad_norm");
        assert_near(norm(run), 2.0 * norm(&run.without()));
    }),
    case(&["model.lora={rank=2,targets=['q_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['k_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['v_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['o_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['gate_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['up_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora={rank=2,targets=['down_proj']}"], CHECKPOINT, LORA, only_that),
    case(&["model.lora.modules_to_save=['lm_head']"], CHECKPOINT, UNTIED, |run| {
        whole(run, "lm_head");
    }),
    case(&["model.lora.modules_to_save=['embed_tokens']"], CHECKPOINT, UNTIED, |run| {
        whole(run, "model.embed_tokens");
        let tied = run.instead(&["model.path=half", "model.lora.modules_to_save=['lm_head']"]);
        tied.fails(2, "this model's head is its embedding");
    }),
    default(&["model.new.family=qwen2"], LETTERS, &[], |run| is_a(run, "qwen2", "q_proj.bias")),
    case(&["model.new.family=qwen3"], LETTERS, &[], |run| is_a(run, "qwen3", "q_norm.weight")),
    case(&["model.new.family=qwen3_moe"], LETTERS, &[], |run| {
        is_a(run, "qwen3_moe", "q_norm.weight");
        let name = "model.layers.0.mlp.experts.7.up_proj.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=qwen3_5"], LETTERS, &[], |run| {
        assert_eq!(run.json("config.json")["model_type"], "qwen3_5_text");
        let name = "model.layers.0.linear_attn.in_proj_qkv.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=llama"], LETTERS, &[], |run| is_a(run, "llama", "q_proj.weight")),
    case(&["model.new.family=mistral"], LETTERS, &[], |run| is_a(run, "mistral", "q_proj.weight")),
    case(&["model.new.family=gpt_oss"], LETTERS, &[], |run| {
        is_a(run, "gpt_oss", "sinks");
        let name = "model.layers.0.mlp.experts.gate_up_proj_bias";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=gemma"], LETTERS, &[], |run| is_a(run, "gemma", "q_proj.weight")),
    case(&["model.new.family=gemma3"], LETTERS, &[], |run| {
        is_a(run, "gemma3_text", "q_norm.weight");
    }),
    case(&["model.new.family=gemma4"], LETTERS, &[], |run| {
        is_a(run, "gemma4_text", "q_norm.weight");
        // No step moves the factor of a layer's output.
        let scale = &run.tensors("model.safetensors")["model.layers.0.layer_scalar"];
        assert_eq!(scale.values, [1.0]);
    }),
    case(&["model.new.family=smollm3"], LETTERS, &[], |run| is_a(run, "smollm3", "q_proj.weight")),
    case(&["model.new.family=olmo2"], LETTERS, &[], |run| is_a(run, "olmo2", "q_norm.weight")),
    case(&["model.new.family=olmo3"], LETTERS, &[], |run| is_a(run, "olmo3", "k_norm.weight")),
    case(&["model.new.family=olmoe"], LETTERS, &[], |run| is_a(run, "olmoe", "q_norm.weight")),
    case(&["model.new.family=phi3"], LETTERS, &[], |run| is_a(run, "phi3", "qkv_proj.weight")),
    case(&["model.new.family=ministral3"], LETTERS, &[], |run| {
        is_a(run, "ministral3", "q_proj.weight");
    }),
    case(&["model.new.family=mixtral"], LETTERS, &[], |run| {
        is_a(run, "mixtral", "q_proj.weight");
        let name = "model.layers.0.block_sparse_moe.experts.7.w2.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=qwen2_moe"], LETTERS, &[], |run| {
        is_a(run, "qwen2_moe", "q_proj.bias");
        let name = "model.layers.0.mlp.shared_expert_gate.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=qwen3_next"], LETTERS, &[], |run| {
        assert_eq!(run.json("config.json")["model_type"], "qwen3_next");
        let name = "model.layers.0.linear_attn.in_proj_qkvz.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=qwen3_5_moe"], LETTERS, &[], |run| {
        assert_eq!(run.json("config.json")["model_type"], "qwen3_5_moe_text");
        let name = "model.layers.0.mlp.shared_expert.up_proj.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=lfm2"], LETTERS, &[], |run| {
        assert_eq!(run.json("config.json")["model_type"], "lfm2");
        let name = "model.layers.0.conv.in_proj.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=granite"], LETTERS, &[], |run| is_a(run, "granite", "q_proj.weight")),
    case(&["model.new.family=granitemoehybrid"], LETTERS, &[], |run| {
        is_a(run, "granitemoehybrid", "q_proj.weight");
        let name = "model.layers.0.shared_mlp.input_linear.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=glm4"], LETTERS, &[], |run| is_a(run, "glm4", "q_proj.bias")),
    case(&["model.new.family=glm4_moe"], LETTERS, &["model.new.layers=2"], |run| {
        is_a(run, "glm4_moe", "q_norm.weight");
        // No step moves the corrections of the router's scores.
        let router = "model.layers.1.mlp.gate.e_score_correction_bias";
        assert_eq!(run.tensors("model.safetensors")[router].values, [0.0; 8]);
    }),
    case(&["model.new.family=minimax_m2"], LETTERS, &[], |run| {
        is_a(run, "minimax_m2", "q_norm.weight");
        let name = "model.layers.0.block_sparse_moe.experts.7.w2.weight";
        assert!(run.tensors("model.safetensors").contains_key(name), "{name}");
    }),
    case(&["model.new.family=ernie4_5"], LETTERS, &[], |run| {
        is_a(run, "ernie4_5", "q_proj.weight");
    }),
    case(&["model.new.family=exaone4"], LETTERS, &[], |run| is_a(run, "exaone4", "q_norm.weight")),
    case(&["model.new.family=hunyuan_v1_dense"], LETTERS, &[], |run| {
        is_a(run, "hunyuan_v1_dense", "query_layernorm.weight");
    }),
    case(&["model.new.family=seed_oss"], LETTERS, &[], |run| is_a(run, "seed_oss", "q_proj.bias")),
    case(&["model.new.family=arcee"], LETTERS, &[], |run| is_a(run, "arcee", "q_proj.weight")),
    case(&["model.new.hidden_size=24"], LETTERS, &[], |run| {
        shaped(run, "hidden_size", 24, "model.norm.weight", &[24]);
    }),
    case(&["model.new.layers=2"], LETTERS, &[], |run| {
        shaped(run, "num_hidden_layers", 2, "model.layers.1.mlp.up_proj.weight", &[16, 16]);
    }),
    // Each of the four heads is half as wide, and the one head of keys is as wide as these.
    case(&["model.new.heads=4"], LETTERS, &[], |run| {
        shaped(run, "num_attention_heads", 4, "model.layers.0.self_attn.k_proj.weight", &[4, 16]);
    }),
    case(&["model.new.kv_heads=2"], LETTERS, &[], |run| {
        shaped(run, "num_key_value_heads", 2, "model.layers.0.self_attn.k_proj.weight", &[16, 16]);
    }),
    case(&["model.new.intermediate_size=40"], LETTERS, &[], |run| {
        shaped(run, "intermediate_size", 40, "model.layers.0.mlp.up_proj.weight", &[40, 16]);
    }),
    // A completion takes 6 tokens of the context, which leaves 5 for a prompt such as `12+3=`.
    case(
        &["model.new.max_position_embeddings=11"],
        TINY,
        &["sft={}", "train.steps=1", "data.task.digits=2"],
        |run| {
            assert_eq!(run.json("config.json")["max_position_embeddings"], 11);
            let longest = |run: &Run| run.prompts().iter().map(String::len).max().unwrap();
            assert_eq!((longest(run), longest(&run.without())), (5, 6));
        },
    ),
    case(&["model.new.rope_theta=2.0"], LETTERS, &[], |run| {
        assert_eq!(run.json("config.json")["rope_theta"], 2.0);
        assert_ne!(run.first("loss/entropy"), run.without().first("loss/entropy"));
    }),
    case(&["model.new.tied=false"], LETTERS, &[], |run| {
        let head = |run: &Run| run.tensors("model.safetensors").contains_key("lm_head.weight");
        assert!(head(run) && !head(&run.without()));
    }),
    case(&["model.new.tokenizer=words"], LETTERS, &["data.train=words.jsonl"], |run| {
        let known = ["tok", "en"];
        let all = run.completions();
        assert!(all.iter().any(|completion| completion.text.contains("token")));
        for completion in all {
            let rest = known.iter().fold(completion.text, |text, word| text.replace(word, ""));
            assert_eq!(rest, "");
        }
    }),
    case(&["model.new.alphabet='0123456789+=xyz'"], TINY, &["sft={}", "train.steps=1"], |run| {
        let letters =
            |run: &Run| run.completions().iter().any(|it| it.text.contains(['x', 'y', 'z']));
        assert!(letters(run) && !letters(&run.without()));
        assert_eq!(run.json("config.json")["vocab_size"], 17);
    }),
    case(&["model.new.vocab_size=40"], LETTERS, &[], |run| {
        shaped(run, "vocab_size", 40, "model.embed_tokens.weight", &[40, 16]);
    }),
];

/// Returns the projections that have an adapter.
fn adapted(run: &Run) -> BTreeSet<String> {
    let names = run.tensors("adapter_model.safetensors").into_keys();
    names.map(|name| name.split('.').rev().nth(2).unwrap().to_owned()).collect()
}

/// Checks that one projection has an adapter, the one that the recipe names.
fn only_that(run: &Run) {
    let wanted = run.json("adapter_config.json")["target_modules"].clone();
    let names: Vec<&str> =
        wanted.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names.len(), 1);
    assert_eq!(adapted(run), BTreeSet::from([names[0].to_owned()]));

    let recipe = std::fs::read_to_string(run.bench.scratch.path(&run.path("recipe.toml"))).unwrap();
    assert!(recipe.contains(&format!("targets=['{}']", names[0])), "{recipe}");

    // The adapter learns: B, which is 0 in a new adapter, is not 0.
    let tensors = run.tensors("adapter_model.safetensors");
    let learnt = tensors.iter().filter(|(name, _)| name.contains("lora_B"));
    assert!(learnt.flat_map(|(_, tensor)| &tensor.values).any(|&value| value != 0.0));
}

/// Checks that this matrix is trained, and kept with the adapters.
fn whole(run: &Run, name: &str) {
    let of = |run: &Run| run.tensors("adapter_model.safetensors");
    let name = format!("base_model.model.{name}.weight");
    let module = run.json("adapter_config.json")["modules_to_save"][0].clone();
    let same = format!("model.lora.modules_to_save=['{}']", module.as_str().unwrap());
    let (learnt, other) = (of(run), of(&run.instead(&[&same, "optim.lr=2e-2"])));
    assert_ne!(learnt[&name].values, other[&name].values);
    assert!(!of(&run.without()).contains_key(&name));
}

/// Checks that the saved model is of this family, and has a tensor of this name in its first layer.
fn is_a(run: &Run, family: &str, tensor: &str) {
    assert_eq!(run.json("config.json")["model_type"], family);
    let name = format!("model.layers.0.self_attn.{tensor}");
    assert!(run.tensors("model.safetensors").contains_key(&name), "{name}");
}

/// Checks that the saved model has this size in its configuration, and a tensor of the shape that follows.
fn shaped(run: &Run, key: &str, size: usize, tensor: &str, shape: &[usize]) {
    assert_eq!(run.json("config.json")[key], size);
    assert_ne!(run.without().json("config.json")[key], size);
    assert_eq!(run.tensors("model.safetensors")[tensor].shape, shape);
}

fn near_but_another(run: &Run) {
    let (entropy, whole) = (run.first("loss/entropy"), run.without().first("loss/entropy"));
    assert!(entropy != whole && (entropy - whole).abs() < 0.5, "{entropy}, in float32 {whole}");
    assert!(run.first("rollout/logprob_diff_max") < 1e-4);
}
