#!/usr/bin/env bash
# Makes a Python with the packages that LIST names, and prints the folder of its programs. It is kept between
# calls, and made again when the list changes. A half-made one has no mark, and is made again too.
set -euo pipefail

list=${1:?usage: tools/venv.sh LIST [PIP OPTIONS...]}
shift
cache=${FIREBRICK_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/firebrick}
venv=$cache/$(basename "$list" .txt)
made=$venv/made-$(sha256sum "$list" | cut -c 1-16)
if [ ! -f "$made" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" >&2
    "$venv/bin/pip" install --quiet --no-cache-dir --only-binary :all: "$@" -r "$list" >&2
    touch "$made"
fi
echo "$venv/bin"
