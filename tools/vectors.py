"""Checks that the CPU's bodies are compiled for wide vectors: python tools/vectors.py target/release/firebrick

`simd!` of firebrick-kernels runs a closure in a function that is compiled for AVX-512 or AVX2. Code that is not
inlined into that function is compiled for every x86-64 processor, and is slow without a word. So this script looks
into the program, with binutils, for calls and jumps from such a function to any other, except to functions that
take memory or end the program. It ends with 1 if there is one.
"""

import re
import subprocess
import sys

# pulp runs the closures that it is given in these functions.
WIDE = re.compile(r"pulp::x86::v[34]::V[34]::vectorize::imp")
# They may call these functions: for broken bounds, and for memory that is taken, moved and given back.
PLAIN = re.compile(
    r"core::(slice::index|panicking|option::(expect|unwrap)|result::unwrap)|alloc::(raw_vec|alloc)|"
    r"__rustc|__rust_|_Unwind_|mem(set|cpy|move|cmp)\b|bcmp\b"
)


def main(program):
    names = {}
    for line in run("nm", "--demangle", program):
        address, kind, name = (line.split(" ", 2) + ["", ""])[:3]
        if kind in ("t", "T") and address:
            names[int(address, 16)] = name
    # Calls go through a table whose entries the loader fills in.
    table = {}
    for line in run("objdump", "--dynamic-reloc", program):
        if found := re.match(r"([0-9a-f]+) R_X86_64_RELATIVE\s+\*ABS\*\+0x([0-9a-f]+)", line):
            table[int(found[1], 16)] = names.get(int(found[2], 16), "?")
        elif found := re.match(r"([0-9a-f]+) R_X86_64_(?:GLOB_DAT|JUMP_SLOT)\s+(\S+)", line):
            table[int(found[1], 16)] = found[2]
    wide, called, inside = 0, set(), None
    for line in run("objdump", "--disassemble", "--no-show-raw-insn", program):
        if found := re.match(r"([0-9a-f]+) <(.*)>:", line):
            inside = found[2] if WIDE.search(names.get(int(found[1], 16), "")) else None
            wide += bool(inside)
        elif not inside:
            continue
        elif found := re.search(r"\b(?:call|jmp) +\*.*# ([0-9a-f]+)", line):
            called.add(table.get(int(found[1], 16), line.strip()))
        elif found := re.search(r"\b(?:call|j[a-z]+) +([0-9a-f]+) <([^>+]*)", line):
            if found[2] != inside:
                called.add(names.get(int(found[1], 16), found[2]))
        elif re.search(r"\bcall +\*", line):
            called.add(line.strip())
    left = sorted(name for name in called if not PLAIN.match(name))
    if not wide:
        sys.exit("there is no function for wide vectors: is this a program for x86-64 with its symbols?")
    if left:
        sys.exit("not inlined into code for wide vectors:\n  " + "\n  ".join(left))
    print(f"{wide} functions for wide vectors call nothing but what takes memory or ends the program")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main(*sys.argv[1:])
