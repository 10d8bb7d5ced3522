"""report_test.py MINIGPT MPIRUN: pages of scripts/report.py about real runs, and their checkpoints compared. Pages are read
with Python's parsers, their curves are held against the metrics, their bars against the trace; Chromium, where there is one,
draws them light and dark.

MPIRUN is not used: scripts need no ranks."""

import html.parser
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib

from minigpt_program import MODEL, Run, records_of, run_each, words

minigpt = sys.argv[1]
SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"
CHARTS = {"Loss": "loss", "Gradient norm": "grad_norm", "Learning rate": "lr", "Loss scale": "loss_scale",
          "Throughput": "tokens_per_second", "Memory": "memory_bytes"}
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(html.parser.HTMLParser):
    """A page whose tags are closed in order; the charts by title, tables by row."""

    def __init__(self, path):
        super().__init__()
        self.open, self.rows, self.titles, self.text = [], [], [], path.read_text()
        self.feed(self.text)
        self.close()
        assert not self.open, f"not closed: {self.open}"
        self.svgs = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", self.text, re.S)]
        self.charts = {svg.get("aria-label"): svg for svg in self.svgs if svg.get("data-x")}

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        for name, value in attributes:
            assert name not in ("src", "href", "srcset", "action") and not name.startswith("on"), (tag, name, value)

    def handle_startendtag(self, tag, attributes):  # of SVG
        pass

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def row(self, name):
        """The cells of the first row of this name."""
        return next(row[1:] for row in self.rows if row and row[0] == name)

    def lines(self, title):
        """{name: [(step, value)]} of a chart."""
        found = {}
        for path in self.charts[title].iter("path"):
            if path.get("data-p") is not None:
                numbers = [float(x) for x in path.get("data-p").split()]
                found[path.get("data-n")] = list(zip(numbers[::2], numbers[1::2]))
        return found


def call(shop, *command, code=0, program=None):
    with Run([*(program or [minigpt]), *map(str, command)], shop / "err", shop / "out") as job:
        got = job.finish(120)
        said = (shop / "out").read_text() + job.stderr()
        assert got == code, f"exit code {got}, expected {code}\n{said}"
        return said


def train(shop, name, *extra, **flags):
    flags = dict(MODEL, data=shop / "text.txt", steps=30, out=shop / name) | flags
    call(shop, "train", *words(**flags), *extra)
    return shop / name


def script(shop, name, *words, code=0):
    return call(shop, *words, code=code, program=[sys.executable, SCRIPTS / f"{name}.py"])


def report(shop, *runs, code=0, out="page.html"):
    said = script(shop, "report", *runs, "--out", shop / out, code=code)
    return said if code else Page(shop / out)


