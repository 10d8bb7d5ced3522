#!/usr/bin/env python3
"""reproduce.py [OPTIONS]: figures of published papers beside what the programs of triax print for the same configuration.

scripts/reproduce.py                                 runs all commands and prints docs/reproductions.md
scripts/reproduce.py --paper zero_bubble             one paper, several with commas
scripts/reproduce.py --list                          every cell: paper, table, kind, command
scripts/reproduce.py --check docs/reproductions.md   exit status 1 if the page says anything else
scripts/reproduce.py --write docs/reproductions.md

A paper is a file scripts/reproductions/NAME.toml; scripts/reproductions/README.md describes it. A command takes keys of its
row as $key. What a cell has as `ours` is an expression of what the command printed, read by programs.py; an expression without
such a name is refused: no figure comes from this script.
"""

import argparse
import dataclasses
import difflib
import pathlib
import signal
import string
import sys
import textwrap
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "reproductions"))
from programs import READERS, ROOT, Programs  # noqa: E402

FUNCTIONS = {"__builtins__": {}, "max": max, "min": min, "sum": sum, "float": float, "int": int}
KINDS = {"exact": "exact", "timed": "timed, within 10 %", "fitted": "timed and fitted to, within 10 %"}


@dataclasses.dataclass
class Cell:
    """A figure of a paper and ours. `keys`: the configuration. The paper's is printed digits, or a formula of the keys."""
    kind: str
    column: dict
    keys: dict
    published: str
    decimals: int | None
    command: str
    baseline: str | None
    ours: float = 0

    def compute(self, programs):
        reader = READERS[self.column["reader"]]
        names = reader(programs.said(self.command))
        if self.baseline:
            names |= {f"base_{name}": value for name, value in reader(programs.said(self.baseline)).items()}
        code = compile(self.column["ours"], self.column["ours"], "eval")
        if not set(code.co_names) & set(names):
            raise SystemExit(f"reproduce: `{self.column['ours']}` has no figure of a program; expected one of "
                             f"{', '.join(names)}")
        self.ours = float(eval(code, {**FUNCTIONS, **self.keys, **names}))

    @property
    def off(self):
        return self.ours - float(self.published)

    @property
    def agrees(self):
        if self.kind != "exact":
            return abs(self.off) <= 0.1 * abs(float(self.published))
        if self.decimals is None:
            return abs(self.off) <= 1e-9 * max(1, abs(float(self.published)))
        return abs(self.off) <= 0.5000001 * 10**-self.decimals

    def shown(self):
        """The paper's figure, and ours with the difference if there is any."""
        def digits(x, sign=""):
            return f"{x:{sign}.{self.decimals}f}" if self.decimals is not None else f"{x:{sign}.10g}"
        paper = self.published if self.decimals is not None else digits(float(self.published))
        if self.kind != "exact":
            ours = f"{digits(self.ours)} ({100 * self.off / float(self.published):+.1f} %)"
        else:
            ours = digits(self.ours) + ("" if self.agrees else f" ({digits(self.off, '+')})")
        return [paper, ours if self.agrees else f"**{ours}**"]


def prose(text):
    return textwrap.fill(text, 128, break_long_words=False, break_on_hyphens=False)


