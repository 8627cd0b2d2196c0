#!/bin/bash
# Runs a server that speaks Tinker's API, SkyRL on all cards of one node, and a recipe against it, in one SLURM job.
#
#     sbatch launch/skyrl.sh recipe.toml MODEL SKYRL
#
# MODEL is the server's base model, SKYRL a clone of its repository, and the recipe has [model] and [optim] as the
# page "Beyond one machine" has them. For a node without eight cards, change both eights. The server's weights and
# optimizer lie in ./skyrl, without which no run can be resumed. The job is told ten minutes before its time is over;
# the run then saves, and the job is queued again.
#SBATCH --job-name=firebrick
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

if [ $# != 3 ]; then
    echo "expected a recipe, a model and a folder: sbatch $0 recipe.toml MODEL SKYRL" >&2
    exit 2
fi
recipe=$1 model=$2 skyrl=$3
name=$(basename "$recipe" .toml)
mkdir -p skyrl

(cd "$skyrl" && exec uv run --python 3.12 --extra tinker --extra gpu -m skyrl.tinker.api --base-model "$model" \
    --backend jax --host 127.0.0.1 --port 8000 --checkpoints-base "$SLURM_SUBMIT_DIR/skyrl" \
    --database-url "sqlite:///$SLURM_SUBMIT_DIR/skyrl/tinker.db" \
    --backend-config '{"tensor_parallel_size": 8, "train_micro_batch_size": 8, "sample_max_num_sequences": 64}') &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT

# The run waits until the server answers (engine.patience).
if [ -f "runs/$name/recipe.toml" ]; then
    begin=("runs/$name/recipe.toml" --resume)
else
    begin=("$recipe" --set "name=$name")
fi
firebrick train "${begin[@]}" --set engine.kind=tinker --set "engine.url='http://127.0.0.1:8000'" \
    --set "engine.model='$model'" &
trainer=$!
told=
trap 'told=1; kill -TERM "$trainer" 2>/dev/null || true' TERM
status=0
wait "$trainer" || status=$?
# A signal ends the first wait while the trainer is still saving.
if [ -n "$told" ]; then
    status=0
    wait "$trainer" || status=$?
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
