#!/usr/bin/env bash
# Builds firebrick and packs it for a machine with a GPU that has neither cargo nor a network, where `run.sh` beside
# this file measures it. `benches/gpu/pack.sh --help` says how.
set -euo pipefail
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: benches/gpu/pack.sh DIR [--features LIST] [--libdevice FILE] [--here]

Writes DIR/firebrick-gpu.tar.xz with the program, run.sh, and the files that the other machine may lack: NVIDIA's
libdevice, and Vulkan's loader.

  --features LIST    the devices built in (default: cuda,spirv): spirv is Vulkan with kernels that use matrix
                     units; vulkan replaces it, with kernels in WGSL, which old and software drivers take too
  --libdevice FILE   NVIDIA's libdevice.10.bc (default: the file of this machine's CUDA toolkit, or else the one in
                     the Python package nvidia-nvvm, which is fetched)
  --here             link this machine's C library, which must not be newer than the other machine's. Without it
                     zig brings an old one, and everything is built anew for that
TEXT
}

fail() { echo "pack.sh: $*" >&2; exit 2; }
say() { echo "pack.sh: $*" >&2; }

# Reads the program's path from what cargo prints about it.
executable() { sed -n "/\"kind\":\[\"bin\"\]/s/.*\"executable\":\"\([^\"]*\)\".*/\1/p"; }

# Prints the path of the toolkit's libdevice, where the program itself would look for it.
toolkit_libdevice() {
    local root
    for root in "${CUDA_PATH:-/usr/local/cuda}" /opt/cuda /usr/lib/cuda /usr; do
        [ ! -f "$root/nvvm/libdevice/libdevice.10.bc" ] || { echo "$root/nvvm/libdevice/libdevice.10.bc"; return; }
    done
}

# Lays the loader of Vulkan into the folder $1, and the library that NVIDIA's driver for Vulkan is linked with.
# Containers for CUDA have that driver, but neither of the two.
pack_loader() {
    local own=$work/loader package library file
    mkdir -p "$own" "$1"
    for package in libvulkan1=libvulkan.so.1 libglvnd0=libGLdispatch.so.0; do
        library=${package#*=} package=${package%=*}
        (cd "$own" && apt-get -qq download "$package" >/dev/null 2>&1 && dpkg -x "$package"_*.deb .) || return 1
        file=$(find "$own/usr/lib" -name "$library.*" -type f | head -n 1)
        [ -n "$file" ] || return 1
        cp "$file" "$1/$library"
        cp "$own/usr/share/doc/$package/copyright" "$1/$package.copyright"
    done
}

pack() {
    local dir=$1 features=$2 libdevice=$3 here=$4 top work folder program python
    top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    for tool in cargo strip objdump xz; do
        command -v "$tool" >/dev/null || fail "$tool is missing"
    done
    [ -z "$libdevice" ] || [ -f "$libdevice" ] || fail "--libdevice: '$libdevice' is not a file"
    [ -n "$libdevice" ] || libdevice=$(toolkit_libdevice)
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd)
    work=$(mktemp -d "$dir/.pack.XXXXXX")
    # shellcheck disable=SC2064 # $work is local: it has to be put in now
    trap "rm -rf '$work'" EXIT
    [ -z "$libdevice" ] || libdevice=$(realpath "$libdevice")
    # Without this file no kernel of CUDA compiles, which is a bad thing to learn on a card by the hour.
    if [[ ,$features, == *,cuda,* && -z $libdevice ]] && python=$("$top/tools/venv.sh" "$top/tools/kernels/ptxas.txt" --no-deps); then
        libdevice=$(find "${python%/bin}" -name libdevice.10.bc | head -n 1)
    fi

    # With zig the program runs on older systems than this one. The folder is its own, because cargo builds
    # everything again for another linker.
    local own=${CARGO_TARGET_DIR:-$top/target}/gpu
    if [ -n "$here" ]; then
        say "linked with this machine's C library"
    elif "$top/tools/zig.sh" "$own/zig"; then
        export "CARGO_TARGET_$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')_LINKER=$own/zig/cc-linux"
        export CARGO_TARGET_DIR=$own
    else
        say "no zig here: the program will need this machine's glibc"
    fi

    local cargo=(--release --locked --bin firebrick --features "$features" -p firebrick-cli)
    program=$(cd "$top" && cargo build "${cargo[@]}" --message-format json-render-diagnostics | executable)
    [ -x "$program" ] || fail "cargo does not say where it put the program"

    folder=$work/firebrick-gpu
    mkdir "$folder"
    # The names of functions stay, for the traces of panics.
    strip --strip-debug -o "$folder/firebrick" "$program"
    cp "$top/benches/gpu/run.sh" "$folder/run.sh"
    chmod 755 "$folder"/*
    if [ -n "$libdevice" ]; then
        mkdir -p "$folder/cuda/nvvm/libdevice"
        cp "$libdevice" "$folder/cuda/nvvm/libdevice/libdevice.10.bc"
    elif [[ ,$features, == *,cuda,* ]]; then
        say "no libdevice.10.bc is here and none could be fetched: the other machine needs a CUDA toolkit (--libdevice)"
    fi
    case ,$features, in
        *,vulkan,* | *,spirv,*)
            pack_loader "$folder/vulkan" ||
                say "Vulkan's loader is not packed (apt-get can't fetch it): the other machine needs libvulkan1 and libglvnd0"
            ;;
    esac

    local commit glibc
    commit=$(git -C "$top" describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || echo unknown)
    glibc=$(objdump -T "$folder/firebrick" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    printf '{ "commit": "%s", "features": "%s", "rustc": "%s", "needs": "%s", "date": "%s" }\n' \
        "$commit" "$features" "$(rustc --version)" "$glibc" "$(date -u +%FT%TZ)" >"$folder/build.json"

    tar -C "$work" -c firebrick-gpu | xz -T0 >"$work/packed"
    mv "$work/packed" "$dir/firebrick-gpu.tar.xz"
    say "$(du -h "$dir/firebrick-gpu.tar.xz" | cut -f 1) in $dir/firebrick-gpu.tar.xz, to run with $glibc or newer"
}

dir='' features=cuda,spirv libdevice='' here=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --here) here=1; shift ;;
        --features | --libdevice)
            [ -n "${2-}" ] || fail "$1 needs a value"
            case $1 in
                --features) features=$2 ;;
                --libdevice) libdevice=$2 ;;
            esac
            shift 2
            ;;
        -*) fail "unknown argument '$1' (see --help)" ;;
        *)
            [ -z "$dir" ] || fail "expected one DIR, and '$1' is another"
            dir=$1
            shift
            ;;
    esac
done
[ -n "$dir" ] || fail "expected the DIR to write to (see --help)"
pack "$dir" "$features" "$libdevice" "$here"
