"""What a pipeline did in a step that `--profile` traced, and the same actions simulated."""

import bisect
import collections
import dataclasses
import os
import re

from run_files import Fail, expect, member, parse, typed

MOST_RANKS, MOST_MICROS, MOST_CHUNKS = 65536, 1 << 20, 4096
KINDS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}

Handover = collections.namedtuple("Handover", "gradient micro source target")  # between virtual stages
Slice = collections.namedtuple("Slice", "stage name kind begin end")  # seconds
Rank = collections.namedtuple("Rank", "rank dp pp ep cp tp busy communicating waiting")


@dataclasses.dataclass
class Action:
    """A pass of one micro-batch through one chunk of a stage; times in seconds from the begin of the first one."""
    stage: int
    kind: str
    chunk: int
    micro: int
    begin: float
    end: float


@dataclasses.dataclass
class Pipeline:
    """What all stages did; with placement `v` every other chunk runs from the last stage back to the first."""
    stages: int
    placement: str
    actions: list  # by stage, in order
    whole: float = 0  # the step, with what stages do before and after

    def __post_init__(self):
        self.chunks = 1 + max(a.chunk for a in self.actions)
        self.micros = 1 + max(a.micro for a in self.actions)
        self.time = max(a.end for a in self.actions)
        self.lists = [[] for _ in range(self.stages)]
        for a in self.actions:
            self.lists[a.stage].append(a)
        self.idle = [self.time - sum(a.end - a.begin for a in done) for done in self.lists]
        self.bubble = max(self.idle)

    def virtual(self, stage, chunk):
        back = self.placement == "v" and chunk % 2
        return chunk * self.stages + (self.stages - 1 - stage if back else stage)

    def home(self, virtual):
        chunk, place = divmod(virtual, self.stages)
        return self.stages - 1 - place if self.placement == "v" and chunk % 2 else place

    def handover(self, a, sends):
        """What an action hands on, or needs before it begins; None at the ends of the model."""
        here = self.virtual(a.stage, a.chunk)
        ahead = here + 1 if (a.kind == "F") == sends else here - 1
        if a.kind == "W" or not 0 <= ahead < self.stages * self.chunks:
            return None
        return Handover(a.kind != "F", a.micro, *((here, ahead) if sends else (ahead, here)))

    def channel(self, h):
        """The link that a handover passes in its direction; None if it stays on its stage."""
        cut = min(h.source, h.target)
        if self.home(h.source) == self.home(h.target):
            return None
        return (cut if self.placement == "v" else cut % self.stages, h.gradient)

    def peak_live(self):
        """The most activations that each stage held at once."""
        peaks = []
        for done in self.lists:
            live = peak = 0
            for a in done:
                live += (a.kind == "F") - (a.kind in "BW")
                peak = max(peak, live)
            peaks.append(peak)
        return peaks


@dataclasses.dataclass
class Trace:
    first: int
    last: int
    schedule: str
    ranks: list
    pipeline: Pipeline = None  # of the last step, replica 0, tensor-parallel rank 0; None without stages


# -- Reading


class File:
    """A trace by lines, so that its size is no matter: what comes before the events, then an event a line."""

    def __init__(self, path, file):
        self.path, self.number, self.file = path, 0, file

    def lines(self):
        for line in self.file:
            self.number += 1
            yield line

    def expect(self, ok, otherwise):
        expect(ok, 65, f"{self.path}:{self.number}: {otherwise}; expected a trace of --profile\n"
               "  Give a run that was profiled, or profile this one again.")

    def head(self):
        text = b""
        for line in self.lines():
            if line.startswith(b'"traceEvents":['):
                break
            text += line
        else:
            self.expect(False, "it has no traceEvents")
        self.expect(text.endswith(b",\n"), "it has no traceEvents")
        return parse(text[:-2] + b"}", self.path)

    def slices(self, stage_of):
        """Those of stages that tell of the pipeline. `stage_of`: of ranks."""
        found, ended = [], False
        for line in self.lines():
            line = line.rstrip(b"\n")
            ended = line.endswith(b"]}")
            if b'"ph":"X"' in line and re.search(b'"cat":"action"|"name":"step| link ', line):
                self.add(found, line.removesuffix(b"]}" if ended else b","), stage_of)
            if ended:
                break
        self.expect(ended, "it ends within its events")
        return found

    def add(self, found, text, stage_of):
        source = f"{self.path}:{self.number}"
        event = parse(text, source)
        begin, takes = (member(event, key, float, source) for key in ("ts", "dur"))
        self.expect(takes >= 0, "an event that ends before it begins")
        stage = stage_of.get(member(event, "pid", int, source) - 1)
        if stage is not None:
            name, kind = (member(event, key, str, source) for key in ("name", "cat"))
            found.append(Slice(stage, name, kind, begin * 1e-6, (begin + takes) * 1e-6))


def rank_of(record, source):
    record = {"cp": 0, "ep": 0} | record if type(record) is dict else record  # traces of meshes without it
    return Rank(*(member(record, key, int if i < 6 else float, f"{source}, a rank", MOST_RANKS)
                  for i, key in enumerate(Rank._fields)))


