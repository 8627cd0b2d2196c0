"""Assembles kernels in PTX with NVIDIA's own ptxas: python assemble.py PTXAS CACHE FOLDER...

Each FOLDER has the modules that driver.c wrote down. It gets `assembled`, with a line for each module and tabs
between the columns: the module, the seconds that ptxas took, registers, bytes of the stack, of spill stores and of
spill loads, and what ptxas said if it failed. One kernel is assembled once, and CACHE keeps what came of it, by the
contents of the PTX. Every core has a process.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time


def main(ptxas, cache, *folders):
    cache = pathlib.Path(cache)
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([ptxas, "--version"], check=True, capture_output=True).stdout
    modules = [path for folder in folders for path in sorted(pathlib.Path(folder).glob("[0-9]*.ptx"))]
    keys = {path: hashlib.sha256(version + path.read_bytes()).hexdigest() for path in modules}
    first = {key: path for path, key in reversed(keys.items())}
    wanted = [key for key in first if not (cache / key).exists()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        # The largest come first, so that no core waits for another at the end.
        wanted.sort(key=lambda key: -first[key].stat().st_size)
        for done in threads.map(lambda key: assemble(ptxas, first[key], cache / key), wanted):
            assert done is None
    for folder in folders:
        lines = []
        for path in modules:
            if path.parent == pathlib.Path(folder):
                lines.append([int(path.stem), *json.loads((cache / keys[path]).read_text())])
        text = "".join("\t".join(map(str, line)) + "\n" for line in lines)
        (pathlib.Path(folder) / "assembled").write_text(text)
    print(f"{len(modules)} modules, {len(first)} different ones, {len(wanted)} assembled now")


def assemble(ptxas, module, kept):
    # PTX names its own architecture, and some of its instructions are of that one alone.
    arch = re.search(rb"^\.target\s+(\w+)", module.read_bytes(), re.MULTILINE)[1].decode()
    began = time.monotonic()
    run = subprocess.run(
        [ptxas, "--verbose", "--gpu-name", arch, "--output-file", os.devnull, module],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )
    seconds = round(time.monotonic() - began, 3)
    said = (run.stderr + run.stdout).replace(f"{module.parent}/", "")
    number = lambda pattern: max(map(int, re.findall(pattern, said)), default=0)
    patterns = [
        r"Used (\d+) registers",
        r"(\d+) bytes stack frame",
        r"(\d+) bytes spill stores",
        r"(\d+) bytes spill loads",
    ]
    # ptxas ends with 0 in spite of some warnings that matter, such as a stack whose size is not known.
    bad = [line for line in said.splitlines() if re.search("warning|error|fatal", line, re.IGNORECASE)]
    error = " ".join(bad)[:1000]
    if run.returncode:
        error = error or f"ptxas ended with {run.returncode}"
    elif not re.search(patterns[0], said):
        error = error or "ptxas told no registers"
    found = [seconds, *map(number, patterns), error.replace("\t", " ")]
    part = kept.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(found))
    part.rename(kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
