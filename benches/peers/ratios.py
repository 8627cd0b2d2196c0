"""Puts the measurements of `firebrick bench --json` and `speed.py` side by side: a table on stdout.

    python benches/peers/ratios.py FIREBRICK.json... PEER.jsonl...
"""

import json
import pathlib
import statistics
import sys


def main():
    own, peers, device = {}, {}, ""
    for path in map(pathlib.Path, sys.argv[1:]):
        if path.suffix == ".jsonl":
            rows = map(json.loads, path.read_text().splitlines())
            peers |= {(row["shape"], row["phase"]): row for row in rows}
        else:
            whole = json.loads(path.read_text())
            limit = f"a product reaches {whole['limits']['flops'] / 1e9:.0f} GFLOP/s"
            device = f"{whole['device']}, {whole['cores']} cores, {limit}, {whole['version']}"
            own |= {(row["shape"], row["phase"]): row for row in whole["measured"]}
    print(device)
    print("| model | phase | Firebrick, tokens/s | PyTorch, tokens/s | ratio | cores | PyTorch's | peak, MiB | PyTorch's |")
    print("|---|---|---|---|---|---|---|---|---|")
    for key, ours in own.items():
        if key not in peers:
            continue
        theirs = peers[key]
        rates = [row["units"] / statistics.median(row["seconds"]) for row in (ours, theirs)]
        cores = [f"{row['cores']:.2f}" for row in (ours, theirs)]
        peaks = [f"{row['peak_bytes'] / 2**20:,.0f}" for row in (ours, theirs)]
        print(
            f"| {key[0]} | {key[1]} | {rates[0]:,.0f} | {rates[1]:,.0f} | {rates[0] / rates[1]:.2f} "
            f"| {' | '.join(cores)} | {' | '.join(peaks)} |"
        )


if __name__ == "__main__":
    main()
