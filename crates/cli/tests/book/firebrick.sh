#!/bin/sh
# Stands before the program while the book's commands are tried. A training takes one step of a few completions, and a
# resumed one a step more. An evaluation takes a few prompts, a comparison one seed, a measurement one run. The
# models and data of the Hub are the small ones of the folder. A checkpoint is the last one of its run, whatever its
# number on the page. A failure is noted in the file `failed`, for it may be lost in a pipe.
set -u

before=
for word do
    shift
    case $word in
    */checkpoints/step-*)
        folder=${word##*=}
        newest=$(ls -d "${folder%/*}"/step-* | tail -n 1)
        word=${word%"$folder"}$newest
        ;;
    esac
    [ "$before" != --seeds ] || word=1
    before=$word
    set -- "$@" "$word"
done
given=" $* "

# Tells whether the command leaves a key alone, and its table.
free() {
    case $given in *" ${1%%=*}="* | *" ${1%.*}= "*) return 1 ;; esac
}

# Sets keys that the command leaves alone.
want() {
    for setting do
        if free "$setting"; then settings="$settings $setting"; fi
    done
}

# Tells whether a command compares runs that are there, which take no settings.
reads() {
    [ "${1-}" = compare ] || return 1
    for run in "${2-}"/*/run.db "${2-}"/*/*/run.db; do [ ! -f "$run" ] || return 0; done
    return 1
}

# Prints the recipe of a command, or all recipes of a folder.
recipe() {
    cat "${2-}" 2>/dev/null || cat "${2-}"/*.toml 2>/dev/null || "$FIREBRICK" recipes show "${2-}" 2>/dev/null
}

settings=
case ${1-} in
train | compare)
    case $given in
    *" --resume "*) want train.steps=2 ;;
    *)
        settings=train.steps=1
        want eval.prompts=4
        if free train.mini_batch; then want rollout.group_size=2 sampling.prompts_per_step=2 train.mini_batch=4; fi
        if recipe "$@" | grep -q '^\[sft\]'; then want sft.steps=2 sft.samples=4; fi
        ;;
    esac
    ;;
eval) want eval.prompts=4 ;;
bench) set -- "$@" --phases rollout,update --rows 2 --prompt 4 --completion 4 --runs 1 ;;
doctor) case $given in *" --suite "*) set -- "$@" --cases operations/ ;; esac ;;
esac
case ${1-}:${2-} in
train:quickstart)
    # A model that knows nothing has groups without spread, which would leave nothing to train on.
    case $given in *" sampling."* | *" --resume "*) ;; *) want sampling.dynamic=false ;; esac
    ;;
train:smollm2-*) want model.path=SMALL ;;
train:gsm8k | train:dapo-math-17k)
    want model.path=SMALL data.train=gsm8k/main/train.jsonl data.heldout=gsm8k/main/test.jsonl
    want rollout.max_completion_tokens=32 reward.overlong.buffer=8
    ;;
esac
# A plan does not depend on a card that is not there; everything else does.
case ${1-} in plan) ;; *)
    for word do
        shift
        case $word in vulkan:0 | cuda:0 | metal:0) word=cpu ;; esac
        set -- "$@" "$word"
    done
    ;;
esac
if reads "$@"; then settings=; fi
for setting in $settings; do set -- "$@" --set "$setting"; done
"$FIREBRICK" "$@" || {
    code=$?
    printf '%s: %s\n' "$code" "$*" >>"$PLACE/failed"
    exit "$code"
}
