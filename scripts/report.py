#!/usr/bin/env python3
"""Writes one HTML page about runs, which needs no network: curves on one axis, settings that differ, traces of --profile.

Run directories are read and not changed; they may be in use."""

import collections
import dataclasses
import math
import os
import pathlib
import secrets
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "readers"))
import report_charts as charts  # noqa: E402
from pipeline_trace import read_trace, simulated  # noqa: E402
from report_charts import Chart, Line, escaped, short_number  # noqa: E402
from run_files import (Arguments, Fail, expect, literals, member, metrics_of, parse, path, printable, run,  # noqa: E402
                       small_text, unquoted)

BEGINS = "<!doctype html><!-- written by triax report -->\n"
HARDWARE = [HERE.parent / "parallel/plan/hardware", HERE.parent / "hardware"]  # in the sources, installed
MOST_RUNS, MOST_OVERFLOWS, MOST_RANKS = 16, 10, 64  # in colors; that are listed
PAGE_POINTS = 15000  # about 30 bytes each, and twice
FORESEEN = "memory foreseen"
VALUES = '<div class="values" role="status"></div>'  # where report.js writes


# -- Runs


@dataclasses.dataclass
class Run:
    path: str
    name: str  # the last part of the path; all of it where runs share that
    metrics: str
    unit: str = ""  # what is counted: `tokens`
    columns: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))  # (step, value or None) by key
    skipped: list = dataclasses.field(default_factory=list)  # steps
    overflows: list = dataclasses.field(default_factory=list)  # `step 12: the loss`
    settings: dict = dataclasses.field(default_factory=dict)
    host: str = "?"  # of the last job
    notes: list = dataclasses.field(default_factory=list)
    trace: object = None

    def setting(self, key):
        return self.settings.get(key, "?")

    def number(self, key):
        """A setting as a number; 0 if it is none."""
        try:
            value = float(self.setting(key))
        except ValueError:
            return 0
        return value if math.isfinite(value) else 0

    def latest(self, key):
        """What was measured since the last start: before, the run may have had another mesh and batch."""
        first = self.number("first step")
        return [value for step, value in self.columns.get(key, []) if step >= first and value is not None]

    def model_flops(self):
        """Of a rank."""
        ranks = self.number("dp") * self.number("pp") * max(1, self.number("ep")) * max(1, self.number("cp")) * self.number("tp")
        seconds = ranks * median(self.latest("seconds"))
        return self.number("model FLOP per step") / seconds if seconds > 0 else 0


