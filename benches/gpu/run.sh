#!/usr/bin/env bash
# Measures firebrick on a machine with a GPU that has neither cargo nor a network. The program is built and
# packed on one machine, and run on another. `benches/gpu/run.sh --help` says how.
#
# The script needs bash, sed and coreutils alone. A container for GPUs often has no python3 and no jq, and
# neither is missed: the programs print JSON already, so the report is mostly their words, put together.
set -euo pipefail
# Mesa's layer that asks a desktop for its preferred device would fill the reports with complaints.
export LC_ALL=C NODEVICE_SELECT=1

usage() {
    cat <<'TEXT'
usage: benches/gpu/run.sh --pack DIR [--features LIST] [--libdevice FILE]
       firebrick-gpu/run.sh PLACE [--device NAME]... [--limit SECONDS] [--total SECONDS] [--part NAME]...
                            [--model DIR] [SIZE...]

The first runs on the machine that builds. It writes DIR/firebrick-gpu.tar.xz with the program and this script.

  --features LIST    the devices built in (default: cuda,vulkan): vulkan is for AMD and Intel; spirv replaces it,
                     with kernels that use matrix units in f16
  --libdevice FILE   NVIDIA's libdevice.10.bc, packed for machines without a CUDA toolkit (default: the file of
                     this machine's toolkit, if there is one)

The second runs on the machine with the GPU, which may be the same machine. It does the parts below, each part on
every device before the next part, and prints one JSON object. Each part has its own time, and a part that fails
does not stop the others. The programs write to standard error, which ends with a page of text.

  suite      all that training does, against the CPU                                        (120 s)
  limits     a launch, a copy, and products of a model's shapes in each format               (40 s)
  bench      a rollout and an update of each SIZE, in f32 and in the narrowest format that
             the device computes, with the kernels that took longest                   (60 s each)
  train      the quickstart, shortened, and its curve, beside the CPU's                      (60 s)
  answers    a model's greedy answer, beside the CPU's; needs --model                        (60 s)
  torch      PyTorch's product of two matrices of 4096 by 4096, if python3 has PyTorch       (30 s)

  PLACE              firebrick-gpu.tar.xz, or the folder it unpacks to
  --device NAME      a device's name in `firebrick doctor`, such as cuda:0; may be repeated (default: every
                     listed device but the CPU)
  --limit SECONDS    the time that each part may take, in place of its own
  --total SECONDS    the time that all parts may take together (default: 480); parts without time are not begun
  --part NAME        only this part; may be repeated
  --model DIR        a model's folder, for the part answers
  SIZE               a size for the bench to run, such as 1m (default: qwen2.5-0.5b qwen2.5-1.5b)

The exit code is 0 if all passed, 1 if something failed (the report says what), and 2 if there is no report.
TEXT
}

fail() { echo "run.sh: $*" >&2; exit 2; }
say() { echo "run.sh: $*" >&2; }

# ---- the machine that builds ----------------------------------------------------------------

# Reads the program's path from what cargo prints about it.
executable() { sed -n "/\"kind\":\[\"bin\"\]/s/.*\"executable\":\"\([^\"]*\)\".*/\1/p"; }

# Prints the path of the toolkit's libdevice, where the program itself would look for it.
toolkit_libdevice() {
    local root
    for root in "${CUDA_PATH:-/usr/local/cuda}" /opt/cuda /usr/lib/cuda /usr; do
        [ ! -f "$root/nvvm/libdevice/libdevice.10.bc" ] || { echo "$root/nvvm/libdevice/libdevice.10.bc"; return; }
    done
}

