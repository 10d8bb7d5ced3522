#!/usr/bin/env python3
"""Draws the ratios of docs/performance.md, triax beside PyTorch: a bar for the median, a whisker for the range of pairs.

python3 bench/chart.py            writes docs/pictures/performance.svg
python3 bench/chart.py --check    writes nothing; exit status 1 unless the picture is what the tables give
"""

import argparse
import pathlib
import re
import sys
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from draw import Svg, width_of  # noqa: E402

LEFT, TOP, ROW, SCALE = 250, 74, 20, 200  # pixels; SCALE: of a ratio of 1
RATIO = re.compile(r"([\d.]+) \(([\d.]+)-([\d.]+)\)")
Bar = namedtuple("Bar", "machine label median low high")  # machine: the heading of its table


def bars_of(page: str) -> list[Bar]:
    """The rows of all tables whose first column is `workload`, in their order."""
    found, machine, names = [], "", []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("#"):
            machine = line.strip("# ")
        if not cells or cells[0] == "workload":
            names = cells
        elif names and not line.startswith("|--"):
            if len(cells) != len(names):
                raise ValueError(f"{machine}, {cells[0]}: {len(cells)} columns; expected {len(names)}")
            row = dict(zip(names, cells, strict=True))
            ratio = next((value for name, value in row.items() if name.startswith("ratio")), "")
            if not (numbers := RATIO.match(ratio)):
                raise ValueError(f"{machine}, {row['workload']}: ratio `{ratio}`; expected MEDIAN (LOWEST-HIGHEST)")
            label = f"{row['workload']}, {row['precision']}" + ", 1 thread" * (row["threads"] == "1")
            found.append(Bar(machine, label, *map(float, numbers.groups())))
    return found


def draw(bars: list[Bar]) -> str:
    svg, machines = Svg(), list(dict.fromkeys(bar.machine for bar in bars))
    bottom = TOP + ROW * len(bars) + 2 * ROW * len(machines)
    ticks = int(2 * max(bar.high for bar in bars)) + 1
    svg.text(16, 28, "Speed of triax over that of PyTorch, on CPUs", 16, bold=True)
    svg.text(16, 48, "bar: median of pairs; whisker: lowest to highest pair; line at 1: as fast as PyTorch", color="grey")
    for tick in range(ticks + 1):
        x = LEFT + SCALE * tick / 2
        svg.box(x, TOP - 4, 1, bottom - TOP + 4, "empty")
        svg.text(x, bottom + 16, f"{tick / 2:g}", 11, "grey", "middle")
    y = TOP
    for machine in machines:
        svg.text(16, y + 15, machine, bold=True)
        y += ROW + 4
        for bar in (bar for bar in bars if bar.machine == machine):
            low, high, middle = LEFT + SCALE * bar.low, LEFT + SCALE * bar.high, y + ROW / 2 - 2.5
            svg.text(LEFT - 10, y + 12, bar.label, 11, anchor="end")
            svg.box(LEFT, y, SCALE * bar.median, ROW - 4, "blue" if bar.median >= 1 else "amber", round=2)
            svg.box(low, middle, high - low, 1, "ink")
            for x in (low, high):
                svg.box(x - 0.5, y + 4, 1, ROW - 12, "ink")
            svg.text(max(high, LEFT + SCALE) + 8, y + 12, f"{bar.median:.2f} ({bar.low:.2f}-{bar.high:.2f})", 11, "grey")
            y += ROW
        y += ROW - 4
    svg.box(LEFT + SCALE - 0.5, TOP - 4, 1.5, bottom - TOP + 4, "ink")
    return svg.str(LEFT + SCALE * ticks / 2 + width_of("0.00 (0.00-0.00)", 11) + 16, bottom + 30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    for name, default in (("--page", "docs/performance.md"), ("--svg", "docs/pictures/performance.svg")):
        parser.add_argument(name, type=pathlib.Path, default=ROOT / default)
    a = parser.parse_args()
    if not (bars := bars_of(a.page.read_text())):
        raise ValueError(f"{a.page}: no table has a first column `workload`")
    picture = draw(bars)
    if not a.check:
        a.svg.write_text(picture)
    elif a.svg.read_text() != picture:
        raise ValueError(f"{a.svg} is not what the tables of {a.page} give; the cure: python3 bench/chart.py")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:
        sys.exit(f"chart.py: {error}")
