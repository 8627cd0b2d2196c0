"""Lists the crates that are linked into the program: their licences with the texts, and a bill of materials.

    python3 tools/licences.py TARGET FEATURES THIRD-PARTY.txt sbom.cdx.json

FEATURES is `cpu`, or cargo features of firebrick-cli. The bill is CycloneDX 1.5.
"""

import collections
import json
import pathlib
import subprocess
import sys

PROGRAM = "firebrick-cli"
# The names of files that state the terms of a crate.
NAMES = ("license", "licence", "copying", "notice", "copyright", "unlicense")


def cargo(*arguments):
    command = ["cargo", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(target, features):
    """Finds the packages behind the program's ordinary dependencies, without those that only build them."""
    chosen = [] if features == "cpu" else ["--features", features]
    # The metadata has every package that some feature might bring. The tree has those that are built.
    tree = cargo(
        "tree", "--locked", "--package", PROGRAM, "--edges", "normal,no-proc-macro", "--target", target,
        "--prefix", "none", "--format", "{p}", *chosen,
    )
    built = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    found = json.loads(cargo("metadata", "--locked", "--all-features", "--format-version", "1"))
    packages = [
        package for package in found["packages"]
        if (package["name"], "v" + package["version"]) in built
    ]
    lacking = built - {(package["name"], "v" + package["version"]) for package in packages}
    if lacking:
        sys.exit(f"cargo metadata knows nothing of {sorted(lacking)}")
    keys = {package["id"] for package in packages}

    def is_linked(dependency):
        kinds = dependency["dep_kinds"]
        return dependency["pkg"] in keys and any(kind["kind"] is None for kind in kinds)

    edges = {
        node["id"]: [dependency["pkg"] for dependency in node["deps"] if is_linked(dependency)]
        for node in found["resolve"]["nodes"]
    }
    return sorted(packages, key=lambda package: (package["name"], package["version"])), edges


def texts(package):
    """Reads the files of terms in a crate's folder."""
    folder = pathlib.Path(package["manifest_path"]).parent
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    files = [path for path in files if path.stem.lower().startswith(NAMES)]
    named = folder / package["license_file"] if package.get("license_file") else None
    if named and named.is_file() and named not in files:
        files.append(named)
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]


def third_party(packages):
    lines = ["Crates that are part of this program, with their licences.", ""]
    users = collections.OrderedDict()
    bare = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        lines.append(f"{name}  {package['license'] or 'see its text'}")
        found = texts(package)
        for text in found:
            users.setdefault(text, []).append(name)
        if not found:
            bare.append(name)
    if bare:
        lines += ["", "Without a text of their own in the package: " + ", ".join(bare) + "."]
    for text, names in users.items():
        lines += ["", "=" * 80, ", ".join(names), "-" * 80, "", text]
    return "\n".join(lines) + "\n"


def bill(packages, edges, target, features):
    def purl(package):
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(package):
        made = {
            "type": "application" if package["name"] == PROGRAM else "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
        }
        if package["license"]:
            # Cargo once wrote OR as a slash.
            expression = package["license"].replace("/", " OR ")
            made["licenses"] = [{"expression": expression}]
        return made

    by_key = {package["id"]: package for package in packages}
    program = next(package for package in packages if package["name"] == PROGRAM)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(program),
            "properties": [
                {"name": "firebrick:target", "value": target},
                {"name": "firebrick:features", "value": features},
            ],
        },
        "components": [component(package) for package in packages if package is not program],
        "dependencies": [
            {
                "ref": purl(package),
                "dependsOn": sorted({purl(by_key[key]) for key in edges[package["id"]]}),
            }
            for package in packages
        ],
    }


def main():
    target, features, terms, sbom = sys.argv[1:]
    packages, edges = linked(target, features)
    others = [package for package in packages if package["source"]]
    pathlib.Path(terms).write_text(third_party(others), encoding="utf-8")
    text = json.dumps(bill(packages, edges, target, features), indent=1)
    pathlib.Path(sbom).write_text(text + "\n", encoding="utf-8")
    print(f"{len(packages)} crates", file=sys.stderr)


if __name__ == "__main__":
    main()
