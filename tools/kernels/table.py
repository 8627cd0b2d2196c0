"""Tells what tools/kernels/run.sh found: python tools/kernels/table.py OUT

OUT has a folder for each chip, and in it one for each run. OUT/kernels.md gets the tables that are committed as
benches/gpu/kernels.md: they are equal for equal kernels and compilers. The times are only printed, and so are the
faults. The exit code is 1 if there is a fault:

- a program that ended in another way than expected, or that found no device;
- a case of the suite that broke, unless it broke over values: the stand-ins compute nothing, so all values are
  zeros, and cases that fail are as they should be;
- a kernel that a compiler refused, or at which it died;
- a launch, a copy or a recording that the real driver would have refused;
- a module that Vulkan's own validator refused;
- one of our own kernels with numbers of a unit in memory. burn's kernels are only listed;
- a product of an H100's bench that burn's kernel computes, because the device then lacks what our cuts ask for.
"""

import collections
import functools
import json
import pathlib
import re
import sys

# The words of cases that broke over values. With zeros for scores, a router sends all tokens to the same experts, and
# the others have no gradient.
OF_VALUES = {"a parameter has no gradient"}
# The bytes of a unit that ptxas may keep in memory. It does so of its own accord, with registers left, to fit one
# more cube on a multiprocessor: at 64 and 128 registers, and up to 80 bytes were seen. Mesa's compilers do not.
FEW_BYTES = 128
# Our kernels that have an array in memory, with the reason.
ARRAYS = {"truncated": "it counts in sixteen bins, which it finds by numbers that are data"}

SM = {  # of the cards of driver.c: units, registers, bytes of shared memory and cubes of one multiprocessor
    "sm_80": (2048, 65536, 164 << 10, 32),
    "sm_90": (2048, 65536, 228 << 10, 32),
    "sm_120": (1536, 65536, 100 << 10, 24),
}
NAMES = {"172": "NVK GA102", "192": "NVK AD102"}
PLANE = 32  # units, on NVIDIA's cards
# RADV's and NVK's names of the registers, the planes at once, the bytes in memory and the numbers spilled there.
STATISTICS = [
    ("VGPRs", "Number of GPRs"),
    ("Subgroups per SIMD", "Max warps/SM"),
    ("Scratch size", "SLM size"),
    ("Spilled VGPRs", "Spills to memory"),
]
# The bench that run.sh asks for: layers of its model, rows, tokens of a prompt and of a completion, and micro-batches.
LAYERS, ROWS, LENGTH, MICRO_BATCHES = 24, 64, 32, 8
# The decode steps of a rollout that the host asks for before it repeats recorded ones, without the prompts' pass.
STEPS = 7


class Seen:
    """What a compiler made of one variant of a kernel."""

    def __init__(self, name, place, registers, shared, waves, memory, seconds):
        self.name, self.place, self.registers, self.shared, self.waves = name, place, registers, shared, waves
        self.memory, self.seconds = memory, seconds


def main(out):
    out = pathlib.Path(out)
    own = own_names()
    faults, seen, times = [], {}, []
    for chip in chips(out):
        seen[chip] = []
        for folder in sorted(path for path in (out / chip).iterdir() if path.is_dir()):
            where = f"{chip}, {folder.name}"
            faults += [f"{where}: {fault}" for fault in ended(folder)]
            if chip in SM:
                found, more, generated = of_cuda(folder, chip)
            else:
                found, more, generated = of_mesa(folder)
            faults += [f"{where}: {fault}" for fault in more]
            seen[chip] += found
            times.append((where, seconds_of(folder), found, generated))
        faults += [f"{chip}, {fault}" for fault in memory(seen[chip], own, FEW_BYTES if chip in SM else 0)]
    faults += [f"the validator refused {row[0]}" for row in rows(out / "invalid")]
    if not any((out / "modules").glob("*.spv")):
        faults.append("the validator was given nothing")
    text, host = launches(out / "sm_90" / "bench", own, faults)
    (out / "kernels.md").write_text(document(out, seen, own, text))
    print_times(times, own, host, matrix_units(out))
    if faults:
        print(f"\n{len(faults)} faults:")
        print("\n".join(f"  {fault}" for fault in faults))
        sys.exit(1)
    print("\nno faults")


def chips(out):
    """NVIDIA's by ptxas first, then AMD's in the order of their age, then NVIDIA's by Mesa."""
    order = [*SM, "polaris10", "navi21", "navi31", "gfx1201", "strix1", *NAMES]
    return [chip for chip in order if (out / chip).is_dir()]


