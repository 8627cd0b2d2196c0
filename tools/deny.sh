#!/usr/bin/env bash
# Installs the cargo-deny that CI checks with, unless it is there. The dev profile builds it in a minute.
set -euo pipefail

version=0.20.2
tools=${FIREBRICK_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/firebrick}/tools
PATH=$tools/bin:$PATH
cargo deny --version 2>/dev/null | grep -q "$version" ||
    cargo install cargo-deny --version "$version" --locked --no-default-features --root "$tools" --profile dev
