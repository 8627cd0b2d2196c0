#!/usr/bin/env bash
# Trains with a real vLLM server. VLLM is the program `vllm` of its build for CPUs, as tests/interop/vllm.sh
# installs it. SEEDS are the seeds to train with, 1 by default. Prints held-out accuracies of the local engine
# and of the server, with max_staleness 0 and 1. Fails unless the server's defect with tied embeddings is found
# and log-probabilities agree.
set -euo pipefail

vllm=${1:?usage: tests/interop/served.sh VLLM [SEEDS...]}
vllm=$(realpath "$vllm")
shift
[ $# -gt 0 ] || set -- 1
repository=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
(cd "$repository" && cargo build --release --locked --bin firebrick)
firebrick=$target/release/firebrick
place=$(mktemp -d)
server=
stop() {
    [ -z "$server" ] || kill -- "-$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$place"' EXIT
cd "$place"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

serve() {
    stop
    VLLM_SERVER_DEV_MODE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 \
        VLLM_NO_USAGE_STATS=1 setsid "$vllm" serve "$1" --port "$port" --host 127.0.0.1 --dtype float32 --enforce-eager \
        --served-model-name policy --logprobs-mode processed_logprobs --enable-scale-out --generation-config vllm >"$1.log" 2>&1 &
    server=$!
    for _ in $(seq 900); do
        ! curl -sf "http://127.0.0.1:$port/health" >/dev/null || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 1
    done
    tail -n 40 "$1.log" >&2
    return 1
}

# Makes a model after its SFT, with heads as wide as vLLM's attention for CPUs wants them.
for tied in true false; do
    "$firebrick" train quickstart --quiet --set train.steps=1 --set optim.lr=0.0 --set optim.warmup_steps=0 --set "name=tied-$tied" \
        --set model.new.heads=2 --set model.new.kv_heads=1 --set "model.new.tied=$tied"
    cp -r "runs/tied-$tied/checkpoints/step-000001" "tied-$tied"
done

# Trains the quickstart's recipe from that model on.
train() {
    "$firebrick" train quickstart --set model.new= --set sft.steps=0 --set rollout.max_sequences=256 --set eval.every=1000 "$@"
}
remote=(--set rollout.engine.kind=vllm --set "rollout.engine.servers=[\"http://127.0.0.1:$port\"]" --set rollout.engine.tolerance=1e-3)

serve tied-true
if train --set model.path=tied-true --set train.steps=3 --set name=tied "${remote[@]}" 2>tied.txt; then
    echo "a server that keeps its output matrix was not found out" >&2
    exit 1
fi
grep -q "log-probabilities are" tied.txt
grep "is not used" tied.txt

serve tied-false
accuracy() {
    python3 - "$1" <<'PYTHON'
import json, sys
print(f"{sys.argv[1]:<12}", json.load(open(f"runs/{sys.argv[1]}/summary.json"))["heldout"]["final"])
PYTHON
}
for seed in "$@"; do
    for staleness in 0 1; do
        for engine in local vllm; do
            name=$engine-$staleness-$seed
            settings=(--set model.path=tied-false --set train.steps=30 --set "seed=$seed" --set "rollout.max_staleness=$staleness")
            [ $engine = local ] || settings+=("${remote[@]}")
            train --quiet --set "name=$name" "${settings[@]}"
            accuracy "$name"
        done
    done
    "$firebrick" metrics "runs/vllm-0-$seed" 2>/dev/null | head -n 1 | python3 -c '
import json, sys
largest = json.loads(sys.stdin.readline())
largest = largest.get("metrics", largest)["rollout/logprob_diff_max"]
print(f"largest difference of log-probabilities at the first step: {largest:.1e}")
sys.exit(largest > 1e-3)'
done
