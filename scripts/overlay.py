#!/usr/bin/env python3
"""Compares what a pipeline did, as `train --profile` traced it, with the same actions simulated.

The last traced step is used, on replica 0 and tensor-parallel rank 0."""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "readers"))
from pipeline_trace import KINDS, read_trace, simulated  # noqa: E402
from run_files import Arguments, expect, path, printable, run  # noqa: E402

CURE = "\n  Trace some steps of it: train --pp 2 --profile, or --profile 100-102."


def read(source):
    """The trace and the simulation of a run, or of its trace.json."""
    expect(os.path.exists(source), 66, f"overlay: there is no run {source}; expected a run directory, or its trace.json")
    file = os.path.join(source, "trace.json") if os.path.isdir(source) else source
    trace = read_trace(file)
    expect(trace, 66, f"overlay: there is no {file}; expected a run with a trace{CURE}")
    expect(trace.pipeline, 65, f"{file}: step {trace.last} has no actions of a pipeline; expected those of 2 stages or "
           f"more{CURE}")
    return trace, simulated(trace, file)


def timeline(p, name):
    """In the form of `minigpt schedule --json`, in seconds."""
    actions = [{"stage": a.stage, "kind": KINDS[a.kind], "chunk": a.chunk, "micro": a.micro, "begin": a.begin, "end": a.end}
               for a in p.actions]
    handovers = [{"kind": "gradient" if h.gradient else "activation", "micro": h.micro, "from": h.source, "to": h.target}
                 for a in p.actions if (h := p.handover(a, True))]
    return {"name": name, "stages": p.stages, "chunks": p.chunks, "micros": p.micros, "placement": p.placement,
            "time": p.time, "bubble": p.bubble, "idle": p.idle, "peak_live": p.peak_live(), "actions": actions,
            "handovers": handovers}


def ms(seconds):
    return f"{seconds * 1e3:.2f} ms"


def text(source, trace, p, s):
    micros = f"{p.micros} micro-batch" + "es" * (p.micros > 1)
    longer = 100 * (p.time / s.time - 1) if s.time else 0
    lines = [f"{printable(source)}, step {trace.last}: {printable(trace.schedule)}, {p.stages} stages, {micros}",
             "(replica 0, tensor-parallel rank 0)", "",
             f"pipeline, measured   {ms(p.time):>12}",
             f"pipeline, simulated  {ms(s.time):>12}  measured: {longer:+.1f} %",
             f"whole step           {ms(p.whole):>12}", "",
             f"{'':<9}{'works':>12}{'waits':>12}{'':>8}{'waits, simulated':>18}"]
    for stage, (idle, expected) in enumerate(zip(p.idle, s.idle)):
        share = 100 * idle / p.time if p.time else 0
        lines.append(f"stage {stage:<3}{ms(p.time - idle):>12}{ms(idle):>12}{share:>6.1f} %{ms(expected):>18}")
    most = p.idle.index(p.bubble)
    return "\n".join([*lines, "", f"stage {most} waits most: {ms(p.bubble)} of {ms(p.time)}"])


def main():
    arguments = Arguments("triax-overlay", __doc__)
    arguments.add_argument("run", metavar="RUN", type=path, help="a run with --profile: its directory, or its trace.json")
    arguments.add_argument("--json", action="store_true", help="print JSON for scripts/draw.py")
    args = arguments.parse_args()
    trace, simulation = read(args.run)
    measured = trace.pipeline
    if args.json:
        both = {"measured": timeline(measured, trace.schedule), "simulated": timeline(simulation, trace.schedule)}
        print(json.dumps({"source": args.run, "step": trace.last, "seconds": measured.whole, **both}, separators=(",", ":")))
    else:
        print(text(args.run, trace, measured, simulation))
    return 0


if __name__ == "__main__":
    run(main)
