"""Makes a fixture: a tiny model with random weights, and the numbers that transformers and peft compute from it.

    python3 tests/interop/make_fixture.py FROM OUT CONFIG [--dtype bfloat16] [--float32 A_log norm] [--shards 3]
        [--quantised mxfp4] [--seed 1]

FROM is another fixture: its tokenizer, texts, batches and hyperparameters are taken over, so that
only the model is new. CONFIG becomes the folder's config.json as it stands, whatever it leaves out or
sets to null, because reading such a file is part of the comparison. CONFIG also decides what is made: a
language model, by itself or in a model that also sees pictures; a sequence classifier; or, if it is an
adapter_config.json with some of peft's arguments, an adapter for the model in FROM. OUT must then lie
next to FROM.

Everything is computed in float32 from the files as they were written. tests/fixtures/README.md says
what the blocks of expected.json hold. The block `chat` is copied; tests/chat/render.py --block writes
it again.
"""

import argparse
import json
import pathlib
import shutil
import sys

import peft
import safetensors.torch
import torch
import transformers
from transformers.integrations import mxfp4

# If the likeliest token is not likelier than the next by this much, other kernels may choose the next.
MARGIN = 1e-3
# Families whose norms multiply by one plus their weight, and whose embedding is scaled.
AROUND_ZERO = ("gemma", "gemma3_text", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
# Families whose embedding is scaled, and whose scores are not, although norms multiply by their weight alone.
SCALED = ("gemma4_text",)
# The norm in the first families that multiplies by its weight alone.
AROUND_ONE = "linear_attn.norm"
NOT_COPIED = ("config.json", "expected.json", "expected.safetensors")


def randomize(model, seed):
    """Draws weights at which every part of the model matters: biases, norms and small frequencies too."""
    draw = torch.Generator().manual_seed(seed)
    model_type = model.config.get_text_config().model_type
    around_zero = model_type in AROUND_ZERO
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=draw)
        if "norm" in name:
            values = 0.3 * values + (not around_zero or AROUND_ONE in name)
            if model_type in SCALED and ("q_norm" in name or "k_norm" in name):
                # Otherwise scores would be so large that in bfloat16 rounding decides what is attended to.
                values = values / parameter.shape[0] ** 0.5
        elif parameter.ndim == 1:
            values = 0.3 * values
        elif "embed_tokens" not in name:
            values = 1.5 * values / parameter.shape[-1] ** 0.5
        elif around_zero or model_type in SCALED:
            values = values / parameter.shape[-1] ** 0.5
        parameter.data.copy_(values)
    # Numbers of a checkpoint that are not trained. Other buffers, such as frequencies, follow from config.json.
    saved = model.state_dict()
    for name, buffer in model.named_buffers():
        if name in saved:
            buffer.copy_(1 + 0.3 * torch.randn(buffer.shape, generator=draw))
    return model


def opened(auto, folder):
    return auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def write_model(auto, folder, args, seed):
    config = transformers.AutoConfig.from_pretrained(folder)
    if args.quantised:
        del config.quantization_config
    verbatim = {path: path.read_bytes() for path in folder.glob("*config.json")}
    model = randomize(auto.from_config(config, dtype=torch.float32), seed)
    for name, parameter in model.named_parameters():
        if not any(part in name for part in args.float32):
            parameter.data = parameter.data.to(args.dtype)
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    shard = size if args.shards == 1 else int(1.1 * size / args.shards)
    tensors = {}
    if args.quantised:
        tensors = QUANTISED[args.quantised](model)
    model.save_pretrained(folder, max_shard_size=shard)
    if args.stacked:
        stack(folder / "model.safetensors")
    for path, content in verbatim.items():
        path.write_bytes(content)
    if args.quantised:
        replace(folder / "model.safetensors", tensors)
        return model.eval()
    return opened(auto, folder)


