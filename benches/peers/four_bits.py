"""Measures the perplexity of a model with weights rounded to 4 bits in other ways: the peer of `benches/base.rs`.

    pip install torch transformers
    python benches/peers/four_bits.py MODEL TEXT

It reads the first 4,096 tokens of TEXT, 512 at a time, in float32. `ours` has a scale for every 32 inputs of an
output, the one of six with the least squares of errors. `nf4` is the format of Dettmers et al. 2023 with a scale for
every 64. The projections of the layers are rounded, and nothing else.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NF4 = torch.tensor([
    -1.0, -0.6961928, -0.52507305, -0.39491749, -0.28444138, -0.18477343, -0.09105004, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0,
])


def ours(weight):
    runs = weight.reshape(-1, 32)
    largest = runs.gather(1, runs.abs().argmax(1, keepdim=True))
    best = None
    for share in (1.0, 0.95, 0.9, 0.85, 0.8, 0.75):
        scale = largest * share / -8
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        rounded = (runs / scale).round().clamp(-8, 7) * scale
        error = ((rounded - runs) ** 2).sum(1, keepdim=True)
        if best is None:
            best = (error, rounded)
        else:
            best = (torch.minimum(error, best[0]), torch.where(error < best[0], rounded, best[1]))
    return best[1].reshape(weight.shape)


def nf4(weight):
    runs = weight.reshape(-1, 64)
    scale = runs.abs().amax(1, keepdim=True).clamp_min(1e-12)
    nearest = ((runs / scale).unsqueeze(-1) - NF4).abs().argmin(-1)
    return (NF4[nearest] * scale).reshape(weight.shape)


def main():
    folder, text = sys.argv[1:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with open(text) as file:
        ids = tokenizer(file.read(), add_special_tokens=False, return_tensors="pt").input_ids
    ids = ids[0][:4096].view(8, 512)
    weights = [it for name, it in model.named_parameters() if "proj" in name and it.dim() == 2]
    whole = [weight.detach().clone() for weight in weights]
    for name, rounding in [("float32", lambda weight: weight), ("ours", ours), ("nf4", nf4)]:
        with torch.no_grad():
            for weight, before in zip(weights, whole):
                weight.copy_(rounding(before))
        print(name, perplexity(model, ids))


def perplexity(model, ids):
    with torch.no_grad():
        total = 0.0
        for rows in ids.split(4):
            logprobs = model(rows).logits[:, :-1].log_softmax(-1)
            total += logprobs.gather(2, rows[:, 1:, None]).sum().item()
    return float(torch.tensor(-total / (8 * 511)).exp())


if __name__ == "__main__":
    main()
