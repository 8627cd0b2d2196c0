#!/usr/bin/env bash
# Makes C compilers for other systems out of zig: FOLDER/cc-TARGET for each zig target below, and FOLDER/ar.
# With them `cargo check --target` gets past the dependencies that are compiled from C.
set -euo pipefail

folder=${1:?usage: tools/zig.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "$0")/.."
python=$(tools/venv.sh tools/release.txt)/python
for target in x86_64-windows-gnu aarch64-macos; do
    # cc's own --target, such as arm64-apple-macosx, is none of zig's.
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
printf '#!/usr/bin/env bash\nexec "%s" -m ziglang ar "$@"\n' "$python" >"$folder/ar"
chmod +x "$folder/ar"
