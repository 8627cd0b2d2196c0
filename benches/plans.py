"""Makes the book's table of plans: the longest completions that fit, by model, memory and trained weights.

    cargo build --release --locked && python benches/plans.py target/release/firebrick

Nothing is loaded or computed. The shapes are those of the published models' `config.json`; a group has 8
completions, in evaluations too, and a prompt 512 tokens; matrices are multiplied in bfloat16.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MEMORY = ["12GB", "24GB", "48GB", "80GB"]
TRAINED = {
    "all weights": [],
    "adapters": ["model.lora.rank=16"],
    "adapters, 4 bits": ["model.lora.rank=16", "model.base=int4"],
}
# hidden_size, layers, heads, kv_heads, intermediate_size, vocab_size, and True if the head is the embedding.
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
MODELS = {
    "Qwen2.5-0.5B": (QWEN2, 896, 24, 14, 2, 4864, 151_936, True),
    "Qwen2.5-1.5B": (QWEN2, 1536, 28, 12, 2, 8960, 151_936, True),
    "Qwen3-4B": (QWEN3, 2560, 36, 32, 8, 9728, 151_936, True),
    "Qwen2.5-7B": (QWEN2, 3584, 28, 28, 4, 18_944, 152_064, False),
    "Llama-3.1-8B": (LLAMA, 4096, 32, 32, 8, 14_336, 128_256, False),
    "Qwen2.5-14B": (QWEN2, 5120, 48, 40, 8, 13_824, 152_064, False),
    "Qwen2.5-32B": (QWEN2, 5120, 64, 40, 8, 27_648, 152_064, False),
}
# Published figures for comparison: model, trained weights, completion.
PUBLISHED = [
    ("Llama-3.1-8B", "adapters, 4 bits", 20_480, []),
    ("Qwen3-4B", "adapters", 16_384, []),
    ("Qwen3-4B", "adapters", 65_536, []),
    ("Qwen2.5-14B", "adapters", 32_768, []),
    ("Qwen2.5-14B", "adapters", 32_768, ["train.offload=true"]),
    ("Qwen2.5-14B", "adapters, 4 bits", 32_768, []),
]


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as place:
        for name, shape in MODELS.items():
            write(Path(place) / name, *shape)
        (Path(place) / "r.toml").write_text(
            '[data]\ntrain = "t.jsonl"\nmax_prompt_tokens = 512\n'
            '[model]\npath = "m"\ndtype = "bfloat16"\n'
            "[rollout]\ngroup_size = 8\nmax_sequences = 8\n"
            "[sampling]\nprompts_per_step = 8\n[train]\nmini_batch = 32\n[eval]\nsamples = 8\n"
        )
        plan = lambda *args: ask(program, place, *args)
        print("| model | trained | " + " | ".join(MEMORY) + " |")
        print("|---|---|" + "---|" * len(MEMORY))
        for name in MODELS:
            for trained, settings in TRAINED.items():
                longest = [plan(name, settings, memory)["longest"] for memory in MEMORY]
                cells = [cell(it) for it in longest]
                print(f"| {name} | {trained} | " + " | ".join(cells) + " |")
        print("\n| model | trained | completion | update | sampling 8 at once | sampling one |")
        print("|---|---|---|---|---|---|")
        for name, trained, completion, more in PUBLISHED:
            sizes = [f"rollout.max_completion_tokens={completion}", "train.micro_batch_tokens=1"]
            sizes += ["train.recompute=layers"]
            together = plan(name, TRAINED[trained] + sizes + more, "80GB")["together"]
            update = max(together[moment] for moment in ["head", "backward", "gradient", "optimizer"])
            one = plan(name, TRAINED[trained] + sizes + more + ["rollout.max_sequences=1"], "80GB")
            trained = ", ".join([trained, *more])
            rollout = (together["rollout"], one["together"]["rollout"])
            cells = [f"{size / 2**30:.1f} GiB" for size in (update, *rollout)]
            print(f"| {name} | {trained} | {completion:,} | " + " | ".join(cells) + " |")


def cell(longest):
    """Writes the longest completion, and in brackets the longest if a whole group is sampled at once."""
    if longest is None:
        return "-"
    group = min(longest["group"], longest["completion"])
    return f"{longest['completion']:,}" + (f" ({group:,})" if group < longest["completion"] else "")


def write(folder, family, hidden, layers, heads, kv_heads, inner, vocab, tied):
    """Writes a model's config.json, which is all that a plan reads."""
    folder.mkdir()
    config = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": 64 if hidden < 1024 else 128,
        "intermediate_size": inner, "vocab_size": vocab, "tie_word_embeddings": tied,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
        "hidden_act": "silu", "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(family | config))


def ask(program, place, model, settings, memory):
    """Asks `firebrick plan --json` about a model."""
    settings = [f"model.path={model}", *settings]
    words = [word for setting in settings for word in ("--set", setting)]
    command = [program, "plan", "r.toml", "--device", "cuda", "--memory", memory, "--json", *words]
    came = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if not came.stdout:
        raise SystemExit(came.stderr)
    return json.loads(came.stdout)


if __name__ == "__main__":
    main()