def median(values):
    return sorted(values)[len(values) // 2] if values else 0


def add_record(r, record, source):
    step, losses = member(record, "step", int, source, 1 << 52), r.columns["loss"]
    expect("loss" in record, 65, f"{source}, the record has no loss")
    expect(not losses or step > losses[-1][0], 65, f"{source}, has step {step} after step {losses and losses[-1][0]}")
    for key, value in record.items():
        if key == "overflow":
            r.overflows.append(f"step {step}: {printable(member(record, key, str, source))}")
        elif key == "skipped":
            r.skipped += [step] * member(record, key, bool, source)
        elif key == "changed":
            text = printable(member(record, key, str, source))
            r.notes.append(f"Step {step} began a run with other settings: {text}.")
        elif key != "step":
            r.columns[key].append((step, None if value is None else member(record, key, float, source)))
            if key.endswith("_per_second") and not key.startswith("val_"):
                r.unit = key.removesuffix("_per_second")


def read_metrics(r):
    number, line = 0, b"\n"
    with open(r.metrics, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                r.notes.append(f"The last line of {r.metrics}, number {number}, is cut and was left out.")
                number -= 1
                break
            source = f"report: {r.metrics}:{number}"
            try:
                add_record(r, parse(line, source), source)
            except Fail as e:
                raise Fail(e.code, f"{e}\n  The file is damaged. Delete that line; what is after the newest checkpoint "
                           "goes when the run is resumed.") from None
    expect(number > 0, 66, f"report: {r.metrics} has no whole line yet; expected a run that has done a step\n"
           f"  Wait for its first step, or leave {r.path} out.")


def read_run(where):
    what = "expected a run directory, which train --out names"
    expect(os.path.exists(where), 66, f"report: there is no {where}; {what}")
    r = Run(where, os.path.basename(os.path.abspath(where)) or where, metrics_of(where))
    expect(os.path.isdir(where) and os.path.isfile(r.metrics), 66 if os.path.exists(f"{where}/config.toml") else 65,
           f"report: {where} has no metrics.jsonl; {what}")
    read_metrics(r)
    text = small_text(f"{where}/settings.txt") or small_text(f"{where}/config.toml")
    r.settings = {name: unquoted(literal) for name, literal in literals(text).items()}
    r.host = small_text(f"{where}/lock") or "?"
    r.trace = read_trace(f"{where}/trace.json")
    return r


def read_runs(paths):
    expect(len(paths) <= MOST_RUNS, 64, f"report: {len(paths)} runs; expected at most {MOST_RUNS}, whose colors can be told "
           "apart")
    runs, places = [], set()
    for where in paths:
        runs.append(read_run(where))
        first, last = runs[0], runs[-1]
        expect(os.path.realpath(where) not in places, 64, f"report: {where} is given twice")
        places.add(os.path.realpath(where))
        expect(first.unit == last.unit, 65, f"report: {first.path} counts {first.unit} and {last.path} counts {last.unit}: "
               "runs of different programs, whose losses do not compare\n  Make a page for each.")
    names = collections.Counter(r.name for r in runs)
    for r in runs:
        r.name = r.path if names[r.name] > 1 else r.name
    return runs


def read_hardware(name):
    """Its name and its peaks by precision."""
    shipped = {file.stem: file for folder in HARDWARE for file in folder.glob("*.toml")}
    file = shipped.get(name, pathlib.Path(name))
    if not os.path.exists(file):
        is_file = "/" in name or name.endswith(".toml")
        raise Fail(66 if is_file else 78, f"hardware `{printable(name)}`: "
                   f"{'there is no such file' if is_file else 'not a known name or file'}\n"
                   f"  Valid: {', '.join(sorted(shipped))}, or a file that `calibrate` wrote.")
    try:
        keys = tomllib.loads(file.read_bytes().decode())
    except (ValueError, RecursionError) as e:
        raise Fail(78, f"{file}: {printable(str(e))}; expected TOML as `calibrate` writes it") from None
    for key in ("fp32", "bf16"):
        fine = type(keys.get(key)) in (int, float) and 1e6 <= keys[key] < math.inf
        expect(fine, 78, f"{file}: no `{key}`; expected a peak in FLOP/s of at least 1e6")
    return file.stem, keys


# -- Sections of the page


def fact_table(runs, rows):
    """A column for each run, with its name if there are several. `rows`: name and values; empty without rows."""
    body = "".join(f'<tr><th scope="row">{escaped(name)}</th>'
                   + "".join(f"<td>{escaped(value)}</td>" for value in values) + "</tr>\n" for name, values in rows)
    names = "".join(f'<th scope="col">{escaped(r.name)}</th>' for r in runs)
    head = f"<thead><tr><td></td>{names}</tr></thead>\n" if len(runs) > 1 else ""
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>\n' if body else ""


def show_bytes(count):
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1, "B")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return "0 B"


def duration(seconds):
    whole_seconds = int(seconds + 0.5)
    minutes, rest = divmod(whole_seconds, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60:02}m"


def known(x):
    return short_number(x) if x > 0 else "?"


def last_loss(r):
    step, loss = r.columns["loss"][-1]
    return f"{math.nan if loss is None else loss:.4f} at step {step}"


def lowest_validation(r):
    held = [(value, step) for step, value in r.columns.get("val_loss", []) if value is not None]
    return "{:.4f} at step {}".format(*min(held)) if held else "none"


def utilization(r, peaks):
    peak, reached = peaks["fp32" if r.setting("precision") == "fp32" else "bf16"], r.model_flops()
    return f"{100 * reached / peak:.3g} % of {short_number(peak)}" if reached else "?"


def overview(runs, hardware):
    unit = runs[0].unit
    rows = {
        "loss": last_loss,
        "lowest validation loss": lowest_validation,
        "steps": lambda r: f"{r.columns['loss'][-1][0]} of {r.setting('steps')}",
        "time of these steps": lambda r: duration(sum(value or 0 for _, value in r.columns.get("seconds", []))),
        f"{unit} per second, median step": lambda r: known(median(r.latest(f"{unit}_per_second"))),
        "model FLOP/s of a rank, median step": lambda r: known(r.model_flops()),
    }
    if hardware:
        rows[f"MFU, of the peak of {hardware[0]}"] = lambda r: utilization(r, hardware[1])
    rows["peak tensor memory of a rank"] = lambda r: show_bytes(max(held)) if (held := r.latest("memory_bytes")) else "?"
    if any(FORESEEN in r.settings for r in runs):
        rows["predicted memory, and the peak of each kind"] = lambda r: r.setting(FORESEEN)
    rows |= {
        "skipped steps": lambda r: str(len(r.skipped) or "none"),
        "mesh": lambda r: " x ".join(f"{axis} {r.setting(axis)}" for axis in ("dp", "pp", "ep", "cp", "tp")
                                     if axis not in ("ep", "cp") or r.number(axis) > 1),
        "precision, device": lambda r: f"{r.setting('precision')}, {r.setting('device')}",
        "parameters": lambda r: known(r.number("model parameters")),
        "last job": lambda r: r.host,
    }
    return fact_table(runs, [(name, map(value, runs)) for name, value in rows.items()])


def loss_unit(runs):
    text = f"per {runs[0].unit.removesuffix('s')}, by step"
    if max(len(r.columns["loss"]) for r in runs) >= charts.MEAN_FROM:
        text += "; pale: every step, strong: mean over a sixtieth of the steps"
    return text + ("; dotted: validation" if any(r.columns.get("val_loss") for r in runs) else "")


def curves_of(runs):
    """The charts of a page."""
    def lines(key, dots=False):
        return [Line(i, r.name, r.columns[key], dots) for i, r in enumerate(runs) if r.columns.get(key)]
    unit = runs[0].unit
    held = [Line(line.run, f"{line.name}, validation", line.points, True) for line in lines("val_loss")]
    yield Chart("Loss", loss_unit(runs), lines("loss") + held, means=True, wide=True)
    scores = {key for r in runs for key in r.columns if key.startswith("val_") and key != "val_loss"}
    for key in sorted(scores):
        yield Chart(key, "of held-out data", lines(key, dots=True))
    yield Chart("Gradient norm", "before clipping", lines("grad_norm"), means=True)
    yield Chart("Learning rate", "", lines("lr"), from_zero=True)
    scaled = [line for line in lines("loss_scale") if any(value != 1 for _, value in line.points)]
    yield Chart("Loss scale", "triangles: skipped steps", scaled, charts.DOUBLINGS,
                skipped=[(line.run, runs[line.run].skipped) for line in scaled])
    yield Chart("Throughput", f"{unit} per second", lines(f"{unit}_per_second"), from_zero=True, means=True)
    yield Chart("Memory", "peak tensor bytes so far, largest rank", lines("memory_bytes"), from_zero=True)


def curves(runs):
    all_charts = [chart for chart in curves_of(runs) if chart.lines]
    ends = [r.columns["loss"][end][0] for r in runs for end in (0, -1)]  # of which every step has one
    room, text = PAGE_POINTS // sum(len(chart.lines) for chart in all_charts), ""
    for chart in all_charts:
        chart.steps, chart.columns = (min(ends), max(ends)), max(60, min(room, 1000 if chart.wide else 480))
        if svg := chart.svg():
            wide, svg = (' class="wide"', f'<div class="scroll">{svg}</div>') if chart.wide else ("", svg)
            text += (f"<figure{wide}><h3>{escaped(chart.title)} <small>{escaped(chart.unit)}</small></h3>{svg}"
                     f"{VALUES}</figure>\n")
    return f'<div class="charts">\n{text}</div>\n'


def key_of(kinds):
    return "".join(f'<span><svg viewBox="0 0 13 12"><rect class="{kind}" width="13" height="12"/></svg>{meaning}</span>'
                   for kind, meaning in kinds)


def rank_table(ranks):
    longest = max(sum(r[6:]) for r in ranks)
    axes = [axis for axis in ("dp", "pp", "ep", "cp", "tp")
            if axis not in ("ep", "cp") or any(getattr(r, axis) > 0 for r in ranks)]
    places = {r.rank: ", ".join(f"{axis} {getattr(r, axis)}" for axis in axes) for r in ranks}
    rows = "".join(f'<tr><th scope="row">rank {r.rank} ({places[r.rank]})</th>'
                   + "".join(f'<td class="n">{seconds:.3f}</td>' for seconds in r[6:])
                   + f"<td>{charts.bar(r[6:], longest)}</td></tr>\n" for r in ranks[:MOST_RANKS])
    heads = "".join(f'<th class="n" scope="col">{kind}</th>' for kind in ("busy", "communicating", "waiting"))
    more = f"<p>and {len(ranks) - MOST_RANKS} more ranks</p>\n" if len(ranks) > MOST_RANKS else ""
    return ('<div class="scroll"><table class="ranks"><thead><tr><th>seconds</th>' + heads + "<td></td></tr></thead>\n"
            f'<tbody>{rows}</tbody></table></div>\n{more}<p class="key">'
            + key_of([("f", "busy"), ("w", "communicating"), ("idle", "waiting")]) + "</p>\n")


def pipeline(trace, where):
    try:
        expected = simulated(trace, where)
    except Fail:  # it lacks some actions
        expected = None
    lanes = charts.Lanes(max(trace.pipeline.time, expected.time if expected else 0))
    lanes.draw(f"measured, step {trace.last}", trace.pipeline)
    if expected:
        lanes.draw(f"simulated, {trace.schedule}", expected)
    kinds = [("f", "forward"), ("b", "backward, or of the input"), ("w", "backward of the weights"), ("idle", "idle")]
    return ("<figure><h3>Pipeline <small>replica 0, tensor-parallel rank 0</small></h3>"
            f'<div class="scroll">{lanes.svg()}</div>{VALUES}</figure>\n<p class="key">{key_of(kinds)}'
            "<span>number: micro-batch</span></p>\n<p><small>An action begins when it has received what it needs. The bubble "
            "is the idle time of the stage that idles longest, as a share of the step. "
            + ("Simulated: every action takes the time that was measured, and every link the least latency that a handover "
               "showed." if expected else "Not simulated: these actions are no whole schedule.") + "</small></p>\n")


def profile(r):
    text = f"<h2>Profile of {escaped(r.name)}, steps {r.trace.first} to {r.trace.last}</h2>\n{rank_table(r.trace.ranks)}"
    return text + pipeline(r.trace, r.path) if r.trace.pipeline else text


def rounded(value):
    """0.00030000000000000003, which a tenth of 0.003 is, as 0.0003."""
    try:
        return f"{float(value):.15g}" if set(value) & set(".e") else value
    except ValueError:
        return value


def settings(runs):
    keys = sorted({key for r in runs for key in r.settings} - {FORESEEN})  # which the overview has
    if not keys:
        return "<p>No run directory has a configuration.</p>\n"
    differ, equal = [], []
    for key in keys:
        values = [printable(r.settings.get(key, "not there")) for r in runs]
        if any(values):
            (equal if len(set(values)) == 1 else differ).append((key, map(rounded, values)))
    equal = fact_table(runs[:1], [(key, [next(values)]) for key, values in equal])
    if len(runs) == 1:
        first, title, is_open = "", "All settings", " open"
    else:
        first, title, is_open = fact_table(runs, differ) or "<p>All are equal.</p>\n", "Settings that are equal", ""
    return f'{first}<details{is_open}><summary>{title}</summary><div class="settings">{equal}</div></details>\n'


def page_of(runs, hardware):
    title = ", ".join(escaped(r.name) for r in runs)
    style = (HERE / "readers/report.css").read_text() + "".join(
        f"path.r{i},circle.r{i}{{stroke:var(--r{i % 8});{'stroke-dasharray:7 4' if i > 7 else ''}}}"
        f"path.skipped.r{i}{{fill:var(--r{i % 8})}}" for i in range(MOST_RUNS))
    parts = [BEGINS, '<html lang="en"><head><meta charset="utf-8">\n'
             '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
             f"<title>{title}</title>\n<style>{style}</style></head>\n<body>\n"
             f"<h1>{title if len(runs) == 1 else f'{len(runs)} runs'}</h1>\n"]
    if len(runs) > 1:
        parts.append('<div class="legend">' + "".join(
            f'<span><svg viewBox="0 0 26 12"><path class="r{i}" d="M2 6h22"/></svg>{escaped(r.name)}</span>'
            for i, r in enumerate(runs)) + "</div>\n")
    parts += ["<h2>Overview</h2>\n", overview(runs, hardware), "<h2>Curves</h2>\n", curves(runs),
              *(profile(r) for r in runs if r.trace), "<h2>Configuration</h2>\n", settings(runs), "<h2>Notes</h2>\n<ul>"]
    for r in runs:
        of_run = [f"metrics of {r.metrics}", *r.notes, *(f"skipped {text}" for text in r.overflows[:MOST_OVERFLOWS])]
        parts += [f"<li>{escaped(f'{r.name}: {note}')}</li>\n" for note in of_run]
    return "".join([*parts, f"</ul>\n<script>{(HERE / 'readers/report.js').read_text()}</script>\n</body></html>\n"])


# -- The program


def is_our_page(file):
    if not os.path.isfile(file):
        return False
    with open(file, "rb") as page:
        return page.read(len(BEGINS)) == BEGINS.encode()


def replace(file, text):
    """In one step; what is not written to its end leaves nothing."""
    unfinished = f"{file}.tmp-{secrets.token_hex(8)}"
    try:
        with open(unfinished, "xb") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, file)
    except OSError as e:
        pathlib.Path(unfinished).unlink(missing_ok=True)
        raise Fail(73, f"report: out={file}: {e.strerror}\n  Choose another --out.") from None


