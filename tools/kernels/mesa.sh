#!/usr/bin/env bash
# Lays out, from Debian sid's packages, Mesa's drivers for AMD and NVIDIA, the shims that stand in for their cards,
# and the validator of SPIR-V, and prints the folder. It is kept between calls; remove it to get a newer Mesa. sid's
# Mesa is wanted, because kernels in SPIR-V need 26.2.
#
# Nothing is installed, and apt's own lists and settings stay as they are. Programs run in the folder through its
# own loader, because its libraries need a newer glibc than a stable distribution has.
set -euo pipefail
export LC_ALL=C

cache=${FIREBRICK_CI_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/firebrick}/kernels
root=$cache/mesa
if [ -f "$root/made" ]; then
    echo "$root"
    exit
fi
fail() { echo "mesa: $*" >&2; exit 1; }

for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing; this needs a Debian or a child of it"
done
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keys" ] || fail "no keys at $keys (package debian-archive-keyring)"
mirror=$(apt-get update --print-uris | sed -n "s|^'\(.*/debian\)/dists/.*|\1|p" | head -n 1)
[ -n "$mirror" ] || fail "this machine's apt knows no Debian mirror"

mkdir -p "$cache"
work=$(mktemp -d "$cache/.mesa.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
# With an empty list of installed packages, apt brings everything that Mesa needs, to the last library.
: >"$work/status"
echo "deb [signed-by=$keys] $mirror sid main" >"$work/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "$(id -un)";
APT::Update::Error-Mode "any";
APT::Install-Recommends "0";
Debug::NoLocking "1";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
private_apt() { apt-get --config-file "$work/apt.conf" -qq "$@" >&2; }
private_apt update
private_apt install --download-only --yes mesa-vulkan-drivers mesa-drm-shim libvulkan1 spirv-tools
# The headers are for the layer beside this script. They need nothing of what their package asks for.
(cd "$work/archives" && private_apt download libvulkan-dev)
for package in "$work"/archives/*.deb; do dpkg-deb --extract "$package" "$work/root"; done
# The version of Mesa goes into the table.
basename "$work"/archives/mesa-vulkan-drivers_*.deb | cut -d _ -f 2 >"$work/root/made"
rm -rf "$work/root/usr/share" "$root"
mv "$work/root" "$root"
echo "$root"
