"""Puts the measurements of `firebrick bench --json` and `speed.py` side by side: a table on stdout.

    python benches/peers/ratios.py FIREBRICK.jsonl... PEER.jsonl...
"""

import json
import pathlib
import statistics
import sys


def main():
    own, peers, device = {}, {}, ""
    for path in map(pathlib.Path, sys.argv[1:]):
        rows = list(map(json.loads, path.read_text().splitlines()))
        # A line of Firebrick's says what it is.
        said = {row["event"]: row for row in rows if "event" in row}
        if said:
            limit = f"a product reaches {said['limits']['flops'] / 1e9:.0f} GFLOP/s"
            version = f"{said['program']['version']} (commit {said['program']['commit']})"
            device = f"{said['device']['name']}, {said['device']['cores']} cores, {limit}, {version}"
        to = own if said else peers
        to |= {(row["shape"], row["phase"]): row for row in rows if row.get("event", "phase") == "phase"}
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
