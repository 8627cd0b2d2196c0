#!/usr/bin/env bash
# Lays out, from Debian packages, the LLVM that a build with `--features cuda` links.
# `tools/llvm-for-cuda.sh --help` says when it is needed and how to use it.
set -euo pipefail
export LC_ALL=C

usage() {
    cat <<'TEXT'
usage: tools/llvm-for-cuda.sh [--suite NAME] [--mirror URL] [--keyring FILE]
       tools/llvm-for-cuda.sh --download DIR [the same options]
       tools/llvm-for-cuda.sh --debs DIR

Building with `--features cuda` needs a static LLVM. The crate tracel-llvm-bundler downloads one from
its project's release page while cargo builds. If that page can be reached, there is nothing to do.
If it cannot, this script puts LLVM where the crate looks, and the crate then downloads nothing:

    ${XDG_DATA_HOME:-$HOME/.local/share}/tracel/tracel-llvm-VERSION    VERSION as in Cargo.lock

  (no option)      fetch the packages through apt, which checks their signatures, and lay them out
  --download DIR   only fetch the packages into DIR, with their SHA256SUMS, to be carried elsewhere
  --debs DIR       lay out the packages found in DIR, without network or apt. If DIR has a SHA256SUMS,
                   they must match it
  --suite NAME     the Debian suite that has this LLVM (default: sid)
  --mirror URL     a Debian mirror (default: the one this machine's apt uses)
  --keyring FILE   the keys that sign it (default: /usr/share/keyrings/debian-archive-keyring.gpg)

The script installs nothing, does not need root, and leaves apt's own lists and settings as they are.
It needs dpkg-deb, a C compiler and ar, and also apt-get unless --debs is used. The packages are
57 MB, the result 253 MB; to undo it, remove the folder. If LLVM is already there, the script
says so and does nothing.

This LLVM serves cuda only. rocm links LLD's static libraries too, which Debian does not package, so
rocm needs the official archive. You can carry it in: put linux-x64.tar.xz and
linux-x64.checksums.json of the release into ~/.cache/tracel, each with tracel-llvm-VERSION- before
its name, and build with TRACEL_LLVM_BUNDLER_SKIP_CHECKSUM_DOWNLOAD=1. The archive serves cuda too.

`cargo check` and `cargo clippy` link nothing: DOCS_RS=1 makes the crate skip LLVM altogether.
TEXT
}

fail() { echo "llvm-for-cuda: $*" >&2; exit 1; }
say() { echo "llvm-for-cuda: $*" >&2; }

# ---- what is asked --------------------------------------------------------------------------

suite=sid mirror='' keyring=/usr/share/keyrings/debian-archive-keyring.gpg debs='' download=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --suite | --mirror | --keyring | --debs | --download)
            [ -n "${2-}" ] || fail "$1 needs a value"
            declare "${1#--}=$2"
            shift 2
            ;;
        *) fail "unknown argument '$1' (see --help)" ;;
    esac
done
[ -z "$debs" ] || [ -z "$download" ] || fail "--debs and --download exclude each other"
[ -z "$debs" ] || [ -d "$debs" ] || fail "--debs: '$debs' is not a folder"

lock=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/Cargo.lock
[ -r "$lock" ] || fail "$lock is missing; the script reads LLVM's version from it"
version=$(sed -n '/^name = "tracel-llvm-bundler"$/{n;s/^version = "\(.*\)"$/\1/p}' "$lock")
[ -n "$version" ] || fail "Cargo.lock has no tracel-llvm-bundler: nothing in this build needs LLVM"
major=${version%%.*}

# Only two of LLVM's twenty compilers are kept: the machine's own and the GPU's.
case $(uname -sm) in
    'Linux x86_64') targets=(X86 NVPTX) arch=amd64 triplet=x86_64-linux-gnu ;;
    'Linux aarch64') targets=(AArch64 NVPTX) arch=arm64 triplet=aarch64-linux-gnu ;;
    *) fail "this is for Linux on x86_64 or aarch64, not $(uname -sm)" ;;
esac

