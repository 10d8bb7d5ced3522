"""For draw.py: layers that tensor parallelism splits, and what every rank holds."""

from draw import GROUPS, Svg

# Rows are tokens. Widths of the ops' outputs are those of all ranks together.
TOKENS, WIDTH = 8, 32
VOCABULARY = 4 * WIDTH
# Part of the model, op, width, split over the ranks?, weight: full shape and the dim that is split.
BLOCK = [
    ("", "input", WIDTH, False, None),
    ("Attention", "layer norm", WIDTH, False, None),
    ("Attention", "enter", WIDTH, None, None),
    ("Attention", "qkv: ColumnLinear", 3 * WIDTH, True, ((3 * WIDTH, WIDTH), 0)),
    ("Attention", "attention, own heads", WIDTH, True, None),
    ("Attention", "projection: RowLinear", WIDTH, "sum", ((WIDTH, WIDTH), 1)),
    ("Attention", "leave", WIDTH, False, None),
    ("", "add residual", WIDTH, False, None),
    ("MLP", "layer norm", WIDTH, False, None),
    ("MLP", "enter", WIDTH, None, None),
    ("MLP", "up: ColumnLinear", 4 * WIDTH, True, ((4 * WIDTH, WIDTH), 0)),
    ("MLP", "gelu", 4 * WIDTH, True, None),
    ("MLP", "down: RowLinear", WIDTH, "sum", ((WIDTH, 4 * WIDTH), 1)),
    ("MLP", "leave", WIDTH, False, None),
    ("", "add residual", WIDTH, False, None),
]
ENDS = [
    ("Embedding", "look up own tokens", WIDTH, "sum", ((VOCABULARY, WIDTH), 0)),
    ("Embedding", "leave", WIDTH, False, None),
    ("", "blocks", WIDTH, False, None),
    ("Head", "enter", WIDTH, None, None),
    ("Head", "logits", VOCABULARY, True, ((VOCABULARY, WIDTH), 0)),
    ("Head", "four numbers per token", 4, "sum", None),
    ("Head", "combine", 4, None, None),
    ("Head", "losses", 1, None, None),
]
STEP, COLUMN_TOP = 37, 96


def draw_bands(svg, ops, left, right):
    for part in dict.fromkeys(op[0] for op in ops if op[0]):
        rows = [i for i, op in enumerate(ops) if op[0] == part]
        top = COLUMN_TOP + STEP * rows[0] - STEP / 2
        svg.box(left, top + 1, right - left, STEP * len(rows) - 2, "band", round=6)
        svg.text(left + 8, top + 16, part, 13, bold=True)


def draw_ranks(svg, ops, t, left, calls):
    """The outputs of the ops on every rank, and the collectives, top to bottom. `calls`: by op, its name in `t`."""
    ranks, sequence = t["ranks"], t["mode"] == "sequence"
    column = 4 * WIDTH / ranks + 12
    note = left + ranks * column
    svg.text(left, 56, "with sequence parallelism" if sequence else "tensor parallelism", 14, bold=True)
    for rank in range(ranks):
        svg.text(left + rank * column, 74, f"rank {rank}", color="grey")
    for i, (_, op, width, split, _) in enumerate(ops):
        y = COLUMN_TOP + STEP * i
        rows = TOKENS // ranks if sequence and split is False else TOKENS
        wide = width // ranks if split is True else width
        for rank in range(ranks):
            color = (GROUPS[1 + rank] if split else
                     "pale" if split is None or not sequence else GROUPS[(5 + rank) % 8])
            svg.box(left + rank * column, y - rows * 1.3, wide, rows * 2.6, color, "line", round=2)
        made = t[t["mode"]][calls[op]] if op in calls else {}
        lines = [f"{way}: {' + '.join(made[way])}" for way in ("forward", "backward") if made.get(way)]
        svg.text(note, y + 4, f"[{rows}, {wide}]", 11)
        for number, line in enumerate(lines):
            svg.text(note + 46, y + 11 - 7 * len(lines) + 14 * number, line, 11)


def draw_split(t, ops, title, calls, legend):
    svg, names, ranks = Svg(), 136, t["ranks"]
    across = 4 * WIDTH + 12 * ranks
    first = names + 162
    second = first + across + 184
    right = second + across + 282
    svg.text(16, 28, title, 16, bold=True)
    draw_bands(svg, ops, 34, right - 12)
    for i, (_, op, _, _, weight) in enumerate(ops):
        y = COLUMN_TOP + STEP * i
        svg.text(names, y + (-1 if weight else 4), op, bold=op in calls)
        if weight:
            full, dim = weight
            local = [size // ranks if d == dim else size for d, size in enumerate(full)]
            svg.text(names, y + 12, f"weight {local} of {list(full)}", 11, "grey")
    joins = [i for i, op in enumerate(ops) if not op[0]]
    for begin, end in zip(joins, joins[1:]):
        y, foot = COLUMN_TOP + STEP * begin, COLUMN_TOP + STEP * end
        svg.path([(names - 6, y + 3), (24, y + 3), (24, foot - 3), (names - 6, foot - 3)], head=True)
    draw_ranks(svg, ops, dict(t, mode="tensor"), first, calls)
    draw_ranks(svg, ops, dict(t, mode="sequence"), second, calls)
    y = COLUMN_TOP + STEP * len(ops) + 4
    for line in legend:
        svg.text(34, y, line, 11, "grey")
        y += 16
    return svg.str(right, y)


def draw_tensor(t):
    return draw_split(t, BLOCK, f"A transformer block on {t['ranks']} ranks", {"enter": "column", "leave": "row"}, [
        "box: the output that a rank holds, [tokens, features], to scale; pale blue: the same on all ranks; yellow, "
        "green: a slice of the features,",
        "or after RowLinear a part of the sum; cyan, brown: a slice of the tokens; forward, backward: the collectives "
        "of either pass"])


def draw_vocabulary(t):
    title = f"Embedding, head and loss of a vocabulary of {VOCABULARY} on {t['ranks']} ranks"
    return draw_split(t, ENDS, title, {"leave": "embedding", "enter": "logits", "combine": "loss"}, [
        "box: the output that a rank holds, [tokens, features], to scale; pale blue: the same on all ranks; yellow, "
        "green: what its slice of the vocabulary",
        "gives; cyan, brown: a slice of the tokens; forward, backward: the collectives of either pass. Embedding and "
        "head share one table."])
