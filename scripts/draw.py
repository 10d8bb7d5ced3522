#!/usr/bin/env python3
"""Draws the JSON of `minigpt schedule` and of bench/figures.cpp: an SVG for light and dark pages.

build/release/bin/minigpt schedule --schedule zb-h1 --json | scripts/draw.py --svg zb-h1.svg
build/release/bin/figures mesh 2x2x2 | scripts/draw.py --svg mesh.svg
scripts/draw.py 1f1b.json zb-h1.json --svg both.svg     several schedules, on one time axis
scripts/overlay.py runs/mine --json | scripts/draw.py --svg overlay.svg
scripts/draw.py 1p.json 2p.json --svg bubbles.svg       of `minigpt schedule --search --json`: bubble over memory
"""

import argparse
import json
import math
import pathlib
import sys
from html import escape

FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
# Name: on a light page, on a dark one.
COLORS = {
    "paper": ("#ffffff", "#0d1117"), "ink": ("#24292f", "#e6edf3"), "grey": ("#57606a", "#9198a1"),
    "line": ("#8c959f", "#6e7681"), "empty": ("#e9ecef", "#2d333b"), "band": ("#f4f6f8", "#161b22"),
    "blue": ("#a9d2ff", "#1f5a99"), "green": ("#a8e0b4", "#27703c"), "amber": ("#ffdc96", "#85610f"),
    "pink": ("#f6cfe2", "#85406a"), "violet": ("#ddd4fb", "#5a4a99"), "cyan": ("#bdeaec", "#1d6a70"),
    "sand": ("#eed8c3", "#755539"), "olive": ("#dfe4a6", "#5f661f"), "pale": ("#dcebfb", "#1b3350"),
}
GROUPS = ["blue", "amber", "green", "pink", "violet", "cyan", "sand", "olive"]


def num(x):
    return f"{round(x, 2):g}"


class Svg:
    """Pixels, y downwards; what is added later lies above. Colors are names in COLORS."""

    def __init__(self):
        self.shapes, self.used = [], {("fill", "paper")}

    def color(self, kind, name):
        self.used.add((kind, name))
        return f"{kind[0]}-{name}"

    def box(self, x, y, width, height, fill=None, stroke=None, round=0, dashed=False):
        names = [self.color(kind, name) for kind, name in (("fill", fill), ("stroke", stroke)) if name]
        extra = ("" if fill else ' fill="none"') + (f' rx="{num(round)}"' if round else "")
        extra += ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(f'<rect x="{num(x)}" y="{num(y)}" width="{num(width)}" '
                           f'height="{num(height)}" class="{" ".join(names)}"{extra}/>')

    def path(self, points, head=False):
        """A line through points; with `head` an arrow, whose last stretch is level."""
        (x, y) = points[-1]
        line = "L".join(f"{num(a)} {num(b)}" for a, b in points[:-1] + [(x - 6 * head, y)])
        self.shapes.append(f'<path d="M{line}" class="{self.color("stroke", "line")}" fill="none"/>')
        if head:
            self.shapes.append(f'<path d="M{num(x)} {num(y)}l-7 3.5v-7z" '
                               f'class="{self.color("fill", "line")}"/>')

    def text(self, x, y, text, size=12, color="ink", anchor="start", bold=False):
        extra = f' text-anchor="{anchor}"' if anchor != "start" else ""
        extra += ' font-weight="600"' if bold else ""
        self.shapes.append(f'<text x="{num(x)}" y="{num(y)}" font-size="{num(size)}" '
                           f'class="{self.color("fill", color)}"{extra}>{escape(text)}</text>')

    def str(self, width, height):
        def rules(mode):
            return "".join(f".{kind[0]}-{name}{{{kind}:{COLORS[name][mode]}}}"
                           for kind, name in sorted(self.used))
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{num(width)}" height="{num(height)}" '
                f'viewBox="0 0 {num(width)} {num(height)}" font-family="{FONT}">\n'
                f"<style>{rules(0)}\n@media (prefers-color-scheme: dark){{{rules(1)}}}</style>\n"
                '<rect width="100%" height="100%" class="f-paper"/>\n'
                + "\n".join(self.shapes) + "\n</svg>\n")


