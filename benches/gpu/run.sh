#!/usr/bin/env bash
# Measures firebrick on a machine with a GPU that has neither cargo nor a network: built and packed on
# one machine, run on another. `benches/gpu/run.sh --help` says how.
#
# It is bash, sed and coreutils alone. A container for GPUs often has no python3 and no jq, and neither is
# missed: what the programs print is JSON already, so the report is mostly their words, put together.
set -euo pipefail
# Mesa's layer that asks a desktop for its preferred device would fill the reports with complaints.
export LC_ALL=C NODEVICE_SELECT=1

usage() {
    cat <<'TEXT'
usage: benches/gpu/run.sh --pack DIR [--features LIST] [--libdevice FILE]
       firebrick-gpu/run.sh PLACE [--device NAME]... [--limit SECONDS] [SIZE...]

The first, on the machine that builds: writes DIR/firebrick-gpu.tar.xz with the program and this script.

  --features LIST    the devices built in (default: cuda,vulkan)
  --libdevice FILE   NVIDIA's libdevice.10.bc, to be packed for machines without a CUDA toolkit. Without
                     this option the file of this machine's toolkit is packed if it has one

The second, on the machine with the GPU: runs the suite of `firebrick doctor` and `firebrick bench` on
each device, and prints one JSON object. What the programs say meanwhile goes to standard error.

  PLACE              firebrick-gpu.tar.xz, or the folder it unpacks to
  --device NAME      as `firebrick doctor` names it, such as cuda:0; may be repeated (default: every
                     device it lists but the CPU)
  --limit SECONDS    how long the suite, and then each size of the bench, may take on a device (default: 1800)
  SIZE               the sizes the bench is to run, such as 1m (default: 1m 10m 50m smollm2-135m)

It ends with 0 if all passed, with 1 if something failed, which the report then tells, and with 2 if
there is no report.
TEXT
}

fail() { echo "run.sh: $*" >&2; exit 2; }
say() { echo "run.sh: $*" >&2; }

# ---- the machine that builds ----------------------------------------------------------------

# What cargo prints about the program that it made, down to its path.
executable() { sed -n "/\"kind\":\[\"bin\"\]/s/.*\"executable\":\"\([^\"]*\)\".*/\1/p"; }

# The toolkit's libdevice, where the program itself would look for it.
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
        command -v "$tool" >/dev/null || fail "$tool is not there"
    done
    [ -z "$libdevice" ] || [ -f "$libdevice" ] || fail "--libdevice: '$libdevice' is not a file"
    [ -n "$libdevice" ] || libdevice=$(toolkit_libdevice)
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    work=$(mktemp -d "$dir/.pack.XXXXXX")
    # shellcheck disable=SC2064 # $work is local: it has to be put in now
    trap "rm -rf '$work'" EXIT
    [ -z "$libdevice" ] || libdevice=$(realpath "$libdevice")

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

# Standard input as a string.
string() {
    printf '"%s"\n' "$(tr -d '\000-\010\013-\037\177' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | sed -e ':a' -e '$!{N;ba' -e '}' -e 's/\n/\\n/g')"
}

# The object in file $1, or null where a program did not get to print a whole one.
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

# Runs a program for `limit` seconds at most; leaves what it prints in $work/out and the last it said
# in $work/said, and sets `code` and `seconds`.
timed() {
    local began
    began=$(date +%s%3N)
    set +e
    { timeout --foreground -k 20 "$limit" "$@" 2>&1 >&3 3>&- | tee "$work/said" >&2; } 3>"$work/out"
    code=${PIPESTATUS[0]}
    set -e
    local took=$(($(date +%s%3N) - began))
    seconds=$(printf '%d.%03d' $((took / 1000)) $((took % 1000)))
}

# The report of what `timed` ran: $1 names its result, $2 is the result.
outcome() {
    local error=null
    [ "$code" = 0 ] || error=$(tail -n 20 "$work/said" | string)
    [ "$code" != 124 ] && [ "$code" != 137 ] || error="\"ended after $limit seconds\""
    printf '{ "exit": %d, "seconds": %s, "error": %s, "%s": %s }' "$code" "$seconds" "$error" "$1" "$2"
}

