"""fuzz.py PROGRAM DRAWS [SEED]: `PROGRAM parity` with flags drawn at random: meshes of up to 12 ranks, ZeRO,
schedules, placements, recomputation, precisions and odd sizes. Prints each command line that does not say
EQUAL, and what it says; exit status 1 if there is one. Progress is on stderr."""

import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

SECONDS = 120


def draw(pick, text):
    """Flags of a model of minigpt, a batch and a mesh that fit each other."""
    def chance(*values):
        return pick.choice(values)

    tp, pp, dp = chance(1, 1, 2, 3), chance(1, 2, 3), chance(1, 2, 3)
    if dp * pp * tp > 12:
        dp = 1
    heads, micro = tp * chance(1, 2), chance(1, 2, 3)
    layers = pp * chance(2, 3)
    schedule = chance("gpipe", "1f1b", "interleaved", "zb-h1", "zb-interleaved")
    chunks = chance(1, 2) if schedule.endswith("interleaved") else 1
    sequence = tp > 1 and chance(True, False)
    flags = {"--mesh": f"{dp}x{pp}x{tp}", "--heads": heads, "--width": heads * chance(4, 7, 10), "--layers": layers,
             "--context": chance(6, 12), "--dropout": chance(0, 0.1, 0.3), "--vocab": chance(0, 19, 32),
             "--micro-batch": micro, "--global-batch": micro * chance(1, 2, 3, 5) * dp, "--steps": 2,
             "--seed": pick.randrange(1000), "--zero": chance(0, 1, 2, 3), "--schedule": schedule, "--chunks": chunks,
             "--precision": chance("fp32", "fp32", "bf16", "fp16"), "--workers": chance(0, 0, 3),
             "--recompute": chance("off", "selective", "block", *["block-split"] * (tp > 1 and not sequence)),
             "--offload": chance("off", "off", "optimizer", "params"), "--data": text}
    if chance(True, False, False, False):  # any number of blocks on each stage, none too
        counts = [0] * (pp * chunks)
        for _ in range(layers):
            counts[pick.randrange(len(counts))] += 1
        flags["--placement"] = ",".join(map(str, counts))
    return [str(word) for flag in flags.items() for word in flag] + ["--sequence-parallel"] * sequence


def parity(program, flags):
    """What is wrong with it; nothing if it says EQUAL."""
    command = [program, "parity", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
    except subprocess.TimeoutExpired:
        return f"{' '.join(command)}\n  no end after {SECONDS} s"
    if done.returncode == 0 and "\nEQUAL: " in done.stdout:
        return ""
    said = "\n  ".join((done.stdout + done.stderr).splitlines()[-6:])
    return f"{' '.join(command)}\n  exit status {done.returncode}\n  {said}"


def main(program, draws, seed="1"):
    pick, begun, wrong = random.Random(int(seed)), time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="triax-fuzz-") as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("".join(chr(ord("a") + (i * i // 3 + i // 5) % 13) for i in range(600)))
        all_flags = [draw(pick, text) for _ in range(int(draws))]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, problem in enumerate(pool.map(lambda flags: parity(program, flags), all_flags), 1):
                if problem:
                    wrong += 1
                    print(problem, flush=True)
                if number % 20 == 0:
                    print(f"{number} of {draws}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    print(f"{int(draws) - wrong} of {draws} draws of seed {seed} train as one rank")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
