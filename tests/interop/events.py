"""Reads event files of Firebrick with the programs of TensorBoard and of W&B, and compares every value.

    python3 tests/interop/events.py BOARD WANDB METRICS.jsonl

BOARD is a folder with an event file of TensorBoard. WANDB is a folder with one run of W&B somewhere in
it. METRICS.jsonl has the values that should be in both: an object for each step, with `step` and its
values by name, where "NaN", "Infinity" and "-Infinity" are texts. TensorBoard has these values rounded
to 32 bits, and W&B has the very same. The readers are TensorBoard's `EventAccumulator` and
`wandb-core leet inspect`, which reads a file as `wandb sync` does. Neither needs a network. A reader
that is not installed is skipped aloud. The exit status is 0 if everything agrees.
"""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys


def read_metrics(path):
    steps = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").split("\n"):
        if not line:
            continue
        values = json.loads(line)
        steps.append((values.pop("step"), {name: float(value) for name, value in values.items()}))
    return steps


def same(ours, theirs):
    return ours == theirs or (ours != ours and theirs != theirs)


def check_board(folder, steps):
    import numpy
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # 0 keeps all values. By default it draws 10000 of a name.
    board = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
    expected = {}
    for step, values in steps:
        for name, value in values.items():
            expected.setdefault(name, []).append((step, value))
    if different := expected.keys() ^ set(board.Tags()["scalars"]):
        sys.exit(f"TensorBoard: only on one side: {sorted(different)}")
    for name, ours in expected.items():
        theirs = [(event.step, event.value) for event in board.Scalars(name)]
        if [step for step, _ in ours] != [step for step, _ in theirs]:
            sys.exit(f"TensorBoard: {name} has other steps: {[step for step, _ in theirs]}")
        for (step, value), (_, read) in zip(ours, theirs):
            with numpy.errstate(over="ignore"):
                rounded = float(numpy.float32(value))
            if not same(rounded, read):
                sys.exit(f"TensorBoard: {name} of step {step} is {read!r} instead of {rounded!r}")
    count = sum(map(len, expected.values()))
    return f"TensorBoard: {count} values of {len(expected)} names agree in {len(steps)} steps"


def inspect(core, file):
    """Reads the records of a W&B file, as objects."""
    command = [core, "leet", "inspect", "--json", "--no-observability"]
    command += ["--run-file", file, file.parent.parent]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"wandb: can't read {file}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def check_wandb(core, folder, steps):
    files = list(pathlib.Path(folder).rglob("*.wandb"))
    if len(files) != 1:
        sys.exit(f"wandb: expected one run in {folder}, found {len(files)}")
    records = inspect(core, files[0])
    kinds = [record["type"] for record in records]
    if kinds[:2] != ["header", "run"]:
        sys.exit(f"wandb: begins with {kinds[:2]} instead of header and run")
    history = [record["history"] for record in records if record["type"] == "history"]
    if (theirs := [line["step"]["num"] for line in history]) != [step for step, _ in steps]:
        sys.exit(f"wandb: other steps: {theirs}")
    last = {}
    for (step, ours), line in zip(steps, history):
        theirs = {name: float(value) for name, value in line["item"].items() if not name.startswith("_")}
        compare(f"step {step}", ours, theirs)
        if line["item"]["_step"] != step:
            sys.exit(f"wandb: step {step} says that it is step {line['item']['_step']}")
        last.update(ours)
    summary = {}
    for record in records:
        if record["type"] == "summary":
            summary.update(record["summary"]["update"])
    theirs = {name: float(value) for name, value in summary.items() if not name.startswith("_")}
    compare("the summary", last, theirs)
    count = sum(len(values) for _, values in steps)
    run, end = records[1]["run"], records[-1].get("exit")
    ended = "no end" if end is None else f"exit code {end.get('exit_code', 0)}"
    return (
        f"wandb: {count} values of {len(last)} names agree in {len(steps)} steps "
        f"of {run['project']}/{run['run_id']}, {ended}"
    )


def compare(where, ours, theirs):
    if different := ours.keys() ^ theirs.keys():
        sys.exit(f"wandb: only on one side in {where}: {sorted(different)}")
    for name, value in ours.items():
        if not same(value, theirs[name]):
            sys.exit(f"wandb: {name} of {where} is {theirs[name]!r} instead of {value!r}")


def wandb_core():
    """Finds the program that reads W&B's files. The Python around it and its dependencies are not needed."""
    if (package := importlib.util.find_spec("wandb")) is None:
        return None
    # Firebrick makes a folder that is called wandb. Python takes it for a package without files.
    for place in package.submodule_search_locations:
        for name in ["wandb-core", "wandb-core.exe"]:
            if (core := pathlib.Path(place, "bin", name)).exists():
                return core
    return None


def main(board, wandb, metrics):
    steps = read_metrics(metrics)
    if importlib.util.find_spec("tensorboard") is None:
        print("skipped: tensorboard is not installed")
    else:
        print(check_board(board, steps))
    if (core := wandb_core()) is None:
        print("skipped: wandb is not installed")
    else:
        print(check_wandb(core, wandb, steps))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("board")
    parser.add_argument("wandb")
    parser.add_argument("metrics")
    main(**vars(parser.parse_args()))
