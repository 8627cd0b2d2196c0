"""Makes j_dppo_sapo.json: losses and gradients of verl's own functions, and of TRL's line for SAPO, in float64.

    pip install torch==2.13.0 numpy omegaconf
    pip download --no-deps verl==0.9.1 trl==1.16.0; unzip each into a folder
    python tests/golden/j_dppo_sapo.py VERL_FOLDER TRL_FOLDER > tests/golden/j_dppo_sapo.json

verl's file is run as it is; what it imports from the rest of verl is stood in for, because that needs Ray.
"""

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import torch

torch.set_default_dtype(torch.float64)


def verl(folder):
    for name in ["verl", "verl.utils", "verl.utils.torch_functional", "verl.utils.import_utils", "verl.trainer",
                 "verl.trainer.config", "verl.workers", "verl.workers.config"]:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["verl.utils"].torch_functional = sys.modules["verl.utils.torch_functional"]
    sys.modules["verl.utils"].as_torch_index = sys.modules["verl.utils"].group_mean_std = None
    sys.modules["verl.utils.import_utils"].deprecated = lambda *_: lambda function: function
    sys.modules["verl.trainer.config"].AlgoConfig = type("AlgoConfig", (), {})
    sys.modules["verl.workers.config"].ActorConfig = Config
    text = (Path(folder) / "verl/utils/torch_functional.py").read_text()
    functions = sys.modules["verl.utils.torch_functional"]
    for name in ["masked_sum", "masked_mean"]:
        body = re.search(rf"^def {name}\(.*?(?=^def |^@)", text, re.M | re.S).group(0)
        exec(body, {"torch": torch, **vars(functions)}, functions.__dict__)
    functions.masked_mean.__globals__["masked_sum"] = functions.masked_sum
    module = types.ModuleType("core_algos")
    source = (Path(folder) / "verl/trainer/ppo/core_algos.py").read_text()
    sys.modules["core_algos"] = module
    exec(compile(source, "core_algos.py", "exec"), module.__dict__)
    return module


class Config:
    """What the three functions read of ActorConfig."""

    def __init__(self, **values):
        self.global_batch_info = {}
        self.__dict__.update(values)

    def get(self, key, default):
        return getattr(self, key, default)


def numbers(generator, shape, low, high):
    """Multiples of 1/1024, which float32 holds exactly."""
    return np.round(generator.uniform(low, high, shape) * 1024) / 1024


def inputs(seed, rows, tokens):
    generator = np.random.default_rng(seed)
    new = numbers(generator, (rows, tokens), -3.5, -0.002)
    # Some pairs are close, some far apart, some as certain as they can be.
    old = np.minimum(new + numbers(generator, (rows, tokens), -1.2, 1.2), -1 / 1024)
    rare = generator.random((rows, tokens)) < 0.15
    new[rare] = numbers(generator, rare.sum(), -6, -4)
    old[rare] = numbers(generator, rare.sum(), -12, -9)
    advantages = np.repeat(numbers(generator, (rows, 1), -2, 2), tokens, 1)
    mask = (np.arange(tokens) < generator.integers(1, tokens + 1, (rows, 1))).astype(float)
    mask[0] = 1
    return {"new_logp": new, "old_logp": old, "advantages": advantages, "mask": mask}


def away(case, bounds):
    """No token is so close to a bound that rounding decides."""
    p, q = np.exp(case["new_logp"]), np.exp(case["old_logp"])
    kl = q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    return all(np.abs(np.abs(d) - b).min() > 1e-4 for d in (p - q, kl) for b in bounds)


def evaluate(algorithms, mode, config, case, aggregation):
    tensors = {key: torch.tensor(value) for key, value in case.items()}
    new = tensors["new_logp"].requires_grad_()
    token_loss, aggregate = [], algorithms.agg_loss

    def keep(loss_mat, **others):
        token_loss.append(loss_mat.detach() * tensors["mask"])
        return aggregate(loss_mat=loss_mat, **others)

    algorithms.agg_loss = keep
    loss, metrics = algorithms.POLICY_LOSS_REGISTRY[mode](
        old_log_prob=tensors["old_logp"], log_prob=new, advantages=tensors["advantages"],
        response_mask=tensors["mask"], loss_agg_mode=aggregation, config=config)
    algorithms.agg_loss = aggregate
    loss.backward()
    return {"loss": loss.item(), "token_loss": token_loss[0].tolist(), "grad_new_logp": new.grad.tolist(), "approx_kl": metrics["actor/ppo_kl"],
            "clip_frac": metrics["actor/pg_clipfrac"]}


