"""Opens saved models of Firebrick with transformers and with peft, and compares logits and tokens.

    python3 tests/interop/roundtrip.py FOLDER [EXPECTED.safetensors] [--adapter FOLDER] [--gguf NAME]
        [--auto CLASS]

EXPECTED holds `input_ids`, `attention_mask` and `logits` as Firebrick computed them. Its metadata has
`texts`: texts with their tokens and the text that those decode to. Without EXPECTED the folder is only
opened. With an adapter, the logits are those of the model with the adapter on it, and then also those
of the merged model. An adapter that is not zero has to move them. CLASS opens the folder in place of
AutoModelForCausalLM. With the name of a GGUF file, the model is read from that file of the folder. The
exit status is 0 if everything agrees.
"""

import argparse
import json
import sys

import safetensors.torch
import torch
import transformers
from transformers import AutoTokenizer

# The tolerances are those of the fixtures: f32 against f32, with other kernels.
ABSOLUTE, RELATIVE = 2e-4, 1e-4
# A merged adapter adds its product before the sum over the inputs instead of after it.
MERGED = 5e-4


def open_folder(folder, gguf=None, auto="AutoModelForCausalLM"):
    of_file = {} if gguf is None else {"gguf_file": gguf}
    model, report = getattr(transformers, auto).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **of_file
    )
    # transformers invents tensors that a checkpoint does not hold. Such a checkpoint does not open.
    for problem, names in report.items():
        if names:
            sys.exit(f"{problem}: {names}")
    return model.eval(), AutoTokenizer.from_pretrained(folder, **of_file)


def compare_logits(model, expected, absolute=ABSOLUTE):
    mask = expected.get_tensor("attention_mask")
    with torch.no_grad():
        logits = model(expected.get_tensor("input_ids"), attention_mask=mask).logits
    theirs, ours = logits[mask == 1], expected.get_tensor("logits")[mask == 1]
    deviation = (theirs - ours).abs()
    worst = (deviation / (absolute + RELATIVE * theirs.abs())).max().item()
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


def adapted(model, adapter):
    import peft

    model = peft.PeftModel.from_pretrained(model, adapter).eval()
    # If peft does not find a tensor, it only warns, and leaves the adapter as it was made: zero.
    opened = peft.get_peft_model_state_dict(model)
    saved = safetensors.torch.load_file(f"{adapter}/adapter_model.safetensors")
    if opened.keys() != saved.keys():
        sys.exit(f"only on one side: {sorted(opened.keys() ^ saved.keys())}")
    if different := [name for name in saved if not torch.equal(opened[name], saved[name])]:
        sys.exit(f"other values: {different}")
    return model


def moved(model, expected):
    """Tells how far the adapter moves the logits."""
    ids, mask = expected.get_tensor("input_ids"), expected.get_tensor("attention_mask")
    with torch.no_grad(), model.disable_adapter():
        before = model(ids, attention_mask=mask).logits
    ours = expected.get_tensor("logits")
    farthest = (before - ours)[mask == 1].abs().max().item()
    some = any(it.any() for name, it in model.named_parameters() if "lora_B" in name)
    if some and farthest < 100 * ABSOLUTE:
        sys.exit(f"the adapter moves the logits by {farthest:.1e} only")
    return f"the adapter moves them by up to {farthest:.1e}"


def main(folder, expected, adapter, gguf, auto):
    model, tokenizer = open_folder(folder, gguf, auto)
    if adapter is not None:
        model = adapted(model, adapter)
    if expected is None:
        print("opens")
        return
    with safetensors.safe_open(expected, "pt") as file:
        texts = json.loads(file.metadata()["texts"])
        said = [compare_logits(model, file), compare_texts(tokenizer, texts)]
        if adapter is not None:
            said.append(moved(model, file))
            said.append("merged: " + compare_logits(model.merge_and_unload(), file, MERGED))
        print("; ".join(said))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("expected", nargs="?")
    parser.add_argument("--adapter")
    parser.add_argument("--gguf")
    parser.add_argument("--auto", default="AutoModelForCausalLM")
    main(**vars(parser.parse_args()))
