"""Samples with vLLM's build for CPUs and prints a line of JSON for each number of rows: sampled tokens per second of the
whole, prefill included.

    python benches/peers/vllm_cpu.py 1,8,64 --prompt 32 --completion 128

benches/compare.sh --llama --vllm makes the Python. The model has SmolLM2-135M's sizes and random weights in f32.
"""

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

# In one process, and on all cores: by default it leaves one to the server that is not there.
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": str(os.cpu_count()),
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("rows")
    arguments.add_argument("--prompt", type=int, required=True)
    arguments.add_argument("--completion", type=int, required=True)
    arguments = arguments.parse_args()

    from vllm import LLM, SamplingParams

    folder = tempfile.TemporaryDirectory()
    Path(folder.name, "config.json").write_text(json.dumps(CONFIG))
    model = LLM(
        folder.name, load_format="dummy", dtype="float32", skip_tokenizer_init=True, max_model_len=512,
        enable_prefix_caching=False, max_num_seqs=64, disable_log_stats=True,
    )  # fmt: skip
    sampling = SamplingParams(max_tokens=arguments.completion, ignore_eos=True, detokenize=False)

    def prompt():
        return {"prompt_token_ids": random.choices(range(CONFIG["vocab_size"]), k=arguments.prompt)}

    def seconds(rows):
        prompts = [prompt() for _ in range(rows)]
        began = time.perf_counter()
        outputs = model.generate(prompts, sampling, use_tqdm=False)
        elapsed = time.perf_counter() - began
        assert all(len(output.outputs[0].token_ids) == arguments.completion for output in outputs)
        return elapsed

    for rows in map(int, arguments.rows.split(",")):
        # The first call of a shape compiles.
        seconds(rows)
        print(json.dumps({"rows": rows, "per_second": rows * arguments.completion / seconds(rows)}), flush=True)


main()
