"""Makes l_distillation.json: divergences from a teacher and their gradients by verl's and TRL's functions, in float64.

    pip install torch==2.13.0 numpy
    pip download --no-deps verl==0.9.1 trl==1.16.0; unzip each into a folder
    python tests/golden/l_distillation.py VERL_FOLDER TRL_FOLDER > tests/golden/l_distillation.json

The numbers are TRL's, of which the one function is run. verl's forward divergence is over the teacher's k likeliest
tokens; with the whole vocabulary as k, and nothing clamped, it has to be the same. What its file imports from the rest
of verl is stood in for.
"""

import ast
import json
import sys
import types
from pathlib import Path

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def verl(folder):
    for name in ["verl", "verl.utils", "verl.utils.ulysses", "verl.workers", "verl.workers.config"]:
        sys.modules[name] = types.ModuleType(name)
    ulysses = sys.modules["verl.utils.ulysses"]
    ulysses.get_ulysses_sequence_parallel_world_size = lambda: 1
    ulysses.slice_input_tensor = None
    config = sys.modules["verl.workers.config"]
    config.DistillationConfig = config.DistillationLossConfig = object
    module = types.ModuleType("losses")
    source = (Path(folder) / "verl/trainer/distillation/fsdp/losses.py").read_text()
    exec(compile(source, "losses.py", "exec"), module.__dict__)
    return module.compute_forward_kl_topk


def trl(folder):
    tree = ast.parse((Path(folder) / "trl/experimental/gkd/gkd_trainer.py").read_text())
    function = next(
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "generalized_jsd_loss"
    )
    function.decorator_list = []
    names = {"torch": torch, "F": F}
    exec(compile(ast.Module([function], []), "gkd_trainer.py", "exec"), names)
    return names["generalized_jsd_loss"]


def main():
    forward_kl, jsd = verl(sys.argv[1]), trl(sys.argv[2])
    generator = torch.Generator().manual_seed(7)
    noise = lambda *shape: torch.randn(shape, generator=generator)
    count, vocab = 7, 13
    numbers = {
        "hidden": noise(count, 4), "head": noise(vocab, 4),
        # The teacher is wider, and has two tokens more, which do not count.
        "teacher_hidden": noise(count, 6), "teacher_head": 0.7 * noise(vocab + 2, 6),
        "weights": torch.rand(count, generator=generator),
    }
    # One token on which the two disagree wholly.
    numbers["hidden"][0] *= 8
    numbers["weights"][3] = 0

    cases = []
    for temperature in [1.0, 0.7]:
        for direction in ["forward", "reverse"]:
            hidden = numbers["hidden"].clone().requires_grad_()
            head = numbers["head"].clone().requires_grad_()
            student = (hidden @ head.T) / temperature
            teacher = (numbers["teacher_hidden"] @ numbers["teacher_head"][:vocab].T) / temperature
            beta = {"forward": 0, "reverse": 1}[direction]
            each = lambda row: jsd(student[None, row : row + 1], teacher[None, row : row + 1], beta=beta, reduction="sum")
            kl = torch.stack([each(row) for row in range(count)])
            if direction == "forward":
                logprobs, ids = torch.log_softmax(teacher, -1).topk(vocab)
                nested = lambda rows: torch.nested.nested_tensor([rows], layout=torch.jagged)
                loss = types.SimpleNamespace(use_chunked_topk=False, log_prob_min_clamp=None)
                config = types.SimpleNamespace(distillation_loss=loss)
                by_verl = forward_kl(student[None], nested(logprobs), nested(ids), config, "thd")
                by_verl = by_verl["distillation_losses"][0]
                # verl computes it in float32.
                assert torch.allclose(by_verl.double(), kl, atol=1e-6, rtol=1e-6), (by_verl, kl)
            (kl * numbers["weights"]).sum().backward()
            case = {"temperature": temperature, "direction": direction, "kl": kl.tolist()}
            cases.append({**case, "d_hidden": hidden.grad.tolist(), "d_head": head.grad.tolist()})
    print(json.dumps({**{name: x.tolist() for name, x in numbers.items()}, "cases": cases}, indent=1))


main()
