"""Tells what tools/kernels/run.sh found: python tools/kernels/table.py OUT

OUT has a folder for each chip, and in it one for each run. OUT/kernels.md gets the tables that are committed as
benches/gpu/kernels.md: but for the times at its end, it is equal for equal kernels and compilers. The times are also
printed, and so are the faults. The exit code is 1 if there is a fault:

- a program that ended in another way than expected, or that found no device;
- a case of the suite that broke, unless it broke over values: the stand-ins compute nothing, so all values are
  zeros. That is also why the suite compares nothing here;
- a kernel that a compiler refused, or at which it died;
- a launch, a copy or a recording that the real driver would have refused;
- a module that Vulkan's own validator refused;
- one of our own kernels with numbers of a unit in memory. burn's kernels are only listed;
- a layer with more launches than there are now, or launches of a bench that can't be counted (launches.py);
- a product of an H100's bench that burn's kernel computes, because the device then lacks what our cuts ask for.
"""

import collections
import functools
import pathlib
import re
import sys

import launches
from driver import PLANE, SM, events, is_product, plain, resident, rows, sort

# The words of cases that broke over values. With zeros for scores, a router sends all tokens to the same experts, and
# the others have no gradient.
OF_VALUES = {"a parameter has no gradient"}
# The bytes of a unit that ptxas may keep in memory. It does so of its own accord, with registers left, to fit one
# more cube on a multiprocessor: at 64 and 128 registers, and up to 80 bytes were seen. Mesa's compilers do not.
FEW_BYTES = 128
# Our kernels that have an array in memory, with the reason.
ARRAYS = {"truncated": "it counts in sixteen bins, which it finds by numbers that are data"}

NAMES = {"172": "NVK GA102", "192": "NVK AD102"}
# RADV's and NVK's names of the registers, the planes at once, the bytes in memory and the numbers spilled there.
STATISTICS = [
    ("VGPRs", "Number of GPRs"),
    ("Subgroups per SIMD", "Max warps/SM"),
    ("Scratch size", "SLM size"),
    ("Spilled VGPRs", "Spills to memory"),
]


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
    counted, host, uncounted = launches.counted(out)
    faults += uncounted
    took = list(times_of(times, own, host, out))
    (out / "kernels.md").write_text(document(out, seen, own, [*counted, "", *took]))
    print("\n".join(took))
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
def owner(name, own):
    """The kernel of ours that a name is of, or none. Behind it there are the types of its numbers."""
    fitting = (it for it in own if name == it or re.match(rf"{it}_[a-z]+_[a-z]+\d+(_|$)", name))
    return max(fitting, key=len, default=None)


# ---- how the runs ended ---------------------------------------------------------------------


def ended(folder):
    code, _ = (folder / "ended").read_text().split() if (folder / "ended").exists() else ("no", 0)
    last = " ".join((folder / "log").read_text().splitlines()[-1:])
    said = events(folder)
    # The suite ends with 1 if a case broke, which may be over values.
    right = ("0", "1") if folder.name == "suite" else ("0",)
    if code not in right:
        yield f"the program ended with code {code}: {last}"
    if folder.name == "train":
        if not any(row[0] == "graph" for row in rows(folder / "launches")):
            yield "no launches were recorded and replayed"
        return
    if not any(event["event"] == "summary" for event in said):
        yield f"the program did not get to its summary: {last}"
    if not any(event["event"] in ("case", "phase") for event in said):
        yield f"nothing ran: {last}"
    for event in said:
        if event["event"] == "case" and event["outcome"] == "broken" and event["message"] not in OF_VALUES:
            yield f"case {event['name']} in {event['precision']} broke: {event['message']}"
        if event["event"] == "failed":
            yield f"phase {event['phase']} failed: {event['error']}"


def seconds_of(folder):
    return int((folder / "ended").read_text().split()[1]) / 1e3 if (folder / "ended").exists() else 0.0


# ---- what the compilers made ----------------------------------------------------------------


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
        f"those of `firebrick doctor --suite`, {cases(out)} cases, on stand-ins that compute nothing. By ptxas there are",
        "also those of short benches in bfloat16, with the widths of Qwen2.5-0.5B, and for sm_90 with those of",
        "Qwen2.5-1.5B, Qwen3-4B and Qwen3-8B, and those of a short training.",
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
    said = events(out / "sm_90" / "suite")
    return next((len(event["cases"]) for event in said if event["event"] == "device"), "no")


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


# ---- times ----------------------------------------------------------------------------------


def matrix_units(out):
    """Counts the kernels for an H100 that have the instructions of the newer, faster ways, and of the older ones."""
    texts = [path.read_text() for path in (out / "sm_90").glob("*/[0-9]*.ptx")]
    ways = ["wgmma.mma", "mma.sync.aligned.m16n8", "wmma.mma", "cp.async.bulk", "cp.async.c", "ldmatrix"]
    return ", ".join(f"{way} {sum(way in text for text in texts)}" for way in ways)


def times_of(times, own, host, out):
    yield from [
        "## Times of one run",
        "",
        "These differ from run to run, so `.ci/run kernels` does not compare them. A cell has the number of kernels that",
        "a program asked for, then the seconds to generate them, which one core does, and those to compile them. To train",
        "a model takes the kernels of its `decode`, which has three numbers of rows, and of its `update`.",
        "",
        "| run | seconds | all kernels | own | products of burn and cubek | others |",
        "|---|---|---|---|---|---|",
    ]
    for where, seconds, found, generated in times:
        made = {of: [0, 0.0, 0.0] for of in ("all", "own", "products", "others")}
        for name, took in generated:
            for of in ("all", group(name, own)):
                made[of][1] += took
        for it in found:
            for of in ("all", group(it.name, own)):
                made[of][0] += 1
                made[of][2] += it.seconds
        cells = ("{}: {:.1f} + {:.1f}".format(*made[of]) for of in made)
        yield f"| {where} | {seconds:.0f} | {' | '.join(cells)} |"
    yield ""
    yield f"Kernels with each way to matrix units and to shared memory: {matrix_units(out)}."
    if host is not None:
        yield ""
        yield f"A launch of a decode step takes {host:.1f} µs of the host, in the median over the steps."


def group(name, own):
    if owner(plain(name), own):
        return "own"
    return "products" if is_product(name) else "others"


if __name__ == "__main__":
    main(*sys.argv[1:])