def own_names():
    """The kernels of this project, by their sources."""
    names = set()
    for path in pathlib.Path("crates/kernels/src").rglob("*.rs"):
        # Other attributes may stand between the one that makes a kernel and the function.
        kernel = r"#\[cube\(launch[^\]]*\)\]\s*(?:#\[[^\n]*\]\s*)*(?:pub\S*\s+)?fn\s+(\w+)"
        names |= set(re.findall(kernel, path.read_text()))
    assert "attend" in names, "crates/kernels has no kernel 'attend'; do kernels look different now?"
    return frozenset(names)


@functools.cache
def plain(name):
    """cubecl ends a name with a hash of the variant."""
    return re.sub(r"_[0-9a-f]{8}$", "", name)


@functools.cache
def owner(name, own):
    """The kernel of ours that a name is of, or none. Behind it there are the types of its numbers."""
    fitting = (it for it in own if name == it or re.match(rf"{it}_[a-z]+_[a-z]+\d+(_|$)", name))
    return max(fitting, key=len, default=None)


# ---- how the runs ended ---------------------------------------------------------------------


def ended(folder):
    code, _ = (folder / "ended").read_text().split() if (folder / "ended").exists() else ("no", 0)
    last = " ".join((folder / "log").read_text().splitlines()[-1:])
    events = events_of(folder)
    # The suite ends with 1 if a case failed, and here nearly all fail.
    right = ("0", "1") if folder.name == "suite" else ("0",)
    if code not in right:
        yield f"the program ended with code {code}: {last}"
    if folder.name == "train":
        if not any(row[0] == "graph" for row in rows(folder / "launches")):
            yield "no launches were recorded and replayed"
        return
    if not any(event["event"] == "summary" for event in events):
        yield f"the program did not get to its summary: {last}"
    if not any(event["event"] in ("case", "phase") for event in events):
        yield f"nothing ran: {last}"
    for event in events:
        if event["event"] == "case" and event["outcome"] == "broken" and event["message"] not in OF_VALUES:
            yield f"case {event['name']} in {event['precision']} broke: {event['message']}"
        if event["event"] == "failed":
            yield f"phase {event['phase']} failed: {event['error']}"


def events_of(folder):
    return [json.loads(line) for line in (folder / "said").read_text().splitlines() if line.startswith("{")]


def seconds_of(folder):
    return int((folder / "ended").read_text().split()[1]) / 1e3 if (folder / "ended").exists() else 0.0


