"""Reads what driver.c wrote down about a run on a stand-in for a card of NVIDIA, and knows how much a card holds."""

import dataclasses
import functools
import json
import re

SM = {  # of the cards of driver.c: units, registers, bytes of shared memory and cubes of one multiprocessor
    "sm_80": (2048, 65536, 164 << 10, 32),
    "sm_90": (2048, 65536, 228 << 10, 32),
    "sm_120": (1536, 65536, 100 << 10, 24),
}
PLANE = 32  # units, on NVIDIA's cards


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel with the numbers that it was launched with."""

    module: str
    name: str
    cubes: int
    units: int
    shared: int  # bytes


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def events(folder):
    """What the program said, in lines of JSON."""
    said = (folder / "said").read_text() if (folder / "said").exists() else ""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def kinds(folder):
    """Every kind of launch of a run, by its number."""
    found = {}
    for row in rows(folder / "launches"):
        if row[0] == "key":
            down, across, deep, *units = map(int, row[4:10])
            units = units[0] * units[1] * units[2]
            found[row[1]] = Launch(row[2], plain(row[3]), down * across * deep, units, int(row[10]))
    return found


def trace(folder):
    """The launches of a run in their order: microseconds, the launch, and how often it came in a row. Launches that
    were recorded and repeated are not among them."""
    found = kinds(folder)
    for row in rows(folder / "launches"):
        if row[0] == "run":
            yield float(row[1]), found[row[2]], int(row[3])


@functools.cache
def plain(name):
    """cubecl ends a name with a hash of the variant."""
    return re.sub(r"_[0-9a-f]{8}$", "", name)


@functools.cache
def sort(name):
    """A kernel's name without the types and widths behind it."""
    return re.split(r"_(?:[a-z]{1,3}|lhs|acc|in)_(?:[fui]\d|bf16|bool|n_)", name)[0].removesuffix("_kernel")


def is_product(name):
    """Whether a kernel is for products of matrices: of burn, of cubek, or one of ours."""
    return name.startswith(("matmul_entry_", "cube_staged_matmul_", "multiply_x_", "few_x_", "plus_product_x_"))


def resident(chip, units, registers, shared):
    """The cubes that a multiprocessor holds at once. Registers are given to planes in pieces of 256."""
    all_units, all_registers, all_shared, cubes = SM[chip]
    planes = -(-units // PLANE)
    of_plane = -(-registers * PLANE // 256) * 256
    by_memory = all_shared // (shared + 1024)
    return min(all_units // (planes * PLANE), all_registers // (of_plane * planes), by_memory, cubes)
