"""The drawings of scripts/report.py, as elements of SVG."""

import dataclasses
import itertools
import math

from run_files import without_controls

LARGEST, SMALLEST = 1e150, 1e-150  # what is farther from 0, or nearer, is nowhere on an axis
MEAN_FROM = 120  # points of a line that gets a line of means
LINEAR, DECADES, DOUBLINGS = "linear", "decades", "doublings"


def escaped(text):
    """Text for HTML and SVG."""
    text = without_controls(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;")


def short_number(x):
    """Up to four digits: `0.002`, `12k`, `3.5M`."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= max(size, 1e4) and abs(x) < 1e18:
            return f"{x / size:.4g}{unit}"
    return f"{x:.4g}"


# -- Axes


@dataclasses.dataclass
class Axis:
    """A range of values, drawn from one end of an axis to the other, and the round values written at it."""
    scale: str
    ticks: list
    low: float = None
    high: float = None

    def __post_init__(self):
        self.low = self.ticks[0] if self.low is None else self.low
        self.high = self.ticks[-1] if self.high is None else self.high

    def at(self, value):
        """Where a value lies: 0 at `low`, 1 at `high`."""
        if self.scale == LINEAR:
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)

    def label(self, tick):
        if self.scale != DOUBLINGS or tick < 1:
            return short_number(tick)
        return "2" + f"{math.log2(tick):.0f}".translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def round_up(wanted):
    """1, 2 or 5 times a power of ten, at least `wanted`."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= wanted * (1 - 1e-9))


def linear_axis(low, high, count=5):
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, SMALLEST):  # equal but for rounding: ticks between them would be equal
        around = size / 2 if size > SMALLEST else 1
        low, high = low - around, high + around
    step = round_up((high - low) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return Axis(LINEAR, [i * step for i in range(first, last + 1)])


def log_axis(scale, low, high, count=5):
    """1, 2, 5, 10, 20 ...; of two decades or more, and of doublings, every so many powers that about `count` are left."""
    if high < low * 1.001:
        low, high = low / 1.5, high * 1.5
    base, digits = (2.0, (1,)) if scale == DOUBLINGS else (10.0, (1, 2, 5) if high / low < 100 else (1,))
    first, last = math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9)
    every = max(1, math.ceil((last - first) / count))
    ticks = [digit * base ** e for e in range(first, last + every, every) for digit in digits]
    begin = max(i for i, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
    end = min((i for i, tick in enumerate(ticks) if tick >= high * (1 - 1e-9)), default=len(ticks) - 1)
    return Axis(scale, ticks[begin:end + 1])


def make_axis(scale, low, high):
    """From a tick at or below `low` to one at or above `high`; logarithmic ones need `low` > 0."""
    return linear_axis(low, high) if scale == LINEAR else log_axis(scale, low, high)


def step_axis(low, high, count=8):
    """Exact ends, and ticks in between that are whole numbers."""
    if low == high:
        low, high = low - 1, high + 1
    step = max(1, int(round_up((high - low) / count)))
    return Axis(LINEAR, [i * step for i in range(-(-low // step), high // step + 1)], low, high)


# -- Series: lists of (step, value), ascending; None where a step has no value


def thinned(points, low, high, columns):
    """Of each of `columns` equal parts of the steps no more than the lowest and the highest, so that no spike is lost;
    and the first and the last of all."""
    if len(points) <= 2 * columns:
        return points
    kept = {0, len(points) - 1}
    for _, part in itertools.groupby(range(len(points)), lambda i: min(
            columns - 1, int((points[i][0] - low) / (high - low) * columns))):
        part = list(part)
        valued = [i for i in part if points[i][1] is not None] or part[:1]
        kept |= {min(valued, key=lambda i: points[i][1]), max(valued, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def running_mean(points, window, count):
    """Means over `window` points, at the ends over half as many, at about `count` steps in their middle."""
    means = []
    for i in [*range(0, len(points) - 1, max(1, len(points) // count)), len(points) - 1]:
        around = [v for _, v in points[max(0, i - window // 2):i + window // 2 + 1] if v is not None]
        means.append((points[i][0], sum(around) / len(around) if around else None))
    return means


def numbers(points):
    return " ".join(f"{step} {value:.6g}" for step, value in points if value is not None)


# -- Charts


@dataclasses.dataclass
class Line:
    run: int  # decides its color
    name: str
    points: list
    dots: bool = False  # measured now and then, not in every step


@dataclasses.dataclass
class Chart:
    """What is drawn over the steps of one or several runs."""
    title: str
    unit: str = ""
    lines: list = dataclasses.field(default_factory=list)
    scale: str = None  # None: of decades if values above 0 differ by more than a factor of 50
    from_zero: bool = False
    means: bool = False
    skipped: list = dataclasses.field(default_factory=list)  # (run, steps to be marked)
    wide: bool = False
    steps: tuple = (0, 1)
    columns: int = 400  # parts of a line of which no more than the lowest and the highest value are kept

    def svg(self):
        """Its curves carry what they show: `data-p` is `STEP VALUE STEP VALUE ...`, `data-n` the name, `data-m` the
        means. Empty if no line has a value."""
        values = [v for line in self.lines for _, v in line.points if v is not None and abs(v) <= LARGEST]
        return Plot(self, values).svg() if values else ""

    def values_axis(self, values):
        low, high, positive = min(values), max(values), min([v for v in values if v > SMALLEST], default=None)
        spread = not self.from_zero and low > SMALLEST and high / low > 50
        scale = self.scale or (DECADES if spread else LINEAR)
        if scale == LINEAR or positive is None:
            return make_axis(LINEAR, min(0, low) if self.from_zero else low, high)
        return make_axis(scale, positive, high)


class Plot:
    """A chart while it is drawn."""
    LEFT, RIGHT, TOP, BOTTOM = 58, 16, 10, 26  # what the axes take

    def __init__(self, chart, values):
        self.chart = chart
        self.width, self.height = (1110, 340) if chart.wide else (540, 250)
        self.end, self.foot = self.width - self.RIGHT, self.height - self.BOTTOM
        self.x, self.y = step_axis(*chart.steps, self.width // 80), chart.values_axis(values)

    def svg(self):
        chart, x = self.chart, self.x
        parts = [*self.axes(), *map(self.line, chart.lines), *(self.marks(run, steps) for run, steps in chart.skipped)]
        return (f'<svg viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escaped(chart.title)}" '
                f'data-x="{x.low} {x.high} {self.LEFT} {self.end}">\n{"".join(parts)}'
                f'<line class="cursor" x1="0" x2="0" y1="{self.TOP}" y2="{self.foot}"/></svg>')

    def across(self, step):
        return self.LEFT + self.x.at(step) * (self.end - self.LEFT)

    def down(self, value):
        return self.TOP + (1 - self.y.at(value)) * (self.foot - self.TOP)

    def shown(self, value):
        return value is not None and abs(value) <= LARGEST and (self.y.scale == LINEAR or value > SMALLEST)

    def axes(self):
        for tick in self.y.ticks:
            y = self.down(tick)
            yield f'<line class="grid" x1="{self.LEFT}" x2="{self.end}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text class="y" x="{self.LEFT - 7}" y="{y + 4:.1f}">{self.y.label(tick)}</text>'
        yield f'<line class="axis" x1="{self.LEFT}" x2="{self.end}" y1="{self.foot}" y2="{self.foot}"/>'
        for tick in self.x.ticks:
            yield f'<text class="x" x="{self.across(tick):.1f}" y="{self.foot + 17}">{self.x.label(tick)}</text>'
        yield "\n"

    def curve(self, points):
        """A path that breaks off where there is no value."""
        text = ""
        for there, part in itertools.groupby(points, lambda p: self.shown(p[1])):
            if there:
                part = [f"{self.across(step):.1f} {self.down(value):.1f}" for step, value in part]
                text += "M" + "L".join(part) + ("h0" if len(part) == 1 else "")  # alone: a dot
        return text

    def line(self, line):
        kept = thinned(line.points, self.x.low, self.x.high, self.chart.columns)
        means = not line.dots and self.chart.means and len(line.points) >= MEAN_FROM
        look = " held" if line.dots else " pale" if means else ""
        mean = running_mean(line.points, len(line.points) // 60, 240) if means else []
        text = (f'<path class="r{line.run}{look}" d="{self.curve(kept)}" data-n="{escaped(line.name)}" data-p="{numbers(kept)}"'
                + (f' data-m="{numbers(mean)}"/><path class="r{line.run}" d="{self.curve(mean)}"/>' if means else "/>"))
        if line.dots and len(kept) <= 60:
            text += "".join(f'<circle class="r{line.run}" cx="{self.across(step):.1f}" cy="{self.down(value):.1f}" r="3"/>'
                            for step, value in kept if self.shown(value))
        return text + "\n"

    def marks(self, run, steps):
        """Triangles on the lower axis, one for each pixel at most."""
        path, last = "", -1
        for step in steps:
            if (x := self.across(step)) - last >= 1:
                path, last = f"{path}M{x:.1f} {self.foot - 8}l-4 8h8z", x
        return f'<path class="skipped r{run}" d="{path}"/>\n' if path else ""


# -- Pipelines


class Lanes:
    """Pipelines one below the other on one axis of time; of many stages the first 16."""
    WIDTH, LEFT, RIGHT, LINE, GAP, STAGES = 1100, 78, 16, 22, 5, 16
    CLASSES = {"F": "f", "B": "b", "I": "b", "W": "w"}

    def __init__(self, seconds):
        self.seconds, self.shapes, self.foot, self.taken = seconds or 1, [], 0, {}

    def at(self, time):
        return self.LEFT + time / self.seconds * (self.WIDTH - self.LEFT - self.RIGHT)

    def box(self, kind, x, y, wide, height, more=""):
        self.shapes.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{height}"{more}/>')

    def text(self, x, y, kind, what):
        self.shapes.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escaped(what)}</text>')

    def draw(self, name, p):
        """A heading, then a lane for each chunk of each stage."""
        share = 100 * p.bubble / p.time if p.time else 0
        self.text(16, self.foot + 16, "", f"{name}: {short_number(p.time * 1e3)} ms, bubble {share:.0f} %")
        y, height = self.foot + 28, self.LINE * p.chunks
        for stage, actions in enumerate(p.lists[:self.STAGES]):
            self.text(16, y + height / 2 + 4, "", f"stage {stage}")
            self.box("idle", self.LEFT, y, self.at(self.seconds) - self.LEFT, height)
            for a in actions:
                self.action(a, y + self.LINE * a.chunk, f"{stage}, chunk {a.chunk}" if p.chunks > 1 else stage)
            y += height + self.GAP
        self.foot = y + 12

    def action(self, a, y, stage):
        """Its micro-batch is written in it where there is room; `data-t` has all of it, with times in ms. What is narrower
        than two pixels is drawn as one of two, if none is there yet: there may be thousands."""
        x, wide = self.at(a.begin), self.at(a.end) - self.at(a.begin)
        if wide < 2 and x < self.taken.get(y, 0):
            return
        self.taken[y] = x + 2
        self.box(self.CLASSES[a.kind], x, y + 1, max(wide - 0.8, 1.2), self.LINE - 2,
                 f' data-t="{stage};{a.kind};{a.micro};{a.begin * 1e3:.4g};{a.end * 1e3:.4g}"')
        if wide > 4 + 7 * len(str(a.micro)):
            self.text(x + wide / 2, y + self.LINE / 2 + 4, "m", str(a.micro))

    def svg(self):
        self.shapes.append(f'<line class="axis" x1="{self.LEFT}" x2="{self.at(self.seconds):g}" y1="{self.foot}" '
                           f'y2="{self.foot}"/>')
        for tick in linear_axis(0, self.seconds, 10).ticks:
            if tick <= self.seconds:
                self.text(self.at(tick), self.foot + 17, "x", f"{short_number(tick * 1e3)} ms")
        return (f'<svg class="lanes" viewBox="0 0 {self.WIDTH} {self.foot + 26}" role="img" aria-label="pipeline">'
                f'{"".join(self.shapes)}<line class="cursor" x1="0" x2="0" y1="0" y2="{self.foot}"/></svg>')


def bar(shares, longest):
    """Seconds of one rank, one kind after the other."""
    boxes, x = "", 0.0
    for kind, seconds in zip(("f", "w", "idle"), shares):
        wide = 340 * seconds / longest if longest else 0
        boxes += f'<rect class="{kind}" x="{x:.1f}" width="{wide:.1f}" height="13"/>'
        x += wide
    return f'<svg class="bar" viewBox="0 0 340 13" preserveAspectRatio="none">{boxes}</svg>'
