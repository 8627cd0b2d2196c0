"""Times PyTorch and transformers on an NVIDIA card, for comparison with `firebrick bench` (book/src/cards.md).

    python3 benches/peers/card.py

It needs PyTorch with CUDA and transformers, and downloads nothing: the weights are random, in the shape of
Qwen2.5-0.5B. Each figure is the best of a few runs and one JSON object.
"""

import json
import time

import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

PRODUCTS = [
    (64, 896, 151_936),
    (256, 896, 9728),
    (8192, 896, 1152),
    (8192, 896, 9728),
    (2048, 896, 151_936),
    (4096, 4096, 4096),
]
# Texts, heads, key heads, tokens and the width of a head.
ATTENTION = [(16, 14, 2, 1024, 64), (1, 14, 2, 16_384, 64)]
# Texts, tokens, and texts of a micro-batch.
UPDATES = [(16, 1024, 8), (1, 16_384, 1)]


def best(work, runs=3, each=5):
    """The seconds of the fastest run, after two that do not count."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    found = float("inf")
    for _ in range(runs):
        began = time.time()
        for _ in range(each):
            work()
        torch.cuda.synchronize()
        found = min(found, (time.time() - began) / each)
    return found


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def products():
    for dtype in (torch.bfloat16, torch.float32):
        for rows, inner, columns in PRODUCTS:
            x = torch.randn(rows, inner, device="cuda", dtype=dtype)
            y = torch.randn(inner, columns, device="cuda", dtype=dtype)
            seconds = best(lambda: x @ y)
            shape = {"rows": rows, "inner": inner, "columns": columns}
            say("product", dtype=str(dtype), **shape, tflops=2 * rows * inner * columns / seconds / 1e12)


def attention():
    for texts, heads, kv_heads, tokens, width in ATTENTION:
        query, key, value = (
            torch.randn(texts, of, tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for of in (heads, kv_heads, kv_heads)
        )

        def forward():
            return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)

        gradient = torch.randn_like(forward())

        def both():
            forward().backward(gradient)
            query.grad = key.grad = value.grad = None

        ahead, whole = best(forward), best(both)
        say("attention", texts=texts, tokens=tokens, forward=ahead, back=whole - ahead)


def model():
    config = Qwen2Config(
        vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, max_position_embeddings=32_768,
        tie_word_embeddings=True, rope_theta=1e6, attn_implementation="sdpa",
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        policy = Qwen2ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return policy


def updates(policy):
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6, fused=True)
    for texts, tokens, at_once in UPDATES:
        ids = torch.randint(0, 150_000, (texts, tokens), device="cuda")

        def update():
            for first in range(0, texts, at_once):
                part = ids[first : first + at_once]
                # The latter half of a text is its completion.
                hidden = policy.model(part).last_hidden_state[:, tokens // 2 - 1 : -1].reshape(-1, 896)
                labels = part[:, tokens // 2 :].reshape(-1)
                losses = [
                    F.cross_entropy(policy.lm_head(some).float(), of, reduction="sum")
                    for some, of in zip(hidden.split(2048), labels.split(2048))
                ]
                (sum(losses) / 1000).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        seconds = best(update, runs=2, each=1)
        say("update", texts=texts, tokens=tokens, tokens_per_second=texts * tokens / seconds)


def generate(policy):
    ids = torch.randint(0, 150_000, (256, 256), device="cuda")
    asked = {"max_new_tokens": 64, "min_new_tokens": 64, "do_sample": True, "top_k": 0, "pad_token_id": 0}
    with torch.no_grad():
        mask = torch.ones_like(ids)
        seconds = best(lambda: policy.generate(ids, attention_mask=mask, **asked), runs=1, each=1)
    say("generate", rows=256, tokens_per_second=256 * 64 / seconds)


def main():
    say("machine", card=torch.cuda.get_device_name(), torch=torch.__version__)
    products()
    attention()
    policy = model()
    updates(policy)
    policy.zero_grad(set_to_none=True)
    generate(policy.eval())


if __name__ == "__main__":
    main()
