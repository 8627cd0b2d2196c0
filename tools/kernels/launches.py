"""Counts the launches of decode steps and of updates on a stand-in for an H100, for table.py. run.sh makes a bench of
each model of models.py, with all weights trained and with adapters of rank 16.

A step of decoding ends with the kernel that draws tokens, with a cube for each row, so the list of all launches falls
into steps. A layer of a step goes from its attention to that of the next layer. A layer of an update is what a model of
three layers launches more than one of two.
"""

import collections
import itertools
import pathlib
import re
import statistics

import driver
import models

CHIP, MULTIPROCESSORS = "sm_90", 132
# run.sh's rollouts have these rows. Each is done three times: in advance, for the clock, and for the time of each
# kernel. It draws eight tokens, the first in the pass of the prompts, and so few steps are not recorded.
ROWS = (64, 256, 512)
RUNS, STEPS = 3, 7
# The first step also arranges the cache. The next four have all that belongs to steps that are queued together, four
# at a time.
COUNTED = slice(1, 5)
LAYERS, _ = models.FOLDERS["whole"]
# The kernels that follow on the products of a map.
FOLLOWING = {
    "qkv_rope_into_pages": "q·k·v",
    "norm_of_sum": "output",
    "gated": "gate·up",
    "norm": "down",
    "drawn": "head",
}
# What stands behind the name of a job, for each way to train, and the products of a map in their order.
WAYS = {"": "", "-adapters": " with adapters"}
PARTS = {"": ("{}",), "-adapters": ("A of {}", "{} beside A", "B of {}")}
# The most launches of a layer and a token so far. The aim is 12, and 24 with adapters. 4B takes more: 13 for 64 rows,
# because of two sums in parts that are added up by launches of their own, and 26 with adapters for 512.
MOST = {"": 13, "-adapters": 26}
UPDATED = ("0.5B", "4B")  # a model of each family


class Unexpected(Exception):
    """A bench that launched something else than what is counted here."""


def counted(out):
    """Returns the sections of the table, the microseconds that the host takes for a launch, and the faults."""
    faults = []

    def all_of(work, names, count):
        found = {}
        for name in names:
            for way in WAYS:
                folder = out / CHIP / f"{work}-{name}{way}"
                try:
                    found[name, way] = count(folder, way)
                except Unexpected as problem:
                    faults.append(f"{CHIP}, {folder.name}: {problem}")
        return found

    decodes = all_of("decode", models.MODELS, Decode)
    updates = all_of("update", UPDATED, update)
    for (name, way), decode in decodes.items():
        for rows, layer in decode.layers.items():
            if len(layer) > MOST[way]:
                faults.append(
                    f"{CHIP}, decode-{name}{way}: a layer of {rows} rows launches {len(layer)} kernels, expected at "
                    f"most {MOST[way]}"
                )
    # The first bench has the machine for itself.
    host = decodes["0.5B", ""].host if ("0.5B", "") in decodes else None
    return [*of_steps(decodes), "", *of_products(decodes), "", *of_updates(updates)], host, faults


def line(*cells):
    return f"| {' | '.join(map(str, cells))} |"


# ---- decode steps ---------------------------------------------------------------------------


class Decode:
    """The steps of a bench of rollouts, at each number of rows: the launches of a layer, the mean number of those
    besides the layers, and the cell of each product. `host` is the microseconds of a layer's launch, in the median."""

    def __init__(self, folder, way):
        self.layers, self.besides, self.products = {}, {}, collections.defaultdict(dict)
        registers = {row[0]: int(row[2]) for row in driver.rows(folder / "assembled") if not row[6]}
        times = []

        for rows, steps in steps_of(folder).items():
            layers = [layer_of(step) for step in steps]
            kernels = {tuple(launch.name for launch in layer) for layer, _ in layers}
            if len(kernels) > 1:
                raise Unexpected(f"not every step of {rows} rows launches the same in a layer")
            self.layers[rows] = [driver.sort(name) for name in kernels.pop()]
            self.besides[rows] = statistics.mean(map(len, steps)) - LAYERS * len(self.layers[rows])
            times += [time / len(layer) for layer, time in layers]
            for name, launch in products_of(steps[0], way):
                self.products[name][rows] = cell(launch, registers)
        self.host = statistics.median(times)


def steps_of(folder):
    """The counted steps of the run for the clock, by their rows: each a list of microseconds and launches. The pass of
    the prompts has other attention, also if rows are decoded meanwhile."""
    found, step = collections.defaultdict(list), []
    for time, launch, count in driver.trace(folder):
        step += [(time, launch)] * count
        if launch.name == "drawn":
            if attentions(step) and not any(launch.name.startswith("attend_x_") for _, launch in step):
                found[launch.cubes].append(step)
            step = []
    for rows in ROWS:
        if len(found[rows]) != RUNS * STEPS:
            raise Unexpected(f"{len(found[rows])} steps of {rows} rows, expected {RUNS * STEPS}")
        if any(len(attentions(step)) != LAYERS for step in found[rows]):
            raise Unexpected(f"not every step of {rows} rows has an attention in each of {LAYERS} layers")
    return {rows: found[rows][STEPS:2 * STEPS][COUNTED] for rows in ROWS}


def attentions(step):
    return [index for index, (_, launch) in enumerate(step) if launch.name.startswith("attend_pages_")]


def layer_of(step):
    """The launches from one layer's attention to the next layer's, and their microseconds."""
    first, second = attentions(step)
    return [launch for _, launch in step[first:second]], step[second][0] - step[first][0]


