#!/usr/bin/env python3
"""Finds sentences that open without their subject.

    tools/prose.py                 every page, comment and help text of the repository
    tools/prose.py FILE ...        some files

A sentence that opens with "What", "Whether", "Where", "Of" and the like makes its reader hold an unfinished
thought. It is better turned round: the thing first, then what it does. Questions may open so, and so may the
sentences in `tools/prose-allowed.txt`, if there is that file, one on a line as `PATH: opening words`.

Exit code 1 if any other is found, or if a line of the list allows nothing any more.
"""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
ALLOWED = HERE / "prose-allowed.txt"

# Openings of noun clauses, and of sentences whose head was dropped.
HEADLESS = re.compile(r"(What|Whatever|Whether|Where|Wherever|Which|Who|Whoever|How|Why|That of|Those of|The same,|Of(?! course))\b(?!:)")

COMMENT = re.compile(r"^\s*(///|//!|//|#:?)\s?(.*)$")
PAUSE = re.compile(r"(?<=[.!?:])[\"')*_`]*\s+(?=[\"'(*_`\[]*[A-Z])")
# Points that end no sentence.
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|cf|etc|Fig|Eq|No)\.$")


def comments(lines, mark):
    """The texts of comments in code, by line; None for a line of code."""
    for line in lines:
        found = COMMENT.match(line)
        yield found.group(2) if found and found.group(1).startswith(mark) else None


def paragraphs(texts):
    """Paragraphs, items and table cells of Markdown, as (line number, text). None ends all that is open."""
    start, words, fenced = None, [], False
    for number, text in enumerate(texts, 1):
        fenced = fenced and text is not None
        text = (text or "").strip()
        if text.startswith("```"):
            fenced, text = not fenced, ""
        if words and (not text or fenced or re.match(r"([-*|#>]|\d+\.)\s?", text)):
            yield start, " ".join(words)
            words = []
        if fenced or not text:
            continue
        if text.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", text.strip("|")):
                yield number, cell.strip()
            continue
        if not words:
            start = number
        words.append(re.sub(r"^([-*#>]+|\d+\.)\s+", "", text))
    if words:
        yield start, " ".join(words)


def sentences(paragraph):
    """The sentences of a paragraph, without their marks."""
    parts, open_part = [], ""
    for part in PAUSE.split(paragraph):
        open_part = f"{open_part} {part}".strip()
        if not ABBREVIATION.search(open_part):
            parts.append(open_part)
            open_part = ""
    return parts + ([open_part] if open_part else [])


def headless(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if path.suffix != ".md":
        lines = comments(lines, "//" if path.suffix == ".rs" else "#")
    for number, paragraph in paragraphs(lines):
        for sentence in sentences(paragraph):
            plain = sentence.lstrip("\"'(*_`[")
            if HEADLESS.match(plain) and not sentence.rstrip("*_`\"').").endswith("?"):
                yield number, " ".join(sentence.split())


def files():
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.rs", "*.md", "*.toml", "*.py", "*.sh", ".ci/run"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()
    generated = ("tests/fixtures/", "book/src/options.md")
    return [ROOT / name for name in names if not name.startswith(generated) and (ROOT / name).exists()]


def main():
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or files()
    allowed = ALLOWED.read_text(encoding="utf-8").splitlines() if ALLOWED.exists() else []
    allowed = [line for line in allowed if line and not line.startswith("#")]
    used, count = set(), 0
    for path in chosen:
        name = path.relative_to(ROOT).as_posix()
        for number, sentence in headless(path):
            line = next((a for a in allowed if f"{name}: {sentence}".startswith(a)), None)
            if line:
                used.add(line)
                continue
            count += 1
            print(f"{name}:{number}: {sentence[:100]}")
    stale = [] if sys.argv[1:] else [line for line in allowed if line not in used]
    for line in stale:
        print(f"{ALLOWED.name}: nothing opens so any more: {line}")
    print(f"{count} sentences open without their subject", file=sys.stderr)
    return 1 if count or stale else 0


if __name__ == "__main__":
    sys.exit(main())
