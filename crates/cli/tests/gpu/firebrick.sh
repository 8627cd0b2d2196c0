#!/usr/bin/env bash
# Stands in for the program while benches/gpu/run.sh is tried: it says what the program would say on a card, quickly,
# and fails in the ways that a card may.
given=" $* "
device=${given##*--device }
device=${device%% *}

say() { printf '%s\n' "$1"; }

# Tells whether a case was asked for by the option --cases.
asked() { case $given in *" --cases "*) [[ $1 == *"${cases}"* ]] ;; esac; }
cases=${given##*--cases }
cases=${cases%% *}

listing() {
    cat <<'JSON'
{
  "version": "0.1.0",
  "devices": [
    { "device": "cpu", "name": "a processor", "software": false, "computes": ["f32"] },
    { "device": "vulkan:0", "name": "a card", "software": false, "computes": ["f32", "f16"] },
    { "device": "vulkan:1", "name": "llvmpipe", "software": true, "computes": ["f32"] },
    { "device": "cuda:0", "name": "a \"card\"", "software": false, "computes": ["f32", "bf16"] }
  ],
  "missing": [{ "device": "metal", "problem": "not in this build", "remedy": "" }]
}
JSON
}

case_line() {
    say "{\"event\":\"case\",\"device\":\"$device\",\"name\":\"$1\",\"precision\":\"f32\",\"outcome\":\"$2\"}"
}

suite() {
    local names=() name
    for name in tensors/matmul operations/norm operations/head model/hidden model/decode training/steps \
        sampling/draws defects/first defects/second; do
        ! asked "$name" || names+=("$name")
    done
    say '{"event":"program","version":"0.1.0"}'
    say "{\"event\":\"device\",\"device\":\"$device\",\"software\":false,\"cases\":[$(
        printf '"%s f32",' "${names[@]}" | sed 's/,$//'
    )]}"
    printf 'a driver \xff\xfe speaks Latin-1, with "quotes", a \\ and a\ttab\n' >&2
    for name in "${names[@]}"; do
        sleep 0.02
        case $name:${CUDA_LAUNCH_BLOCKING-} in
            model/decode:) kill -SEGV $$ ;;
            defects/*:) case_line "$name" broken ;;
            training/steps:)
                printf '{"event":"case","device":"%s","na' "$device"
                exec sleep 60
                ;;
            *) case_line "$name" passed ;;
        esac
    done
    say "{\"event\":\"suite\",\"device\":\"$device\",\"passed\":true,\"verdicts\":{\"passed\":1,\"failed\":0}}"
    say '{"event":"summary","passed":true}'
    [[ ${names[*]} != *defects/first* || -n ${CUDA_LAUNCH_BLOCKING-} ]]
}

case $1 in
    doctor)
        case $given in
            *" --smoke "* | *" --suite "*) suite ;;
            *) listing ;;
        esac
        ;;
    bench)
        say '{"event":"program","version":"0.1.0"}'
        say "{\"event\":\"phase\",\"device\":\"$device\",\"shape\":\"$2\",\"phase\":\"rollout\",\"sizes\":{\"rows\":1},\"per_second\":12.5}"
        # A line of many kernels is longer than a pipe passes on in one piece.
        say "{\"event\":\"detail\",\"device\":\"$device\",\"kernels\":[$(printf '["kernel",1,0.5],%.0s' {1..4000})null]}"
        ;;
    train)
        for step in 1 2 3; do
            sleep 0.02
            say "{\"event\":\"metrics\",\"step\":$step,\"eval/heldout_accuracy\":0.5}"
        done
        ;;
esac
