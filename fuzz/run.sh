#!/usr/bin/env bash
# Fuzzes each target for so many seconds: fuzz/run.sh SECONDS [TARGET…]. Ends at the first finding.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET…]}
shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    targets=(recipe rows tokenizer template checkpoint gguf store judge extract parse compare)
fi

seeds=$(mktemp -d)
trap 'rm -rf "$seeds"' EXIT

# Copies files that a target of that name may begin with; two of the same name are both kept.
seed() {
    local target=$1 file
    shift
    mkdir -p "$seeds/$target"
    for file in "$@"; do
        cp "$file" "$seeds/$target/$(echo "$file" | tr / _)"
    done
}
seed recipe recipes/*.toml
seed rows crates/data/tests/parquet/*
printf 'question,answer\n"2+2, or ""4""?",4\n' >"$seeds/rows/csv"
seed tokenizer tests/fixtures/{qwen2-f32,gemma-f32}/tokenizer.json
seed template tests/chat/templates/*.jinja
seed checkpoint tests/fixtures/*/config.json tests/fixtures/qwen2-f32/model.safetensors \
    tests/fixtures/*/model.safetensors.index.json
mkdir -p "$seeds"/{gguf,store,judge,extract,parse,compare}
echo '{"id": 7, "score": 0.5, "verdict": "right", "extracted": "72"}' >"$seeds/judge/line"
if [[ " ${targets[*]} " == *" gguf "* ]]; then
    FIREBRICK_GGUF_SEEDS="$seeds/gguf" cargo test --release --locked --workspace --test gguf any_bits
fi

for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target"
    echo "fuzz: $target for $seconds s"
    cargo +nightly fuzz run --fuzz-dir fuzz "$target" "fuzz/corpus/$target" "$seeds/$target" -- \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1
done
