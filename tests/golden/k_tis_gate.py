"""Makes k_tis_gate.json: the weights of tokens by OpenRLHF's own gates of importance sampling, in float64.

    pip install torch==2.13.0 numpy; pip download --no-deps openrlhf==0.11.2; unzip it into a folder
    python tests/golden/k_tis_gate.py OPENRLHF_FOLDER > tests/golden/k_tis_gate.json

The old policy is the policy, and each advantage is 1, so that a token's gradient is its weight, over minus the number
of tokens. `openrlhf/models/loss.py` is run as it is; what it imports from the rest is stood in for.
"""

import json
import re
import sys
import types
from pathlib import Path

import torch

torch.set_default_dtype(torch.float64)


def openrlhf(folder):
    package = next(Path(folder).rglob("openrlhf/models/loss.py")).parent
    for name in ["openrlhf", "openrlhf.models", "openrlhf.models.utils"]:
        sys.modules[name] = types.ModuleType(name)
    text = (package / "utils.py").read_text()
    names = sys.modules["openrlhf.models.utils"].__dict__
    names.update(vars(__import__("typing")), torch=torch)
    for name in re.findall(r"^def (\w+)\(", text, re.M):
        body = re.search(rf"^def {name}\(.*?(?=^def |^@|^class |\Z)", text, re.M | re.S).group(0)
        exec("from __future__ import annotations\n" + body, names)
    module = types.ModuleType("openrlhf.models.loss")
    module.__package__ = "openrlhf.models"
    exec(compile((package / "loss.py").read_text(), "loss.py", "exec"), module.__dict__)
    return module.PolicyLoss


def main():
    policy_loss = openrlhf(sys.argv[1])
    generator = torch.Generator().manual_seed(5)
    shape = (4, 6)
    old = -torch.rand(shape, generator=generator) * 3
    # Some tokens are near, some far, and some were nearly impossible for one of the two.
    rollout = (old + torch.randn(shape, generator=generator) * torch.tensor([[0.01], [0.1], [0.5], [2.0]])).clamp(max=-1e-4)
    rollout[3, 0], old[3, 1] = -30.0, -30.0
    mask = torch.ones(shape)
    mask[1, 4:] = 0

    cases = []
    for gating in ["tv", "binary_kl"]:
        for level in ["token", "seq"]:
            for maximum in [0.002, 0.05, 0.3]:
                logprobs = old.clone().requires_grad_()
                loss = policy_loss(
                    is_correction_level=level, is_correction_gating=gating, is_correction_threshold=[0, maximum]
                )
                value, *_, filtered = loss(logprobs, old, torch.ones(shape), action_mask=mask, rollout_log_probs=rollout)
                value.backward()
                weights = -logprobs.grad * mask.sum()
                case = {"gating": gating, "level": level, "max": maximum, "filtered": filtered.item()}
                cases.append({**case, "weights": weights.tolist()})
    numbers = {"old": old.tolist(), "rollout": rollout.tolist(), "mask": mask.tolist(), "cases": cases}
    print(json.dumps(numbers, indent=1))


main()
