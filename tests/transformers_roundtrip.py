"""Opens a checkpoint that Firebrick saved, and compares logits and tokens.

    python3 tests/transformers_roundtrip.py FOLDER [EXPECTED.safetensors]

EXPECTED holds `input_ids`, `attention_mask` and `logits` as Firebrick computed them, and in its
metadata `texts`: texts with their tokens and the text that those decode to. Without it the folder
is only opened. The exit status is 0 when everything agrees.
"""

import json
import sys

import safetensors
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# As for the fixtures: f32 against f32, with other kernels.
ABSOLUTE, RELATIVE = 2e-4, 1e-4


def open_folder(folder):
    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    # transformers invents what a checkpoint does not hold; that is not a checkpoint that opens.
    for problem, names in report.items():
        if names:
            sys.exit(f"{problem}: {names}")
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def compare_logits(model, expected):
    mask = expected.get_tensor("attention_mask")
    with torch.no_grad():
        logits = model(expected.get_tensor("input_ids"), attention_mask=mask).logits
    theirs, ours = logits[mask == 1], expected.get_tensor("logits")[mask == 1]
    deviation = (theirs - ours).abs()
    worst = (deviation / (ABSOLUTE + RELATIVE * theirs.abs())).max().item()
    if not worst <= 1:
        sys.exit(f"logits differ by up to {deviation.max().item():.1e}")
    return (
        f"{ours.numel()} logits off by at most {deviation.max().item():.1e}, "
        f"{100 * worst:.1f} % of the tolerance"
    )


def compare_texts(tokenizer, texts):
    for text in texts:
        ids = tokenizer.encode(text["text"])
        if ids != text["ids"]:
            sys.exit(f"{text['text']!r} is {ids} in transformers, and {text['ids']} in Firebrick")
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        if decoded != text["decoded"]:
            sys.exit(f"{ids} is {decoded!r} in transformers, and {text['decoded']!r} in Firebrick")
    return f"{len(texts)} texts with equal tokens"


def main(folder, expected=None):
    model, tokenizer = open_folder(folder)
    if expected is None:
        print("opens")
        return
    with safetensors.safe_open(expected, "pt") as file:
        texts = json.loads(file.metadata()["texts"])
        print(f"{compare_logits(model, file)}; {compare_texts(tokenizer, texts)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
