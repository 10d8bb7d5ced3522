"""watch_test.py MINIGPT MPIRUN [TEST..]: what a run leaves for those who watch it. The trace of --profile is read as
strictly as possible and held against the metrics; TensorBoard's files are read by a reader of their own.

MPIRUN may be empty: then ranks are threads only. The TEST traces_of_gpus is for a MINIGPT with GPUs made of CPU threads,
and runs only if it is named."""

import collections
import json
import pathlib
import re
import shutil
import signal
import struct
import sys

from minigpt_program import MODEL, Run, metrics, mpirun, records_of, run_each, wait_until, words

minigpt, launcher = sys.argv[1], sys.argv[2]
MESH = dict(dp=2, pp=2, tp=2, placement="2,2")
RANKS = 8
LARGER = dict(width=64, context=64, micro_batch=4, global_batch=32)
STEPS = [3, 4, 5]  # what --profile alone means
LAYERS = ["embedding", "block0", "block1", "head"]


def train(shop, *extra, launch=(), code=0, environment={}, **flags):
    flags = dict(MODEL, layers=2, data=shop / "text.txt", steps=6, val_every=0) | flags
    with Run([*map(str, launch), minigpt, "train", *words(**flags), *extra], shop / "err", shop / "out",
             **environment) as job:
        got = job.finish(120)
        assert got == code, f"exit code {got}, expected {code}\n{job.stderr()}"
        return (shop / "out").read_text() + job.stderr()


def nanos(microseconds):
    return round(microseconds * 1000)


class Slice:
    def __init__(self, event):
        self.name, self.kind = event["name"], event["cat"]
        self.begin = nanos(event["ts"])
        self.end = self.begin + nanos(event["dur"])
        self.inside = []

    def own_time(self):
        return self.end - self.begin - sum(s.end - s.begin for s in self.inside)

    def all(self):
        yield self
        for s in self.inside:
            yield from s.all()


def nested(slices):
    """The outermost slices of a track; on it nothing overlaps without being inside."""
    top, stack = [], []
    for s in sorted(slices, key=lambda s: (s.begin, -s.end)):
        assert s.end >= s.begin, f"{s.name} ends before it begins"
        while stack and stack[-1].end <= s.begin and not (s.begin == s.end == stack[-1].end):
            stack.pop()
        if stack:
            assert s.end <= stack[-1].end, f"{s.name} overlaps the end of {stack[-1].name}"
        (stack[-1].inside if stack else top).append(s)
        stack.append(s)
    return top


class Rank:
    def __init__(self, events):
        names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
        assert len(names) == 1, names
        self.name = names.pop()
        self.steps = nested([Slice(e) for e in events if e["ph"] == "X"])
        self.operations = self.operations_of(events)

    @staticmethod
    def operations_of(events):
        """(call, group, bytes, begin, end) in the order of the calls."""
        begun, done = {}, []
        for e in events:
            if e["ph"] == "b":
                assert e["id2"]["local"] not in begun, "an id is used twice"
                begun[e["id2"]["local"]] = e
            elif e["ph"] == "e":
                b = begun.pop(e["id2"]["local"])
                assert b["name"] == e["name"] and b["cat"] == e["cat"]
                begin, end = nanos(b["ts"]), nanos(e["ts"])
                assert end >= begin
                done.append((b["args"]["call"], b["args"]["group"], b["args"]["bytes"], begin, end))
        assert not begun, f"operations without an end: {begun}"
        return sorted(done, key=lambda d: d[3])


def read_trace(run, ranks):
    trace = json.loads((run / "trace.json").read_text())
    tracks = collections.defaultdict(list)
    for e in trace["traceEvents"]:
        assert e["ph"] in "MXbe" and e["pid"] == e["tid"], e
        tracks[e["pid"]].append(e)
    assert sorted(tracks) == list(range(1, ranks + 1)), sorted(tracks)
    assert [r["rank"] for r in trace["ranks"]] == list(range(ranks))
    return trace, [Rank(tracks[pid]) for pid in sorted(tracks)]


def check_actions(rank, stage, kinds, micros):
    """Every pipeline action of every step once, and the stage's layers in those that run them."""
    mine = LAYERS[:2] if stage == 0 else LAYERS[2:]
    for step in rank.steps:
        actions = collections.Counter(s.name for s in step.all() if s.kind == "action")
        expected = collections.Counter(f"{kind}{m}" for kind in kinds for m in range(micros))
        assert actions == expected, f"{rank.name}, {step.name}: {actions}"
        for action in (s for s in step.all() if s.kind == "action"):
            layers = [s.name for s in action.inside if s.kind == "layer"]
            forward = action.name[0] == "F"
            if forward:
                assert layers == mine, f"{rank.name}, {action.name}: {layers}"
            elif action.name[0] in "BI":
                assert layers == mine[::-1], f"{rank.name}, {action.name}: {layers}"
        kinds_there = {s.kind for s in step.all()}
        assert {"optimizer", "data", "communication", "waiting"} <= kinds_there, f"{rank.name}: {kinds_there}"


