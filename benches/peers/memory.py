"""Measures the most memory of an update in PyTorch, and how long it takes: the peer of `benches/memory.rs`.

    pip install torch transformers peft
    python benches/peers/memory.py TOKENS all|lora [--checkpointing] [--updates 2]

It sends one sequence of random tokens, a prompt of 128 and the rest completion, through a random model of the shape
of SmolLM2-135M in float32 with `sdpa`; the update has DAPO's loss, a clipped gradient and AdamW. The logits are made
for the completion alone. It prints a JSON object on stdout. The peak is the process's own, as Linux counts it, from
the loaded model on.
"""

import argparse
import json
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokens", type=int)
    parser.add_argument("trained", choices=["all", "lora"])
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--updates", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(os.cpu_count())
    model = policy(args)
    weights = resident("VmRSS")
    # The peak counts from here on, because making weights has a peak of its own.
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    ids = torch.randint(0, 49_152, (1, args.tokens))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-6)
    seconds = []
    for _ in range(args.updates):
        began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = dapo(model, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({
        "torch": torch.__version__, "transformers": transformers.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens": args.tokens, "trained": args.trained, "checkpointing": args.checkpointing,
        "seconds": seconds, "loss": loss.item(),
        "weights_gib": weights, "peak_gib": resident("VmHWM"),
    }))


def policy(args):
    """Makes a model of SmolLM2-135M's shape, with random weights."""
    config = LlamaConfig(
        vocab_size=49_152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, intermediate_size=1536, max_position_embeddings=args.tokens,
        rope_theta=1e5, tie_word_embeddings=True, attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config)
    if args.trained == "lora":
        from peft import LoraConfig, get_peft_model

        lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, lora)
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if args.trained == "lora":
            model.enable_input_require_grads()
    return model


def dapo(model, ids):
    """Computes the clipped loss of one completion with an advantage of 1, a mean over its tokens."""
    completion = ids[:, PROMPT:]
    out = model(input_ids=ids, use_cache=False, logits_to_keep=completion.shape[1] + 1)
    logits = out.logits[:, :-1]
    logprobs = -torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), completion.reshape(-1), reduction="none"
    )
    ratio = (logprobs - torch.full_like(logprobs, -10.0)).exp()
    return -torch.min(ratio, ratio.clamp(0.8, 1.28)).mean()


def resident(key):
    """Reads the GiB of this process."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(key + ":"))
    return int(line.split()[1]) / 2**20


if __name__ == "__main__":
    main()