def lines_of(command):
    """With a flag and its value in one line."""
    flags = [flag.replace(" ", "\0") for flag in command.split(" --")]
    lines = textwrap.wrap(" --".join(flags), 120, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace("\0", " ")


class Table:
    """A table of a paper: cells of one kind, a row for each configuration."""

    def __init__(self, data, short, place):
        self.name, self.kind, self.data, self.short = data["name"], data["kind"], data, short
        self.columns = [{"reader": data.get("reader"), **column} for column in data["columns"]]
        unknown = [column["reader"] for column in self.columns if column["reader"] not in READERS]
        if self.kind not in KINDS or unknown:
            raise SystemExit(f"{place}: {self.name}: kind {self.kind}, reader {unknown}; expected {', '.join(KINDS)}; "
                             f"{', '.join(READERS)}")
        self.rows = [self._row(row, place) for row in data["rows"]]
        self.cells = [cell for _, cells in self.rows for cell in cells if cell]

    def _row(self, row, place):
        keys, figures = dict(zip(self.data["keys"], row)), iter(row[len(self.data["keys"]):])
        cells = []
        for column in self.columns:
            decimals = column.get("decimals")
            if "formula" in column:
                published = eval(column["formula"], {**FUNCTIONS, **keys})
                published = f"{published:.{decimals}f}" if decimals is not None else repr(published)
            else:
                published = next(figures)
                decimals = len(published.partition(".")[2])
            command, baseline = (string.Template(text).substitute(keys) if text else None for text in self.texts(column))
            cells.append(Cell(self.kind, column, keys, published, decimals, command, baseline) if published else None)
        if next(figures, None) is not None:
            raise SystemExit(f"{place}: {self.name}: a row has more figures than columns: {row}")
        return keys, cells

    def texts(self, column):
        """The command of a column, and the one whose figures are taken away from it."""
        base = column.get("baseline", self.data.get("baseline"))
        texts = column.get("command", self.data.get("command")), base
        return [string.Template(text).safe_substitute(self.short) if text else None for text in texts]

    def markdown(self):
        shown = [key for key in self.data["keys"] if key not in self.data.get("hidden", [])]
        head = shown + [words for c in self.columns for words in (f"{c['name']}: paper", "triax")]
        lines = [prose(f"**{self.name}** ({self.kind}). {self.data.get('note', '')}"), "", "```"]
        texts = [self.texts(column) for column in self.columns]
        lines += dict.fromkeys(lines_of(text) for pair in texts for text in pair if text)
        lines += ["```", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        for keys, cells in self.rows:
            words = [str(keys[key]) for key in shown]
            words += [word for cell in cells for word in (cell.shown() if cell else ["", ""])]
            lines.append("| " + " | ".join(words) + " |")
        for at, column in enumerate(self.columns):
            wrong = [cells[at] for _, cells in self.rows if cells[at] and not cells[at].agrees]
            if wrong:
                why = column.get("reason", self.data.get("reason", "not explained."))
                lines += ["", prose(f"{column['name']}, {len(wrong)} of {len(self.rows)} not {KINDS[self.kind]}: {why}")]
        return "\n".join(lines) + "\n"


class Paper:
    """A data file."""

    def __init__(self, path):
        self.name, self.data = path.stem, tomllib.loads(path.read_text())
        self.tables = [Table(table, self.data.get("short", {}), path.name) for table in self.data["table"]]
        self.cells = [cell for table in self.tables for cell in table.cells]

    def start(self, programs):
        for cell in self.cells:
            programs.start(cell.command)
            if cell.baseline:
                programs.start(cell.baseline)

    def compute(self, programs):
        for table in self.tables:
            for cell in table.cells:
                cell.compute(programs)

    def counts(self):
        """[cells, cells that agree] of each kind."""
        return {kind: [sum(c.kind == kind for c in self.cells), sum(c.kind == kind and c.agrees for c in self.cells)]
                for kind in KINDS}

    def markdown(self):
        d = self.data
        lines = [f"## {d['title']}", "", prose(f"{d['authors']}, arXiv [{d['arxiv']}](https://arxiv.org/abs/{d['arxiv']})."), "",
                 prose(f"Compared: {d['compared']}"), "", prose(f"Not compared: {d['not_compared']}"), ""]
        return "\n".join(lines) + "\n" + "\n".join(table.markdown() for table in self.tables)


def of(pair):
    return f"{pair[1]} of {pair[0]}" if pair[0] else ""


def overview(papers):
    lines = ["| paper | " + " | ".join(KINDS.values()) + " |", "|" + "---|" * (len(KINDS) + 1)]
    total = {kind: [0, 0] for kind in KINDS}
    for paper in papers:
        counts = paper.counts()
        total = {kind: [a + b for a, b in zip(total[kind], counts[kind])] for kind in KINDS}
        anchor = "".join(c for c in paper.data["title"].lower() if c.isalnum() or c in "- ").replace(" ", "-")
        lines.append(f"| [{paper.data['title']}](#{anchor}) | " + " | ".join(of(counts[kind]) for kind in KINDS) + " |")
    cells = [cell for paper in papers for cell in paper.cells]
    lines.append(f"| {len(papers)} papers, {len(cells)} cells | " + " | ".join(of(total[kind]) for kind in KINDS) + " |")
    printed, formulas = ([cell for cell in cells if cell.kind == "exact" and ("formula" in cell.column) == is_formula]
                         for is_formula in (False, True))
    agree = [f"{sum(cell.agrees for cell in part)} of {len(part)}" for part in (printed, formulas)]
    lines += ["", prose(f"Of the exact cells, {agree[0]} agree where the paper prints a figure, and {agree[1]} where it has a formula, "
                        "whose value is taken for configurations that were chosen here.")]
    return "\n".join(lines) + "\n"


def page(papers):
    intro = (ROOT / "scripts/reproductions/page.md").read_text()
    return intro.replace("{overview}\n", overview(papers)) + "\n" + "\n".join(paper.markdown() for paper in papers)


def check(papers, path, every):
    """0 if the page says what was computed: all of it, or the sections of these papers."""
    old = pathlib.Path(path).read_text()
    wanted = [page(papers)] if every else [paper.markdown() for paper in papers]
    if old in wanted or (not every and all(text in old for text in wanted)):
        print(f"{path}: {sum(len(paper.cells) for paper in papers)} cells as computed")
        return 0
    for line in difflib.unified_diff(old.splitlines(), "\n".join(wanted).splitlines(), str(path), "computed", "", "", 0, ""):
        if every or not line.startswith("-"):
            print(line)
    print(f"reproduce: {path} differs from what the programs print; the cure: scripts/reproduce.py --write {path}")
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=ROOT / "build/release/bin", help="folder of minigpt, llama, test_examples")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "scripts/reproductions", help="folder of the papers")
    parser.add_argument("--paper", help="names, with commas (default: all)")
    parser.add_argument("--list", action="store_true", help="print cells and commands, run nothing")
    parser.add_argument("--check", metavar="PAGE")
    parser.add_argument("--write", metavar="PAGE")
    args = parser.parse_args()
    known = sorted(path.stem for path in args.data.glob("*.toml"))
    if not known:
        raise SystemExit(f"reproduce: there are no papers in {args.data}; expected files NAME.toml")
    if args.paper and args.write:
        raise SystemExit("reproduce: --paper with --write would drop the other papers; leave one out")
    if args.check and not pathlib.Path(args.check).is_file():
        raise SystemExit(f"reproduce: there is no page {args.check}; expected one that --write has made")
    names = args.paper.split(",") if args.paper else known
    if unknown := set(names) - set(known):
        raise SystemExit(f"reproduce: there is no paper {', '.join(unknown)}; expected some of {', '.join(known)}")
    papers = sorted((Paper(args.data / f"{name}.toml") for name in names), key=lambda paper: paper.data["arxiv"])
    if args.list:
        for paper in papers:
            for table in paper.tables:
                for cell in table.cells:
                    less = f"  less  {cell.baseline}" if cell.baseline else ""
                    print(f"{paper.name} | {table.name} | {cell.column['name']} | {cell.kind} | {cell.command}{less}")
        return 0
    programs = Programs(args.programs)
    for paper in papers:
        paper.start(programs)
    for paper in papers:
        paper.compute(programs)
    if args.check:
        return check(papers, args.check, not args.paper)
    text = page(papers)
    if args.write:
        pathlib.Path(args.write).write_text(text)
    print(overview(papers) if args.write else text, end="")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # for `--list | head`
    sys.exit(main())