pack() {
    local dir=$1 features=$2 libdevice=$3 top work folder program
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    for tool in cargo strip objdump xz; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
    [ -z "$libdevice" ] || [ -f "$libdevice" ] || fail "--libdevice: '$libdevice' is not a file"
    [ -n "$libdevice" ] || libdevice=$(toolkit_libdevice)
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    work=$(mktemp -d "$dir/.pack.XXXXXX")
    # shellcheck disable=SC2064 # $work is local: it has to be put in now
    trap "rm -rf '$work'" EXIT
    [ -z "$libdevice" ] || libdevice=$(realpath "$libdevice")

    # With zig the program runs on older systems than this one. The folder is its own, because cargo builds
    # everything anew for another linker.
    local own=${CARGO_TARGET_DIR:-$top/target}/gpu
    if "$top/tools/zig.sh" "$own/zig"; then
        export "CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_LINKER=$own/zig/cc-linux"
        export CARGO_TARGET_DIR=$own
    else
        say "no zig here: the program will need this machine's glibc"
    fi

    local cargo=(--release --locked --bin firebrick --features "$features" -p firebrick-cli)
    program=$(cd "$top" && cargo build "${cargo[@]}" --message-format json-render-diagnostics | executable)
    [ -x "$program" ] || fail "cargo does not say where it put the program"

    folder=$work/firebrick-gpu
    mkdir "$folder"
    strip -o "$folder/firebrick" "$program"
    cp "${BASH_SOURCE[0]}" "$folder/run.sh"
    chmod 755 "$folder"/*
    if [ -n "$libdevice" ]; then
        mkdir -p "$folder/cuda/nvvm/libdevice"
        cp "$libdevice" "$folder/cuda/nvvm/libdevice/libdevice.10.bc"
    elif [[ ,$features, == *,cuda,* ]]; then
        say "no libdevice.10.bc here and none packed: the other machine needs a CUDA toolkit"
    fi

    local commit glibc
    commit=$(git -C "$top" describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || echo unknown)
    glibc=$(objdump -T "$folder/firebrick" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    printf '{ "commit": "%s", "features": "%s", "rustc": "%s", "needs": "%s", "date": "%s" }\n' \
        "$commit" "$features" "$(rustc --version)" "$glibc" "$(date -u +%FT%TZ)" >"$folder/build.json"

    tar -C "$work" -c firebrick-gpu | xz -T0 >"$work/packed"
    mv "$work/packed" "$dir/firebrick-gpu.tar.xz"
    say "$(du -h "$dir/firebrick-gpu.tar.xz" | cut -f 1) in $dir/firebrick-gpu.tar.xz, to run with $glibc or newer"
}

# ---- JSON -----------------------------------------------------------------------------------

# Prints the standard input as a JSON string.
string() {
    printf '"%s"\n' "$(tr -d '\000-\010\013-\037\177' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | sed -e ':a' -e '$!{N;ba' -e '}' -e 's/\n/\\n/g')"
}

# Prints the object in file $1, or null if a program did not get to print a whole one.
object() {
    local text
    text=$(cat "$1")
    case $text in
        '{'*'}') echo "$text" ;;
        *) echo null ;;
    esac
}

# ---- the machine with the GPU ---------------------------------------------------------------

gpus() {
    local list
    list=$(command -v nvidia-smi >/dev/null && timeout 60 nvidia-smi \
        --query-gpu=name,driver_version,memory.total --format=csv,noheader) || list=
    local name driver memory separator=''
    echo -n '['
    while IFS=, read -r name driver memory; do
        [ -n "$name" ] || continue
        printf '%s{ "name": %s, "driver": %s, "memory": %s }' "$separator" "$(string <<<"$name")" \
            "$(string <<<"${driver# }")" "$(string <<<"${memory# }")"
        separator=', '
    done <<<"$list"
    echo ']'
}

# Runs a program for $1 seconds at most, or for `limit` if that is set. Leaves its standard output in $work/out
# and its standard error in $work/said, and sets `code`, `seconds` and `allowed`.
timed() {
    local began left=$((until - $(date +%s)))
    allowed=${limit:-$1}
    shift
    [ "$allowed" -le "$left" ] || allowed=$left
    if [ "$allowed" -lt 2 ]; then
        code=124 seconds=0.000 allowed=0
        : >"$work/out"
        : >"$work/said"
        return
    fi
    began=$(date +%s%3N)
    set +e
    { timeout --foreground -k 20 "$allowed" "$@" 2>&1 >&3 3>&- | tee "$work/said" >&2; } 3>"$work/out"
    code=${PIPESTATUS[0]}
    set -e
    local took=$(($(date +%s%3N) - began))
    seconds=$(printf '%d.%03d' $((took / 1000)) $((took % 1000)))
}

# Prints the report of what `timed` ran. $1 names its result, $2 is the result.
outcome() {
    local error=null
    [ "$code" = 0 ] || error=$(tail -n 20 "$work/said" | string)
    [ "$code" != 124 ] && [ "$code" != 137 ] || error="\"stopped at its limit of $allowed seconds\""
    printf '{ "exit": %d, "seconds": %s, "error": %s, "%s": %s }' "$code" "$seconds" "$error" "$1" "$2"
}

# Notes how a part ended, for the page of text.
ended() {
    [ "$code" = 0 ] || failed=1
    page+=$(printf '%-10s %-28s %-9s %8.1f s' "$device" "$1" "$([ "$code" = 0 ] && echo passed || echo "ended: $code")" "$seconds")$'\n'
}

wanted() {
    local one
    [ ${#chosen[@]} != 0 ] || return 0
    for one in "${chosen[@]}"; do [ "$one" != "$1" ] || return 0; done
    return 1
}

part_suite() {
    timed 120 "$folder/firebrick" doctor --suite --device "$device" --json
    result=$(outcome report "$(object "$work/out")")
    ended suite
}

# This is the smallest size there is. The wanted limits stand above its results.
part_limits() {
    timed 40 "$folder/firebrick" bench 1m --device "$device" --products --phases rollout --rows 1 --completion 1 --runs 1 --json
    result=$(outcome report "$(object "$work/out")")
    ended limits
}

# Prints the last value of the metric $1 in the lines of the standard input.
metric() { sed -n "s/.*\"${1//\//\\/}\": *\([-0-9.e]*\).*/\1/p" | tail -n 1; }

# Runs one size and one format at a time: if one of them is too large, the others lose nothing.
part_bench() {
    local size dtype all=''
    for size in "$@"; do
        for dtype in float32 $(narrowest); do
            say "$device: bench of $size in $dtype"
            timed 60 "$folder/firebrick" bench "$size" --device "$device" --dtype "$dtype" --phases rollout,update \
                --rows 64 --prompt 32 --completion 32 --runs 2 --json
            all+="${all:+, }$(outcome report "$(object "$work/out")")"
            ended "bench of $size, $dtype"
        done
    done
    result="[$all]"
}

# Prints the narrow format that a device has: bf16 before f16, by the listing of its doctor.
narrowest() {
    local formats
    formats=$("$folder/firebrick" doctor --device "$device" 2>/dev/null | sed -n 's/.*, computes f32//p' | head -n 1)
    case " $formats " in
        *" bf16 "*) echo bfloat16 ;;
        *" f16 "*) echo float16 ;;
    esac
}