def check_operations(ranks, clocks_differ=0):
    """The members of a group call the same, and no all_reduce ends before its last member begins: on one clock, or on
    clocks that differ by so many nanoseconds."""
    groups = collections.defaultdict(dict)
    for number, rank in enumerate(ranks):
        for call, group, size, begin, end in rank.operations:
            assert number in map(int, re.findall(r"\d+", group[group.index("{"):])), (number, group)
            if call.startswith("all_reduce"):
                groups[group].setdefault(number, []).append((call, size, begin, end))
    assert {g.split()[0] for g in groups} == {"dp", "tp", "world", "ends"}, groups.keys()
    for group, calls in groups.items():
        members = [int(n) for n in re.findall(r"\d+", group)]
        assert sorted(calls) == members, f"{group}: only {sorted(calls)}"
        for same in zip(*calls.values(), strict=True):
            assert len({(call, size) for call, size, _, _ in same}) == 1, same
            assert min(end for *_, end in same) + clocks_differ >= max(begin for _, _, begin, _ in same), f"{group}: {same}"


def check_time(trace, ranks, run):
    """Busy, communicating and waiting are what the slices say, and add up to the steps, as the metrics have them."""
    seconds = {record["step"]: record["seconds"] for record in records_of(run)}
    whole = sum(seconds[step] for step in STEPS)
    for told, rank in zip(trace["ranks"], ranks):
        assert [s.name for s in rank.steps] == [f"step {n}" for n in STEPS]
        own = collections.Counter()
        for step in rank.steps:
            for s in step.all():
                kind = {"waiting": "waiting", "communication": "communicating"}.get(s.kind, "busy")
                own[kind] += s.own_time()
        for kind in ("busy", "communicating", "waiting"):
            assert abs(own[kind] * 1e-9 - told[kind]) < 1e-6, f"{rank.name}: {kind} {own[kind]}, told {told[kind]}"
            assert told[kind] > 0
        total = sum(told[kind] for kind in own)
        assert abs(total - whole) < 0.05 * whole + 0.02, f"{rank.name}: {total} s of {whole} s"