def width_of(text, size=12):
    """About, in pixels: what shows the drawing chooses the font."""
    return 0.56 * size * len(text)


# -- Pipelines

KINDS = {"forward": ("forward", "blue"), "backward": ("backward", "green"),
         "backward_input": ("backward of the input", "green"),
         "backward_weight": ("backward of the weights", "amber")}


def idle_times(actions, until):
    """(begin, end) of what lies between the actions of a stage."""
    at = 0
    for a in actions:
        if a["begin"] - at > 1e-9:
            yield at, a["begin"]
        at = a["end"]
    if until - at > 1e-9:
        yield at, until


def draw_stage(svg, t, stage, left, y, scale, lane):
    """A lane for each chunk, chunk 0 on top. Returns the foot."""
    height = lane * t["chunks"]
    actions = [a for a in t["actions"] if a["stage"] == stage and a["kind"] in KINDS]  # copies run beside them
    for begin, end in idle_times(actions, t["time"]):
        svg.box(left + scale * begin, y, scale * (end - begin), height, "empty")
    for a in actions:
        x, wide, top = left + scale * a["begin"], scale * (a["end"] - a["begin"]), y + lane * a["chunk"]
        svg.box(x + 0.5, top + 0.5, wide - 1, lane - 1, KINDS[a["kind"]][1], round=2)
        number = str(a["micro"])
        size = min(12, (wide - 4) / (0.6 * len(number)))  # what fits
        if size >= 6:
            svg.text(x + wide / 2, top + lane / 2 + 4, number, size, anchor="middle")
    return y + height


def live_unit(timelines):
    """Parts of a stage whose activations are counted, one of which is a chunk of each timeline; and in words."""
    chunks = {t["chunks"] for t in timelines}
    parts = math.lcm(*chunks)
    if parts == 1:
        return 1, ""
    return parts, ", each of " + ("one chunk" if len(chunks) == 1 else "half a stage" if parts == 2 else f"1/{parts} stage")


