#!/usr/bin/env bash
# Makes the files of a release: archives and a Python wheel for Linux on x86-64 that run wherever glibc is 2.28
# or newer (Debian 10, Ubuntu 18.10, RHEL 8), with checksums, licences and a bill of materials.
# `tools/release.sh --help` says how.
set -euo pipefail
export LC_ALL=C

GLIBC=2.28
TARGET=x86_64-unknown-linux-gnu

usage() {
    cat <<TEXT
usage: tools/release.sh OUT [FEATURES...]

  OUT         the folder that gets the files
  FEATURES    one archive each: cpu, vulkan, or cuda,vulkan (default: cpu vulkan). The wheel holds the
              first of them

The script needs cargo, python3, objdump and a network. It does not link this machine's C library:
zig brings an older one. The build stays in \$CARGO_TARGET_DIR. With cuda, the script needs the LLVM
that tools/llvm-for-cuda.sh makes.
TEXT
}

fail() { echo "release.sh: $*" >&2; exit 1; }
say() { echo "release.sh: $*" >&2; }

# Prints the newest version of glibc that a program asks for.
newest_glibc() { objdump -T "$1" | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | cut -d _ -f 2 | sort -uV | tail -n 1; }

# Builds a wheel with the features $1, in the folder $2.
wheel() {
    local features=$1 out=$2
    local chosen=()
    [ "$features" = cpu ] || chosen=(--features "$features")
    maturin build --zig --profile dist --target "$TARGET" --compatibility "manylinux_${GLIBC/./_}" \
        --out "$out" "${chosen[@]}" >&2
}

# Makes the archive of the program that is in the wheel $2.
archive() {
    local features=$1 wheel=$2 out=$3 name folder program newest
    name=firebrick-$version-$TARGET
    [ "$features" = cpu ] || name=$name-${features//,/-}
    folder=$work/$name program=$work/$name/firebrick
    rm -rf "$folder" "$work/wheel"
    mkdir -p "$folder/completions" "$folder/man/man1"
    python3 -m zipfile -e "$wheel" "$work/wheel"
    cp "$work/wheel/firebrick-$version.data/scripts/firebrick" "$program"
    chmod 755 "$program"
    newest=$(newest_glibc "$program")
    [ "$(printf '%s\n' "$newest" "$GLIBC" | sort -V | tail -n 1)" = "$GLIBC" ] ||
        fail "$name needs glibc $newest, expected $GLIBC at most"
    "$program" --version >&2
    "$program" completions bash >"$folder/completions/firebrick.bash"
    "$program" completions zsh >"$folder/completions/_firebrick"
    "$program" completions fish >"$folder/completions/firebrick.fish"
    "$program" man "$folder/man/man1"
    cp README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$folder/"
    "$mdbook" build book --dest-dir "$folder/book" >&2
    python3 tools/licences.py "$TARGET" "$features" "$folder/THIRD-PARTY.txt" "$folder/sbom.cdx.json"
    # The same files give the same archive, whoever packs them and when.
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$when" \
        --mode=u+rwX,go+rX,go-w -cf - "$name" |
        gzip -9n >"$out/$name.tar.gz"
    say "$name.tar.gz: $(($(stat -c %s "$out/$name.tar.gz") / 1000000)) MB, glibc $newest"
}

case ${1:-} in
    -h | --help) usage; exit 0 ;;
    '') usage >&2; exit 2 ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- cpu vulkan
cd "$(dirname "$0")/.."
for tool in cargo python3 objdump; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
bin=$(tools/venv.sh tools/release.txt)
mdbook=$(tools/mdbook.sh)
PATH=$bin:$PATH
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
when=$(git log -1 --format=%ct 2>/dev/null || echo 0)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -f "$out"/firebrick-"$version"*

first=yes
for features in "$@"; do
    mkdir -p "$work/$features"
    wheel "$features" "$work/$features"
    made=$(ls "$work/$features"/*.whl)
    archive "$features" "$made" "$out"
    [ -z "$first" ] || cp "$made" "$out/"
    first=
done
(cd "$out" && sha256sum firebrick-"$version"* >SHA256SUMS)
cat "$out/SHA256SUMS"