def traces_of_every_rank(shop):
    launches = {"threads": ([], dict(comm="threads", ranks=RANKS))}
    if launcher:
        launches["mpi"] = (mpirun(launcher, RANKS), {})
    for name, (launch, how) in launches.items():
        for schedule, kinds in {"1f1b": "FB", "zb-h1": "FIW"}.items():
            run = shop / f"{name}-{schedule}"
            said = train(shop, "--profile", launch=launch, out=run, schedule=schedule, **LARGER, **MESH, **how)
            trace, ranks = read_trace(run, RANKS)
            assert trace["steps"] == [3, 5] and "busy" in said and "trace.json" in said, said
            for number, rank in enumerate(ranks):
                pp, dp, tp = number // 4, number // 2 % 2, number % 2
                assert rank.name == f"rank {number} (dp {dp}, pp {pp}, tp {tp})"
                assert rank.name in said, said
                check_actions(rank, pp, kinds, LARGER["global_batch"] // (LARGER["micro_batch"] * 2))
            check_operations(ranks)
            check_time(trace, ranks, run)


def traces_of_gpus(shop):
    """What the GPUs did, as they tell the time; over NCCL they go on while the host queues the next operation."""
    environment = dict(GPU_ON_CPU_DEVICES="2", GPU_ON_CPU_MEMORY=str(1 << 30))
    run = shop / "gpus"
    said = train(shop, "--profile", out=run, device="cuda", comm="threads", ranks=RANKS, environment=environment, **MESH)
    trace, ranks = read_trace(run, RANKS)
    for number, rank in enumerate(ranks):
        assert rank.name in said, said
        check_actions(rank, number // 4, "FB", MODEL["global_batch"] // (MODEL["micro_batch"] * 2))
    check_operations(ranks, clocks_differ=1000000)
    check_time(trace, ranks, run)
    assert "profile with graph" in train(shop, "--profile", "--graph", device="cuda", code=78, environment=environment)


def profiles_change_nothing(shop):
    for name, extra in {"plain": [], "traced": ["--profile", "2-5", "--tensorboard"]}.items():
        train(shop, *extra, out=shop / name, comm="threads", ranks=4, tp=2, zero=1, recompute="block")
    assert metrics(shop / "plain") == metrics(shop / "traced")


def a_stop_leaves_a_trace(shop):
    run = shop / "stopped"
    flags = dict(MODEL, data=shop / "text.txt", steps=100000, profile="2-100000", out=run, comm="threads", ranks=2)
    lines = lambda: len((run / "metrics.jsonl").read_text().splitlines()) if (run / "metrics.jsonl").exists() else 0
    with Run([minigpt, "train", *words(**flags)], shop / "err") as job:
        assert wait_until(lambda: lines() >= 4), job.stderr()
        job.process.send_signal(signal.SIGINT)
        assert job.finish() == 75, job.stderr()
    trace, ranks = read_trace(run, 2)
    assert trace["steps"] == [2, lines()]
    for rank in ranks:
        steps = [s.name for s in rank.steps if s.name.startswith("step ")]
        assert steps == [f"step {n}" for n in range(2, lines() + 1)]


def bad_flags(shop):
    for text, said in {"5-3": "profile `5-3`", "x": "like 3 or 3-5", "5-9": "Valid: steps from 1 to 6"}.items():
        assert said in train(shop, "--profile", text, out=shop / "bad", code=78)
    assert not (shop / "bad").exists()
    (shop / "taken" / "trace.json").mkdir(parents=True)
    assert "trace.json" in train(shop, "--profile", "1", out=shop / "taken", code=73)
    said = train(shop, out=shop / "own", metrics=shop / "own" / "trace.json", code=78)
    assert "keeps trace.json for itself" in said, said


# TensorBoard's files: TFRecords of Protocol Buffers, read without either library.

def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check_crc(data, stored):
    crc = crc32c(data)
    assert (((crc >> 15 | crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF == struct.unpack("<I", stored)[0]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of a message: bytes of texts and fixed sizes, whole numbers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value, at = data[at:at + size], at + size
            assert at <= len(data)
        yield key >> 3, value


def events(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack("<Q", data[at:at + 8])
        check_crc(data[at:at + 8], data[at + 8:at + 12])
        check_crc(data[at + 12:at + 12 + size], data[at + 12 + size:at + 16 + size])
        yield dict(fields(data[at + 12:at + 12 + size]))
        at += 16 + size


def scalars(run):
    """{tag: {step: value}}; what a file says of its first step and later replaces what files before it said."""
    found = collections.defaultdict(dict)
    for number, path in enumerate(sorted(run.glob("events.out.tfevents.*"))):
        for index, event in enumerate(events(path)):
            assert struct.unpack("<d", event[1])[0] > 1.7e9, "wall time"
            step = event[2]
            if index == 0:
                assert event[3] == b"brain.Event:2"
            elif index == 1:
                assert dict(fields(event[7])) == {1: 1}, "a session starts"
                for values in found.values():
                    for later in [s for s in values if s >= step]:
                        del values[later]
            else:
                entry = dict(fields(dict(fields(event[5]))[1]))
                tag, value = entry[1].decode(), struct.unpack("<f", entry[2])[0]
                assert step not in found[tag], f"file {number}: {tag} of step {step} again"
                found[tag][step] = value
    return found


def tensorboard_files(shop):
    run = shop / "board"
    assert crc32c(b"123456789") == 0xE3069283
    train(shop, "--tensorboard", out=run, val_every=2, save_every=2)
    shutil.rmtree(run / "step-6")  # as if it had died after step 5
    train(shop, "--tensorboard", out=run, val_every=2, save_every=2, resume="auto", steps=8)
    lines = records_of(run)
    assert [r["step"] for r in lines] == list(range(1, 9))
    found = scalars(run)
    keys = {"train/loss": "loss", "train/learning_rate": "lr", "train/grad_norm": "grad_norm",
            "train/loss_scale": "loss_scale", "eval/loss": "val_loss", "memory/max_bytes": "memory_bytes",
            "throughput/tokens_per_second": "tokens_per_second"}
    assert set(found) == set(keys), set(found)
    assert len(list(run.glob("events.out.tfevents.*"))) == 2
    for tag, key in keys.items():
        expected = {r["step"]: struct.unpack("<f", struct.pack("<f", r[key]))[0] for r in lines if key in r}
        assert found[tag] == expected, tag
    assert sorted(found["eval/loss"]) == [2, 4, 6, 8]


tests = [traces_of_every_rank, profiles_change_nothing, a_stop_leaves_a_trace, bad_flags, tensorboard_files]
run_each(tests + [traces_of_gpus] * (len(sys.argv) > 3), sys.argv[3:], "triax-watch-")