def in_blocks(model):
    """Rounds the experts of gpt-oss to MXFP4, and returns the tensors that published files have instead."""
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    for name, parameter in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = parameter.shape
            shape = (experts, outputs, inputs // 32)
            blocks = torch.randint(0, 256, (*shape, 16), generator=draw, dtype=torch.uint8)
            scales = torch.randint(123, 127, shape, generator=draw, dtype=torch.uint8)
            unpacked = mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            parameter.data.copy_(unpacked)
            tensors |= {name + "_blocks": blocks, name + "_scales": scales, name: None}
    return tensors


def in_eight_bits(model):
    """Rounds the matrices of layers to FP8 with a scale for each block, and returns the tensors of published files."""
    tensors = {}
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ".layers." in name:
            rows, columns = (-(-side // 128) for side in parameter.shape)
            draw = torch.Generator().manual_seed(0)
            scales = 2e-3 * (1 + torch.rand((rows, columns), generator=draw))
            each = scales.repeat_interleave(128, 0).repeat_interleave(128, 1)
            each = each[: parameter.shape[0], : parameter.shape[1]]
            eight = (parameter.data / each).clamp(-448, 448).to(torch.float8_e4m3fn)
            parameter.data.copy_(eight.float() * each)
            tensors |= {name: eight, name + "_scale_inv": scales}
    return tensors


QUANTISED = {"mxfp4": in_blocks, "fp8": in_eight_bits}


def replace(path, others):
    """Replaces tensors of a file by others of the same names, or by none."""
    tensors = safetensors.torch.load_file(path) | others
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


def stack(path):
    """Joins the experts of each layer in one tensor, as files of some published models have them."""
    tensors = safetensors.torch.load_file(path)
    for layer in {name.split(".experts.")[0] for name in tensors if ".experts." in name}:
        all = lambda part: [
            tensors.pop(f"{layer}.experts.{expert}.{part}.weight")
            for expert in range(sum(f"{layer}.experts." in name and part in name for name in tensors))
        ]
        gates, ups = all("gate_proj"), all("up_proj")
        both = [torch.cat(pair) for pair in zip(gates, ups, strict=True)]
        tensors[f"{layer}.experts.gate_up_proj"] = torch.stack(both)
        tensors[f"{layer}.experts.down_proj"] = torch.stack(all("down_proj"))
    safetensors.torch.save_file(tensors, path, {"format": "pt"})


# ---- blocks ---------------------------------------------------------------------------------


def forward(model, ids, mask):
    ids, mask = torch.tensor(ids), torch.tensor(mask)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    return model(ids, attention_mask=mask, position_ids=positions, use_cache=False).logits


def rounded(values):
    return [round(value, 7) for value in values.tolist()]


def logits_block(model, batch, tensors, prefix="logits"):
    block = {}
    for side in ("right", "left"):
        ids, mask = batch[side]["input_ids"], batch[side]["attention_mask"]
        with torch.no_grad():
            logits = forward(model, ids, mask)
        samples = []
        for sample in batch[side]["samples"]:
            row = logits[sample["row"], sample["pos"]]
            top = row.topk(5)
            samples.append(
                {
                    "row": sample["row"],
                    "pos": sample["pos"],
                    "first8": rounded(row[:8]),
                    "top5_ids": top.indices.tolist(),
                    "top5": rounded(top.values),
                    "logsumexp": row.double().logsumexp(0).item(),
                }
            )
        block[side] = {"input_ids": ids, "attention_mask": mask, "samples": samples}
        if side == "right":
            tensors[f"{prefix}_right"] = logits * torch.tensor(mask)[..., None]
        else:
            tensors[f"{prefix}_left_last"] = logits[:, -1].clone()
    return block


def completion_logprobs(model, batch, temperature):
    """Computes log-probabilities of every token, `[rows, vocab]` before each completion token, and the mask."""
    ids = [prompt + rest for prompt, rest in zip(batch["prompt_ids"], batch["completion_ids"])]
    mask = [prompt + rest for prompt, rest in zip(batch["prompt_mask"], batch["completion_mask"])]
    first = len(batch["prompt_ids"][0])
    logits = forward(model, ids, mask)[:, first - 1 : -1]
    return (logits / temperature).log_softmax(-1), torch.tensor(batch["completion_mask"])


def chosen(logprobs, batch):
    return logprobs.gather(-1, torch.tensor(batch["completion_ids"])[..., None])[..., 0]


def ragged(values, mask):
    return [rounded(row[keep == 1]) for row, keep in zip(values, mask)]


def logprobs_block(model, batch):
    block = {name: batch[name] for name in batch if not name.startswith("T")}
    for name in (name for name in batch if name.startswith("T")):
        with torch.no_grad():
            logprobs, mask = completion_logprobs(model, batch, float(name[1:]))
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        values = chosen(logprobs, batch)
        block[name] = {
            "logprobs": ragged(values, mask),
            "sum": (values * mask).sum(1).tolist(),
            "entropy": ragged(entropy, mask),
        }
    return block


@torch.no_grad()
def greedy_row(model, prompt, count):
    ids, margin = list(prompt), float("inf")
    for _ in range(count):
        top = forward(model, [ids], [[1] * len(ids)])[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        ids.append(top.indices[0].item())
    return ids[len(prompt) :], margin


def greedy_block(model, before, tokenizer, pad):
    count = len(before["new_ids_no_eos"][0])
    rows, margins = zip(*(greedy_row(model, prompt, count) for prompt in before["prompts"]))
    # The stop tokens are the third token of the first row, and those that the settings name.
    stop_ids = [rows[0][2], *before["with_stop"]["stop_ids"][1:]]
    ends = [[at + 1 for at, id in enumerate(row) if id in stop_ids] for row in rows]
    lengths = [end[0] if end else count for end in ends]
    padded = [row[:length] + [pad] * (count - length) for row, length in zip(rows, lengths)]
    return {
        "prompts": before["prompts"],
        "new_ids_no_eos": rows,
        "texts": [tokenizer.decode(row, skip_special_tokens=True) for row in rows],
        "min_top2_margin": min(margins),
        "with_stop": {"stop_ids": stop_ids, "new_ids_padded": padded, "lengths": lengths},
    }


def in_text_part(name):
    """Gives a parameter's name in a checkpoint of the text part alone, if the model also sees pictures."""
    return name.replace("model.language_model.", "model.", 1)


# Families whose files have Mixtral's names for the parts of experts, and these names.
NAMED_AS_MIXTRAL = ("mixtral", "minimax_m2")
MIXTRAL = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2", ".mlp.": ".block_sparse_moe."}


def by_expert(name, gradient, gpt_oss):
    """Splits a gradient by the tensors of a checkpoint: transformers keeps all experts of a layer in one."""
    layer, part = name.rsplit(".", 1)
    part = part.removesuffix("_bias")
    if not layer.endswith(".experts") or part not in ("gate_up_proj", "down_proj"):
        return {name: gradient}
    names = ["gate_proj", "up_proj"] if part == "gate_up_proj" else ["down_proj"]
    kind = "bias" if name.endswith("_bias") else "weight"
    # gpt-oss keeps matrices as they multiply, and gate and up in turns.
    as_rows = lambda matrix: matrix.T.contiguous() if matrix.ndim > 1 else matrix
    in_turns = lambda all_values: [as_rows(all_values[..., at :: len(names)]) for at in range(len(names))]
    split = in_turns if gpt_oss else lambda all_values: all_values.chunk(len(names))
    return {
        f"{layer}.{expert}.{own}.{kind}": values
        for expert, all_values in enumerate(gradient)
        for own, values in zip(names, split(all_values))
    }


def gradient_norms(model):
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gpt_oss = model.config.model_type == "gpt_oss"
            gradients |= by_expert(in_text_part(name), parameter.grad, gpt_oss)
    if model.config.model_type in NAMED_AS_MIXTRAL:
        for old, new in MIXTRAL.items():
            gradients = {name.replace(old, new): values for name, values in gradients.items()}
    norms = {name: gradient.double().norm().item() for name, gradient in gradients.items()}
    return gradients, norms, sum(norm**2 for norm in norms.values()) ** 0.5


def cross_entropy(model, batch):
    logits = forward(model, batch["input_ids"], batch["attention_mask"])
    labels = torch.tensor(batch["labels"])[:, 1:]
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels.flatten())


def ce_block(model, batch):
    model.zero_grad()
    loss = cross_entropy(model, batch)
    loss.backward()
    gradients, norms, total = gradient_norms(model)
    return {
        **{name: batch[name] for name in ("input_ids", "attention_mask", "labels")},
        "loss": loss.item(),
        "total_grad_norm": total,
        "grad_norms": norms,
        "grad_first4": {name: rounded(it.flatten()[:4]) for name, it in gradients.items()},
    }


def uses_all_experts(model, before):
    """Tells whether the losses go through all experts: torch steps those without tokens too, by a gradient of 0."""
    norms = [ce_block(model, before["ce"])["grad_norms"]]
    dapo = dapo_block(model, before["logprobs"], before["dapo"])
    norms += [dapo[name]["grad_norms"] for name in dapo if name.startswith("T")]
    return all(norm > 0 for each in norms for name, norm in each.items() if ".experts." in name)


def dapo_block(model, batch, before):
    """Takes the ratios of the other fixture, so that as many of them are clipped."""
    low, high = 1 - before["eps_low"], 1 + before["eps_high"]
    block = {name: before[name] for name in before if not name.startswith("T")}
    advantages = torch.tensor(before["advantages"])[:, None]
    for name in (name for name in before if name.startswith("T")):
        model.zero_grad()
        logprobs, mask = completion_logprobs(model, batch, float(name[1:]))
        logprobs = chosen(logprobs, batch)
        old = torch.zeros_like(logprobs)
        for row, ratios in enumerate(before[name]["ratio"]):
            old[row, : len(ratios)] = logprobs[row, : len(ratios)].detach() - torch.tensor(
                ratios
            ).log()
        ratio = (logprobs - old).exp()
        loss = -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
        mean = (loss * mask).sum() / mask.sum()
        mean.backward()
        _, norms, total = gradient_norms(model)
        share = lambda clipped: ((clipped * mask).sum() / mask.sum()).item()
        block[name] = {
            "old_logprobs": ragged(old, mask),
            "ratio": ragged(ratio, mask),
            "per_token_loss": ragged(loss, mask),
            "loss": mean.item(),
            "clip_frac_low": share((ratio < low) & (advantages < 0)),
            "clip_frac_high": share((ratio > high) & (advantages > 0)),
            "total_grad_norm": total,
            "grad_norms": norms,
        }
    return block


def adamw_block(model, batch, before):
    """Changes the model."""
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=before["lr"],
        betas=tuple(before["betas"]),
        eps=before["eps"],
        weight_decay=before["weight_decay"],
    )
    trajectory = []
    for _ in before["trajectory"][1:]:
        optimizer.zero_grad()
        loss = cross_entropy(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), before["max_grad_norm"])
        trajectory.append({"loss": loss.item(), "grad_norm_before_clip": norm.item()})
        optimizer.step()
    with torch.no_grad():
        trajectory.append({"loss": cross_entropy(model, batch).item()})
    return {**before, "trajectory": trajectory}


def router_aux_block(model, batch):
    """Computes the loss of uneven loads. Each layer is asked by itself, because transformers mixes experts of
    different layers that have the same number if it is asked for all layers at once."""
    model.zero_grad()
    ids, mask = torch.tensor(batch["input_ids"]), torch.tensor(batch["attention_mask"])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    outputs = model(
        ids,
        attention_mask=mask,
        position_ids=positions,
        output_router_logits=True,
        use_cache=False,
    )
    balance = sys.modules[type(model).__module__].load_balancing_loss_func
    sizes = (model.num_experts, model.num_experts_per_tok)
    layers = [balance((logits,), *sizes, mask) for logits in outputs.router_logits]
    loss = torch.stack(layers).mean()
    loss.backward()
    _, norms, _ = gradient_norms(model)
    return {
        "loss": loss.item(),
        "grad_norms": {name: norm for name, norm in norms.items() if norm > 0},
    }


def sigmoid_aux_block(model, batch):
    """Computes the loss of uneven loads of routers that score by sigmoids, as DeepSeek-V3 defines it: of the shares of
    the scores, and of the experts that were chosen. transformers has none for GLM-4.5, and for MiniMax-M2 one of a
    softmax and of choices that the model does not make."""
    model.zero_grad()
    routed = []
    routers = [it for it in model.modules() if type(it).__name__ in SIGMOID_ROUTERS]
    hooks = [it.register_forward_hook(lambda _, __, out: routed.append(out)) for it in routers]
    forward(model, batch["input_ids"], batch["attention_mask"])
    for hook in hooks:
        hook.remove()

    is_token = torch.tensor(batch["attention_mask"]).flatten() == 1
    losses = []
    for logits, _, chosen in routed:
        scores = logits[is_token].sigmoid()
        shares = scores / scores.sum(-1, keepdim=True)
        experts = logits.shape[-1]
        loads = torch.bincount(chosen[is_token].flatten(), minlength=experts) / is_token.sum()
        losses.append(experts * (loads * shares.mean(0)).sum())
    loss = torch.stack(losses).mean()
    loss.backward()
    _, norms, _ = gradient_norms(model)
    return {
        "loss": loss.item(),
        "grad_norms": {name: norm for name, norm in norms.items() if norm > 0},
    }


SIGMOID_ROUTERS = ("Glm4MoeTopkRouter", "MiniMaxM2TopKRouter")


# ---- kinds of fixtures ----------------------------------------------------------------------


def language_model(folder, before, args, tensors, auto=transformers.AutoModelForCausalLM):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pad = before["tokenizer"]["pad_id"]
    for seed in range(args.seed, args.seed + 100):
        model = write_model(auto, folder, args, seed)
        greedy = greedy_block(model, before["greedy"], tokenizer, pad)
        if greedy["min_top2_margin"] > MARGIN and uses_all_experts(model, before):
            break
    sigmoids = any(type(module).__name__ in SIGMOID_ROUTERS for module in model.modules())
    router_aux = sigmoid_aux_block if sigmoids else router_aux_block
    experts = sigmoids or getattr(model, "num_experts_per_tok", 0) > 0
    return {
        "seed": seed,
        "tokenizer": before["tokenizer"],
        "chat": before["chat"],
        "logits": logits_block(model, before["logits"], tensors),
        "logprobs": logprobs_block(model, before["logprobs"]),
        "greedy": greedy,
        "ce": ce_block(model, before["ce"]),
        **({"router_aux": router_aux(model, before["logits"]["right"])} if experts else {}),
        "dapo": dapo_block(model, before["logprobs"], before["dapo"]),
        "adamw5": adamw_block(model, before["ce"], before["adamw5"]),
    }


def text_of_pictures(folder, before, args, tensors):
    """Makes a model that sees pictures, and asks it about text."""
    auto = transformers.AutoModelForImageTextToText
    return language_model(folder, before, args, tensors, auto)


def classifier(folder, before, args, _):
    auto = transformers.AutoModelForSequenceClassification
    model = write_model(auto, folder, args, args.seed)
    kept = ("rendered", "messages")
    block = {name: before["reward"][name] for name in kept if name in before["reward"]}
    for side in ("right", "left"):
        ids, mask = before["reward"][side]["input_ids"], before["reward"][side]["attention_mask"]
        with torch.no_grad():
            scores = forward(model, ids, mask)[:, 0]
        block[side] = {"input_ids": ids, "attention_mask": mask, "scores": rounded(scores)}
    right = block["right"]
    rows = [
        [id for id, keep in zip(ids, mask) if keep]
        for ids, mask in zip(right["input_ids"], right["attention_mask"])
    ]
    with torch.no_grad():
        block["unpadded"] = [forward(model, [row], [[1] * len(row)]).item() for row in rows]
    return {"seed": args.seed, "tokenizer": before["tokenizer"], "reward": block}


def adapter(folder, base, before, args, tensors):
    arguments = json.loads((folder / "adapter_config.json").read_text())
    config = peft.LoraConfig(task_type="CAUSAL_LM", **arguments)
    model = peft.get_peft_model(opened(transformers.AutoModelForCausalLM, base), config)
    draw = torch.Generator().manual_seed(args.seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            values = torch.randn(parameter.shape, generator=draw)
            parameter.data.copy_(values / parameter.shape[1] ** 0.5)
        elif "modules_to_save" in name:
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=draw)
    model.peft_config["default"].base_model_name_or_path = f"../{base.name}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink()

    model = peft.PeftModel.from_pretrained(
        opened(transformers.AutoModelForCausalLM, base), folder, is_trainable=True
    ).eval()
    batch = before["logits"]
    block = {
        "seed": args.seed,
        "unmerged_logits": logits_block(model, batch, tensors, "unmerged_logits"),
    }
    right = batch["right"]
    labels = [
        [id if keep else -100 for id, keep in zip(ids, mask)]
        for ids, mask in zip(right["input_ids"], right["attention_mask"])
    ]
    loss = cross_entropy(model, {**right, "labels": labels})
    loss.backward()
    _, norms, total = gradient_norms(model)
    # A matrix that is trained whole has the model's own name.
    whole = lambda name: name.removeprefix("base_model.model.").replace(".modules_to_save", "")
    own = lambda name: whole(name) if "modules_to_save" in name else name
    norms = {own(name.replace(".default", "")): norm for name, norm in norms.items()}
    block["ce_lora"] = {"loss": loss.item(), "total_grad_norm": total, "grad_norms": norms}
    merged = model.merge_and_unload()
    block["merged_logits"] = logits_block(merged, batch, tensors, "merged_logits")
    return block


def main(args):
    args.dtype = getattr(torch, args.dtype)
    before = json.loads((args.source / "expected.json").read_text())
    config = json.loads(args.config.read_text())
    args.out.mkdir(parents=True)
    tensors = {}
    if args.config.name == "adapter_config.json":
        shutil.copy(args.config, args.out)
        block = adapter(args.out, args.source, before, args, tensors)
    else:
        for file in args.source.iterdir():
            if file.name not in NOT_COPIED and not file.name.startswith("model"):
                shutil.copy(file, args.out)
        shutil.copy(args.config, args.out / "config.json")
        kinds = {
            "ForSequenceClassification": classifier,
            "ForConditionalGeneration": text_of_pictures,
        }
        architecture = config["architectures"][0]
        make = next((kinds[end] for end in kinds if architecture.endswith(end)), language_model)
        block = make(args.out, before, args, tensors)
    modules = (torch, transformers, peft)
    block["versions"] = {module.__name__: module.__version__ for module in modules}
    (args.out / "expected.json").write_text(json.dumps(block, ensure_ascii=False) + "\n")
    if tensors:
        safetensors.torch.save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            args.out / "expected.safetensors",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--float32", nargs="*", default=[], help="parts of names that stay float32")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--stacked", action="store_true", help="all experts of a layer in one tensor")
    parser.add_argument("--quantised", choices=QUANTISED, help="how the weights are quantised")
    parser.add_argument("--seed", type=int, default=1)
    main(parser.parse_args())