# Trains the quickstart with a twentieth of its work, and reports its metrics step by step.
curve() {
    local device=$1
    rm -rf "$work/runs"
    timed 60 "$folder/firebrick" train quickstart --device "$device" --runs "$work/runs" --set name=curve \
        --set warmup.steps=60 --set warmup.every=30 --set warmup.stop_at=0.9 --set train.steps=4 \
        --set sampling.prompts_per_step=16 --set sampling.dynamic=off --set train.mini_batch=64 \
        --set eval.prompts=100 --set eval.every=4 --set checkpoint.every=4
    local metrics=$work/runs/curve/metrics.jsonl
    result=$(outcome metrics "[$(paste -sd, "$metrics" 2>/dev/null)]")
    ended train
    reached=$(metric eval/heldout_accuracy 2>/dev/null <"$metrics" || true)
}

# Accuracies of 100 sums have a standard error of 0.05 at most, and after a while both are drawn from other
# tokens.
part_train() {
    curve "$device"
    page+="           held-out accuracy ${reached:-unknown}, on the CPU ${cpu_reached:-unknown}"$'\n'
}

answers() {
    local device=$1
    timed 60 "$folder/firebrick" generate "$model" --device "$device" --prompt "What is 23 + 45?" --temperature 0 \
        --max-tokens 32 --json
    result=$(outcome said "$(object "$work/out")")
    ended answers
    reply=$(tr -d '\n' <"$work/out" | sed -n 's/.*"text": *"\(\([^"\\]\|\\.\)*\)".*/\1/p')
}

part_answers() {
    if [ -z "$model" ]; then
        result='"no --model"'
    else
        answers "$device"
        local like="another answer than the CPU's ($cpu_reply)"
        [ "$reply" != "$cpu_reply" ] || like="the CPU's answer"
        [ -n "$reply" ] || like="no answer"
        page+="           $like: $reply"$'\n'
    fi
}

part_torch() {
    local device=torch
    if ! command -v python3 >/dev/null || ! python3 -c 'import torch' 2>/dev/null; then
        result='"python3 has no torch here"'
        return
    fi
    timed 30 python3 - <<'PY'
import json, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
rates = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    x = torch.randn(4096, 4096, device=device, dtype=dtype)
    for _ in range(3):
        y = x @ x
    if device == "cuda":
        torch.cuda.synchronize()
    began, runs = time.time(), 20 if device == "cuda" else 2
    for _ in range(runs):
        y = x @ x
    if device == "cuda":
        torch.cuda.synchronize()
    rates[str(dtype)] = runs * 2 * 4096**3 / (time.time() - began)
print(json.dumps({"version": torch.__version__, "device": device, "flops": rates}))
PY
    result=$(outcome report "$(object "$work/out")")
    ended torch
}

# Prints the devices in doctor's listing $1 but the CPU. The lists of missing and of tested devices name devices
# too, so they are cut off.
usable() {
    tr -d '\n' <"$1" | sed -e 's/.*"devices": *\[//' -e 's/"missing": *\[.*//' -e 's/"reports": *\[.*//' |
        grep -o '"device": *"[^"]*"' | cut -d '"' -f 4 | grep -v '^cpu' || true
}