def bytes_of(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def check_lines(page, runs):
    """Every curve has the numbers of the metrics, six digits of each, and nothing else."""
    for title, key in CHARTS.items():
        lines = page.lines(title)
        for run in runs:
            expected = [(r["step"], r[key]) for r in records_of(run) if r[key] is not None]
            if key == "loss_scale" and all(value == 1 for _, value in expected):
                continue
            got = lines.pop(run.name)
            assert len(got) == len(expected), (title, run.name, len(got), len(expected))
            for (step, value), (true_step, true_value) in zip(got, expected):
                assert step == true_step and abs(value - true_value) <= 1e-5 * abs(true_value), (title, step, value)
        if title == "Loss":
            for run in runs:
                held = [(r["step"], float(f"{r['val_loss']:.6g}")) for r in records_of(run) if "val_loss" in r]
                assert held and lines.pop(f"{run.name}, validation") == held
        assert not lines, f"{title}: also {lines.keys()}"


def several_runs_on_one_axis(shop):
    runs = [train(shop, "slow"), train(shop, "fast", lr=0.01, steps=40),
            train(shop, "half", precision="fp16", initial_loss_scale=1e9)]
    before = [bytes_of(run) for run in runs]
    page = report(shop, *runs)
    assert [bytes_of(run) for run in runs] == before, "a run directory was changed"
    check_lines(page, runs)
    axes = {svg.get("data-x") for svg in page.charts.values()}
    assert {tuple(axis.split()[:2]) for axis in axes} == {("1", "40")}, axes
    assert page.row("lr") == ["0.001", "0.01", "0.001"] and page.row("precision")[2] == "fp16"
    skipped = sum(r["skipped"] for r in records_of(runs[2]))
    assert skipped > 0 and page.row("skipped steps") == ["none", "none", str(skipped)]
    assert page.row("steps")[1] == "40 of 40"
    assert page.row("last job")[0].startswith("process ")
    last = records_of(runs[0])[-1]
    assert page.row("loss")[0] == f"{last['loss']:.4f} at step 30"
    for word in ("http", "url(", "@import", "<link"):
        assert word not in page.text, f"the page asks for {word}"


def the_profile_of_a_mesh(shop):
    run = train(shop, "mesh", "--profile", layers=2, steps=6, val_every=0, comm="threads", ranks=8, dp=2, pp=2, tp=2,
                global_batch=32)
    trace = json.loads((run / "trace.json").read_text())
    page = report(shop, run)
    for rank in trace["ranks"]:
        told = page.row(f"rank {rank['rank']} (dp {rank['dp']}, pp {rank['pp']}, tp {rank['tp']})")
        assert told[:3] == [f"{rank[kind]:.3f}" for kind in ("busy", "communicating", "waiting")], (told, rank)
    bars = [svg for svg in page.svgs if svg.get("class") == "bar"]
    assert len(bars) == 8
    for bar, rank in zip(bars, trace["ranks"]):
        wide = [float(box.get("width")) for box in bar]
        spent = [rank[kind] for kind in ("busy", "communicating", "waiting")]
        for a, b in zip(wide, spent):
            assert abs(a / sum(wide) - b / sum(spent)) < 2e-3, (wide, spent)
    (pipeline,) = [svg for svg in page.svgs if svg.get("aria-label") == "pipeline"]
    # Measured and simulated: on two stages eight micro-batches forward and backward.
    boxes = [box.get("class") for box in pipeline.iter("rect")]
    assert boxes.count("f") == boxes.count("b") == 2 * 2 * 8, boxes
    headings = [text.text for text in pipeline.iter("text")]
    assert any(text.startswith("measured, step 5: ") for text in headings), headings
    assert any(text.startswith("simulated, 1f1b: ") for text in headings), headings


def the_schedule_that_was_traced(shop):
    """That of a resumed run may be another one."""
    train(shop, "mine", "--profile", "2", layers=2, steps=2, comm="threads", ranks=2, pp=2, schedule="gpipe", warmup=0)
    run = train(shop, "mine", layers=2, steps=3, comm="threads", ranks=2, pp=2, schedule="zb-h1", warmup=0, resume="auto")
    page = report(shop, run)
    assert "simulated, gpipe: " in page.text
    assert "B, parameters " in page.row("predicted memory, and the peak of each kind")[0]


def checkpoints(shop):
    one, same = train(shop, "one", steps=3, warmup=0), train(shop, "same", steps=3, warmup=0)
    assert script(shop, "compare_checkpoints", one, same).startswith("equal: ")
    other = train(shop, "other", steps=3, warmup=0, lr=0.01)
    said = script(shop, "compare_checkpoints", one, other, code=1)
    assert "settings that differ:\n  lr: 0.001 and 0.01\n  min-lr: 0.0001 and 0.001\n" in said, said
    assert re.search(r"  block0.up.weight: (\d+) of \1 elements, by up to 0\.0\d+, relatively ", said), said
    # Whole tensors of other meshes: what differs is rounding, and of one step nothing but the mesh.
    mesh = train(shop, "mesh", steps=3, warmup=0, comm="threads", ranks=8, dp=2, pp=2, tp=2, zero=1, layers=2, bitwise="true",
                 tp_slices=2, global_batch=32)
    flat = train(shop, "flat", steps=3, warmup=0, layers=2, bitwise="true", tp_slices=2, global_batch=32)
    said = script(shop, "compare_checkpoints", flat, mesh, code=1)
    assert "  tp: 1 and 2\n" in said and "tensors that differ" not in said and " 0 tensors differ" in said, said


def while_it_runs_and_after_a_kill(shop):
    run = train(shop, "mine", steps=5)
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-30])
    page = report(shop, run)
    assert "number 5, is cut and was left out" in page.text
    assert page.row("steps") == ["4 of 5"]
    (run / "metrics.jsonl").write_text("")
    assert "has no whole line yet" in report(shop, run, code=66)


def bad_calls(shop):
    run = train(shop, "mine", steps=3, warmup=0)
    assert "there is no" in report(shop, shop / "none", code=66)
    assert "exists and is no page" in report(shop, run, out="text.txt", code=78)
    report(shop, run, out="no/such/folder.html", code=73)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], lines[1][:20], lines[2]]) + "\n")
    assert "metrics.jsonl:2" in report(shop, run, code=65)
    assert not list(shop.glob("*.html*"))


# Screenshots.

def pixels(path):
    """The colors of a PNG of 8 bits a channel."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and color in (2, 6)
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    channels, raw = 3 if color == 2 else 4, zlib.decompress(packed)
    stride, before = width * channels, bytes(width * channels)
    found = {}
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            a, b, c = (row[i - channels] if i >= channels else 0), before[i], (before[i - channels] if i >= channels else 0)
            if kind == 4:
                p = a + b - c
                guess = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            else:
                guess = (0, a, b, (a + b) // 2)[kind]
            row[i] = row[i] + guess & 255
        for x in range(0, stride, channels):
            color = bytes(row[x:x + 3]).hex()
            found[color] = found.get(color, 0) + 1
        before = bytes(row)
    return found


def screenshot(browser, page, picture, scheme, size="700,640"):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
               f"--user-data-dir={picture}.profile", f"--screenshot={picture}",
               f"--blink-settings=preferredColorScheme={dict(dark=0, light=1)[scheme]}", page.as_uri()]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def light_and_dark(shop):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        print("skipped: there is no Chromium; apt-get install chromium")
        return
    report(shop, train(shop, "one"), train(shop, "two", lr=0.01))
    expected = dict(light=("ffffff", "0072b2", "d55e00"), dark=("0d1117", "4da6e0", "f0803c"))
    for scheme, (paper, first, second) in expected.items():
        screenshot(browser, shop / "page.html", shop / f"{scheme}.png", scheme)
        found = pixels(shop / f"{scheme}.png")
        assert max(found, key=found.get) == paper, (scheme, max(found, key=found.get))
        for color in (first, second):
            assert found.get(color, 0) > 20, (scheme, color, found.get(color))


run_each([several_runs_on_one_axis, the_profile_of_a_mesh, the_schedule_that_was_traced, checkpoints,
          while_it_runs_and_after_a_kill, bad_calls, light_and_dark], sys.argv[3:], "triax-report-")
