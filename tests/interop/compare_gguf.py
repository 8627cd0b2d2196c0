"""Compares a GGUF file of Firebrick with one that the library `gguf` wrote from the same model in float32.

    python3 tests/interop/compare_gguf.py OURS.gguf THEIRS.gguf

Both are opened by the library. Each of their tensors has to be in ours, with the bytes that the library makes of it in
the type that it has there, and each of their keys with the same value. The exit status is 0 if all agree.
"""

import collections
import sys

import gguf
import numpy

# Ours has none of its own: llama.cpp obeys this key in other architectures only.
PASSED_OVER = {"gemma3.attention.scale"}


def compare_tensors(ours, theirs):
    ours = {tensor.name: tensor for tensor in ours.tensors}
    if only := ours.keys() ^ {tensor.name for tensor in theirs.tensors}:
        sys.exit(f"only on one side: {sorted(only)}")

    types = collections.Counter()
    for tensor in theirs.tensors:
        mine = ours[tensor.name]
        if list(mine.shape) != list(tensor.shape):
            sys.exit(f"{tensor.name} is {mine.shape} in ours, and {tensor.shape} in theirs")
        expected = gguf.quants.quantize(tensor.data, mine.tensor_type)
        if not numpy.array_equal(mine.data.view(numpy.uint8), expected.view(numpy.uint8)):
            sys.exit(f"{tensor.name} has other bytes in {mine.tensor_type.name}")
        types[mine.tensor_type.name] += 1
    return ", ".join(f"{count} tensors in {name}" for name, count in sorted(types.items()))


def compare_keys(ours, theirs):
    count = 0
    for key, field in theirs.fields.items():
        if key.startswith("GGUF.") or key in PASSED_OVER:
            continue
        if key not in ours.fields:
            sys.exit(f"ours has no {key}")
        mine, expected = ours.fields[key].contents(), field.contents()
        if mine != expected:
            sys.exit(f"{key} is {mine!r} in ours, and {expected!r} in theirs")
        count += 1
    return f"{count} equal keys"


def main(ours, theirs):
    ours, theirs = gguf.GGUFReader(ours), gguf.GGUFReader(theirs)
    print("; ".join([compare_tensors(ours, theirs), compare_keys(ours, theirs)]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
