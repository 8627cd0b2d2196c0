#!/usr/bin/env python3
"""Writes blocks.json: bytes of blocks of every type, and the values that the package gguf makes of them.

    pip install --no-deps gguf==0.19.0 numpy
    python3 make_blocks.py > blocks.json

Bytes are drawn at random, but for the scales, which are made finite. Values are given by the bits of their f32.
"""
import json

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

# The places in a block that hold numbers in 16 bits.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2],
    "Q5_K": [0, 2], "Q6_K": [208],
}
BLOCKS = 3

random = np.random.default_rng(17)
types = {}
for name in ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "MXFP4"]:
    values, size = GGML_QUANT_SIZES[Type[name]]
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        blocks[:, at:at + 2] = random.normal(0, 0.1, BLOCKS).astype(np.float16).view(np.uint8).reshape(BLOCKS, 2)
    if name in ("F32", "BF16"):
        numbers = random.normal(0, 1, BLOCKS).astype(np.float32).view(np.uint32)
        blocks = (numbers if name == "F32" else (numbers >> 16).astype(np.uint16)).view(np.uint8)
    if name in ("F32", "F16"):
        own = blocks.reshape(-1).view(np.float32 if name == "F32" else np.float16).astype(np.float32)
    else:
        own = dequantize(blocks.reshape(BLOCKS, size), Type[name]).reshape(-1)
    assert len(own) == BLOCKS * values
    types[name] = {
        "bytes": blocks.reshape(-1).tobytes().hex(),
        "values": own.astype(np.float32).view(np.uint32).astype("<u4").tobytes().hex(),
    }
print(json.dumps(types, indent=1))
