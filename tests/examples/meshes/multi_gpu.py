"""multi_gpu.py MINIGPT TEXT OUT GPUS [--small] [CHECK ...]: what several GPUs over NCCL must show, the most valuable first.

Each check has a name, a limit in seconds, the GPUs that it needs, and what is expected. What has passed in OUT/multi.json is
not run again unless it is named. --small: of models that emulated GPUs can train. Exit status 1 if a check failed.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time
from typing import Callable

from gpu_meshes import ROOT

LIMITS = dict(TRIAX_TIMEOUT="30", TRIAX_START_TIMEOUT="60")
# NCCL's buffer of a link is then 1 MB within a node, too: larger messages wait for their receiver.
RENDEZVOUS = dict(NCCL_BUFFSIZE="65536")


class Failed(Exception):
    pass


class Machine:
    def __init__(self, minigpt, text, out, gpus, small):
        self.minigpt, self.text, self.out, self.gpus, self.small = minigpt, text, pathlib.Path(out), int(gpus), small
        self.deadline = 0.0

    def wait(self, job):
        """Its exit status; what is left of it ends at the check's limit."""
        try:
            return job.wait(max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return "none: no end within the limit"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, 9)

    def start(self, name, ranks, flags, environment):
        folder = self.out / "multi" / name.replace(" ", "-")
        command = [ROOT / "scripts/launch.sh", "-n", ranks, "--", self.minigpt, "train", "--data", self.text, "--out", folder,
                   "--device", "cuda", "--comm", "nccl", "--warmup", 0, "--val-fraction", 0, *shlex.split(flags)]
        subprocess.run(["rm", "-rf", folder], check=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = open(folder.parent / f"{folder.name}.log", "w+")
        return folder, log, subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                             env={**os.environ, **LIMITS, **environment}, start_new_session=True)

    def train(self, name, ranks, flags, **environment):
        """The records of its steps."""
        folder, log, job = self.start(name, ranks, flags, environment)
        status = self.wait(job)
        if status != 0:
            log.seek(0)
            raise Failed(f"{name}: exit status {status}: {log.read()[-800:]}")
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]

    def model(self, layers, batch):
        """A small model, or one whose messages have 16 MB."""
        size = "--heads 4 --width 16 --context 8" if self.small else "--heads 16 --width 1024 --context 1024 --precision bf16"
        return f"--layers {layers} {size} --micro-batch {1 if self.small else 8} --global-batch {batch * (1 if self.small else 8)}"


def expect_equal(name, ours, theirs, within=0.0):
    for a, b in zip(ours, theirs, strict=True):
        for key in ("loss", "grad_norm"):
            if not abs(a[key] - b[key]) <= within * abs(b[key]):
                raise Failed(f"{name}, step {a['step']}: {key} {a[key]}, expected {b[key]}")


def step_time(records):
    times = sorted(r["seconds"] for r in records[2:])
    return f"{1000 * times[len(times) // 2]:.0f} ms a step"


def wiring(m):
    _, log, job = m.start("wiring", 2, m.model(2, 2) + " --dp 2 --steps 1", dict(NCCL_DEBUG="INFO"))
    status = m.wait(job)
    log.seek(0)
    lines = log.read().splitlines()
    topology = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True).stdout if not m.small else ""
    (m.out / "topology.txt").write_text(topology)
    if status != 0:
        raise Failed(f"exit status {status}: multi/wiring.log")
    found = {w: sum(w in line for line in lines) for w in ("NVLS", "P2P", "channels", "NET/")}
    return ", ".join(f"{w}: {n} lines" for w, n in found.items())


def meshes(m):
    shared = "--layers 4 --heads 8 --width 64 --context 32 --micro-batch 1 --global-batch 8 --dropout 0.1 --steps 4"
    one = m.train("one", 1, shared)
    tried = [f"--dp {m.gpus} --zero {zero}" for zero in range(4)] + [f"--tp {m.gpus}"]
    tried += ["--pp 2", *(["--dp 2 --pp 2 --tp 2 --zero 2"] if m.gpus >= 8 else [])]
    for mesh in tried:
        ranks = 8 if mesh.count("2 ") >= 3 else 2 if "--pp" in mesh else m.gpus
        expect_equal(mesh, m.train(f"mesh {mesh}", ranks, f"{shared} {mesh}"), one, 1e-3)
    return f"{len(tried)} meshes as one rank"


def schedules(m):
    done = []
    for schedule, micros in (("1f1b", 16), ("interleaved", 16), ("interleaved", 9), ("zb-interleaved", 7), ("zb-v", 16),
                             ("zb-2p", 16), ("zb-2p", 4), ("dualpipev", 16)):
        records = m.train(f"{schedule} {micros}", 2, m.model(4, micros) + f" --pp 2 --schedule {schedule} --steps 4", **RENDEZVOUS)
        done.append(f"{schedule} {micros}: {step_time(records)}")
    return "; ".join(done)


