#!/bin/bash
# Runs one trainer and the inference servers of the other nodes in one SLURM job.
#
#     sbatch launch/slurm.sh recipe.toml MODEL
#
# All nodes share the current folder. The job is told ten minutes before its time is over. The run then saves, and
# the job is queued again and continues. The recipe's [device] says what the trainer computes on: without one it is
# the CPU.
#SBATCH --job-name=firebrick
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@600
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

if [ $# != 2 ]; then
    echo "expected a recipe and a model: sbatch $0 recipe.toml MODEL" >&2
    exit 2
fi
recipe=$1 model=$2
name=$(basename "$recipe" .toml)
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

# Starts a server on each card of each node but the first.
servers=
for node in "${nodes[@]:1}"; do
    # shellcheck disable=SC2016 # The node's shell is to read these.
    srun --nodes=1 --ntasks=1 --nodelist="$node" bash -c '
        for card in $(seq 0 7); do
            VLLM_SERVER_DEV_MODE=1 CUDA_VISIBLE_DEVICES=$card vllm serve "$1" --served-model-name policy \
                --port $((8000 + card)) --logprobs-mode processed_logprobs --enable-scale-out --generation-config vllm &
        done
        wait' serve "$model" &
    for card in $(seq 0 7); do
        servers+="${servers:+,}\"http://$node:$((8000 + card))\""
    done
done

# The trainer waits for the servers (rollout.engine.patience), and is one task, whatever device.count is.
if [ -f "runs/$name/recipe.toml" ]; then
    begin=("runs/$name/recipe.toml" --resume)
else
    begin=("$recipe" --set "name=$name")
fi
srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" firebrick train "${begin[@]}" \
    --set rollout.engine.kind=vllm --set "rollout.engine.servers=[$servers]" \
    --set "rollout.engine.weights=$PWD/weights" &
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
