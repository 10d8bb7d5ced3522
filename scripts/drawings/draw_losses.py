#!/usr/bin/env python3
"""Draws the losses of a run on one rank and of the same run on a mesh over each other, and below them the pipeline of the mesh.

MESH and ONE are metrics.jsonl of the runs, PIPELINE is what `minigpt schedule --json` prints for the shape of the mesh.

scripts/drawings/draw_losses.py ONE MESH PIPELINE --mesh 2x2x2 --svg any-mesh.svg
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from draw import Svg, draw_legend, draw_stage, num, width_of  # noqa: E402

LEFT, TOP, WIDE, HIGH = 74, 46, 640, 110


def losses(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines]


def curve(svg, points, color, thickness):
    line = "L".join(f"{num(x)} {num(y)}" for x, y in points)
    svg.shapes.append(f'<path d="M{line}" class="{svg.color("stroke", color)}" fill="none" '
                      f'stroke-width="{thickness}" stroke-linejoin="round" stroke-linecap="round"/>')


def draw_curves(svg, one, mesh, name):
    """The curve of the mesh is thin and lies on the wide one of one rank."""
    last, most = one[-1][0], max(loss for _, loss in one + mesh)
    least = math.floor(min(loss for _, loss in one + mesh))

    def at(step, loss):
        return LEFT + WIDE * step / last, TOP + HIGH * (most - loss) / (most - least)

    for loss in range(least, math.ceil(most)):
        x, y = at(0, loss)
        svg.box(x, y, WIDE, 1, "line" if loss == least else "empty")
        svg.text(x - 10, y + 4, str(loss), 11, "grey", "end")
    for step in range(0, last + 1, 100):
        x, y = at(step, least)
        svg.text(x, y + 18, f"step {step}" if step else "0", 11, "grey", "middle" if step < last else "end")
    svg.text(16, TOP + 12, "loss", color="grey")
    curve(svg, [at(*point) for point in one], "blue", 7)
    curve(svg, [at(*point) for point in mesh], "ink", 1.3)
    apart = max(abs(a - b) for (_, a), (_, b) in zip(one, mesh, strict=True))
    x, y = LEFT + WIDE - 300, TOP + 14
    for color, thickness, words in (("blue", 7, "one rank"), ("ink", 1.3, name)):
        curve(svg, [(x, y - 4), (x + 26, y - 4)], color, thickness)
        svg.text(x + 36, y, words)
        y += 22
    svg.text(x + 36, y, f"largest difference at any step: {apart:.6f}", color="grey")


def draw(one, mesh, pipeline, shape):
    svg, (dp, pp, tp) = Svg(), shape
    ranks, scale = dp * pp * tp, WIDE / pipeline["time"]
    if pp != pipeline["stages"]:
        raise ValueError(f"a pipeline of {pipeline['stages']} stages for pp {pp}")
    svg.text(16, 28, f"One rank and {ranks} ranks train the same model", 16, bold=True)
    draw_curves(svg, one, mesh, f"{ranks} ranks: dp {dp} x pp {pp} x tp {tp}")
    y = TOP + HIGH + 48
    svg.text(16, y, "A step of a replica on this mesh", bold=True)
    svg.text(24 + width_of("A step of a replica on this mesh"), y,
             f"schedule {pipeline['name']}; each stage is {tp} tensor-parallel ranks", color="grey")
    y += 14
    for stage in range(pp):
        svg.text(16, y + 17, f"stage {stage}")
        y = draw_stage(svg, pipeline, stage, LEFT, y, scale, 26) + 5
    return svg.str(LEFT + WIDE + 26, draw_legend(svg, [pipeline], LEFT, y + 18, "number: micro-batch"))


def main():
    about, _, example = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=example)
    for name in ("one", "mesh_run", "pipeline"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--mesh", required=True, help="dp x pp x tp, such as 2x2x2")
    parser.add_argument("--svg", required=True, type=pathlib.Path)
    args = parser.parse_args()
    try:
        shape = [int(size) for size in args.mesh.split("x")]
        args.svg.write_text(draw(losses(args.one), losses(args.mesh_run), json.loads(args.pipeline.read_text()), shape))
    except OSError as e:
        sys.exit(f"draw_losses.py: {e.filename}: {e.strerror}")
    except (ValueError, KeyError, TypeError) as e:
        sys.exit(f"draw_losses.py: {e!r}; expected two metrics.jsonl of equally many steps and the JSON of `minigpt schedule`")


if __name__ == "__main__":
    main()
