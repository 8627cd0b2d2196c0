#!/usr/bin/env bash
# Trains with SkyRL's JAX backend on the CPU, a server that speaks Tinker's API. PYTHON is one with the packages of
# .ci/skyrl.txt. SEEDS are the seeds to train with, 1 by default. Fails unless the server's updates are those of this
# machine; prints held-out accuracies of both.
set -euo pipefail

export FIREBRICK_SKYRL=${1:?usage: tests/interop/skyrl.sh PYTHON [SEEDS...]}
shift
[ $# -gt 0 ] || set -- 1
repository=$(cd "$(dirname "$0")/../.." && pwd)
here=$repository/tests/interop/skyrl
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
export FIREBRICK_TINKER=http://127.0.0.1:$port

# Serves the model in the folder $1.
serve() {
    stop
    rm -rf served && mkdir served
    PATH=$here:$PATH PYTHONPATH=$here setsid "$FIREBRICK_SKYRL" "$here/serve.py" "$1" "$port" "$place/served" run -- x >served.log 2>&1 &
    server=$!
    for _ in $(seq 300); do
        ! curl -sf "$FIREBRICK_TINKER/api/v1/healthz" >/dev/null || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 1
    done
    tail -n 40 served.log >&2
    return 1
}

"$firebrick" train quickstart --quiet --set model.new.family=qwen3 --set train.steps=1 --set optim.lr=0.0 --set name=base
model=$place/runs/base/checkpoints/step-000001
serve "$model"

# The update of a server is that of this machine.
(cd "$repository" && FIREBRICK_TINKER_MODEL=$model cargo test --release --locked --workspace --test tinker -- --nocapture a_real_server)

# Trains the run $1.
train() {
    "$firebrick" train quickstart --quiet --set "name=$1" --set model.new= --set "model.path=$model" --set sft.steps=0 \
        --set data.heldout_size=400 --set rollout.max_sequences=256 --set sampling.prompts_per_step=32 --set reward.overlong= \
        --set optim.lr=5e-4 --set optim.warmup_steps=0 --set optim.max_grad_norm=1e9 --set train.steps=30 --set train.stop_at= \
        --set train.mini_batch=64 --set eval.every=30 "${@:2}"
    python3 -c 'import json, sys; print(sys.argv[1], json.load(open(f"runs/{sys.argv[1]}/summary.json"))["heldout"])' "$1"
}
for seed in "$@"; do
    train "local-$seed" --set "seed=$seed" --set 'model.lora={rank=8,alpha=32.0}'
    train "server-$seed" --set "seed=$seed" --set 'model.lora={rank=8}' \
        --set "engine={kind='tinker',url='$FIREBRICK_TINKER',model='$model'}"
done