# ---- what the compilers made ----------------------------------------------------------------


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def of_cuda(folder, chip):
    faults = [row[0] for row in rows(folder / "violations")]
    names = {row[0]: row[1] for row in rows(folder / "modules")}
    generated = [(row[1], float(row[4]) / 1e6) for row in rows(folder / "modules")]
    shapes = collections.defaultdict(set)
    for row in rows(folder / "launches"):
        if row[0] == "key":
            *_, x, y, z, shared = map(int, row[4:])
            shapes[row[2]].add((x * y * z, shared))
    found = []
    for module, seconds, registers, stack, stores, loads, error in rows(folder / "assembled"):
        name = names[module]
        if error:
            faults.append(f"ptxas refused {name} ({int(module):04}.ptx): {error}")
            continue
        at_once, most = [], 0
        for units, shared in shapes[module]:
            cubes = resident(chip, units, int(registers), shared)
            if not cubes:
                faults.append(f"{name} has {registers} registers in each of {units} units, which do not fit")
            at_once.append(cubes * -(-units // PLANE))
            most = max(most, shared)
        waves = min(at_once, default=None)
        memory = max(int(stack), int(stores), int(loads))
        place = f"{folder.name}/{int(module):04}.ptx"
        found.append(Seen(name, place, int(registers), most, waves, memory, float(seconds)))
    missing = len(names) - len(rows(folder / "assembled"))
    if missing:
        faults.append(f"{missing} kernels were not assembled")
    return found, faults, generated


def resident(chip, units, registers, shared):
    """The cubes that a multiprocessor holds at once. Registers are given to planes in pieces of 256."""
    all_units, all_registers, all_shared, cubes = SM[chip]
    planes = -(-units // PLANE)
    of_plane = -(-registers * PLANE // 256) * 256
    by_memory = all_shared // (shared + 1024)
    return min(all_units // (planes * PLANE), all_registers // (of_plane * planes), by_memory, cubes)


def of_mesa(folder):
    found, faults, begun = [], [], collections.Counter()
    for row in rows(folder / "pipelines"):
        if row[0] == "begin":
            begun[row[1]] += 1
            continue
        begun[row[1]] -= 1
        if row[0] == "refused":
            faults.append(f"the driver refused {row[1]}: result {row[2]}")
            continue
        _, name, milliseconds, *rest = row
        value = dict(part.rsplit("=", 1) for part in rest)
        # RADV and NVK have names of their own. NVK does not tell the shared memory.
        told = [[int(float(value[key])) for key in keys if key in value] for keys in STATISTICS]
        if not all(told):
            faults.append(f"{name} has no statistics that are known here, but {', '.join(value)}")
            continue
        registers, waves, scratch, spilled = map(max, told)
        memory = max(scratch, 4 * spilled)
        shared = int(float(value["LDS size"])) if "LDS size" in value else None
        found.append(Seen(name, folder.name, registers, shared, waves, memory, float(milliseconds) / 1e3))
    # Threads may compile at the same time.
    if died := sorted((+begun).elements()):
        faults.append(f"the compiler died at {', '.join(died)}")
    if not found:
        faults.append("no kernel was compiled")
    # wgpu has two of its own.
    return [it for it in found if it.name != "main"], faults, []


def memory(found, own, few):
    for it in found:
        kernel = owner(plain(it.name), own)
        if kernel and kernel not in ARRAYS and it.memory > few:
            yield f"{it.place}: {it.name} has {it.memory} bytes of a unit in memory"


# ---- the committed tables -------------------------------------------------------------------


def document(out, seen, own, text):
    all_names = sorted({plain(it.name) for found in seen.values() for it in found})
    ours = [name for name in all_names if owner(name, own)]
    # burn has hundreds of kernels, so that a line is for all types of one sort.
    others = sorted({sort(name) for name in all_names} - {sort(name) for name in ours})
    versions = " and ".join((out / "made" / "versions").read_text().split("\n")[:2])
    head = [NAMES.get(chip, chip) for chip in seen]
    lines = [
        "# Kernels, as compilers for real chips see them",
        "",
        f"`tools/kernels/run.sh` wrote this page, with {versions}. No card was there: the kernels are",
        f"those of `firebrick doctor --suite`, {cases(out)} cases, and of a bench of Qwen2.5-0.5B in bfloat16, on",
        "stand-ins that compute nothing.",
        "",
        "A cell has the most registers of a thread (a *unit* of cubecl), then the fewest warps (*planes*) that a",
        "multiprocessor of NVIDIA or a SIMD of AMD holds at once, then the most shared memory of a block (a *cube*), in",
        "KiB. Few warps can't hide that they wait for memory. A number with a + is the most bytes of a thread that its",
        "compiler keeps in memory for want of registers or for an array, which makes a kernel slower.",
        "",
        "By ptxas, sm_80 is an A100, sm_90 an H100 and sm_120 a GeForce RTX 5090. By Mesa, polaris10 is a Radeon RX 480,",
        "navi21 an RX 6800, navi31 an RX 7900, gfx1201 an RX 9070, strix1 the graphics of a Ryzen AI 300, GA102 a GeForce",
        "RTX 3080 and AD102 an RTX 4090. NVK does not tell the shared memory.",
        "",
        "## Own kernels",
        "",
        *table(["variants", *head], ours, seen, plain),
        "",
        "## Kernels of burn and cubek",
        "",
        "Each line has all types of the numbers that a kernel computes with. The variants differ a little from run to",
        "run, because burn writes over a tensor if by chance nothing else holds it any more.",
        "",
        *table(head, others, seen, lambda name: sort(plain(name))),
        "",
        *text,
    ]
    return "\n".join(lines) + "\n"


def cases(out):
    """The cases of the suite that this program has, in all formats."""
    events = events_of(out / "sm_90" / "suite")
    return next((len(event["cases"]) for event in events if event["event"] == "device"), "no")


@functools.cache
def sort(name):
    """A kernel's name without the types and widths behind it."""
    return re.split(r"_(?:[a-z]{1,3}|lhs|acc|in)_(?:[fui]\d|bf16|bool|n_)", name)[0].removesuffix("_kernel")


def table(head, names, seen, named):
    yield "| kernel | " + " | ".join(head) + " |"
    yield "|---" * (len(head) + 1) + "|"
    for name in names:
        of = [[it for it in found if named(it.name) == name] for found in seen.values()]
        cells = list(map(cell, of))
        if "variants" in head:
            cells.insert(0, str(max(len({it.name for it in found}) for found in of)))
        yield "| " + " | ".join([name, *cells]) + " |"


def cell(found):
    if not found:
        return "–"
    waves = min((it.waves for it in found if it.waves is not None), default="?")
    shared = [it.shared / 1024 for it in found if it.shared is not None]
    memory = max(it.memory for it in found)
    parts = [max(it.registers for it in found), waves, *([f"{max(shared):.3g}"] if shared else [])]
    return " ".join(map(str, parts)) + (f" {memory}+" if memory else "")


# ---- launches -------------------------------------------------------------------------------


def launches(folder, own, faults):
    """The launches of a decode step and of an update, and the microseconds that the host takes for one launch."""
    keys, trace = {}, []
    for row in rows(folder / "launches"):
        if row[0] == "key":
            # The widths of loads would make the names too long to read.
            name = re.sub(r"_(lhs|rhs|acc|in|out)_size_\d+", "", plain(row[3]))
            keys[row[1]] = (name, " × ".join(row[4:7]))
        elif row[0] == "run":
            trace.append((float(row[1]), keys[row[2]], int(row[3])))
    events = events_of(folder)
    # A phase ends with a run whose launches are counted by the program itself. The update is the last phase.
    update = next((event for event in events if event["event"] == "detail" and event["phase"] == "update"), None)
    if update is None or not trace:
        faults.append("the bench has no update to count launches in")
        return [], None
    count = sum(number for _, number, _ in update["kernels"])
    last, before = [], list(trace)
    while count > 0 and before:
        time, key, number = before.pop()
        last.append((time, key, min(number, count)))
        count -= number
    # A decode step ends with a draw. The first draw of a rollout ends the prompts' pass.
    steps, step = [], []
    for entry in before:
        step.append(entry)
        if entry[1][0] == "drawn":
            steps.append(step)
            step = []
    steps = steps[-STEPS:]
    host = [
        (step[-1][0] - step[0][0]) / (sum(number for *_, number in step) - 1) for step in steps
    ]
    of_steps = collections.Counter()
    for step in steps:
        for _, key, number in step:
            of_steps[key] += number
    of_update = collections.Counter()
    for _, key, number in last:
        of_update[key] += number
    # An H100 has cuts of ours for products in 16 bits. Without them a product comes out right, and several times as
    # slow, so nothing else would tell.
    uncut = [
        number for (name, _), number in (of_steps + of_update).items()
        if re.match("matmul_entry_lhs_b?f16", name)
    ]
    if uncut:
        faults.append(f"sm_90 bench: {sum(uncut)} products are burn's, expected all to be cut by Firebrick")
    tokens = ROWS * 2 * LENGTH
    return [
        "## Launches of a decode step",
        "",
        f"Qwen2.5-0.5B with {LAYERS} layers, {ROWS} rows, on an H100: the mean over {len(steps)} steps.",
        "",
        *counted(of_steps, len(steps), LAYERS, "a step", "a layer"),
        "",
        "## Launches of an update",
        "",
        f"The same model, {tokens} tokens in {MICRO_BATCHES} micro-batches:"
        f" {sum(of_update.values()) / tokens:.2f} launches a token.",
        "",
        *counted(of_update, 1, LAYERS * MICRO_BATCHES, "an update", "a layer of a micro-batch"),
    ], sorted(host)[len(host) // 2] if host else None


def counted(of, runs, layers, whole, part):
    total = sum(of.values()) / runs
    yield f"| kernel | cubes | {whole} | {part} |"
    yield "|---|---|---|---|"
    yield f"| all | | {total:.6g} | {total / layers:.3g} |"
    few = [number / runs for number in of.values() if number / runs < layers]
    for (name, cubes), number in sorted(of.items(), key=lambda it: (-it[1], it[0])):
        if number / runs >= layers:
            yield f"| {name} | {cubes} | {number / runs:.4g} | {number / runs / layers:.3g} |"
    yield f"| {len(few)} that are less than one a layer | | {sum(few):.4g} | |"


# ---- times ----------------------------------------------------------------------------------


def matrix_units(out):
    """Counts the kernels for an H100 that have the instructions of the newer, faster ways, and of the older ones."""
    texts = [path.read_text() for path in (out / "sm_90").glob("*/[0-9]*.ptx")]
    ways = ["wgmma.mma", "mma.sync.aligned.m16n8", "wmma.mma", "cp.async.bulk", "cp.async.c", "ldmatrix"]
    return ", ".join(f"{way} {sum(way in text for text in texts)}" for way in ways)


def print_times(times, own, host, ways):
    print(f"{'':<20}{'all':>8}  kernels: seconds to generate + to compile, of ours / products / others")
    for where, seconds, found, generated in times:
        groups = collections.defaultdict(lambda: [0, 0.0, 0.0])
        for name, took in generated:
            groups[group(name, own)][1] += took
        for it in found:
            groups[group(it.name, own)][0] += 1
            groups[group(it.name, own)][2] += it.seconds
        line = f"{where:<20}{seconds:>6.0f} s"
        for of in ("own", "products", "others"):
            number, generating, compiling = groups[of]
            line += f"  {number:4}: {generating:5.1f} + {compiling:5.1f}"
        print(line)
    print("kernels with each way to matrix units and to shared memory: " + ways)
    if host is not None:
        print(f"a launch of a decode step takes {host:.1f} µs of the host, in the median over the steps")


def group(name, own):
    if owner(plain(name), own):
        return "own"
    return "products" if name.startswith("matmul") else "others"


if __name__ == "__main__":
    main(*sys.argv[1:])
