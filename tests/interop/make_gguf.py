"""Writes the model of a folder as a GGUF file, with the names and keys of the library `gguf`.

    python3 tests/interop/make_gguf.py FOLDER OUT.gguf

The weights alone are written, in float32, without a tokenizer. What llama.cpp's converter changes in the tensors of
these families is done here too: one is added to the norms of Gemma, and the experts of a layer become one tensor.
"""

import json
import pathlib
import re
import sys

import gguf
import torch
from safetensors.torch import load_file

ARCHITECTURES = {
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
}


def keys(writer, config):
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = {**config, **(config.get("rope_parameters") or {})}
    writer.add_rope_freq_base(rope["rope_theta"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_rope_freq_base_swa(config["rope_local_base_freq"])
        writer.add_sliding_window_pattern(
            [kind == "sliding_attention" for kind in config["layer_types"]]
        )
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def tensors(folder, config):
    found = {}
    for file in sorted(folder.glob("model*.safetensors")):
        found |= load_file(file)
    experts = {}
    for name, values in found.items():
        values = values.to(torch.float32)
        if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            values = values + 1
        expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+)\.weight", name)
        if expert:
            layer, number, part = expert.groups()
            experts.setdefault(f"{layer}.{part}.weight", {})[int(number)] = values
        else:
            yield name, values
    for name, of_layer in experts.items():
        yield name, torch.stack([of_layer[number] for number in sorted(of_layer)])


def main(folder, out):
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[architecture])
    keys(writer, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, values in tensors(folder, config):
        in_file = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(in_file, values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