# A relative XDG_DATA_HOME is ignored, as its specification asks.
case ${XDG_DATA_HOME-} in
    /*) data=$XDG_DATA_HOME ;;
    *) data=${HOME:?HOME is not set}/.local/share ;;
esac
dest=$data/tracel/tracel-llvm-$version

if [ -z "$download" ]; then
    # The crate takes the folder as it is if this file is in it.
    if [ -e "$dest/.tracel-llvm-installed" ]; then
        say "already there: $dest"
        exit 0
    fi
    [ ! -e "$dest" ] || fail "$dest exists and is not complete; remove it first"
    for tool in dpkg-deb cc ar; do
        command -v "$tool" >/dev/null || fail "$tool is missing (Debian: dpkg, gcc and libc6-dev, binutils)"
    done
    home=$(dirname "$dest")
else
    home=$download
fi

# The work is next to the place of the result, so that the last step is one rename.
mkdir -p "$home"
home=$(cd "$home" && pwd)
work=$(mktemp -d "$home/.llvm-for-cuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- the packages ---------------------------------------------------------------------------

# Runs apt with lists, cache and sources of its own. The machine's proxies and other settings hold. Commands
# that the machine has apt run after an update, such as cleaning its caches, do not run.
private_apt() {
    local command=$1
    shift
    "$command" --config-file "$work/apt/apt.conf" -qq "$@"
}

set_up_apt() {
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    : >"$work/apt/status"
    echo "deb [signed-by=$(realpath "$keyring")] $mirror $suite main" >"$work/apt/sources.list"
    cat >"$work/apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::Lists "$work/apt/lists";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
#clear APT::Architectures;
APT::Architecture "$arch";
APT::Architectures { "$arch"; };
APT::Sandbox::User "$(id -un)";
APT::Update::Error-Mode "any";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
APT::Get::AllowUnauthenticated "false";
CONF
}

# Downloads the packages to the folder $1.
fetch() {
    command -v apt-get >/dev/null || fail "apt-get is missing; carry the packages in and use --debs DIR"
    if [ -z "$mirror" ]; then
        mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*/debian\)/dists/.*|\1|p" | head -n 1)
        [ -n "$mirror" ] || fail "this machine's apt knows no Debian mirror; name one with --mirror URL"
    fi
    [ -r "$keyring" ] || fail "no keys at $keyring (package debian-archive-keyring, or --keyring FILE)"

    set_up_apt
    say "reading the package list of $suite from $mirror"
    private_apt apt-get update >&2 || fail "the list of $suite at $mirror could not be read or is not signed by $keyring"

    # LLVM is built by the suite's newest g++, and needs a C++ library no older than that.
    local libstdcxx
    libstdcxx=$(private_apt apt-cache search --names-only '^libstdc\+\+-[0-9]+-dev$' |
        cut -d ' ' -f 1 | sort -t - -k 2n | tail -n 1)
    [ -n "$libstdcxx" ] || fail "$suite at $mirror has no libstdc++"
    private_apt apt-cache show "llvm-$major-dev" >/dev/null 2>&1 ||
        fail "$suite at $mirror has no llvm-$major-dev; name another suite with --suite"
    say "downloading llvm-$major-dev, $libstdcxx, zlib1g-dev and libzstd-dev"
    (cd "$1" && private_apt apt-get download "llvm-$major-dev" "$libstdcxx" zlib1g-dev libzstd-dev >&2) ||
        fail "the packages could not be downloaded"
}

mkdir "$work/debs"
if [ -z "$debs" ]; then
    fetch "$work/debs"
    debs=$work/debs
elif [ -e "$debs/SHA256SUMS" ]; then
    (cd "$debs" && sha256sum --check --quiet SHA256SUMS >&2) || fail "$debs does not match its SHA256SUMS"
fi