run() {
    local place=$1
    shift
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ -d "$place" ]; then
        folder=$(cd "$place" && pwd)
    elif [ -f "$place" ]; then
        command -v xz >/dev/null || fail "xz is missing; unpack $place elsewhere and give its folder"
        tar -C "$work" -xJf "$place" || fail "$place could not be unpacked"
        folder=$work/firebrick-gpu
    else
        fail "'$place' is neither a folder nor a file (see --help)"
    fi
    [ -x "$folder/firebrick" ] || fail "'$place' has no program 'firebrick' in it"
    [ $# != 0 ] || set -- qwen2.5-0.5b qwen2.5-1.5b

    # The program takes libdevice from $CUDA_PATH. A toolkit that a user points to goes first.
    local carried=$folder/cuda
    if [ -z "${CUDA_PATH-}" ] && [ -d "$carried" ]; then export CUDA_PATH=$carried; fi

    until=$(($(date +%s) + total))
    # This leaves any folder whose cubecl.toml or recipes could change what is measured.
    cd "$work"
    timed 60 "$folder/firebrick" doctor --json
    # Exit code 1 says that a device is broken, which the listing then tells.
    [ "$code" -le 1 ] || fail "firebrick doctor does not run here: $(tail -n 1 "$work/said")"
    local listing
    listing=$(object "$work/out")
    if [ ${#devices[@]} = 0 ]; then
        mapfile -t devices < <(usable "$work/out")
    fi
    [ ${#devices[@]} != 0 ] || fail "firebrick doctor lists no device but the CPU (is the driver there, and the feature built in?)"

    local failed=0 reports='' device cpu_curve=null cpu_answers=null reached='' reply='' cpu_reached='' cpu_reply=''
    local -A parts=()
    if wanted train; then
        curve cpu
        cpu_curve=$result cpu_reached=$reached
    fi
    if wanted answers && [ -n "$model" ]; then
        answers cpu
        cpu_answers=$result cpu_reply=$reply
    fi
    for part in suite limits bench train answers; do
        wanted "$part" || continue
        for device in "${devices[@]}"; do
            say "$device: $part"
            "part_$part" "$@"
            parts[$device]+="${parts[$device]:+,
}\"$part\": $result"
        done
    done
    for device in "${devices[@]}"; do
        reports+="${reports:+,
}{ \"device\": $(string <<<"$device")${parts[$device]:+,
}${parts[$device]-} }"
    done
    local torch=null
    if wanted torch; then part_torch; torch=$result; fi

    local build=null
    [ ! -f "$folder/build.json" ] || build=$(object "$folder/build.json")
    cat <<JSON
{
"date": "$(date -u +%FT%TZ)",
"host": {
  "cpu": $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1 | string),
  "cores": $(nproc),
  "kernel": $(uname -sr | string),
  "glibc": $({ getconf GNU_LIBC_VERSION || echo unknown; } | string),
  "cuda_path": $(string <<<"${CUDA_PATH-}"),
  "gpus": $(gpus)
},
"build": $build,
"program": $listing,
"cpu": { "train": $cpu_curve, "answers": $cpu_answers },
"torch": $torch,
"devices": [$reports
]
}
JSON
    say "what was run:"
    printf '%s' "$page" >&2
    return "$failed"
}

# ---- what is asked --------------------------------------------------------------------------

dir='' features=cuda,vulkan libdevice='' limit='' total=480 until=0 model='' page='' chosen=() devices=() words=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --pack | --features | --libdevice | --limit | --total | --device | --part | --model)
            [ -n "${2-}" ] || fail "$1 needs a value"
            case $1 in
                --pack) dir=$2 ;;
                --features) features=$2 ;;
                --libdevice) libdevice=$2 ;;
                --limit) limit=$2 ;;
                --total) total=$2 ;;
                --device) devices+=("$2") ;;
                --part) chosen+=("$2") ;;
                --model) model=$(realpath "$2") ;;
            esac
            shift 2
            ;;
        -*) fail "unknown argument '$1' (see --help)" ;;
        *) words+=("$1"); shift ;;
    esac
done
[[ $limit =~ ^([1-9][0-9]*)?$ ]] || fail "--limit: '$limit' is not a number of seconds"
[[ $total =~ ^[1-9][0-9]*$ ]] || fail "--total: '$total' is not a number of seconds"

if [ -n "$dir" ]; then
    [ ${#words[@]} = 0 ] || fail "--pack DIR takes no '${words[0]}'"
    pack "$dir" "$features" "$libdevice"
else
    [ ${#words[@]} != 0 ] || fail "expected a PLACE to run, or --pack DIR (see --help)"
    run "${words[@]}"
fi
