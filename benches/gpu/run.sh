#!/usr/bin/env bash
# Measures firebrick on a machine with a GPU that has neither cargo nor a network. `benches/gpu/pack.sh` builds and
# packs the program elsewhere. `benches/gpu/run.sh --help` says how to run it.
#
# The script needs bash, sed and coreutils alone. A container for GPUs often has no python3 and no jq, and
# neither is missed: the programs print JSON already, so the report is mostly their words, line by line.
#
# Nobody knows beforehand how a card fails. So whatever is known is in a file at once, and a part that hangs,
# crashes or takes the whole machine with it costs its own rest and nothing else.
set -euo pipefail
# Mesa's layer that asks a desktop for its preferred device would fill the reports with complaints.
export LC_ALL=C NODEVICE_SELECT=1

usage() {
    cat <<'TEXT'
usage: run.sh PLACE [--out DIR] [--done FILE]... [--total SECONDS] [--limit SECONDS] [--device NAME]...
              [--part NAME]... [--beside N] [--cache DIR] [--phases LIST] [--model DIR] [SIZE...]

Measures the GPUs of this machine with the program in PLACE, which benches/gpu/pack.sh made. Does the parts below and
appends what it finds to DIR/lines.jsonl, a JSON object a line, at once. What programs write to standard error is in
DIR/said.txt, the first 5,000 lines of each part. Asked again with the same DIR, it goes on after the parts that are
done. Each part has its own time, and a part that fails does not stop the others.

  smoke                       does the device compute at all?                                  (60 s)
  operations, attention, head, model, tensors, products, training, sampling, defects
                              the suite, group by group, against the CPU; several at once      (120 to 300 s)
  again:NAME                  a case that broke, alone, waiting for every launch               (40 s)
                              (a part below that failed too, within its own time)
  curve                       the quickstart, shortened, and its curve, beside the CPU's       (180 s)
  limits                      a launch, a copy, and a product of f32                           (60 s)
  bench:SIZE                  a rollout and updates of each SIZE, in the narrowest format
                              that the device computes, with the time of each kernel           (240 s)
  answers                     a model's greedy answer, beside the CPU's; needs --model         (60 s)
  memcheck, racecheck         compute-sanitizer on the operations, where it is installed       (150 s)
  ncu                         Nsight Compute's numbers of each kernel, where it is installed   (120 s)
  ways                        the first SIZE's products, in each way that the device knows     (240 s)
  torch                       PyTorch's product of two matrices, if python3 has PyTorch        (60 s)

The first device does all of this, and then the next device; torch comes last, once.

  PLACE              firebrick-gpu.tar.xz, or the folder it unpacks to
  --out DIR          the folder of the report (default: $OUT, or ./firebrick-gpu-out)
  --done FILE        the lines.jsonl of another folder; parts that are done there are not done again
  --total SECONDS    the time that this command may take (default: 590); parts without time are not begun
  --limit SECONDS    the time that each part may take, in place of its own
  --device NAME      a device's name in `firebrick doctor`, such as cuda:0; may be repeated (default: every GPU,
                     CUDA first; without a GPU, software devices)
  --part NAME        only this part, such as operations or bench; may be repeated
  --beside N         the number of groups of the suite that run at once (default: by the cores)
  --cache DIR        a folder for compiled kernels and the unpacked program (default: a folder in $TMPDIR or /tmp)
  --phases LIST      the phases of the bench (default: rollout@256x256+256,update@16x512+512,update@1x8192+8192)
  --model DIR        a model's folder, for the part answers
  SIZE               a size for the bench to run, such as 1m (default: qwen2.5-0.5b)

The exit code is 0 if all passed, 1 if something failed or had no time (the report says what), and 2 if nothing
could be run.
TEXT
}

fail() { echo "run.sh: $*" >&2; exit 2; }
say() { echo "run.sh: $*" >&2; }

# ---- lines ----------------------------------------------------------------------------------

