"""Draws the book's figure of peak memory against tokens, from the lines that the bench `memory` prints.

    cargo bench -p firebrick-benches --bench memory -- smollm2 1024 lora 0 1 >> lines.json    # and so on
    python benches/lengths.py < lines.json > book/src/figures/lengths.svg
"""

import json
import sys

NAMES = {"0.5b": "494 million parameters", "smollm2": "135 million"}
LEFT, RIGHT, TOP, BOTTOM = 64.0, 536.0, 36.0, 244.0
TOKENS, GIB = 16_384, 4.0
TITLE = "Peak memory of an update against its tokens, adapters of rank 16"


def main():
    curves = {}
    for text in sys.stdin:
        if text.startswith("{"):
            run = json.loads(text)
            curves.setdefault(run["shape"], []).append((run["tokens"], run["peak_gib"]))
    print(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" width="720" '
        'style="max-width:100%;height:auto" role="img" font-family="sans-serif" font-size="13" '
        'fill="currentColor">'
    )
    print(f"<title>{TITLE}</title>")
    print(f'<text x="{LEFT:.0f}" y="20" font-weight="bold">{TITLE}</text>')
    for tokens in range(0, TOKENS + 1, 4096):
        line((x(tokens), TOP), (x(tokens), BOTTOM))
        print(f'<text x="{x(tokens):.1f}" y="262.0" text-anchor="middle">{tokens:,}</text>')
    for gib in range(int(GIB) + 1):
        line((LEFT, y(gib)), (RIGHT, y(gib)))
        print(f'<text x="56.0" y="{y(gib) + 4.5:.1f}" text-anchor="end">{gib}</text>')
    print(f'<text x="{(LEFT + RIGHT) / 2:.1f}" y="288.0" text-anchor="middle">tokens</text>')
    print(f'<text x="56.0" y="{TOP - 8:.1f}" text-anchor="end">GiB</text>')
    for shape, points in sorted(curves.items()):
        points = [(x(tokens), y(gib)) for tokens, gib in sorted(points)]
        path = "L".join(f"{at:.1f} {high:.1f}" for at, high in points)
        print(f'<path d="M{path}" fill="none" stroke="currentColor" stroke-width="1.5"/>')
        for at, high in points:
            print(f'<circle cx="{at:.1f}" cy="{high:.1f}" r="3"/>')
        at, high = points[-1]
        print(f'<text x="{at + 10:.1f}" y="{high + 4.5:.1f}">{NAMES[shape]}</text>')
    print("</svg>")


def line(begin, end):
    (a, b), (c, d) = begin, end
    print(f'<path d="M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" stroke="currentColor" stroke-opacity="0.15"/>')


def x(tokens):
    return LEFT + (RIGHT - LEFT) * tokens / TOKENS


def y(gib):
    return BOTTOM - (BOTTOM - TOP) * gib / GIB


if __name__ == "__main__":
    main()
