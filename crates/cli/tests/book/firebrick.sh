#!/bin/sh
# Stands before the program while the book's commands are tried: a training takes one step of a few completions,
# an evaluation a few prompts, a comparison one seed; models and data of the Hub are the small ones of the folder;
# and a checkpoint is the last one of its run, whatever its number on the page.
set -eu

before=
for word do
    shift
    case $word in
    */checkpoints/step-*)
        folder=${word##*=}
        newest=$(printf '%s\n' "${folder%/*}"/step-* | tail -n 1)
        word=${word%"$folder"}$newest
        ;;
    esac
    [ "$before" != --seeds ] || word=1
    before=$word
    set -- "$@" "$word"
done
given=" $* "

# Sets a key, unless the command sets it or its table.
want() {
    case $given in *" ${1%%=*}="* | *" ${1%.*}= "*) return 1 ;; esac
}

recipe() { cat "${2-}" 2>/dev/null || "$FIREBRICK" recipes show "${2-}" 2>/dev/null || true; }

settings=
case ${1-} in
train | compare)
    case $given in *" --resume "*) exec "$FIREBRICK" "$@" ;; esac
    settings="train.steps=1 eval.prompts=4"
    case $given in
    *" train.mini_batch="*) ;;
    *) settings="$settings rollout.group_size=2 sampling.prompts_per_step=2 train.mini_batch=4" ;;
    esac
    if recipe "$@" | grep -q '^\[warmup\]'; then settings="$settings warmup.steps=2 warmup.samples=4"; fi
    ;;
eval) settings="eval.prompts=4" ;;
plan) ;;
*) exec "$FIREBRICK" "$@" ;;
esac
case ${2-} in
quickstart)
    # A model that knows nothing has groups without spread, which would leave nothing to train on.
    case $given in
    *" sampling."*) ;;
    *) settings="$settings sampling.dynamic=false" ;;
    esac
    ;;
smollm2-*) settings="$settings model.path=FOLDER" ;;
gsm8k | dapo-math-17k)
    settings="$settings model.path=FOLDER data.train=gsm8k/main/train.jsonl data.heldout=gsm8k/main/test.jsonl"
    settings="$settings rollout.max_completion_tokens=32 reward.overlong.buffer=8"
    ;;
esac
for setting in $settings; do
    if [ "$setting" = train.steps=1 ] || want "$setting"; then set -- "$@" --set "$setting"; fi
done
exec "$FIREBRICK" "$@"
