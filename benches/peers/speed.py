"""Measures the phases of `firebrick bench` with transformers, PyTorch and TRL: a JSON object per phase on stdout.

    pip install -r benches/peers/python.txt
    python benches/peers/speed.py 1m rollout spread update recompute step [--runs 5]

The sizes are those of `firebrick bench`, in f32 and eager. `rollout` and `spread` run 64 prompts of 32 random tokens
and 128 of completion through `generate`: all of one length, or ended between 8 and 128. `update` is an update of
those 64 rows with `sdpa`, DAPO's loss on the completions, clipped gradient and fused AdamW, in the micro-batches that
`firebrick bench` cuts. `recompute` is that update with gradient checkpointing. `step` is a step of TRL's GRPOTrainer
with `loss_type="dapo"`, 8 prompts and 8 completions of 64 tokens. Each phase is run once to warm up, after the
allocator gave back the memory of the phase before.
"""

import argparse
import ctypes
import gc
import json
import os
import pathlib
import random
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers import StoppingCriteria, StoppingCriteriaList

ROWS, PROMPT, COMPLETION = 64, 32, 128
FIXTURE = pathlib.Path(__file__).parents[2] / "tests" / "fixtures" / "qwen2-f32"


def sizes(vocab, hidden, layers, heads, kv_heads, inner):
    return {
        "vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner,
        "max_position_embeddings": 8192, "tie_word_embeddings": True,
    }


# Class, configuration, sizes, and rows of a micro-batch.
SHAPES = {
    "1m": (Qwen2ForCausalLM, Qwen2Config, sizes(1024, 128, 4, 4, 2, 448), 16),
    "10m": (Qwen2ForCausalLM, Qwen2Config, sizes(1024, 384, 6, 6, 2, 1024), 16),
    "50m": (Qwen2ForCausalLM, Qwen2Config, sizes(32_768, 512, 12, 8, 2, 1408), 8),
    "smollm2-135m": (LlamaForCausalLM, LlamaConfig, sizes(49_152, 576, 30, 9, 3, 1536), 8),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("phases", nargs="+", choices=PHASES)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(os.cpu_count())
    for phase in args.phases:
        torch.manual_seed(17)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        # The peak so far is forgotten.
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        units, seconds, busy = PHASES[phase](args.shape, args.runs)
        print(json.dumps({
            "shape": args.shape, "phase": phase, "units": units, "seconds": sorted(seconds),
            "cores": busy / sum(seconds), "peak_bytes": peak(), "torch": torch.__version__,
            "transformers": transformers.__version__,
        }), flush=True)


def policy(shape):
    model, config, widths, _ = SHAPES[shape]
    return model(config(**widths, attn_implementation="sdpa"))


def timed(work, runs):
    work()
    seconds, before = [], time.process_time()
    for _ in range(runs):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds, time.process_time() - before


def rollout(shape, runs, lengths=None):
    model = policy(shape).eval()
    prompts = torch.randint(2, model.config.vocab_size, (ROWS, PROMPT))
    drawn = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=COMPLETION,
        eos_token_id=None, pad_token_id=0, use_cache=True,
    )

    class Ended(StoppingCriteria):
        def __call__(self, ids, scores, **others):
            return ids.shape[1] - PROMPT >= lengths

    ends = None if lengths is None else StoppingCriteriaList([Ended()])

    def work():
        with torch.no_grad():
            mask = torch.ones_like(prompts)
            model.generate(prompts, attention_mask=mask, generation_config=drawn, stopping_criteria=ends)

    units = ROWS * COMPLETION if lengths is None else int(lengths.sum())
    return units, *timed(work, runs)


def spread(shape, runs):
    least = COMPLETION // 16
    rows = [least + (row * 37 % ROWS) * (COMPLETION - least) // (ROWS - 1) for row in range(ROWS)]
    return rollout(shape, runs, torch.tensor(rows))


def update(shape, runs, checkpointing=False):
    model, micro_batch = policy(shape).train(), SHAPES[shape][3]
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.randint(2, model.config.vocab_size, (ROWS, PROMPT + COMPLETION))
    advantages = torch.tensor([1.0, -1.0] * (ROWS // 2)).unsqueeze(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.1, fused=True)

    def work():
        optimizer.zero_grad(set_to_none=True)
        for rows in zip(ids.split(micro_batch), advantages.split(micro_batch)):
            (dapo(model, *rows) / (ROWS * COMPLETION)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return ROWS * (PROMPT + COMPLETION), *timed(work, runs)


def recompute(shape, runs):
    return update(shape, runs, checkpointing=True)


def dapo(model, ids, advantages):
    completion = ids[:, PROMPT:]
    out = model(input_ids=ids, use_cache=False, logits_to_keep=completion.shape[1] + 1)
    logits = out.logits[:, :-1]
    logprobs = -torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), completion.reshape(-1), reduction="none"
    ).view(completion.shape)
    ratio = (logprobs - logprobs.detach()).exp()
    return -torch.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).sum()


def step(shape, runs):
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model = policy(shape)
    tokenizer = AutoTokenizer.from_pretrained(FIXTURE, padding_side="left")
    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id
    )
    numbers = random.Random(0)
    prompts = [{"prompt": f"{numbers.randint(10, 99)}+{numbers.randint(10, 99)}="} for _ in range(2000)]
    lengths, seconds, processor = [], [], []

    def reward(completions, completion_ids, **others):
        lengths.append(sum(len(ids) for ids in completion_ids))
        return [float(ids[0] % 2 == 0) for ids in completion_ids]

    class Clock(TrainerCallback):
        def on_step_end(self, *others, **more):
            seconds.append(time.perf_counter())
            processor.append(time.process_time())

    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(), per_device_train_batch_size=64, gradient_accumulation_steps=1,
        num_generations=8, max_completion_length=64, max_steps=runs + 2, learning_rate=1e-6,
        lr_scheduler_type="constant", loss_type="dapo", epsilon=0.2, epsilon_high=0.28, beta=0.0,
        temperature=1.0, top_k=0, top_p=1.0, use_cpu=True, bf16=False, report_to=[], save_strategy="no",
        logging_steps=1, disable_tqdm=True, gradient_checkpointing=False, seed=17,
    )
    trainer = GRPOTrainer(
        model=model, reward_funcs=reward, args=settings, train_dataset=Dataset.from_list(prompts),
        processing_class=tokenizer, callbacks=[Clock()],
    )
    with open(os.devnull, "w") as nowhere:
        import contextlib

        with contextlib.redirect_stdout(nowhere):
            trainer.train()
    # The times count from the end of the second step on, so that the first, which warms up, does not count.
    each = [after - before for before, after in zip(seconds[1:], seconds[2:])]
    return round(sum(lengths) / len(lengths)), each, processor[-1] - processor[1]


def peak():
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


PHASES = {"rollout": rollout, "spread": spread, "update": update, "recompute": recompute, "step": step}

if __name__ == "__main__":
    main()