if [ -n "$download" ]; then
    (cd "$work/debs" && sha256sum ./*.deb >SHA256SUMS)
    mv "$work"/debs/* "$download"
    say "downloaded to $download:"
    cat "$download/SHA256SUMS" >&2
    exit 0
fi

# ---- the layout -----------------------------------------------------------------------------

say "unpacking"
for package in "llvm-$major-dev" 'libstdc++-*-dev' zlib1g-dev libzstd-dev; do
    mapfile -t found < <(find "$debs" -maxdepth 1 -name "${package}_*_$arch.deb")
    [ ${#found[@]} = 1 ] || fail "$debs has ${#found[@]} files ${package}_*_$arch.deb, expected one"
    dpkg-deb --extract "${found[0]}" "$work/root"
    rm -rf "$work/root/usr/share"
done

root=$work/root/usr new=$work/new
llvm=$(echo "$root"/lib/llvm-*/lib)
mkdir -p "$new/bin" "$new/lib" "$new/include"
mv "$root/include/llvm-$major/llvm" "$root/include/llvm-c-$major/llvm-c" "$new/include/"

# Everything in lib is bundled into one Rust library, so the useless parts are left out: code generators for
# other machines, and the parts of LLVM that belong to programs of its own.
keep=$(IFS='|'; echo "${targets[*]}")
dropped=$(sed -n 's/^LLVM_TARGET(\(.*\))$/\1/p' "$new/include/llvm/Config/Targets.def" | grep -vxE "$keep")
for target in $dropped; do rm -f "$llvm/libLLVM$target"[A-Z]*.a; done
rm -f "$llvm"/libLLVM{BOLT,Exegesis,Fuzz,TableGen}*.a
# `LLVMInitializeAllTargets` and its like go through these lists.
sed -i -E "/^LLVM_[A-Z_]+\(/{/\(($keep)\)/!d}" "$new"/include/llvm/Config/*.def
mv "$llvm"/libLLVM*.a "$root/lib/$triplet"/lib{z,zstd}.a "$new/lib/"
# The linker finds this C++ library before the system's shared one, which may be older than LLVM asks for.
mv "$root"/lib/gcc/"$triplet"/*/libstdc++.a "$new/lib/"

# The packages are compiled against a newer glibc than a stable distribution has. This file has the functions of
# that glibc that they use, by their newer names, written with the older ones. arc4random is new in 2.36,
# mallinfo2 in 2.33 and the flag in 2.32. With our own, a program also runs where glibc is 2.28.
cat >"$work/glibc.c" <<'C'
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#if !__GLIBC_PREREQ(2, 38)
#define NUMBER(type, name) \
    type __isoc23_##name(const char *text, char **rest, int base) { return name(text, rest, base); }
NUMBER(long, strtol)
NUMBER(long long, strtoll)
NUMBER(unsigned long, strtoul)
NUMBER(unsigned long long, strtoull)
#define SCAN(name, first, ...) \
    int __isoc23_##name(__VA_ARGS__, ...) { \
        va_list rest; \
        va_start(rest, format); \
        int read = v##name first; \
        va_end(rest); \
        return read; \
    }
SCAN(sscanf, (text, format, rest), const char *text, const char *format)
SCAN(scanf, (format, rest), const char *format)
#endif
// "There may be other threads", which is always right.
char __libc_single_threaded = 0;
// Ten sizes, which are read for statistics alone. Headers before 2.33 do not know the struct by its name.
struct sizes { size_t numbers[10]; };
struct sizes mallinfo2(void) {
    struct sizes none = {{0}};
    return none;
}
uint32_t arc4random(void) {
    uint32_t number;
    if (getentropy(&number, sizeof number)) abort();
    return number;
}
C
cc -O2 -fPIC -std=gnu11 -D_GNU_SOURCE -c "$work/glibc.c" -o "$work/glibc.o"
# The linker reads the C++ library last, so all the others find these functions there.
ar rs "$new/lib/libstdc++.a" "$work/glibc.o" 2>/dev/null

