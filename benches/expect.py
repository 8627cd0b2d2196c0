"""Computes the time of a step on cards that nobody has measured yet: launches, bytes, FLOPs, and the two limits. For
the one card that was measured, it computes the least time of what was measured, and the share of that.

    python3 benches/expect.py

Every number that goes in is below. A card's figures are its maker's: dense peak of products with sums in f32, and
memory bandwidth. The peak of Apple's chip is cores · 128 lanes · 2 · clock, because Apple names none.
"""

from dataclasses import dataclass

# Launches as `cargo test --test launches` counts them: for a layer and a token of more than 16 rows; for such a
# token besides its layers; for a layer and an update.
DECODING, BESIDES, UPDATING = 12, 7, 39
# The time of one launch from the host, in seconds, on CUDA and Vulkan when nothing else is slow.
LAUNCH = 5e-6


@dataclass
class Card:
    name: str
    through: str
    # FLOP/s of products and of attention, which has matrix units in 16 bits, and bytes/s.
    products: float
    bandwidth: float
    # Bytes of a number in products and in the cache.
    width: int


CARDS = [
    Card("H100 SXM", "CUDA, bf16", 989e12, 3.35e12, 2),
    Card("RTX 4090", "CUDA, bf16", 165e12, 1.008e12, 2),
    Card("RTX 4090", "Vulkan, f32", 82.6e12, 1.008e12, 4),
    Card("RX 7900 XTX", "Vulkan, f32", 61.4e12, 0.96e12, 4),
    Card("RX 7900 XTX", "SPIR-V, f16", 122.8e12, 0.96e12, 2),
    Card("Arc B580", "Vulkan, f32", 13.7e12, 0.456e12, 4),
    Card("Arc B580", "SPIR-V, f16", 116.5e12, 0.456e12, 2),
    Card("M4 Max, 40 cores", "Metal, f32", 40 * 128 * 2 * 1.6e9, 0.546e12, 4),
]


@dataclass
class Model:
    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    inner: int
    vocab: int

    @property
    def layer(self):
        across = (self.heads + 2 * self.kv_heads) * self.width
        return self.hidden * (across + self.heads * self.width + 3 * self.inner)

    @property
    def matrices(self):
        """Counts the weights that a token is multiplied by: the layers' and the head's."""
        return self.layers * self.layer + self.vocab * self.hidden

    def attention(self, tokens):
        """Counts the FLOPs of one sequence's scores and sums in a forward pass."""
        return 2 * tokens * tokens * self.heads * self.width * self.layers


HALF = Model("Qwen2.5-0.5B", 896, 24, 14, 2, 64, 4864, 151_936)
MIDDLE = Model("Qwen2.5-1.5B", 1536, 28, 12, 2, 128, 8960, 151_936)
SMALL = Model("Qwen3-0.6B", 1024, 28, 16, 8, 128, 3072, 151_936)
LARGE = Model("Qwen3-4B", 2560, 36, 32, 8, 128, 9728, 151_936)


def decoding(card, model, rows, length):
    """Gives the limits of a decode step, in seconds, for so many rows of so many tokens."""
    cache = 2 * model.layers * model.kv_heads * model.width * rows * length
    bytes_ = card.width * (model.matrices + cache) + 4 * 3 * rows * model.vocab
    flops = 2 * model.matrices * rows
    launches = (DECODING * model.layers + BESIDES) * LAUNCH
    return bytes_ / card.bandwidth, flops / card.products, launches


def updating(card, model, sequences, tokens, trained=1.0):
    """Gives the limits of an update of sequences of so many tokens, with all layers kept. With adapters only their
    weights have a gradient, which is a third less."""
    all_tokens = sequences * tokens
    products = (4 + 2 * trained) * model.matrices * all_tokens
    # The backward pass makes seven products for the forward pass's two: scores and their gradients twice, once for
    # queries and once for keys, and the gradients of queries, keys and values. A share of the peak counts five of
    # them, as others do.
    attention, counted = (factor * sequences * model.attention(tokens) for factor in (4.5, 3.5))
    launches = UPDATING * model.layers * LAUNCH
    return products / card.products, attention / card.products, launches, products + counted