def read_trace(path):
    """None if there is no such plain file."""
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as opened:
        file = File(path, opened)
        head = file.head()
        steps, ranks = member(head, "steps", list, path), member(head, "ranks", list, path)
        expect(len(steps) == 2 and len(ranks) <= MOST_RANKS, 65, f"{path}, has no first and last step, or too many ranks")
        trace = Trace(*(typed(step, int, f"{path}, a step", 1 << 52) for step in steps),
                      member(head, "schedule", str, path) if "schedule" in head else "", [rank_of(r, path) for r in ranks])
        stage_of = {r.rank: r.pp for r in trace.ranks if r.dp == r.ep == r.cp == r.tp == 0}
        file.expect(stage_of and sorted(stage_of.values()) == list(range(len(stage_of))), "its ranks are no mesh")
        slices = file.slices(stage_of)
    if len(stage_of) > 1:
        trace.pipeline = pipeline_of(slices, trace.last, len(stage_of), head.get("placement", "ring"))
    return trace


def action_named(text):
    """`B3b`, `F12` or `W0.30` as kind, chunk and micro-batch; None for another text."""
    found = re.fullmatch(r"([FBIW])(\d{1,7})(?:([a-z])|\.(\d{1,4}))?", text, re.ASCII)
    if not found:
        return None
    kind, micro, letter, chunk = found.groups()
    micro, chunk = int(micro), ord(letter) - ord("a") if letter else int(chunk or 0)
    return (kind, chunk, micro) if micro < MOST_MICROS and chunk < MOST_CHUNKS else None


def within(a, outer):
    return a.stage == outer.stage and outer.begin <= a.begin and a.end <= outer.end


def pipeline_of(slices, step, stages, placement):
    """None if the step, without its validation and checkpoint, has no actions."""
    outer = [s for s in slices if s.name == f"step {step}"]
    steps = [s for s in slices if s.name == "step" and any(within(s, o) for o in outer)]
    named = [(s, action_named(s.name)) for s in slices if s.kind == "action" and any(within(s, o) for o in steps)]
    actions = sorted((Action(s.stage, *name, s.begin, s.end) for s, name in named if name), key=lambda a: (a.stage, a.begin))
    if not actions:
        return None
    begins = [(a.stage, a.begin) for a in actions]
    for s in slices:
        if s.kind == "waiting" and (after := bisect.bisect_right(begins, (s.stage, s.begin))):
            a = actions[after - 1]
            if a.stage == s.stage and s.end <= a.end:
                a.begin = max(a.begin, s.end)  # it received
    zero = min(a.begin for a in actions)
    for a in actions:
        a.begin, a.end = a.begin - zero, a.end - zero
    return Pipeline(stages, placement, actions, max(s.end for s in steps) - min(s.begin for s in steps))


# -- Simulation


def check_whole(p):
    """Every stage passes every micro-batch through every chunk: forward, and backward whole or in its halves."""
    for stage, done in enumerate(p.lists):
        passes = collections.defaultdict(str)
        for a in done:
            passes[a.chunk, a.micro] += a.kind
        for (chunk, micro), kinds in passes.items():
            expect(kinds in ("FB", "FIW"), 65, f"stage {stage} did {kinds} of micro-batch {micro}, chunk {chunk}; "
                   "expected FB or FIW")
        expect(len(passes) == p.chunks * p.micros, 65, f"stage {stage} did {len(passes)} micro-batches of "
               f"{p.micros} in {p.chunks} chunk{'s' * (p.chunks > 1)}")


def latencies(p):
    """By channel the shortest time that a handover took, from when both ends were ready until the action began."""
    sent = {p.handover(a, True): a.end for a in p.actions}
    ready, least = collections.defaultdict(float), {}
    for a in p.actions:
        got = p.handover(a, False)
        if not got or p.channel(got) is None:
            continue
        link = min(got.source, got.target)
        posted = a.stage, p.channel(got)
        took = max(0.0, a.begin - max(ready[posted], sent.get(got, 0.0)))
        least[link] = min(least.get(link, took), took)
        ready[posted] = a.begin
    return least


def simulate(p):
    """The same actions over a transport that buffers nothing: each takes as long as it took, and each link the least
    latency. A receive is posted when the one before it on its channel has been taken, the first at the start; a send
    starts when its action ends, and takes place together with its receive."""
    check_whole(p)
    least = latencies(p)
    clock, ran = [0.0] * p.stages, [[] for _ in range(p.stages)]
    sent, posted = collections.defaultdict(collections.deque), {}  # by channel
    kept = {}  # what stays on its stage
    ready = collections.deque(range(p.stages))
    while ready:
        stage = ready.popleft()
        for a in p.lists[stage][len(ran[stage]):]:
            begin, got, gives = clock[stage], p.handover(a, False), p.handover(a, True)
            if got and (channel := p.channel(got)) is None:
                if got not in kept:
                    break
                begin = max(begin, kept[got])
            elif got:
                if not sent[channel]:
                    break
                first, end = sent[channel][0]
                expect(first == got, 65, f"stage {stage} receives in another order than was sent")
                sent[channel].popleft()
                begin = posted[channel] = max(begin, max(end, posted.get(channel, 0.0)) + least[min(got[2:])])
            clock[stage] = begin + a.end - a.begin
            ran[stage].append(dataclasses.replace(a, begin=begin, end=clock[stage]))
            if gives and (channel := p.channel(gives)) is None:
                kept[gives] = clock[stage]
            elif gives:
                sent[channel].append((gives, clock[stage]))
                ready.append(p.home(gives.target))
    expect([len(r) for r in ran] == [len(done) for done in p.lists], 65, "stages wait for each other")
    return Pipeline(p.stages, p.placement, [a for done in ran for a in done])


def simulated(trace, path):
    """The simulation of a trace's pipeline. Fails unless it is a whole schedule."""
    try:
        return simulate(trace.pipeline)
    except Fail as e:
        raise Fail(65, f"{path}: the actions of step {trace.last} are no whole schedule of {trace.pipeline.stages} stages: "
                   f"{e}") from None