# Build scripts ask llvm-config what to link. The package's own llvm-config is a program for its own suite, and
# would answer with libraries that are not here.
full=$(sed -n 's/^#define LLVM_VERSION_STRING "\(.*\)"$/\1/p' "$new/include/llvm/Config/llvm-config.h")
cat >"$new/bin/llvm-config" <<'SH'
#!/bin/sh
# Answers for the LLVM in the folder above this one.
top=$(cd "$(dirname "$0")/.." && pwd)
flags="-I$top/include -D_GNU_SOURCE -D__STDC_CONSTANT_MACROS -D__STDC_FORMAT_MACROS -D__STDC_LIMIT_MACROS"
for question; do
    case $question in
        --link-static) ;;
        --libs | --libnames)
            (cd "$top/lib" && printf '%s\n' libLLVM*.a) | sed 's/^lib/-l/; s/\.a$//' | paste -s -d ' ' -
            ;;
        --system-libs) echo '-lrt -ldl -lm -lz -lzstd' ;;
        --libdir) echo "$top/lib" ;;
        --includedir) echo "$top/include" ;;
        --prefix) echo "$top" ;;
        --version) echo 'VERSION' ;;
        --cflags) echo "$flags" ;;
        --cxxflags) echo "$flags -std=c++17 -fno-exceptions" ;;
        *) echo "llvm-config: no answer to $question" >&2; exit 1 ;;
    esac
done
SH
sed -i "s/VERSION/$full/" "$new/bin/llvm-config"
chmod +x "$new/bin/llvm-config"

# ---- does it work? --------------------------------------------------------------------------

# The test program compiles an empty kernel for a GPU, optimiser and all, as real kernels are compiled.
say "linking a test program"
cat >"$work/test.c" <<'C'
#include <llvm-c/Core.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdio.h>
int main(void) {
    const char *triple = "nvptx64-nvidia-cuda";
    LLVMInitializeAllTargetInfos();
    LLVMInitializeAllTargets();
    LLVMInitializeAllTargetMCs();
    LLVMInitializeAllAsmPrinters();
    LLVMTargetRef target;
    char *error = NULL;
    if (LLVMGetTargetFromTriple(triple, &target, &error)) return puts(error), 1;
    LLVMTargetMachineRef machine = LLVMCreateTargetMachine(
        target, triple, "sm_80", "", LLVMCodeGenLevelDefault, LLVMRelocDefault, LLVMCodeModelDefault);
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module = LLVMModuleCreateWithNameInContext("test", context);
    LLVMSetTarget(module, triple);
    LLVMTypeRef nothing = LLVMFunctionType(LLVMVoidTypeInContext(context), NULL, 0, 0);
    LLVMValueRef kernel = LLVMAddFunction(module, "kernel", nothing);
    LLVMSetFunctionCallConv(kernel, 71);
    LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
    LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, kernel, "entry"));
    LLVMBuildRetVoid(builder);
    if (LLVMRunPasses(module, "default<O3>", machine, LLVMCreatePassBuilderOptions())) return 2;
    LLVMMemoryBufferRef text;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, LLVMAssemblyFile, &error, &text))
        return puts(error), 3;
    fputs(LLVMGetBufferStart(text), stdout);
    return 0;
}
C
config() { "$new/bin/llvm-config" --link-static "$1"; }
# shellcheck disable=SC2046 # the answers are lists of words
cc -o "$work/test" "$work/test.c" -I"$(config --includedir)" -L"$(config --libdir)" \
    -Wl,--start-group $(config --libs) -Wl,--end-group -lstdc++ $(config --system-libs) -lpthread >&2 ||
    fail "a program does not link with the libraries of these packages"
"$work/test" >"$work/test.ptx" || fail "LLVM linked, but does not compile for the GPU: $(tail -n 1 "$work/test.ptx")"
grep -q '^\.visible \.entry kernel' "$work/test.ptx" || fail "LLVM linked, but its output is not a kernel"

# ---- into place -----------------------------------------------------------------------------

touch "$new/.tracel-llvm-installed"
chmod 755 "$new"
if ! mv -T "$new" "$dest" 2>/dev/null; then
    [ -e "$dest/.tracel-llvm-installed" ] || fail "$new could not be moved to $dest"
fi
say "LLVM $full is in $dest ($(du -sh "$dest" | cut -f 1))"