# Appends $1 to the report in one write, so that parts may append side by side, and a script that is killed leaves
# whole lines.
put() {
    if [ ${#1} -lt 4000 ]; then
        printf '%s\n' "$1" >>"$lines"
    else # bash would write a long line in pieces
        printf '%s\n' "$1" | dd bs=1M iflag=fullblock status=none >>"$lines"
    fi
}

# Prints the standard input as a JSON string. It is ASCII: what a driver says may be in any encoding.
string() {
    printf '"%s"' "$(tr -d '\000-\010\013-\037\177-\377' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' | sed -e ':a' -e '$!{N;ba' -e '}' -e 's/\n/\\n/g')"
}

# Prints the object in file $1 in one line, or null if a program did not get to print a whole one.
object() {
    local text
    text=$(tr '\n' ' ' <"$1")
    case $text in
        '{'*'} ' | '{'*'}') printf '%s' "${text% }" ;;
        *) echo null ;;
    esac
}

# Appends the lines of a program to the report. An object gets the names of the part $1 and of the device $2, the
# build and the second. Any other text, such as a line that a killed program left half written, becomes a string.
tag() {
    local text whole head device="\"device\":\"$2\"," texts=0
    while whole=1; IFS= read -r text || { whole=''; [ -n "$text" ]; }; do
        head="{\"part\":\"$1\",\"build\":\"$build\",\"at\":$SECONDS,"
        case $whole$text in
            '1{"'*'"device":'*'}') put "$head${text#\{}" ;;
            '1{"'*'}') put "$head$device${text#\{}" ;;
            *)
                texts=$((texts + 1))
                [ "$texts" -gt 2000 ] || put "$head$device\"event\":\"text\",\"text\":$(string <<<"$text")}"
                ;;
        esac
    done
}

# Removes the line that a killed script left half written.
mend() {
    if [ -s "$lines" ] && [ -n "$(tail -c 1 "$lines")" ]; then
        sed '$d' "$lines" >"$lines.mended"
        mv "$lines.mended" "$lines"
    fi
}

# Prints the lines of the reports that have the text $1, those of other folders first: the last line is the newest.
having() { sed -n "\\#$1#p" ${earlier[@]+"${earlier[@]}"} "$lines"; }

# Prints the lines of this program's part $1 that have the text $2.
said() { having "^{\"part\":\"$1\",\"build\":\"$build\".*$2"; }

# Prints the number of lines of the reports that have the text $1.
count() { having "$1" | wc -l; }

# ---- the machine with the GPU ---------------------------------------------------------------

