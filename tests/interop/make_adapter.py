"""Makes an adapter of random values with peft.

    python3 tests/interop/make_adapter.py AUTO BASE OUT ARGUMENTS

AUTO is the class of transformers that opens the folder BASE, such as AutoModelForCausalLM. ARGUMENTS are
those of LoraConfig, as JSON. Every module that they select gets an adapter, whatever part of the model it
is in.
"""

import json
import sys

import peft
import torch
import transformers


def main(auto, base, out, arguments):
    model = getattr(transformers, auto).from_pretrained(base, dtype=torch.float32)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **json.loads(arguments))
    model = peft.get_peft_model(model, config)
    draw = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            values = torch.randn(parameter.shape, generator=draw)
            parameter.data.copy_(values / parameter.shape[1] ** 0.5)
    model.save_pretrained(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
