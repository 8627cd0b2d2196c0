"""Computes the time of a step on cards that nobody has measured yet: launches, bytes, FLOPs, and the two limits. For
the one card that was measured, it computes the least time of what was measured, and the share of that. By what that
card reached in each kind of work, it then computes what an H100 should reach.

    python3 benches/expect.py

Every number that goes in is below. A card's figures are its maker's: dense peak of products with sums in f32, and
memory bandwidth. The peak of Apple's chip is cores · 128 lanes · 2 · clock, because Apple names none.
"""

from dataclasses import dataclass

# Launches as `cargo test --test launches` counts them in f32: for a layer and a token of more than 16 rows; for such a
# token besides its layers; for a layer and an update. CUDA in bf16 takes more of them (benches/gpu/kernels.md).
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
    def across(self):
        """The width of queries, keys and values side by side."""
        return (self.heads + 2 * self.kv_heads) * self.width

    @property
    def layer(self):
        return self.hidden * (self.across + self.heads * self.width + 3 * self.inner)

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
LARGEST = Model("Qwen3-8B", 4096, 36, 32, 8, 128, 12_288, 151_936)


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

# Launches of a step of 256 rows with CUDA in bf16: in a layer, in a layer with adapters, and besides
# (benches/gpu/kernels.md). Qwen3-0.6B's were not counted.
CUDA = {HALF.name: (12, 20), MIDDLE.name: (12, 21), SMALL.name: (12, 21), LARGE.name: (11, 24), LARGEST.name: (11, 24)}
CUDA_BESIDES = 10


def cuda_launches(model, adapters):
    return CUDA[model.name][adapters] * model.layers + CUDA_BESIDES


# Shares of its peaks that the H200 reached (book, page on cards). Products of 4,096 tokens: a layer's four took 0.37 ms
# with 0.5B.
PRODUCTS = 2 * HALF.layer * 4096 / 0.37e-3 / H200.products
# Attention, forward and back, with 14 heads of 64 numbers: a layer took 1.20 ms for 16 texts of 1,024 tokens, and
# 9.7 ms for one of 16,384.
SHORT = 4.5 * 16 * HALF.attention(1024) / HALF.layers / 1.20e-3 / H200.products
LONG = 4.5 * HALF.attention(16_384) / HALF.layers / 9.7e-3 / H200.products
# Whatever only reads and writes: a copy reached 2.9 to 3.2 of 4.8 TB/s.
MEMORY = 0.6
# These two fit the three rollouts above: products of some hundred rows, and the reading of weights, keys and values.
DECODED, READ = 0.25, 0.5


def least(phase, model, rows, prompt, completion):
    """Gives the time of a phase if nothing but the card's peaks limits it, launches aside."""
    if phase.startswith("update"):
        trained = 0.0 if phase.endswith("adapters") else 1.0
        _, _, _, flops = updating(H200, model, rows, prompt + completion, trained)
        return flops / H200.products
    prompts = rows * (2 * model.matrices * prompt + model.attention(prompt)) / H200.products
    bytes_, flops, _ = decoding(H200, model, rows, prompt + completion / 2)
    return prompts + completion * max(bytes_, flops)


def step(card, model, rows, length, adapters=False):
    """Gives the expected seconds of a decode step: of its launches, which take as long however little they do, of
    products, attention and logits. The numbers of adapters are too few to count."""
    launches = cuda_launches(model, adapters) * LAUNCH
    by_peak = 2 * model.matrices * rows / (DECODED * card.products)
    by_reading = card.width * model.matrices / (READ * card.bandwidth)
    cache = 2 * model.layers * model.kv_heads * model.width * rows * length * card.width
    logits = 4 * 3 * rows * model.vocab / (MEMORY * card.bandwidth)
    return [launches, max(by_peak, by_reading), cache / (READ * card.bandwidth), logits]


def attention(card, model, texts, tokens):
    """Gives the expected seconds of attention's forward pass."""
    share = SHORT if tokens <= 4096 else LONG
    return texts * model.attention(tokens) / (share * card.products)


def through_memory(model):
    """Counts the bytes that a token and a layer's forward pass read and write apart from the factors of products. In
    numbers of f32: queries, keys and values are written and read, and written in 16 bits; so are gate and up, and their
    product; the rest is the residual stream with its norms, and the branches."""
    return 4 * (2.5 * model.across + 4.5 * model.inner + 12 * model.hidden)


def of_adapters(model):
    """Counts the bytes that adapters add to a token and a layer's forward and backward pass: they are added to the
    products' results, which are written and read once more, and their own products read inputs and gradients again."""
    inputs = 2 * model.hidden + model.heads * model.width + model.inner
    outputs = model.across + 2 * model.hidden + 2 * model.inner
    return 16 * outputs - 8 * model.hidden + 16 * inputs + 2 * 3 * inputs + 2 * 2 * outputs


def prompts(card, model, rows, length):
    """Gives the expected seconds of reading the prompts of a rollout."""
    tokens = rows * length
    products = 2 * model.layers * model.layer * tokens / (PRODUCTS * card.products)
    memory = model.layers * through_memory(model) * tokens / (MEMORY * card.bandwidth)
    return products + attention(card, model, rows, length) + memory