# On an H200 (`firebrick bench SIZE --device cuda:0 --dtype bfloat16`): the rows, the tokens of a prompt and of a
# completion, and the seconds. Qwen2.5 is of commit da323d4 (2026-11-27), Qwen3 of 2a188b66 (2026-11-28).
H200 = Card("H200", "CUDA, bf16", 989e12, 4.8e12, 2)
MEASURED = [
    ("rollout", HALF, 256, 256, 256, 1.080),
    ("rollout", MIDDLE, 256, 256, 128, 1.400),
    ("update", HALF, 16, 512, 512, 0.287),
    ("update", HALF, 1, 8192, 8192, 0.578),
    ("update", MIDDLE, 16, 512, 512, 0.581),
    ("rollout", SMALL, 256, 256, 128, 1.180),
    ("update", SMALL, 16, 512, 512, 0.374),
    ("update", SMALL, 1, 8192, 8192, 0.976),
    ("update of adapters", LARGE, 16, 512, 512, 1.656),
]


def least(phase, model, rows, prompt, completion):
    """Gives the time of a phase if nothing but the card's peaks limits it, launches aside."""
    if phase.startswith("update"):
        trained = 0.0 if phase.endswith("adapters") else 1.0
        _, _, _, flops = updating(H200, model, rows, prompt + completion, trained)
        return flops / H200.products
    prompts = rows * (2 * model.matrices * prompt + model.attention(prompt)) / H200.products
    bytes_, flops, _ = decoding(H200, model, rows, prompt + completion / 2)
    return prompts + completion * max(bytes_, flops)


def main():
    print("| H200, measured | tokens/s | seconds | at the card's peaks | share |")
    print("|---|---|---|---|---|")
    for phase, model, rows, prompt, completion, seconds in MEASURED:
        tokens = rows * (completion if phase == "rollout" else prompt + completion)
        bound = least(phase, model, rows, prompt, completion)
        print(
            f"| {phase} of {model.name}, {rows} × ({prompt:,} + {completion:,}) | {tokens / seconds:,.0f} "
            f"| {seconds:.3f} | {bound:.3f} | {bound / seconds:.0%} |"
        )
    print()
    print("| card | model | bytes: ms | FLOPs: ms | launches: ms | tokens/s at half of the bandwidth |")
    print("|---|---|---|---|---|---|")
    for card in CARDS:
        for model in (HALF, MIDDLE):
            rows, length = 64, 1024
            bytes_, flops, launches = decoding(card, model, rows, length)
            slowest = max(2 * bytes_, flops, launches)
            print(
                f"| {card.name}, {card.through} | {model.name} | {1e3 * bytes_:.2f} | {1e3 * flops:.2f} "
                f"| {1e3 * launches:.2f} | {rows / slowest:,.0f} |"
            )
    print()
    print("| card | work | products: s | attention: s | tokens/s at the goal | of that card's peak |")
    print("|---|---|---|---|---|---|")
    works = [
        ("Qwen3-0.6B, 16 × 1,024", SMALL, 16, 1024, 1.0, 0.20),
        ("Qwen3-0.6B, 1 × 16,384", SMALL, 1, 16384, 1.0, 0.20),
        ("Qwen3-4B with adapters, 16 × 1,024", LARGE, 16, 1024, 0.0, 0.35),
    ]
    for card in CARDS:
        for name, model, sequences, tokens, trained, goal in works:
            products, attention, launches, flops = updating(card, model, sequences, tokens, trained)
            at_goal = sequences * tokens / (flops / card.products / goal)
            print(
                f"| {card.name}, {card.through} | {name} | {products:.3f} | {attention:.3f} "
                f"| {at_goal:,.0f} | {100 * goal:.0f} % |"
            )


main()
