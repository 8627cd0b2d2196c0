"""Runs a module of SkyRL 0.3.0: module.py NAME ARGUMENTS...

SkyRL says that it runs on Python 3.11, where pydantic refuses typing.TypedDict. It imports torch for pictures alone, and
of PEFT one class that writes a file: both are replaced, because they would bring some gigabytes that nobody needs here.
"""

import json
import os
import runpy
import sys
import types
import typing

import typing_extensions


class LoraConfig:
    def __init__(self, **fields):
        self.fields = {"peft_type": "LORA", "target_modules": None, **fields}

    def save_pretrained(self, folder, **_):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "adapter_config.json"), "w") as file:
            json.dump(self.fields, file)


if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict
import transformers  # noqa: E402, F401: it would take the module below for torch

torch, peft = types.ModuleType("torch"), types.ModuleType("peft")
torch.Tensor, peft.LoraConfig = object, LoraConfig
sys.modules["torch"], sys.modules["peft"] = torch, peft

sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