def trl_sapo(folder, case, positive, negative):
    """Runs the lines of TRL's trainer that compute the loss of a token."""
    source = (Path(folder) / "trl/trainer/grpo_trainer.py").read_text()
    lines = re.search(r'elif self.loss_type == "sapo":\n(.*?)\n        elif', source, re.S).group(1)
    tensors = {key: torch.tensor(value) for key, value in case.items()}
    args = types.SimpleNamespace(sapo_temperature_pos=positive, sapo_temperature_neg=negative)
    names = {"torch": torch, "self": types.SimpleNamespace(args=args), "advantages": tensors["advantages"],
             "coef_1": torch.exp(tensors["new_logp"] - tensors["old_logp"])}
    exec("if True:\n" + lines, names)
    mask = tensors["mask"]
    return (((names["per_token_loss"] * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()).item()


def cases(verl_folder, trl_folder):
    algorithms = verl(verl_folder)
    settings = [("dppo_tv", low, high, cap) for low, high, cap in [(0.15, 0.15, 20), (0.05, 0.2, 20), (0.2, 0.1, 1.5)]]
    settings += [("dppo_kl", low, high, cap) for low, high, cap in [(0.05, 0.05, 20), (0.01, 0.1, 20), (0.1, 0.03, 1.5)]]
    seed = 0
    for mode, low, high, cap in settings:
        for aggregation in ["token-mean", "seq-mean-token-mean"]:
            case = None
            while case is None or not away(case, (low, high)):
                seed += 1
                case = inputs(seed, 4, 7)
            config = Config(clip_ratio=0.2, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=cap)
            expected = evaluate(algorithms, mode, config, case, aggregation)
            yield mode, {"delta_low": low, "delta_high": high, "ratio_cap": cap}, aggregation, case, expected, {}
    for positive, negative in [(1.0, 1.05), (2.0, 0.5), (1.0, 1.0)]:
        for rows in [3, 5]:
            seed += 1
            case = inputs(seed, rows, 6)
            config = Config(tau_pos=positive, tau_neg=negative)
            expected = evaluate(algorithms, "sapo", config, case, "seq-mean-token-mean")
            del expected["clip_frac"]  # verl returns 0 there.
            other = trl_sapo(trl_folder, case, positive, negative)
            assert abs(other - expected["loss"]) < 1e-7, (other, expected["loss"])
            settings = {"tau_pos": positive, "tau_neg": negative}
            yield "sapo", settings, "seq-mean-token-mean", case, expected, {"trl": "agrees"}


def main():
    listed = []
    for mode, settings, aggregation, case, expected, others in cases(*sys.argv[1:3]):
        config = {**settings, "aggregation": aggregation, "batch_num_tokens": None, "global_batch_size": None,
                  "loss_scale_factor": None, "dp_size": 1}
        listed.append({
            "id": f"j-{len(listed) + 1:03}", "fn": f"{mode}_loss", "kind": mode,
            "produced_by": f"verl 0.9.1 core_algos.compute_policy_loss_{mode}", "config": config,
            "inputs": {key: value.tolist() for key, value in case.items()}, "expected": expected,
            "cross_check": others, "note": "",
        })
    head = {
        "schema_version": 1, "topic": "DPPO and SAPO", "set": "own",
        "description": "Losses whose trust region is a divergence, and a soft gate; see j_dppo_sapo.py.",
        "tolerance": {"f64_rtol": 1e-06, "f64_atol": 1e-09, "f32_rtol": 2e-05, "f32_atol": 1e-06,
                      "rule": "|got - want| <= atol + rtol * max(|want|, 1e-3 * largest |want| of the same array)"},
        "case_count": len(listed),
    }
    text = json.dumps(head)[:-1]
    print(text + ', "cases": [\n' + ",\n".join(json.dumps(case) for case in listed) + "\n]}")


main()
