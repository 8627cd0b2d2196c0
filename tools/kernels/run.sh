#!/usr/bin/env bash
# Compiles every kernel of a program for real cards, on a machine without one:
#
#     tools/kernels/run.sh OUT PROGRAM
#
# PROGRAM is a firebrick with the features cuda and spirv. It does all the work of `doctor --suite`, short benches
# and a short training on stand-ins for cards, which compute nothing. Real compilers get every kernel: NVIDIA's ptxas
# for three architectures, and Mesa's for AMD (RADV) and NVIDIA (NVK). The validator of SPIR-V looks at all that Mesa
# gets. The logs go to the folder OUT, and OUT/kernels.md gets the registers, shared memory and spills of each kernel
# on each chip, and what a decode step and an update launch. `table.py`, beside this script, says what counts as a
# fault.
#
# ptxas and libdevice come from PyPI, Mesa from Debian sid. Both are kept in $FIREBRICK_CI_CACHE (by default
# ~/.cache/firebrick), and so is what ptxas made of each kernel. Nothing is installed.
#
# The exit code is 0 if there is no fault, 1 if there is one, and 77 if the compilers can't be had.
set -euo pipefail
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1

[ $# = 2 ] || { echo "usage: tools/kernels/run.sh OUT PROGRAM" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd) program=$(realpath "$2")
[ -x "$program" ] || { echo "run.sh: '$2' is not a program" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cache=${FIREBRICK_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/firebrick}/kernels
say() { echo "run.sh: $*" >&2; }

# An A100, an H100, a GeForce RTX 5090.
cuda="sm_80 sm_90 sm_120"
# A Radeon RX 480, RX 6800, RX 7900, RX 9070, and the graphics unit of a Ryzen AI 300.
amd="polaris10 navi21 navi31 gfx1201 strix1"
# An RTX 3080 and an RTX 4090, by the numbers of their chips.
nvidia="172 192"

# ---- compilers ------------------------------------------------------------------------------

if ! python=$(tools/venv.sh tools/kernels/ptxas.txt --no-deps) || ! mesa=$(tools/kernels/mesa.sh); then
    say "the compilers can't be had; see above"
    exit 77
fi
ptxas=$(find "${python%/bin}" -type f -name ptxas)
toolkit=$(find "${python%/bin}" -type f -path '*/nvvm/libdevice/libdevice.10.bc')
toolkit=${toolkit%/nvvm/libdevice/*}
mesa_libraries=$mesa/usr/lib/x86_64-linux-gnu
[ -d "$mesa_libraries" ] || { say "this is for x86-64"; exit 77; }

# The stand-in driver and the layer are small, so they are compiled each time.
made=$out/made
rm -rf "$made" "$out/modules" "$out/models"
for chip in $cuda $amd $nvidia; do rm -rf "${out:?}/$chip"; done
mkdir -p "$made" "$out/modules"
compile() { "${CC:-cc}" -shared -fPIC -O2 -fvisibility=hidden -Wall -Wextra -Werror "$@" -lpthread; }
compile -Wno-misleading-indentation -o "$made/libcuda.so" tools/kernels/driver.c
compile -I"$mesa/usr/include" -o "$made/libpipelines.so" tools/kernels/layer.c
cat >"$made/pipelines.json" <<'JSON'
{ "file_format_version": "1.2.0", "layer": { "name": "VK_LAYER_FIREBRICK_pipelines", "type": "GLOBAL",
  "library_path": "./libpipelines.so", "api_version": "1.3.0", "implementation_version": "1",
  "description": "Statistics of compute pipelines" } }
JSON
for driver in radeon nouveau; do
    printf '{ "file_format_version": "1.0.0", "ICD": { "api_version": "1.4.0", "library_path": "%s" } }\n' \
        "$mesa_libraries/libvulkan_$driver.so" >"$made/$driver.json"
done
"$python/python" tools/kernels/models.py "$out/models"
{
    "$ptxas" --version | sed -n 's/.*release.*, V\(.*\)/ptxas \1/p'
    echo "Mesa $(cat "$mesa/made")"
} >"$made/versions"

# ---- runs -----------------------------------------------------------------------------------

began=$SECONDS

# The program must find neither settings nor kernels of another run.
clean() {
    env -i PATH="$PATH" LC_ALL=C HOME="$work/home" XDG_CACHE_HOME="$work/home" XDG_RUNTIME_DIR="$work/home" "$@"
}

# Runs the program on the stand-in for the card $1.
on_cuda() {
    local card=$1
    shift
    clean CUDA_PATH="$toolkit" LD_LIBRARY_PATH="$made" STAND_IN_ARCH="$card" STAND_IN_OUT="$work" "$program" "$@" \
        --device cuda:0
}

# Runs the program on Mesa's driver $1, with the shim $2 that stands in for a card, and the variable $3 that names
# its chip. Mesa's libraries go before this system's. A shader that was compiled before would have no statistics.
on_mesa() {
    local driver=$1 shim=$2 chip=$3 system=/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu
    shift 3
    clean "$chip" VK_DRIVER_FILES="$made/$driver.json" VK_LAYER_PATH="$made" NODEVICE_SELECT=1 \
        VK_INSTANCE_LAYERS=VK_LAYER_FIREBRICK_pipelines PIPELINES_OUT="$work/pipelines" \
        MODULES_OUT="$out/modules" MESA_SHADER_CACHE_DISABLE=true RADV_DEBUG=nocache \
        "$mesa/usr/lib64/ld-linux-x86-64.so.2" --library-path "$mesa_libraries:$system" \
        --preload "$mesa_libraries/lib${shim}_noop_drm_shim.so" "$program" "$@" --device vulkan:0
}

# Does the work $2 on the chip $1, in a folder of that name. The folder gets what the program printed, its exit
# code and its milliseconds.
job() (
    chip=$1 kind=$2 code=0 work=$out/$1/$2
    mkdir -p "$work/home"
    # Such as decode-4B-adapters.
    IFS=- read -r action model way <<<"$kind"
    bench=(bench --dtype bfloat16 --runs 1 --json)
    models=$out/models
    # launches.py knows the sizes of these benches.
    case $action in
        # Right numbers of the large cases would take longer than their kernels.
        suite) arguments=(doctor --suite --launch-only --json) ;;
        bench) arguments=("${bench[@]}" "$models/0.5B/2" --phases "rollout@64x32+32,update@8x256+256") ;;
        # Prompts have eight completions, as in training, and are so long that attention is computed in parts.
        decode)
            vocabulary=whole
            [ -z "$way" ] || vocabulary=2
            arguments=("${bench[@]}" "$models/$model/$vocabulary"
                --phases "groups@64x256+8,groups@256x256+8,groups@512x256+8")
            ;;
        update) arguments=("${bench[@]}" "$models/$model/2" "$models/$model/3" --phases "update@8x256+256") ;;
        # Launches that are recorded and replayed have rules of their own: while they are recorded, no thread may
        # take memory or wait.
        train)
            arguments=(train quickstart --set rollout.graphs=true --set sft.steps=2 --set sft.every=1
                --set sampling.dynamic=off --set sampling.prompts_per_step=16 --set train.mini_batch=64
                --set train.steps=2 --set eval.prompts=20)
            ;;
    esac
    [ -z "$way" ] || arguments+=(--lora 16)
    cd "$work/home"
    began=$(date +%s%3N)
    case $chip in
        sm_*) set -- on_cuda "$chip" ;;
        [a-z]*) set -- on_mesa radeon amdgpu "AMDGPU_GPU_ID=$chip" ;;
        *) set -- on_mesa nouveau nouveau "NOUVEAU_CHIPSET=$chip" ;;
    esac
    "$@" "${arguments[@]}" >"$work/said" 2>"$work/log" || code=$?
    took=$(($(date +%s%3N) - began))
    echo "$code $took" >"$work/ended"
    say "$chip, $kind: ended with $code after $((took / 1000)) s"
)

export -f job clean on_cuda on_mesa say
export out made mesa mesa_libraries program toolkit
# Runs a job, and ends it if it hangs. table.py sees that it did not end.
# shellcheck disable=SC2016 # the shells that are started put in their own arguments
limited=(timeout -k 20 1200 bash -c 'set -euo pipefail; job "$1" "$2"' job)
# This bench measures the host too, so it has the machine for itself.
"${limited[@]}" sm_90 decode-0.5B || true
# A program generates its kernels on one core. Those that take longest come first, so that no core waits at the end.
{
    for chip in $cuda $nvidia $amd; do echo "$chip suite"; done
    for model in 8B 4B 1.5B; do echo "sm_90 decode-$model"; done
    for model in 4B 0.5B; do printf 'sm_90 update-%s\n' "$model" "$model-adapters"; done
    for model in 8B 4B 1.5B 0.5B; do echo "sm_90 decode-$model-adapters"; done
    echo "sm_80 bench"
    echo "sm_120 bench"
    echo "sm_90 train"
} | xargs -P "$(nproc)" -L 1 "${limited[@]}" || true
say "all runs took $((SECONDS - began)) s"

# ---- what came of it ------------------------------------------------------------------------

# Drivers trust SPIR-V, and each takes another fault without a word.
valid() {
    local said
    said=$("$mesa/usr/lib64/ld-linux-x86-64.so.2" --library-path "$mesa_libraries" "$mesa/usr/bin/spirv-val" \
        --target-env vulkan1.3 "$1" 2>&1) || echo "$1: $(head -n 1 <<<"$said")"
}
export -f valid
# shellcheck disable=SC2016
find "$out/modules" -name '*.spv' -print0 | xargs -0 -P "$(nproc)" -n 50 bash -c 'for it; do valid "$it"; done' valid |
    sort >"$out/invalid"

began=$SECONDS
folders=()
for chip in $cuda; do folders+=("$out/$chip"/*/); done
"$python/python" tools/kernels/assemble.py "$ptxas" "$cache/assembled" "${folders[@]}"
say "ptxas took $((SECONDS - began)) s"
"$python/python" tools/kernels/table.py "$out"