# The devices in doctor's listing $1 but the CPU. What is missing and what was tested name devices too,
# in lists of their own, which are cut off.
usable() {
    tr -d '\n' <"$1" | sed -e 's/.*"devices": *\[//' -e 's/"missing": *\[.*//' -e 's/"reports": *\[.*//' |
        grep -o '"device": *"[^"]*"' | cut -d '"' -f 4 | grep -v '^cpu' || true
}

run() {
    local place=$1 folder
    shift
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ -d "$place" ]; then
        folder=$(cd "$place" && pwd)
    elif [ -f "$place" ]; then
        command -v xz >/dev/null || fail "xz is not there; unpack $place elsewhere and give the folder"
        tar -C "$work" -xJf "$place" || fail "$place could not be unpacked"
        folder=$work/firebrick-gpu
    else
        fail "'$place' is neither a folder nor a file (see --help)"
    fi
    [ -x "$folder/firebrick" ] || fail "'$place' has no program 'firebrick' in it"
    [ $# != 0 ] || set -- 1m 10m 50m smollm2-135m

    # The program takes libdevice from $CUDA_PATH, and the toolkit a user points to goes first.
    local carried=$folder/cuda
    if [ -z "${CUDA_PATH-}" ] && [ -d "$carried" ]; then export CUDA_PATH=$carried; fi

    # Outside any folder whose cubecl.toml or recipes could change what is measured.
    cd "$work"
    timed "$folder/firebrick" doctor --json
    # 1 says that a device is broken, which the listing then tells.
    [ "$code" -le 1 ] || fail "firebrick doctor does not run here: $(tail -n 1 "$work/said")"
    local listing
    listing=$(object "$work/out")
    if [ ${#devices[@]} = 0 ]; then
        mapfile -t devices < <(usable "$work/out")
    fi
    [ ${#devices[@]} != 0 ] || fail "firebrick doctor lists no device but the CPU (is the driver there, and the feature built in?)"

    local failed=0 reports='' device suite size bench
    for device in "${devices[@]}"; do
        say "$device: suite"
        timed "$folder/firebrick" doctor --suite --device "$device" --json
        [ "$code" = 0 ] || failed=1
        suite=$(outcome report "$(object "$work/out")")
        say "$device: suite ended with $code after $seconds s"
        bench=''
        # One size at a time: what one of them is too large for costs the others nothing.
        for size in "$@"; do
            say "$device: bench of $size"
            timed "$folder/firebrick" bench "$size" --device "$device" --json
            [ "$code" = 0 ] || failed=1
            bench+="${bench:+, }$(outcome report "$(object "$work/out")")"
            say "$device: bench of $size ended with $code after $seconds s"
        done
        reports+="${reports:+,}
{ \"device\": $(string <<<"$device"), \"suite\": $suite, \"bench\": [$bench] }"
    done

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
"devices": [$reports
]
}
JSON
    return "$failed"
}

# ---- what is asked --------------------------------------------------------------------------

dir='' features=cuda,vulkan libdevice='' limit=1800 devices=() words=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --pack | --features | --libdevice | --limit | --device)
            [ -n "${2-}" ] || fail "$1 needs a value"
            case $1 in
                --pack) dir=$2 ;;
                --features) features=$2 ;;
                --libdevice) libdevice=$2 ;;
                --limit) limit=$2 ;;
                --device) devices+=("$2") ;;
            esac
            shift 2
            ;;
        -*) fail "unknown argument '$1' (see --help)" ;;
        *) words+=("$1"); shift ;;
    esac
done
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "--limit: '$limit' is not a number of seconds"

if [ -n "$dir" ]; then
    [ ${#words[@]} = 0 ] || fail "--pack DIR takes no '${words[0]}'"
    pack "$dir" "$features" "$libdevice"
else
    [ ${#words[@]} != 0 ] || fail "what is to be run? (see --help)"
    run "${words[@]}"
fi