def draw_timelines(timelines):
    svg, left, scale, y = Svg(), 74, 28, 26
    longest = max(t["time"] for t in timelines)
    parts, unit = live_unit(timelines)
    right = left + scale * longest
    column = max(right, left + 420) + 14
    for t in timelines:
        chunks = f" of {t['chunks']} chunks" if t["chunks"] > 1 else ""
        chunks += " in a V" if t["placement"] == "v" else ""
        svg.text(16, y, t["name"], 16, bold=True)
        stages = f"{t['stages']} stage" + "s" * (t["stages"] > 1)
        micros = f"{t['micros']} micro-batch" + "es" * (t["micros"] > 1)
        svg.text(16, y + 20, f"{stages}{chunks}, {micros}; bubble "
                 f"{t['bubble']:g} of {t['time']:g} ({100 * t['bubble'] / t['time']:.0f}%)", color="grey")
        svg.text(column, y + 20, "live", color="grey")
        y += 34
        for stage in range(t["stages"]):
            lane = 30 if t["chunks"] == 1 else 19
            svg.text(16, y + lane * t["chunks"] / 2 + 4, f"stage {stage}")
            foot = draw_stage(svg, t, stage, left, y, scale, lane)
            svg.text(column, (y + foot) / 2 + 4, str(t["peak_live"][stage] * parts // t["chunks"]), bold=True)
            y = foot + 6
        y += 34
    axis = y - 30
    svg.path([(left, axis), (right, axis)])
    for time in range(0, int(longest) + 1, 5):
        svg.path([(left + scale * time, axis), (left + scale * time, axis + 5)])
        svg.text(left + scale * time, axis + 18, str(time), 11, "grey", "middle")
    svg.text(column, axis + 4, "time", color="grey")
    return svg.str(max(column + 44, 720), draw_legend(
        svg, timelines, left, axis + 46, f"number: micro-batch; live: most activations held at once{unit}; "
        "time 1: the forward of one micro-batch through a stage"))


def draw_overlay(o):
    """Each stage twice: as it was measured, and below, lower, as it is simulated."""
    svg, left, y, both = Svg(), 150, 26, (o["measured"], o["simulated"])
    measured, simulated = both
    longest = max(t["time"] for t in both)
    scale = 1000 / longest
    lanes = [(t, round(lane / t["chunks"] ** 0.5)) for t, lane in zip(both, (26, 16))]
    svg.text(16, y, f"{measured['name']}: step {o['step']} of {o['source']}", 16, bold=True)
    svg.text(16, y + 20, f"measured {1e3 * measured['time']:.4g} ms, simulated {1e3 * simulated['time']:.4g} ms "
             f"({100 * (measured['time'] / simulated['time'] - 1):+.1f} %)", color="grey")
    y += 34
    for stage in range(measured["stages"]):
        svg.text(16, y + 18, f"stage {stage}", bold=True)
        for (t, lane), word in zip(lanes, ("measured", "simulated")):
            foot = draw_stage(svg, t, stage, left, y, scale, lane)
            svg.text(left - 8, (y + foot) / 2 + 4, word, 11, "grey", "end")
            y = foot + 2
        y += 8
    svg.path([(left, y), (left + 1000, y)])
    tick = next(n * 10 ** e for e in range(-9, 9) for n in (1, 2, 5) if longest / (n * 10 ** e) <= 10)
    for i in range(int(longest / tick) + 1):
        x = left + scale * i * tick
        svg.path([(x, y), (x, y + 5)])
        svg.text(x, y + 18, f"{1e3 * i * tick:g} ms", 11, "grey", "middle")
    return svg.str(left + 1040, draw_legend(svg, both, left, y + 46, "number: micro-batch; simulated: the same actions, "
                                            "each as long as measured, over links of the least latency that was measured"))


def draw_legend(svg, timelines, x, y, line):
    left, present = x, {a["kind"] for t in timelines for a in t["actions"]}
    entries = {}  # color: meaning
    for kind, (word, color) in KINDS.items():
        if kind in present:
            entries[color] = f"{entries[color]} or {word}" if color in entries else word
    for color, word in [*entries.items(), ("empty", "idle")]:
        svg.box(x, y - 10, 14, 12, color, round=2)
        svg.text(x + 20, y, word)
        x += 44 + width_of(word)
    lines = [line]
    if any(t["chunks"] > 1 for t in timelines):
        lines.append("lanes of a stage, from the top: chunk 0, chunk 1, ...")
    for line in lines:
        y += 19
        svg.text(left, y, line, 11, "grey")
    return y + 16


# -- Searches


def draw_bubbles(searches):
    """Bubble over memory: a dot for each named schedule, a line through what was found with one chunk per stage, and with
    two, the bound of one chunk below it."""
    svg, left, top, wide, high = Svg(), 64, 62, 560, 300
    first = searches[0]
    stages, named = first["stages"], first["rows"][:-1]
    points = [(max(row["peak"]) / stages, row["bubble"], row["name"]) for row in named]
    found = {chunks: [(max(s["cap"]) / stages, s["rows"][-1]["bubble"]) for s in searches
                      if s["rows"][-1]["chunks"] == chunks] for chunks in (1, 2)}
    bound = [(max(s["cap"]) / stages, s["best_bubble"]) for s in searches if s["rows"][-1]["chunks"] == 1]
    most_x = max(x for x, *_ in points + found[1]) * 1.12
    most_y = max(y for _, y, *_ in points + found[1]) * 1.08

    def at(x, y):
        return left + wide * x / most_x, top + high * (1 - y / most_y)

    svg.text(16, 28, f"Bubble over memory: {stages} stages, {first['micros']} micro-batches", 16, bold=True)
    svg.text(16, 47, f"after the input's backward an activation counts {first['hold']:g} until the weights'",
             color="grey")
    svg.path([at(0, most_y), at(0, 0), at(most_x, 0)])
    for half in range(1, int(2 * most_x) + 1):
        x, y = at(half / 2, 0)
        svg.path([(x, y), (x, y + 5)])
        svg.text(x, y + 18, f"{half / 2:g}p", 11, "grey", "middle")
    for percent in range(0, int(100 * most_y) + 1, 5):
        x, y = at(0, percent / 100)
        svg.path([(x - 5, y), (x, y)])
        svg.text(x - 9, y + 4, f"{percent}%", 11, "grey", "end")
    for x, y in bound:
        x, y = at(x, y)
        svg.box(x - 6, y - 0.5, 12, 1, "grey")
    for color, line in (("green", found[1]), ("violet", found[2])):
        if line:
            svg.path([at(*point) for point in line])
        for x, y in line:
            x, y = at(x, y)
            svg.box(x - 4, y - 4, 8, 8, color, "line", round=4)
    for x, y, name in points:
        x, y = at(x, y)
        svg.box(x - 4, y - 4, 8, 8, "blue", "line", round=4)
        others = [at(*point) for point in found[1] + found[2]]
        crowded = any(4 < a - x < 70 and abs(b - y) < 14 for a, b in others)
        svg.text(x - 8 if crowded else x + 8, y - 5, name, anchor="end" if crowded else "start")
    svg.text(left + wide / 2, top + high + 38, "memory: most activations held at once", 11, "grey", "middle")
    x, y = left, top + high + 66
    for color, round, word in (("blue", 4, "named schedule"), ("green", 4, "found"), ("violet", 4, "found, two chunks in a V"),
                               ("grey", 0, "none of one chunk is below")):
        svg.box(x, y - (8 if round else 4), 8 if round else 12, 8 if round else 1, color, "line" if round else None, round)
        svg.text(x + 18, y, word)
        x += 42 + width_of(word)
    svg.text(left, y + 20, "p: activations of as many micro-batches as there are stages, on the stage that holds most", 11,
             "grey")
    return svg.str(max(left + wide + 40, x), y + 36)


# -- Meshes


def draw_mesh(m):
    svg, left, top, wide, high, gap, pad = Svg(), 100, 74, 132, 46, 8, 12
    across, tall = wide + 2 * pad + 56, m["tp"] * (high + gap) - gap + 2 * pad
    ranks = {tuple(at): rank for rank, at in enumerate(m["ranks"])}
    svg.text(16, 28, f"mesh dp {m['dp']} x pp {m['pp']} x tp {m['tp']}", 16, bold=True)
    for pp in range(m["pp"]):
        svg.text(left + pp * across + wide / 2 + pad, top - 12, f"pipeline stage {pp}", anchor="middle")
    for (dp, pp, tp), rank in sorted(ranks.items()):
        x, y = left + pp * across, top + dp * (tall + 20)
        if pp == tp == 0:
            svg.text(16, y + tall / 2 + 4, f"replica {dp}")
        if tp == 0 and m["tp"] > 1:
            svg.box(x, y, wide + 2 * pad, tall, stroke="line", round=8, dashed=True)
        x, y = x + pad, y + pad + tp * (high + gap)
        svg.box(x, y, wide, high, GROUPS[(pp * m["tp"] + tp) % len(GROUPS)], "line", round=4)
        svg.text(x + wide / 2, y + 20, f"rank {rank}", 14, anchor="middle", bold=True)
        svg.text(x + wide / 2, y + 37, f"dp {dp}  pp {pp}  tp {tp}", 11, anchor="middle")
        if pp + 1 < m["pp"]:
            svg.path([(x + wide, y + high / 2), (x + across, y + high / 2)], head=True)
    notes = [("frame", "tp", "tensor parallel: a slice of every matrix of the same layers"),
             ("color", "dp", "data parallel: same weights, other data; gradients are all-reduced"),
             ("arrow", "pp", "pipeline parallel: other layers; activations forward, gradients back")]
    y = top + m["dp"] * (tall + 20) + 18
    for sign, axis, meaning in notes:
        if m[axis] > 1:
            svg.text(16, y, sign, bold=True)
            svg.text(left, y, meaning)
            y += 20
    y += 8
    end = left + 440
    # The ranks of a group agree in these coordinates, (dp, pp, tp).
    for axis, same in (("tp", (0, 1)), ("dp", (1, 2)), ("pp", (0, 2)), ("model", (0,))):
        groups = {}
        for rank, at in enumerate(m["ranks"]):
            groups.setdefault(tuple(at[i] for i in same), []).append(str(rank))
        if 1 < len(next(iter(groups.values()))) < len(ranks) or m.get(axis, 1) > 1:
            shown = [f"{{{', '.join(group)}}}" for group in groups.values()]
            line = " ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
            svg.text(16, y, axis, color="grey")
            svg.text(left, y, line, color="grey")
            y, end = y + 18, max(end, left + width_of(line))
    return svg.str(max(left + m["pp"] * across - 40, end + 16), y)


# -- ZeRO


def draw_zero(z):
    svg, ranks, full = Svg(), z["ranks"], z["stages"][0]
    left, bar, between, per_byte, y = 96, 13, 18, 128 / full["optimizer"], 86
    rows = [("weights", "blue"), ("gradients", "amber"), ("optimizer", "green")]
    sharded = ["nothing", "optimizer state", "optimizer state and gradients",
               "optimizer state, gradients and weights"]
    svg.text(16, 28, "What each rank holds between two steps", 16, bold=True)
    svg.text(16, 48, f"{ranks} ranks, f32, AdamW, {z['micros']} micro-batches per step; bars to scale",
             color="grey")
    for zero, held in enumerate(z["stages"]):
        total, n = sum(held[kind] for kind, _ in rows), z["parameters"]
        svg.text(16, y, f"ZeRO {zero}", bold=True)
        svg.text(left, y, f"sharded: {sharded[zero]}", bold=True)
        svg.text(left, y + 17, f"per parameter each rank holds {total / n:g} bytes and sends "
                 f"{held['sent'] / 4 / n:g} floats", color="grey")
        y += 26
        for kind, color in rows:
            svg.text(16, y + 11, kind, 11, "grey")
            for rank in range(ranks):
                x, whole, mine = left + rank * (128 + between), full[kind] * per_byte, held[kind] * per_byte
                svg.box(x, y, whole, bar, "empty")
                # Where it holds a part, the part that the ranks before it do not hold.
                svg.box(x + (whole - mine) * rank / max(ranks - 1, 1), y, mine, bar, color)
            y += bar + 3
        for rank in range(ranks):
            svg.text(left + rank * (128 + between), y + 10, f"rank {rank}", 11, "grey")
        y += 46
    svg.text(left, y - 8, "grey: held by other ranks", 11, "grey")
    return svg.str(max(left + ranks * (128 + between), left + 440), y + 8)


def draw(inputs):
    if "rows" in inputs[0]:
        return draw_bubbles(inputs)
    if "measured" in inputs[0]:
        return draw_overlay(inputs[0])
    if any("lists" in one for one in inputs):
        sys.exit("draw.py: a schedule of --save; expected what `minigpt schedule --schedule FILE --json` prints")
    sys.path.append(str(pathlib.Path(__file__).resolve().parent / "drawings"))
    from draw_tensor import draw_tensor, draw_vocabulary  # which draws with what is above
    for key, one in (("mesh", draw_mesh), ("zero", draw_zero), ("tensor", draw_tensor),
                     ("vocabulary", draw_vocabulary)):
        if key in inputs[0]:
            return one(inputs[0][key])
    return draw_timelines(inputs)


def main():
    about, examples = __doc__.split("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=examples,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="*", help="files of JSON; none: standard input")
    parser.add_argument("--svg", help="write the drawing to this file; else to standard output")
    args = parser.parse_args()
    try:
        texts = [pathlib.Path(file).read_text() for file in args.json] or [sys.stdin.read()]
        drawing = draw([json.loads(text) for text in texts])
        if args.svg:
            pathlib.Path(args.svg).write_text(drawing)
        else:
            sys.stdout.write(drawing)
    except OSError as e:
        sys.exit(f"draw.py: {e.filename}: {e.strerror}")
    except (ValueError, KeyError, TypeError) as e:
        sys.exit(f"draw.py: {e!r}; expected the JSON of `minigpt schedule` or `figures`")


if __name__ == "__main__":
    main()
