#!/usr/bin/env bash
# Makes C compilers for other systems out of zig: FOLDER/cc-TARGET for each zig target below, and FOLDER/ar.
# With them `cargo check --target` gets past the dependencies that are compiled from C. FOLDER/cc-linux links a
# program of this machine's architecture for Linux with glibc 2.28 or newer.
set -euo pipefail

folder=${1:?usage: tools/zig.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
python=$(tools/venv.sh tools/release.txt)/python
for target in x86_64-windows-gnu aarch64-macos; do
    # zig does not know cc's own --target, such as arm64-apple-macosx.
    cat >"$folder/cc-$target" <<SH
#!/usr/bin/env bash
arguments=()
for argument in "\$@"; do
    case \$argument in
        --target=* | -mmacosx-version-min=* | -m64) ;;
        *) arguments+=("\$argument") ;;
    esac
done
exec "$python" -m ziglang cc -target $target "\${arguments[@]}"
SH
    chmod +x "$folder/cc-$target"
done
# zig has a C++ library of its own, which is not the one that LLVM was compiled with. It also takes no static
# library where a shared one is asked for. So a library in a folder of the link is given by its path.
cat >"$folder/cc-linux" <<SH
#!/usr/bin/env bash
arguments=() folders=() before=
for argument in "\$@"; do
    case \$before\$argument in -L?*) folders+=("\${argument#-L}") ;; esac
    before=
    [ "\$argument" != -L ] || before=-L
done
for argument in "\$@"; do
    case \$argument in
        -m64) continue ;;
        -lstdc++ | -lz | -lzstd)
            for folder in "\${folders[@]}"; do
                if [ -f "\$folder/lib\${argument#-l}.a" ]; then
                    argument=\$folder/lib\${argument#-l}.a
                    break
                fi
            done
            ;;
    esac
    arguments+=("\$argument")
done
exec "$python" -m ziglang cc -target $(uname -m)-linux-gnu.2.28 "\${arguments[@]}"
SH
chmod +x "$folder/cc-linux"
printf '#!/usr/bin/env bash\nexec "%s" -m ziglang ar "$@"\n' "$python" >"$folder/ar"
chmod +x "$folder/ar"