gpus() {
    local list
    list=$(command -v nvidia-smi >/dev/null && timeout 30 nvidia-smi \
        --query-gpu=name,driver_version,memory.total --format=csv,noheader) || list=
    local name driver memory separator=''
    printf '['
    while IFS=, read -r name driver memory; do
        [ -n "$name" ] || continue
        printf '%s{"name":%s,"driver":%s,"memory":%s}' "$separator" "$(string <<<"$name")" \
            "$(string <<<"${driver# }")" "$(string <<<"${memory# }")"
        separator=','
    done <<<"$list"
    printf ']'
}

# Says on what machine and with what program all that follows was found.
machine() {
    local about=null
    [ ! -f "$folder/build.json" ] || about=$(object "$folder/build.json")
    put "{\"event\":\"machine\",\"date\":\"$(date -u +%FT%TZ)\",\"total\":$total,\"build\":\"$build\",\"built\":$about,\
\"host\":{\"cpu\":$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1 | string),\
\"cores\":$cores,\"beside\":$beside,\"kernel\":$(uname -sr | string),\
\"glibc\":$({ getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown; } | string),\
\"cuda_path\":$(string <<<"${CUDA_PATH-}"),\"vulkan\":$(string <<<"${vulkan[*]-}"),\"gpus\":$(gpus)}}"
}

# Unpacks $1, or takes the folder it is, and sets `folder`.
place() {
    if [ -d "$1" ]; then
        folder=$(cd "$1" && pwd)
    elif [ -f "$1" ]; then
        local sum
        sum=$(cksum <"$1")
        folder=$cache/firebrick-gpu
        # The second command on a machine need not unpack again.
        if [ "$(cat "$cache/unpacked" 2>/dev/null)" != "$sum" ]; then
            rm -rf "$cache/unpacked" "$folder" # in this order: half a folder must not pass for a whole one
            unpacked "$1" | tar -C "$cache" -x || fail "$1 could not be unpacked; unpack it elsewhere and give its folder"
            printf '%s\n' "$sum" >"$cache/unpacked"
        fi
    else
        fail "'$1' is neither a folder nor a file (see --help)"
    fi
    [ -x "$folder/firebrick" ] || fail "'$1' has no program 'firebrick' in it"
}

unpacked() {
    if command -v xz >/dev/null; then
        xz -dc "$1"
    elif command -v python3 >/dev/null; then
        python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"
    else
        say "neither xz nor python3 is here"
        return 1
    fi
}

# Chooses the places of drivers and caches.
surroundings() {
    # Drivers keep what they compiled here, so that a second process need not compile it again.
    mkdir -p "$cache/cuda" "$cache/nvidia" "$cache/mesa"
    export CUDA_CACHE_PATH=$cache/cuda CUDA_CACHE_MAXSIZE=4294967296
    export __GL_SHADER_DISK_CACHE_PATH=$cache/nvidia MESA_SHADER_CACHE_DIR=$cache/mesa XDG_CACHE_HOME=$cache
    unset CUDA_CACHE_DISABLE
    [ -w "${HOME:-/nowhere}" ] || export HOME=$cache

    # The program takes libdevice from $CUDA_PATH, if that is set, and from nowhere else. Images set it to toolkits
    # without libdevice.
    local inside=nvvm/libdevice/libdevice.10.bc
    if [ ! -f "${CUDA_PATH:-/nowhere}/$inside" ]; then
        unset CUDA_PATH
        [ ! -f "$folder/cuda/$inside" ] || export CUDA_PATH=$folder/cuda
    fi

    # The driver's own libraries, where a container mounts them without telling the linker.
    local known nvidia=/usr/local/nvidia/lib64
    known=$({ ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null || true)
    if [[ $known != *libcuda.so.1* ]] && [ -e $nvidia/libcuda.so.1 ]; then
        export LD_LIBRARY_PATH=$nvidia${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi

    # Only Vulkan's parts get its packed loader and the places of its drivers. The loader looks for drivers in the
    # last two places by itself, so they are named only beside the first.
    local libraries='' drivers file
    [[ $known == *libvulkan.so.1* && $known == *libGLdispatch.so.0* ]] || [ ! -d "$folder/vulkan" ] ||
        libraries=$folder/vulkan
    [ ! -d $nvidia ] || libraries+=${libraries:+:}$nvidia
    libraries+=${LD_LIBRARY_PATH:+${libraries:+:}$LD_LIBRARY_PATH}
    [ -z "$libraries" ] || vulkan+=("LD_LIBRARY_PATH=$libraries")
    drivers=''
    for file in /usr/local/nvidia/share/vulkan/icd.d/*.json; do
        [ -f "$file" ] || continue
        # The library that NVIDIA's file names serves nobody without a screen. Beside it lies the same driver for all.
        if [ -e $nvidia/libEGL_nvidia.so.0 ]; then
            sed "s|libGLX_nvidia|$nvidia/libEGL_nvidia|" "$file" >"$work/${file##*/}"
            file=$work/${file##*/}
        fi
        drivers+=${drivers:+:}$file
    done
    if [ -n "$drivers" ] && [ -z "${VK_DRIVER_FILES-}${VK_ICD_FILENAMES-}" ]; then
        for file in /etc/vulkan/icd.d/*.json /usr/share/vulkan/icd.d/*.json; do
            # A second file of the same name is the same driver.
            [ ! -f "$file" ] || [[ $drivers == *"/${file##*/}"* ]] || drivers+=:$file
        done
        vulkan+=("VK_DRIVER_FILES=$drivers" "VK_ICD_FILENAMES=$drivers")
    fi
}

# Finds the devices to measure, and writes doctor's listing to the report. Sets `devices` and `listed`, the
# description of each.
find_devices() {
    local found kind name
    env ${vulkan[@]+"${vulkan[@]}"} timeout -k 5 60 "$firebrick" doctor --json >"$work/found" 2>"$work/asked" </dev/null || true
    found=$(object "$work/found")
    if [ "$found" = null ]; then
        # One kind's driver may take the program down. The others are asked alone.
        found=''
        for kind in cuda rocm metal vulkan wgpu; do
            env ${vulkan[@]+"${vulkan[@]}"} timeout -k 5 30 "$firebrick" doctor --json --device "$kind:0" \
                >"$work/found" 2>>"$work/asked" </dev/null || true
            name=$(object "$work/found")
            [ "$name" = null ] || found+=${found:+,}$name
        done
        found="[$found]"
    fi
    put "{\"event\":\"devices\",\"found\":$found,\"said\":$(tail -n 20 "$work/asked" | string)}"
    local chunk software=()
    # The lists of missing devices name devices too, but do not say of them whether they are software.
    while IFS= read -r chunk; do
        [[ $chunk =~ ^\"device\":\ *\"([a-z]+:[0-9]+)\" && $chunk == *'"software"'* ]] || continue
        name=${BASH_REMATCH[1]}
        listed[$name]=$chunk
        if [[ $chunk =~ \"software\":\ *true ]]; then software+=("$name"); else cards+=("$name"); fi
    done < <(sed -e 's/"device": *"/\n&/g' <<<"$found")
    if [ ${#devices[@]} = 0 ]; then
        [ ${#cards[@]} != 0 ] || cards=(${software[@]+"${software[@]}"})
        for kind in cuda rocm metal vulkan wgpu; do
            for name in ${cards[@]+"${cards[@]}"}; do [[ $name != $kind:* ]] || devices+=("$name"); done
        done
    fi
    [ ${#devices[@]} != 0 ] || fail "firebrick doctor lists no device but the CPU (is the driver there, and the feature built in?): $(tail -n 3 "$work/asked")"
}

# Prints the narrow format that the device $1 computes in: bf16 before f16.
narrowest() {
    case ${listed[$1]-} in
        *'"bf16"'*) echo bfloat16 ;;
        *'"f16"'*) echo float16 ;;
        *) echo float32 ;;
    esac
}

# ---- parts ----------------------------------------------------------------------------------

wanted() {
    local one
    [ ${#chosen[@]} != 0 ] || return 0
    for one in "${chosen[@]}"; do [ "$one" != "$1" ] && [ "$one" != "${1%%:*}" ] || return 0; done
    return 1
}

# The beginning of the line that the part $1 of the device $2 has at its beginning or end, $3.
mark() { printf '{"event":"part_%s","part":"%s","device":"%s","build":"%s",' "$3" "$1" "$2" "$build"; }

# A part is done if it ended by itself, or had all the time $3 that it may have now. A part that twice began and never
# ended took the machine with it, and would do so again.
is_done() {
    local ends last
    ends=$(mark "$1" "$2" end)
    last=$(having "^$ends.*\"whole\":true" | tail -n 1)
    if [ -n "$last" ] && ! { [[ $last =~ \"exit\":124,.*\"limit\":([0-9]+) ]] && [ "${BASH_REMATCH[1]}" -lt "$3" ]; }; then
        say "$2: $1 is done"
        return 0
    fi
    [ "$(($(count "^$(mark "$1" "$2" begin)") - $(count "^$ends")))" -ge 2 ] || return 1
    skip "$1" "$2" "it began twice and never ended"
}

skip() {
    put "$(mark "$1" "$2" skip)\"reason\":$(string <<<"$3"),\"at\":$SECONDS}"
    skipped=$((skipped + 1))
}

# Begins the part $1 on the device $2, which may take $3 seconds. The rest is the command. The part continues in the
# background.
begin() {
    local part=$1 device=$2 limit=${limit:-$3} allowed=$((total - SECONDS - 8))
    shift 3
    wanted "$part" || return 0
    ! is_done "$part" "$device" "$limit" || return 0
    # A quarter of its time is mostly enough: on an H200 the bench took that much.
    if [ "$allowed" -lt $((limit / 4)) ] || [ "$allowed" -lt 1 ]; then
        skip "$part" "$device" "no time is left for it: $((allowed > 0 ? allowed : 0)) of $limit seconds"
        return 0
    fi
    [ "$allowed" -le "$limit" ] || allowed=$limit
    say "$device: $part"
    job "$part" "$device" "$limit" "$allowed" "$@" &
}

# Prints a command, without the paths that the line `machine` has, and without those of this machine's user.
shown() {
    local word words=()
    for word; do
        [ -z "$model" ] || [ "$word" != "$model" ] || word=MODEL
        word=${word#"$work/"}
        case $word in LD_LIBRARY_PATH=* | VK_*) ;; *) words+=("${word#"$folder/"}") ;; esac
    done
    printf '%s\n' "${words[*]}"
}

# Runs a part to its end. Its words go to the report and to said.txt as they come.
job() {
    set +e
    local part=$1 device=$2 limit=$3 allowed=$4 began took code error=null whole=true
    shift 4
    local own=$work/${part//[^a-z0-9.]/_}.${device//[^a-z0-9]/_}
    put "$(mark "$part" "$device" begin)\"limit\":$allowed,\"at\":$SECONDS,\"command\":$(shown "$@" | string)}"
    # A part that takes the machine with it is known by this line.
    sync -d "$lines" 2>/dev/null || true
    began=$(date +%s%3N)
    {
        {
            timeout -k 5 "$allowed" "$@" </dev/null 2>&3 3>&- &
            echo $! >"$own.pid"
            wait $! 2>/dev/null # bash would tell of a crash by itself
            echo $? >"$own.code"
        } | tag "$part" "$device" 3>&-
    } 3>&1 | sed -u "s|^|$device $part: |" | tee "$own.said" | sed -u -n '1,5000p' >>"$out/said.txt"
    code=$(cat "$own.code" 2>/dev/null || echo 137)
    rm -f "$own.pid"
    took=$(($(date +%s%3N) - began))
    if [ "$code" != 0 ]; then
        # A panic says what happened first, and then where.
        error=$({ head -n 12 "$own.said"; tail -n +13 "$own.said" | tail -n 20; } | sed "s|^$device $part: ||")
        if [ "$code" = 124 ] || { [ "$code" = 137 ] && [ $((took / 1000)) -ge "$allowed" ]; }; then
            error="stopped at its limit of $allowed seconds"$'\n'$error
            [ "$allowed" = "$limit" ] || whole=false
        else
            # A driver of NVIDIA notes a card's faults in the kernel's log, if this user may read it.
            error+=$(dmesg 2>/dev/null | sed -n '/Xid/s/^/\n/p' | tail -n 4)
        fi
        [ ! -e "$work/stopped" ] || whole=false
        error=$(string <<<"$error")
    fi
    put "$(mark "$part" "$device" end)\"whole\":$whole,\"exit\":$code,\"seconds\":$(printf '%d.%03d' $((took / 1000)) $((took % 1000))),\
\"limit\":$allowed,\"at\":$SECONDS,\"error\":$error}"
    sync -d "$lines" 2>/dev/null || true
}

# Waits until less than $1 parts run. A process that can't even be killed is left behind.
until_less_than() {
    while [ "$(jobs -rp | wc -l)" -ge "$1" ]; do
        if [ "$SECONDS" -ge "$total" ]; then
            stop KILL
            return
        fi
        sleep 0.1
    done
}

# Sends a signal to every program that runs, each with its children.
stop() {
    local file
    : >"$work/stopped"
    for file in "$work"/*.pid; do
        [ ! -f "$file" ] || kill "-$1" -- "-$(cat "$file")" 2>/dev/null || true
    done
}

# Ends what runs, and lets each part say so.
leave() {
    stop KILL
    local waited
    for waited in 1 2 3 4 5 6 7 8 9 10; do
        [ -n "$(jobs -rp)" ] || break
        sleep "0.$waited"
    done
    rm -rf "$work"
}

# Runs a part while no other one runs.
alone() {
    until_less_than 1
    with "$((cores > 3 ? cores - 2 : 1))" "$2"
    begin "$1" "$2" "$3" "${setting[@]}" "${@:4}"
    until_less_than 1
}

# Runs a part alongside others. Most of its time is compiling, on one thread.
beside() {
    until_less_than "$beside"
    with "$((cores > 2 * beside + 2 ? (cores - 2) / beside : 1))" "$2"
    begin "$1" "$2" "$3" "${setting[@]}" "${@:4}"
}

# Sets `setting`: $1 threads for what the CPU computes, and what the device $2 needs. Two cores are left to the
# thread that launches and to the one that drives the device. If they have to wait for a core, a launch takes many
# times as long. For that reason nothing here is `nice`, either.
with() {
    setting=(env "RAYON_NUM_THREADS=$1")
    case $2 in vulkan* | wgpu*) setting+=(${vulkan[@]+"${vulkan[@]}"}) ;; esac
}

# The groups of the suite, by what they tell.
groups=(operations attention head model tensors products training sampling defects)

suite() {
    local device=$1 group seconds
    for group in "${groups[@]}"; do
        case $group in products) seconds=300 ;; sampling) seconds=120 ;; *) seconds=240 ;; esac
        beside "$group" "$device" "$seconds" "$firebrick" doctor --suite --cases "$group/" --device "$device" --json
    done
    until_less_than 1
}

# Prints the names of the cases of the part $1 on the device $2 that broke or were not reached.
unsettled() {
    local listed settled case
    listed=$(said "$1" "\"event\":\"device\",\"device\":\"$2\"" | tail -n 1 |
        sed -n 's/.*"cases":\["\([^]]*\)"\].*/\1/p' | sed 's/","/\n/g')
    settled=$(said "$1" "\"event\":\"case\",\"device\":\"$2\"" | sed -n \
        '/"outcome":"broken"/!s/.*"name":"\([^"]*\)","precision":"\([^"]*\)".*/\1 \2/p')
    while IFS= read -r case; do
        [ -z "$case" ] || [[ $'\n'$settled$'\n' == *$'\n'"$case"$'\n'* ]] || printf '%s\n' "${case% *}"
    done <<<"$listed" | uniq
}

# Prints the exit code with which the part $1 of the device $2 ended; nothing if it did not.
ending() { having "^$(mark "$1" "$2" end)" | tail -n 1 | sed 's/.*"exit":\([0-9]*\),.*/\1/'; }

# A fault of the device poisons all that follows in its process, and shows later than the launch that caused it. So
# each case that a fault may have cost is tried once more, in a process that waits for every launch. So is each case
# behind one that hung.
again() {
    local device=$1 group case tries=0
    for group in "${groups[@]}"; do
        case $(ending "$group" "$device") in
            '' | 0 | 2) continue ;;
            1) [ -n "$(said "$group" "\"device\":\"$device\".*\"outcome\":\"broken\"")" ] || continue ;;
        esac
        while IFS= read -r case; do
            [ -n "$case" ] && [ "$tries" -lt 12 ] || continue
            tries=$((tries + 1))
            beside "again:$case" "$device" 40 env CUDA_LAUNCH_BLOCKING=1 RUST_BACKTRACE=1 \
                "$firebrick" doctor --suite --cases "$case" --device "$device" --json
        done < <(unsettled "$group" "$device")
    done
    until_less_than 1
}

# Runs a part alone, and if it fails once more, waiting for every launch: that names the launch at fault.
tried() {
    alone "$@"
    case $(ending "$1" "$2") in '' | 0 | 2 | 124) return ;; esac
    rm -rf "$work"/runs-*
    alone "again:$1" "$2" "$3" env CUDA_LAUNCH_BLOCKING=1 RUST_BACKTRACE=1 "${@:4}"
}

# Trains the quickstart with a twentieth of its work.
train=(train quickstart --json --set name=curve --set sft.steps=60 --set sft.every=30 --set sft.stop_at=0.9
    --set train.steps=4 --set sampling.prompts_per_step=16 --set sampling.dynamic=off --set train.mini_batch=64
    --set eval.prompts=100 --set eval.every=4 --set checkpoint.every=4)

answer=("What is 23 + 45?" --temperature 0 --max-tokens 32 --json)

# Prints the path of the tool $1 of CUDA's toolkit; nothing if it is not here.
tool() {
    local file
    command -v "$1" && return
    for file in /usr/local/cuda/bin/"$1" /usr/local/cuda*/bin/"$1" /opt/nvidia/nsight-compute/*/"$1"; do
        [ ! -x "$file" ] || { printf '%s\n' "$file"; return; }
    done
}

# Runs NVIDIA's own tools on our kernels.
inspected() {
    local device=$1 check=() profile
    mapfile -t check < <(tool compute-sanitizer)
    if [ ${#check[@]} != 0 ]; then
        check+=(--print-limit 50 --error-exitcode 9 --tool)
        local suite=("$firebrick" doctor --suite --cases operations/ --device "$device" --json)
        beside memcheck "$device" 150 "${check[@]}" memcheck "${suite[@]}"
        beside racecheck "$device" 150 "${check[@]}" racecheck "${suite[@]}"
        until_less_than 1
    fi
    profile=$(tool ncu)
    [ -n "$profile" ] || return 0
    local metrics=gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed
    metrics+=,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active
    metrics+=,launch__registers_per_thread,launch__grid_size,launch__block_size,launch__shared_mem_per_block_static
    # The third launch of each kernel stands for all of them.
    alone ncu "$device" 120 "$profile" --csv --page raw --kernel-id :::3 --metrics "$metrics" "$firebrick" bench \
        "${sizes[0]}" --device "$device" --dtype "$(narrowest "$device")" --runs 1 \
        --phases rollout@256x64+8,update@4x512+512 --json
}

# All parts of a device.
measure() {
    local device=$1 size
    alone smoke "$device" 60 "$firebrick" doctor --smoke --device "$device" --json
    suite "$device"
    again "$device"
    tried curve "$device" 180 "$firebrick" "${train[@]}" --device "$device" --runs "$work/runs-${device//:/-}"
    tried limits "$device" 60 "$firebrick" bench 1m --device "$device" --phases rollout@1x1+1 --runs 1 --json
    for size in "${sizes[@]}"; do
        tried "bench:$size" "$device" 240 "$firebrick" bench "$size" --device "$device" \
            --dtype "$(narrowest "$device")" --phases "$phases" --runs 2 --json
    done
    [ -z "$model" ] || tried answers "$device" 60 "$firebrick" generate "$model" "${answer[@]}" --device "$device"
    case $device in cuda:*) inspected "$device" ;; esac
    alone ways "$device" 240 "$firebrick" bench "${sizes[0]}" --device "$device" --dtype "$(narrowest "$device")" \
        --products --phases rollout@1x1+1 --runs 1 --json
}

# The CPU's side of what has no reference of its own. The first device's suite continues beside it.
reference() {
    beside curve cpu 120 "$firebrick" "${train[@]}" --device cpu --runs "$work/runs-cpu"
    [ -z "$model" ] || beside answers cpu 60 "$firebrick" generate "$model" "${answer[@]}" --device cpu
}

peer() {
    command -v python3 >/dev/null && python3 -c 'import torch' 2>/dev/null || return 0
    cat >"$work/peer.py" <<'PY'
import json, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
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
    rate = runs * 2 * 4096**3 / (time.time() - began)
    print(json.dumps({"event": "product", "torch": torch.__version__, "on": device, "dtype": str(dtype), "flops": rate},
        separators=(",", ":")), flush=True)
PY
    alone torch torch 60 python3 "$work/peer.py"
}

# ---- the end --------------------------------------------------------------------------------

# Reads how each part of this program ended, when it was last run. Sets `ended`, and their `order`.
read_ends() {
    local line key
    ended=() order=()
    while IFS= read -r line; do
        if [[ $line =~ \"part\":\"([^\"]*)\",\"device\":\"([^\"]*)\".*\"exit\":([0-9]*),\"seconds\":([0-9.]*) ]]; then
            key="${BASH_REMATCH[2]} ${BASH_REMATCH[1]}"
            [ -n "${ended[$key]-}" ] || order+=("$key")
            ended[$key]="${BASH_REMATCH[3]} ${BASH_REMATCH[4]}"
        fi
    done < <(having "^{\"event\":\"part_end\",.*\"build\":\"$build\",")
}

# Prints a page of text about the report.
page() {
    local key code seconds device part verdicts
    for key in ${order[@]+"${order[@]}"}; do
        read -r device part <<<"$key"
        read -r code seconds <<<"${ended[$key]}"
        verdicts=$(said "$part" "\"event\":\"suite\",\"device\":\"$device\"" | tail -n 1 |
            sed -n 's/.*"verdicts":{\([^}]*\)}.*/\1/p' | tr -d '"')
        [ "$code" = 0 ] && code=passed || code="ended: $code"
        printf '%-10s %-28s %-10s %8.1f s  %s\n' "$device" "$part" "$code" "$seconds" "${verdicts//,/, }"
    done
    having "\"build\":\"$build\".*\"event\":\"phase\"" | tr -d '"' |
        sed -n 's/.*device:\([^,]*\),shape:\([^,]*\),phase:\([^,]*\),sizes:{\([^}]*\)}.*per_second:\([0-9]*\).*/\1 \2 \3: \5 a second (\4)/p'
}

run() {
    local place=$1
    shift
    sizes=("$@")
    [ ${#sizes[@]} != 0 ] || sizes=(qwen2.5-0.5b)
    mkdir -p "$out" "$cache" || fail "'$out' and '$cache' have to be folders that can be written to (--out, --cache)"
    # The program that stands in it is run.
    [ -O "$cache" ] || fail "'$cache' belongs to somebody else; name another folder with --cache"
    out=$(cd "$out" && pwd) cache=$(cd "$cache" && pwd)
    lines=$out/lines.jsonl
    touch "$lines" "$out/said.txt"
    mend
    work=$(mktemp -d)
    trap leave EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    cores=$(nproc)
    [ -n "$beside" ] || beside=$((cores >= 16 ? 4 : cores >= 8 ? 2 : 1))
    place "$place"
    firebrick=$folder/firebrick
    build=$(cksum <"$firebrick" | cut -d ' ' -f 1)
    surroundings
    # This leaves any folder whose recipes could change what is measured.
    cd "$work"
    machine
    find_devices

    local device
    alone smoke "${devices[0]}" 60 "$firebrick" doctor --smoke --device "${devices[0]}" --json
    reference
    for device in "${devices[@]}"; do measure "$device"; done
    peer
    read_ends
    local key failed=0
    for key in "${!ended[@]}"; do [[ ${ended[$key]} == '0 '* ]] || failed=$((failed + 1)); done
    put "{\"event\":\"summary\",\"build\":\"$build\",\"seconds\":$SECONDS,\"failed\":$failed,\"skipped\":$skipped}"
    say "what was run:"
    page >&2
    say "the report is $lines"
    [ "$failed" = 0 ] && [ "$skipped" = 0 ]
}

# ---- what is asked --------------------------------------------------------------------------

limit='' total=590 model='' beside='' chosen=() devices=() words=() earlier=()
out=${OUT:-./firebrick-gpu-out} cache=${TMPDIR:-/tmp}/firebrick-gpu-$UID
phases=rollout@256x256+256,update@16x512+512,update@1x8192+8192
vulkan=() cards=() order=() sizes=() setting=() skipped=0 folder='' firebrick='' build='' cores='' lines='' work=''
declare -A listed=() ended=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --out | --done | --total | --limit | --device | --part | --beside | --cache | --phases | --model)
            [ -n "${2-}" ] || fail "$1 needs a value"
            case $1 in
                --out) out=$2 ;;
                --done)
                    [ -f "$2" ] || fail "--done: '$2' is not a file"
                    earlier+=("$(realpath "$2")")
                    ;;
                --total) total=$2 ;;
                --limit) limit=$2 ;;
                --device) devices+=("$2") ;;
                --part) chosen+=("$2") ;;
                --beside) beside=$2 ;;
                --cache) cache=$2 ;;
                --phases) phases=$2 ;;
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
[[ $beside =~ ^([1-9][0-9]*)?$ ]] || fail "--beside: '$beside' is not a number of parts"

[ ${#words[@]} != 0 ] || fail "expected a PLACE to run (see --help)"
run "${words[@]}"
