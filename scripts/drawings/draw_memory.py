#!/usr/bin/env python3
"""Draws the memory of runs: of each FILE, what `minigpt train --ledger` printed, the highest that a rank held of each
kind. The name of a run is that of its file.

scripts/drawings/draw_memory.py off selective block --title Recomputation --svg recomputation.svg
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from draw import Svg, width_of  # noqa: E402

KINDS = {"parameters": "blue", "gradients": "amber", "optimizer": "green", "activations": "pink"}
LEFT, WIDE, HIGH = 110, 560, 22


def peaks(path):
    """{kind: MB} of the first stage."""
    line = re.search(r"^  peak [\d.]+ MB: (.*)$", path.read_text(), re.M)
    if not line:
        raise SystemExit(f"draw_memory.py: {path}: no line `peak`; expected the output of `train --ledger`")
    words = line[1].split()
    return dict(zip(words[::2], map(float, words[1::2])))


def draw(runs, title):
    svg, y = Svg(), 62
    scale = WIDE / max(sum(held.get(kind, 0) for kind in KINDS) for held in runs.values())
    svg.text(16, 28, title, 16, bold=True)
    for name, held in runs.items():
        x = LEFT
        svg.text(16, y + 15, name)
        for kind, color in KINDS.items():
            wide = held.get(kind, 0) * scale
            svg.box(x, y, wide, HIGH, color)
            number = f"{held.get(kind, 0):.2f}"
            if width_of(number, 11) < wide:
                svg.text(x + wide / 2, y + 15, number, 11, anchor="middle")
            x += wide
        if "offloaded" in held:
            svg.text(x + 8, y + 15, f"offloaded {held['offloaded']:.2f}", 11, "grey")
        y += HIGH + 8
    x = LEFT
    for kind, color in KINDS.items():
        svg.box(x, y + 4, 12, 12, color)
        svg.text(x + 18, y + 14, kind, 11, "grey")
        x += 32 + width_of(kind, 11)
    svg.text(x + 8, y + 14, "MB, the highest of each kind", 11, "grey")
    return svg.str(LEFT + WIDE + 24, y + 30)


def main():
    about, example = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=example)
    parser.add_argument("file", nargs="+", type=pathlib.Path)
    parser.add_argument("--title", required=True)
    parser.add_argument("--svg", required=True, type=pathlib.Path)
    args = parser.parse_args()
    args.svg.write_text(draw({file.name: peaks(file) for file in args.file}, args.title))


if __name__ == "__main__":
    main()
