# What every stage begins with: where builds are kept, the toolchain, and a few functions. To be sourced.
#
# Builds and tools are kept outside the clone, in $FIREBRICK_CI_CACHE (~/.cache/firebrick by default), so that the
# next run is quick. Everything is built in one profile, release, so that the stages share what they build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

cache=${FIREBRICK_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/firebrick}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
export CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never} CARGO_NET_RETRY=5
mkdir -p "$CARGO_TARGET_DIR"
PATH=$cache/tools/bin:$PATH

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Installs Debian's packages $2… unless the program $1 is there. Only root does so, and CI with sudo; anyone else is
# told what to install.
need() {
    command -v "$1" >/dev/null && return
    local root=()
    if [ "$(id -u)" != 0 ]; then
        [ -n "${CI-}" ] || { echo "$1 is missing: install ${*:2}"; exit 1; }
        root=(sudo -n)
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${@:2}"
}

# Ends a stage as skipped if there is no nightly compiler, and none to be had.
need_nightly() {
    cargo +nightly --version >/dev/null 2>&1 && return
    rustup toolchain install nightly --profile minimal || { echo "SKIPPED: there is no nightly compiler"; exit 77; }
}

# Runs the command $2… for $1 seconds at most, and not beyond the deadline.
within() {
    local left=$((${FIREBRICK_CI_DEADLINE:-9999999999} - $(date +%s)))
    [ "$left" -gt 0 ] || return 124
    timeout -k 20 $(($1 < left ? $1 : left)) "${@:2}"
}
is_late() { [ "$(date +%s)" -ge "${FIREBRICK_CI_DEADLINE:-9999999999}" ]; }

# Long builds end at the deadline too.
cargo() { within 86400 cargo "$@"; }

# The toolchain is that of rust-toolchain.toml or, if that is not available under its name, the machine's own,
# unless it is older. A stage takes what .ci/run has found.
command -v cargo >/dev/null || { echo "cargo is missing: see https://rustup.rs"; exit 1; }
pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
if [ -z "${RUSTUP_TOOLCHAIN-}" ] && command -v rustup >/dev/null && ! rustup run "$pinned" rustc --version >/dev/null 2>&1 &&
    ! timeout 300 rustup toolchain install "$pinned" --profile minimal >/dev/null 2>&1; then
    own=$(rustup run stable rustc --version 2>/dev/null | cut -d ' ' -f 2 || true)
    if [ "$(printf '%s\n' "$pinned" "$own" | sort -V | head -n 1)" = "$pinned" ]; then
        export RUSTUP_TOOLCHAIN=stable
    fi
fi
for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 || rustup component add "${tool/fmt/rustfmt}"
done
# SQLite is compiled from its C source, and rustc links with cc.
need cc gcc libc6-dev

# A build knows the paths of its sources, although cargo takes one clone's build for another's if the times of the
# files agree. Sources that are newer than the build are built again.
if [ "$(cat "$CARGO_TARGET_DIR/built-from" 2>/dev/null)" != "$PWD" ]; then
    find . -name '*.rs' -not -path './target/*' -exec touch {} +
    echo "$PWD" >"$CARGO_TARGET_DIR/built-from"
fi
