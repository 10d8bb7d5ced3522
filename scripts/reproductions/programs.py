"""Runs a command of triax and reads what it printed: a function for each kind of output, and a cache."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", COLUMNS="110")


def search(said):
    """`schedule --search --json`: of each schedule by name the bubble, from the first action of the longest stage to its
    last, as a share, and the most activations that each stage holds, in those of a whole stage."""
    rows = json.loads(said)["rows"]
    return {"bubble": {row["name"]: row["bubble"] for row in rows}, "peak": {row["name"]: row["peak"] for row in rows}}


def schedule(said):
    """`schedule --json`: `time` from the first begin to the last end of all, `bubble` of it in which the busiest stage is
    idle; `live`, the most activations that each stage holds, in those of a whole stage; and for each stage the `span` from
    its first begin to its last end."""
    found = json.loads(said)
    spans = []
    for stage in range(found["stages"]):
        mine = [action for action in found["actions"] if action["stage"] == stage]
        spans.append(max(a["end"] for a in mine) - min(a["begin"] for a in mine))
    return {"time": found["time"], "bubble": found["bubble"], "work": found["time"] - found["bubble"], "span": max(spans),
            "live": [live / found["chunks"] for live in found["peak_live"]]}


def plan(said):
    """`plan --json` of one candidate: its keys."""
    return json.loads(said.splitlines()[0])


def model(said):
    """`plan`: the parameters that its text names."""
    return {"parameters": int(re.search(r"(\d+) parameters", said)[1])}


def ledger(said):
    """`train --ledger`: bytes `sent` and `calls` by group and operation, and MB at the end of the step, `live`, by kind; of
    the first stage, and of all as `stages`. `parameters` of the model."""
    stages = []
    for line in said[said.index("\nstage 0, rank"):].splitlines():
        if line.startswith("stage "):
            stages.append({"sent": {}, "calls": {}, "live": {}, "peak": {}})
        elif call := re.match(r"  (\S.*\S) +([\d.]+) calls +(\d+) bytes", line):
            key = " ".join(call[1].split())
            stages[-1]["calls"][key], stages[-1]["sent"][key] = float(call[2]), int(call[3])
        elif memory := re.match(r"  (live|peak) [\d.]+ MB: (.*)", line):
            words = memory[2].split()
            stages[-1][memory[1]] = dict(zip(words[::2], map(float, words[1::2])))
    return {**stages[0], "stages": stages, "parameters": int(re.search(r"^(\d+) parameters;", said, re.M)[1])}


def steps(said):
    """Tests that print steps in the order of their file, `predicted ..., measured`: the numbers `predicted`."""
    return {"predicted": [float(x) for x in re.findall(r": ([\d.]+) s, measured", said)]}


READERS = {f.__name__: f for f in (search, schedule, plan, model, ledger, steps)}


class Programs:
    """Programs of a build. Every command runs once, two of them at a time, in an empty folder from which the repository's
    files can be named as from its root."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.runs = {}

    def start(self, command):
        if command not in self.runs:
            self.runs[command] = self.pool.submit(self._run, command)

    def said(self, command):
        self.start(command)
        return self.runs[command].result()

    def _run(self, command):
        program, *arguments = shlex.split(command)
        if not (self.folder / program).is_file():
            raise SystemExit(f"reproduce: there is no {self.folder / program}; build it, or give its folder with --programs")
        with tempfile.TemporaryDirectory() as folder:
            for name in ("docs", "scripts", "tests"):
                os.symlink(ROOT / name, os.path.join(folder, name))
            done = subprocess.run([self.folder / program, *arguments], cwd=folder, env=ENVIRONMENT, capture_output=True,
                                  text=True, timeout=300)
        if done.returncode != 0:
            raise SystemExit(f"reproduce: {command}\n  exit status {done.returncode}\n{(done.stderr or done.stdout)[-2000:]}")
        return done.stdout
