#!/usr/bin/env python3
"""Judges from outside the model that a run trained from a published one: others answer the same questions.

    firebrick eval CHECKPOINT --set eval.temperature=0 --samples 1 --completions ours.jsonl
    firebrick export CHECKPOINT MERGED --merge
    python3 tests/interop/published.py ours.jsonl MERGED [--adapter CHECKPOINT --base FOLDER] [--vllm PYTHON]

The others are transformers, peft and vLLM. ours.jsonl holds greedy answers of Firebrick with their tokens and
log-probabilities. For each of the others this prints:

- `tokens`: the number of our answers that are theirs, token by token, when they answer greedily from the same prompt;
- `right`: the number of their right answers, counted here: an answer is right if its last number is the reference;
- `logprobs`: the distance of the log-probabilities of our tokens from theirs, in nats: mean and largest.

With --adapter, peft puts the adapter on the model in --base; MERGED has it in its weights. --vllm names a Python that
can import vllm, which needs packages that the others don't stand next to. A package that is missing is skipped aloud.
The exit status is 1 if a log-probability is off by more than 1e-3, or if fewer than 99 answers of 100 are the same, and
77 if nothing was compared.
"""

import argparse
import json
import re
import subprocess
import sys

TOLERANCE, SAME = 1e-3, 0.99


def right(text, reference):
    """Counts by itself, and knows nothing of Firebrick's verifiers."""
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return bool(numbers) and float(numbers[-1].replace(",", "")) == float(reference.replace(",", ""))


def report(name, rows, answers, logprobs, texts):
    # An answer of ours that the limit cut off may continue in theirs.
    def agrees(ours, theirs):
        cut = ours["finish"] == "length"
        return ours["tokens"] == (theirs[: len(ours["tokens"])] if cut else theirs)

    same = sum(agrees(ours, theirs) for ours, theirs in zip(rows, answers))
    count = sum(right(text, row["reference"]) for text, row in zip(texts, rows))
    ours = sum(right(row["text"], row["reference"]) for row in rows)
    off = [abs(a - b) for row, line in zip(rows, logprobs) for a, b in zip(row["logprobs"], line)]
    mean, most = sum(off) / len(off), max(off)
    verdicts = sum(row["verdict"] == "right" for row in rows)
    print(
        f"{name}: {same} of {len(rows)} answers the same; right: {count} of theirs, {ours} of ours by this count, "
        f"{verdicts} by Firebrick's; log-probabilities of {len(off)} tokens off by {mean:.1e}, at most {most:.1e}"
    )
    return most <= TOLERANCE and same >= SAME * len(rows)


def of_transformers(model, tokenizer, rows):
    import torch

    answers, logprobs, texts = [], [], []
    longest = max(len(row["tokens"]) for row in rows)
    with torch.no_grad():
        for row in rows:
            prompt = torch.tensor([row["prompt_tokens"]])
            said = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=longest, do_sample=False,
                repetition_penalty=1.0, temperature=None, top_p=None, top_k=None,
            )[0, prompt.shape[1]:].tolist()
            answers.append(said)
            texts.append(tokenizer.decode(said, skip_special_tokens=True))
            whole = torch.tensor([row["prompt_tokens"] + row["tokens"]])
            lines = model(whole).logits[0, prompt.shape[1] - 1 : -1].float().log_softmax(-1)
            logprobs.append(lines.gather(1, torch.tensor(row["tokens"])[:, None])[:, 0].tolist())
    return answers, logprobs, texts


def transformers_of(rows, merged):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
    return report("transformers, merged", rows, *of_transformers(model, AutoTokenizer.from_pretrained(merged), rows))


def peft_of(rows, base, adapter):
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(model, adapter).eval()
    return report("peft, adapter", rows, *of_transformers(model, AutoTokenizer.from_pretrained(base), rows))


# This runs in a process of its own, of another Python.
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
rows, merged = [json.loads(line) for line in open(sys.argv[1])], sys.argv[2]
engine = LLM(merged, dtype="float32", max_model_len=1024, generation_config="vllm", enforce_eager=True)
longest = max(len(row["tokens"]) for row in rows)
prompts = [{"prompt_token_ids": row["prompt_tokens"]} for row in rows]
said = engine.generate(prompts, SamplingParams(temperature=0, max_tokens=longest))
wholes = [{"prompt_token_ids": row["prompt_tokens"] + row["tokens"]} for row in rows]
lines = engine.generate(wholes, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0))
out = []
for row, answer, line in zip(rows, said, lines):
    from_here = list(zip(row["tokens"], line.prompt_logprobs[len(row["prompt_tokens"]):]))
    out.append([list(answer.outputs[0].token_ids), [at[token].logprob for token, at in from_here], answer.outputs[0].text])
json.dump(out, open(sys.argv[3], "w"))
"""


def vllm_of(rows, ours, merged, python):
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run = subprocess.run([python, "-c", VLLM, ours, merged, out.name], capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"vLLM failed:\n{run.stdout[-2000:]}{run.stderr[-4000:]}")
        return report("vLLM, merged", rows, *zip(*json.load(open(out.name))))


def main(ours, merged, adapter, base, vllm):
    rows = [json.loads(line) for line in open(ours)]
    agree = []
    for package, compare in [
        ("transformers", lambda: transformers_of(rows, merged)),
        ("peft", lambda: peft_of(rows, base, adapter) if adapter else print("SKIPPED: peft; --adapter names none")),
    ]:
        try:
            __import__(package)
        except ImportError:
            print(f"SKIPPED: {package} can't be imported")
        else:
            agree.append(compare())
    if vllm:
        agree.append(vllm_of(rows, ours, merged, vllm))
    else:
        print("SKIPPED: vLLM; --vllm names no Python that has it")
    agree = [it for it in agree if it is not None]
    sys.exit(77 if not agree else 0 if all(agree) else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours")
    parser.add_argument("merged")
    parser.add_argument("--adapter")
    parser.add_argument("--base")
    parser.add_argument("--vllm", metavar="PYTHON")
    main(**vars(parser.parse_args()))