def main():
    arguments = Arguments("triax-report", __doc__)
    arguments.add_argument("runs", metavar="RUN", nargs="+", type=path, help="a run directory; up to 16")
    arguments.add_argument("--out", metavar="FILE", type=path, default="report.html",
                           help="page to write (default: report.html); a page of an earlier report is replaced, any other "
                           "file is not")
    arguments.add_argument("--hardware", metavar="NAME|FILE", type=path,
                           help="also show MFU, the share of this peak that a rank reaches: a name of `plan --hardware`, or a "
                           "TOML file as `calibrate` writes it")
    args = arguments.parse_args()
    expect(not os.path.exists(args.out) or is_our_page(args.out), 78,
           f"report: {args.out} exists and is no page of an earlier report\n  Choose another --out, or move it away.")
    folder = os.path.dirname(args.out) or "."
    expect(os.path.isdir(folder), 73, f"report: out={args.out}: there is no directory {folder}\n"
           "  Make it, or choose another --out.")
    hardware = read_hardware(args.hardware) if args.hardware else None
    runs = read_runs(args.runs)
    page = page_of(runs, hardware).encode()
    replace(args.out, page)
    print(f"{args.out}: {len(runs)} run{'s' * (len(runs) > 1)}, {show_bytes(len(page))}")
    return 0


if __name__ == "__main__":
    run(main)