def products_of(step, way):
    """The products of a step with their names. Those of the last layer count: all layers have the same."""
    named, products = {}, []
    for _, launch in step:
        name = FOLLOWING.get(driver.sort(launch.name))
        if driver.is_product(launch.name):
            products.append(launch)
        elif name and products:
            parts = PARTS["" if name == "head" else way]
            # B may be a launch of its own or not.
            if not len(parts) - bool(way) <= len(products) <= len(parts):
                raise Unexpected(f"{len(products)} products are in front of {launch.name}")
            named |= zip((part.format(name) for part in parts), products)
            products = []
    if way:
        # Behind a short vocabulary, it is no real one.
        named.pop("head", None)
    return named.items()


def cell(launch, registers):
    """A product's cubes, and how many times they fill the card."""
    if uncut(launch):
        raise Unexpected(f"a product is burn's ({launch.name}), expected all to be cut by Firebrick")
    if launch.module not in registers:
        raise Unexpected(f"{launch.name} was not assembled")
    at_once = driver.resident(CHIP, launch.units, registers[launch.module], launch.shared)
    waves = launch.cubes / (MULTIPROCESSORS * max(at_once, 1))
    how = {"multiply_x_": " parts", "plus_product_x_": " added"}
    return f"{launch.cubes} ({waves:.2g})" + "".join(how[it] for it in how if launch.name.startswith(it))


def uncut(launch):
    """Whether burn computes a product in 16 bits. An H100 has cuts of ours for them: without those it comes out right,
    and several times as slow, so nothing else would tell."""
    return re.match("matmul_entry_lhs_b?f16", launch.name)


def of_steps(decodes):
    yield from [
        "## Launches of a decode step",
        "",
        "A step in bfloat16 on an H100, after 256 tokens, counted with models of two layers. Adapters have rank 16, and",
        "all maps have one. *Besides* are the launches of a step that belong to no layer, in the mean.",
        "",
        line("model", "a layer, 64 rows", "256 rows", "512 rows", "besides", "layers", "a step of 256 rows"),
        "|---" * 7 + "|",
    ]
    sizes = models.sizes()
    for (name, way), decode in decodes.items():
        of_layer = [len(decode.layers[rows]) for rows in ROWS]
        layers, besides = sizes[name]["num_hidden_layers"], decode.besides[256]
        step = round(layers * of_layer[1] + besides)
        yield line(name + WAYS[way], *of_layer, f"{besides:.3g}", layers, step)
    yield from ["", "These are the launches of a layer of 256 rows, from its attention to the next layer's:", ""]
    for (name, way), decode in decodes.items():
        if name in UPDATED:
            kernels = ((kernel, len(list(run))) for kernel, run in itertools.groupby(decode.layers[256]))
            named = (kernel if count == 1 else f"{count} × {kernel}" for kernel, count in kernels)
            yield f"- **{name}{WAYS[way]}**: {', '.join(named)}."


def of_products(decodes):
    yield from [
        "## Products of a decode step",
        "",
        "A cell has a product's cubes and, in brackets, the waves: how many times they fill the card's 132 multiprocessors,",
        "each of which holds several at once. Below 1, some have nothing to do. *Parts* of a sum are added up by another",
        "kernel. An adapter's B may be multiplied where it is *added*. A map's own product *beside* an adapter is only",
        "listed if it has other cubes than without one.",
        "",
        line("model", "product", *(f"{rows} rows" for rows in ROWS)),
        "|---" * 5 + "|",
    ]
    for (name, way), decode in decodes.items():
        alone = decodes[name, ""].products if way and (name, "") in decodes else {}
        for product, cells in decode.products.items():
            if cells != alone.get(product.removesuffix(" beside A")):
                yield line(name, product, *(cells.get(rows, "–") for rows in ROWS))


# ---- updates --------------------------------------------------------------------------------


def update(folder, _):
    """The launches of a layer in an update, by the names of kernels."""
    of_models = {}
    for event in driver.events(folder):
        if event["event"] == "detail":
            counts = of_models[pathlib.Path(event["shape"]).name] = collections.Counter()
            for name, number, _ in event["kernels"]:
                # The kernel's function stands in front of its type.
                counts[driver.sort(name.split("::")[-2:][0])] += number
    if set(of_models) != {"2", "3"}:
        raise Unexpected(f"there are updates of {', '.join(of_models) or 'nothing'}, expected of 2 and 3 layers")

    burns = sum(count for _, launch, count in driver.trace(folder) if uncut(launch))
    if burns:
        raise Unexpected(f"{burns} products are burn's, expected all to be cut by Firebrick")
    layer = of_models["3"]
    layer.subtract(of_models["2"])
    return collections.Counter({kernel: number for kernel, number in layer.items() if number})


def of_updates(updates):
    yield from [
        "## Launches of an update",
        "",
        "Those of a layer, on an H100 in bfloat16, for 4,096 tokens in one micro-batch: forward, back, and the",
        "optimizer's step.",
        "",
    ]
    heads = [name + WAYS[way] for name, way in updates]
    yield line("kernel", *heads)
    yield "|---" * (len(heads) + 1) + "|"
    yield line("all", *(layer.total() for layer in updates.values()))
    kernels = collections.Counter()
    for layer in updates.values():
        kernels.update(layer)
    for kernel in sorted(kernels, key=lambda it: (-kernels[it], it)):
        yield line(kernel, *(layer[kernel] or "–" for layer in updates.values()))
