"""Compares runs with and without a watcher: what does watching cost?

    cargo build --release
    python3 benches/watching.py target/release/firebrick [BLOCKS]

A block is four runs of the quickstart's first 20 steps: alone, watched, watched, alone, so that a machine which gets
slower meanwhile is slower for both. The watcher is `firebrick watch --web`. A process of this script takes the
browser's place and asks as the page does: for its state every two seconds, and for curves and findings when they
changed. The script prints for each block the seconds of sampling, judging and updating with a watcher over those
without one, and the processor time of the watcher. At the end it prints the median of the blocks.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

STEPS = ["train.steps=20", "sft.stop_at=0.1", "eval.every=1000"]


def ask_as_a_page(address, going):
    version = None
    while going():
        state = json.load(urllib.request.urlopen(address + "state"))
        if state["version"] != version:
            version = state["version"]
            for part in ["curves", "findings"]:
                urllib.request.urlopen(address + part).read()
        time.sleep(2)


def processor_seconds(process):
    ticks = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


def run(program, watched):
    with tempfile.TemporaryDirectory() as folder:
        settings = [word for step in STEPS for word in ("--set", step)]
        train = [program, "train", "quickstart", "--quiet", "--set", "name=a", *settings]
        training = subprocess.Popen(train, cwd=folder)
        spent = 0.0
        if watched:
            while not pathlib.Path(folder, "runs/a/run.db").exists():
                time.sleep(0.05)
            time.sleep(0.5)
            watch = [program, "watch", "runs/a", "--web"]
            watcher = subprocess.Popen(watch, cwd=folder, stdout=subprocess.PIPE, text=True)
            ask_as_a_page(watcher.stdout.readline().strip(), lambda: training.poll() is None)
            spent = processor_seconds(watcher)
            watcher.terminate()
            watcher.wait()
        if training.wait() != 0:
            sys.exit("the run failed; see above")
        seconds = json.loads(pathlib.Path(folder, "runs/a/summary.json").read_text())["seconds"]
        return seconds["rollout"] + seconds["reward"] + seconds["update"], seconds["total"], spent


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    ratios = []
    for block in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10):
        runs = [(watched, *run(program, watched)) for watched in (False, True, True, False)]
        of = lambda which: sum(seconds for watched, seconds, _, _ in runs if watched is which)
        spent = sum(spent for *_, spent in runs)
        total = sum(total for watched, _, total, _ in runs if watched)
        share = 100 * spent / total / os.cpu_count()
        ratios.append(of(True) / of(False))
        print(f"block {block + 1}: {ratios[-1]:.3f}, watcher {spent:.2f} s, {share:.2f} % of the processors", flush=True)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(f"watched over alone: {statistics.median(ratios):.3f} in the median of {len(ratios)} blocks, {spread}")


if __name__ == "__main__":
    main()