def kill(m):
    """Seconds from the death of a rank to the end of the job, and what is said."""
    folder, log, job = m.start("kill", 2, m.model(2, 4) + " --dp 2 --steps 100000", {})
    while not (folder / "metrics.jsonl").exists() or (folder / "metrics.jsonl").read_text().count("\n") < 3:
        if job.poll() is not None or time.monotonic() > m.deadline:
            m.wait(job)
            raise Failed("no third step to kill it in: multi/kill.log")
        time.sleep(0.01)
    mine = subprocess.run(["pgrep", "-f", f"{m.minigpt} train .*{folder.name}"], capture_output=True, text=True).stdout.split()
    ranks = [pid for pid in mine if pathlib.Path(f"/proc/{pid}/exe").resolve() == pathlib.Path(m.minigpt).resolve()]
    if not ranks:
        m.wait(job)
        raise Failed("its processes were not found: multi/kill.log")
    os.kill(int(ranks[-1]), 9)
    began = time.monotonic()
    status = m.wait(job)
    took = time.monotonic() - began
    if status == 0 or took > 5:
        raise Failed(f"exit status {status} after {took:.1f} s: multi/kill.log")
    return f"ended after {took:.1f} s with {status}"


def graphs(m):
    said = []
    for mesh in ("--dp 2", "--tp 2", "--dp 2 --zero 2"):
        flags = m.model(2, 4) + f" {mesh} --steps 8 "
        eager, graph = m.train(f"eager {mesh}", 2, flags), m.train(f"graph {mesh}", 2, flags + "--graph")
        expect_equal(f"graph {mesh}", graph, eager)
        said.append(f"{mesh}: {step_time(eager)}, as a graph {step_time(graph)}")
    return "; ".join(said)


def bits(m):
    flags = m.model(2, 2 * m.gpus) + f" --dp {m.gpus} --steps 10"
    ring = [m.train(f"ring {i}", m.gpus, flags, NCCL_ALGO="Ring") for i in (1, 2)]
    expect_equal("NCCL_ALGO=Ring, twice", *ring)
    free = [m.train(f"free {i}", m.gpus, flags) for i in (1, 2)]
    alike = all(a["loss"] == b["loss"] for a, b in zip(*free))
    return f"with rings equal bits, {step_time(ring[0])}; as NCCL chooses {'equal' if alike else 'other'} bits, {step_time(free[0])}"


def order(m):
    """NCCL's own order of launches, which triax leaves off, is expected to hang: exit status 72."""
    flags = m.model(4, 9) + " --pp 2 --schedule interleaved --steps 2"
    try:
        m.train("order", 2, flags, NCCL_LAUNCH_ORDER_IMPLICIT="1", **RENDEZVOUS)
    except Failed as failed:
        if "exit status 72" in str(failed):
            return "hangs, as expected"
        raise
    return "does not hang here"


def speed(m):
    config = ROOT / "examples/minigpt/configs/gpt2-1.5b-24-heads.toml"
    base = m.model(2, 4) if m.small else f"--config {config} --precision bf16 --micro-batch 4"
    said = []
    for mesh, batch in ((f"--dp {m.gpus} --zero 1", 64), (f"--dp {m.gpus} --zero 1", 480), (f"--tp {m.gpus}", 64),
                        (f"--tp {m.gpus} --sequence-parallel", 64), ("--pp 2 --schedule zb-h1", 60)):
        ranks = 2 if "--pp" in mesh else m.gpus
        own = "" if m.small else f" --global-batch {batch}"
        records = m.train(f"speed {mesh} {batch}", ranks, f"{base}{own} {mesh} --steps 8")
        said.append(f"{mesh}, batch {batch}: {step_time(records)}")
    return "; ".join(said)


@dataclasses.dataclass
class Check:
    name: str
    seconds: int
    gpus: int
    shows: str
    run: Callable


CHECKS = [
    Check("wiring", 40, 2, "how NCCL connects two GPUs", wiring),
    Check("meshes", 300, 2, "ranks with a GPU each reproduce one", meshes),
    Check("schedules", 200, 2, "every schedule ends where messages wait for their receiver", schedules),
    Check("kill", 60, 2, "a killed rank ends the job within 5 s", kill),
    Check("graphs", 120, 2, "captured steps have the bits of eager ones", graphs),
    Check("bits", 120, 2, "two runs have equal bits", bits),
    Check("order", 60, 2, "what NCCL's order of launches does to interleaved schedules", order),
    Check("speed", 400, 2, "steps of GPT-2 1.5B beside docs/gpu.md's predictions", speed),
]


def main(minigpt, text, out, gpus, *wanted):
    machine = Machine(minigpt, text, out, gpus, "--small" in wanted)
    named = [w for w in wanted if w != "--small"]
    if unknown := set(named) - {c.name for c in CHECKS}:
        sys.exit(f"multi_gpu: no check {', '.join(sorted(unknown))}; checks: {', '.join(c.name for c in CHECKS)}")
    results_file = pathlib.Path(out) / "multi.json"
    results = json.loads(results_file.read_text()) if results_file.exists() else {}
    for check in CHECKS:
        if named and check.name not in named or not named and results.get(check.name, {}).get("result") == "ok":
            continue
        began = time.monotonic()
        machine.deadline = began + check.seconds
        if machine.gpus < check.gpus:
            results[check.name] = dict(result="not-shown", note=f"GPUs needed: {check.gpus}")
            continue
        try:
            results[check.name] = dict(result="ok", note=check.run(machine))
        except (Failed, OSError) as error:
            results[check.name] = dict(result="FAILED", note=str(error))
        results[check.name]["seconds"] = round(time.monotonic() - began, 1)
        results_file.write_text(json.dumps(results, indent=1))
        print(f"{check.name}: {results[check.name]['result']}: {check.shows}: {results[check.name]['note']}", flush=True)
    return any(results.get(c.name, {}).get("result") == "FAILED" for c in CHECKS)


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