def update(card, model, texts, tokens, trained=1.0):
    """Gives the expected seconds of an update, with all layers kept: of products, of attention, and of whatever goes
    through memory. The head's logits are computed twice. A backward pass is taken to read and write three times as much
    as a forward pass. Launches don't count, because the host is through with them in a tenth of the time:
    70 to 74 for a layer of 4,096 tokens, and 122 to 132 with adapters, the optimizer's included
    (benches/gpu/kernels.md)."""
    all_tokens = texts * tokens
    products = (4 + 2 * trained) * model.layers * model.layer
    products += (6 + 2 * trained) * model.vocab * model.hidden
    products *= all_tokens / (PRODUCTS * card.products)
    # Logits are written and read twice in f32, and their gradient is written once and read twice in 16 bits.
    memory = 4 * model.layers * through_memory(model) + (4 * 4 + 3 * 2) * model.vocab
    if not trained:
        memory += model.layers * of_adapters(model)
    # AdamW reads four numbers of a weight and writes three, and the matrix is rounded for the next update.
    memory = memory * all_tokens + trained * (7 * 4 + 6) * model.matrices
    return [products, 4.5 * attention(card, model, texts, tokens), memory / (MEMORY * card.bandwidth)]


def expected(card, phase, model, rows, prompt, completion):
    """Gives the expected seconds of a phase."""
    if phase.startswith("update"):
        trained = 0.0 if phase.endswith("adapters") else 1.0
        return sum(update(card, model, rows, prompt + completion, trained))
    return prompts(card, model, rows, prompt) + completion * sum(step(card, model, rows, prompt + completion / 2))


# Tokens/s of an H100 by an estimate of 2026-11-26, which was made by reading the program of commit 9ca0e17 with burn
# 0.22.1: of 64, 256 and 512 rows after 1,024 tokens. The last number of each is its launches.
BEFORE = {
    ("Qwen2.5-0.5B", False): (12_700, 32_700, 47_900, 295),
    ("Qwen2.5-1.5B", False): (6_900, 16_300, 23_900, 343),
    ("Qwen3-4B", False): (3_400, 6_600, None, 439),
    ("Qwen3-4B", True): (1_600, 3_800, None, 1_879),
    ("Qwen3-8B", False): (2_700, None, None, 439),
    ("Qwen3-8B", True): (1_200, 3_100, None, 1_879),
}


def an_h100():
    """Prints what an H100 should reach, next to that estimate."""
    card, length, all_rows = CARDS[0], 1024, (64, 256, 512)
    print("| H100, decoding | launches before, now | rows | ms: launches | products | attention | logits "
          "| tokens/s before | now | of the roof |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for model in (HALF, MIDDLE, LARGE, LARGEST):
        for adapters in (False, True):
            before = BEFORE.get((model.name, adapters), (None,) * 4)
            name = model.name + (" with adapters" if adapters else "")
            launches = cuda_launches(model, adapters)
            for rows, then in zip(all_rows, before):
                parts = step(card, model, rows, length, adapters)
                bytes_, flops, _ = decoding(card, model, rows, length)
                times = " | ".join(f"{1e3 * part:.2f}" for part in parts)
                print(
                    f"| {name} | {or_none(before[3])}, {launches} | {rows} | {times} | {or_none(then)} "
                    f"| {rows / sum(parts):,.0f} | {max(bytes_, flops) / sum(parts):.0%} |"
                )
    print()
    print("| H100, update | products: s | attention | memory | tokens/s before | now |")
    print("|---|---|---|---|---|---|")
    for name, model, texts, tokens, trained, before in [
        ("Qwen3-0.6B, 16 × 1,024", SMALL, 16, 1024, 1.0, "29,000"),
        ("Qwen3-0.6B, 1 × 16,384", SMALL, 1, 16_384, 1.0, "6,800"),
        ("Qwen3-4B with adapters, 16 × 1,024", LARGE, 16, 1024, 0.0, "6,300 to 8,000"),
    ]:
        parts = update(card, model, texts, tokens, trained)
        times = " | ".join(f"{part:.3f}" for part in parts)
        print(f"| {name} | {times} | {before} | {texts * tokens / sum(parts):,.0f} |")


def or_none(number):
    return "–" if number is None else f"{number:,}"


def main():
    print("| H200, measured | tokens/s | seconds | at the card's peaks | share | expected | error |")
    print("|---|---|---|---|---|---|---|")
    for phase, model, rows, prompt, completion, seconds in MEASURED:
        tokens = rows * (completion if phase == "rollout" else prompt + completion)
        bound = least(phase, model, rows, prompt, completion)
        now = expected(H200, phase, model, rows, prompt, completion)
        print(
            f"| {phase} of {model.name}, {rows} × ({prompt:,} + {completion:,}) | {tokens / seconds:,.0f} "
            f"| {seconds:.3f} | {bound:.3f} | {bound / seconds:.0%} "
            f"| {now:.3f} | {now / seconds - 1:+.0%} |"
        )
    print()
    an_h100()
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
