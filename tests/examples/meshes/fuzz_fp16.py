"""fuzz_fp16.py PROGRAM DRAWS [SEED]: `PROGRAM train --precision fp16`, of minigpt or llama, skips the same steps at the
same loss scales on a pair of meshes as on one rank, with a loss scale that doubles after every step that it can. Model,
batch, both meshes (tp to 6, ZeRO, schedules, micro-batches, sequence parallelism, recomputation) are drawn at random.
Prints each pair that does not, and where; exit status 1 if there is one."""

import json
import math
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

STEPS, BATCH, CONTEXT = 20, 12, dict(zip((1, 2, 3, 4, 5, 6), (12, 12, 12, 8, 10, 12)))

TEXT = "".join(chr(ord("a") + (i * i // 3 + i // 5) % 13) for i in range(900))


def model(pick, program, heads):
    flags = {"--width": heads * 2 * pick.choice([2, 3, 5]), "--layers": pick.choice([4, 6]), "--heads": heads}
    if program == "llama":
        return flags | {"--kv-heads": heads, "--hidden": heads * pick.choice([4, 8])}
    return flags | {"--dropout": pick.choice([0, 0.1])}


def mesh(pick, tp):
    pp = pick.choice([1, 1, 2])
    dp = pick.choice([n for n in (1, 2, 3) if n * pp * tp <= 12])
    schedule = pick.choice(["gpipe", "1f1b", "zb-h1", "interleaved", "zb-interleaved"])
    flags = {"--ranks": dp * pp * tp, "--pp": pp, "--tp": tp, "--zero": pick.choice([0, 1, 2, 3]), "--schedule": schedule,
             "--chunks": 2 if schedule.endswith("interleaved") else 1, "--micro-batch": pick.choice([1, 2]),
             "--recompute": pick.choice(["off", "off", "block"]), "--reduce-dtype": pick.choice(["fp32", "fp32", "bf16"])}
    return [*words(flags), *["--sequence-parallel"] * (tp > 1 and pick.choice([True, False]))]


def words(flags):
    return [str(word) for flag in flags.items() for word in flag]


def draw(pick, program):
    """Flags of the model; of its training before, in fp32; of that in fp16; of both meshes."""
    tps = pick.choice([(2, 6), (3, 6), (1, 6), (6, 6), (2, 4), (4, 4), (5, 5), (1, 5), (2, 3), (1, 2)])
    before = {"--steps": pick.choice([30, 60, 120]), "--lr": pick.choice([0.003, 0.01, 0.03])}
    then = {"--steps": STEPS, "--lr": 0.0003, "--precision": "fp16", "--loss-scale-window": 1, "--hysteresis": 1,
            "--initial-loss-scale": 2.0**pick.choice([12, 16, 20])}
    common = model(pick, program, math.lcm(*tps)) | {
        "--context": CONTEXT[max(tps)], "--seed": pick.randrange(1000), "--global-batch": BATCH, "--val-every": 0}
    return words(common), words(before), words(then), [mesh(pick, tp) for tp in tps]


def train(program, flags, folder, name):
    """Loss scale of every step, and whether it was skipped; or what went wrong."""
    command = [program, "train", *flags, "--comm", "threads", "--data", "text.txt", "--out", name]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    if done.returncode:
        return f"exit status {done.returncode}\n{done.stdout[-400:]}{done.stderr[-1000:]}"
    lines = map(json.loads, (pathlib.Path(folder) / name / "metrics.jsonl").read_text().splitlines())
    return [(line["loss_scale"], line["skipped"]) for line in lines]


def differences(program, drawn, folder):
    """What is wrong with a pair, and how many steps one rank skipped."""
    common, before, then, meshes = drawn
    with tempfile.TemporaryDirectory(dir=folder) as here:
        (pathlib.Path(here) / "text.txt").write_text(TEXT)
        train(program, [*common, *before, "--micro-batch", "2"], here, "before")
        then = [*common, *then, "--init", "before"]
        one = train(program, [*then, "--micro-batch", "2"], here, "one")
        if isinstance(one, str):
            return f"{shlex.join(then)}\n{one}\n", 0
        wrong = ""
        for number, flags in enumerate(meshes):
            got = train(program, [*then, *flags], here, f"mesh{number}")
            if got != one:
                at = next((i for i, (a, b) in enumerate(zip(got, one)) if a != b), 0)
                said = got if isinstance(got, str) else f"step {at + 1}: one rank {one[at:]}\n  mesh {got[at:]}"
                wrong += f"{shlex.join(before)}, then {shlex.join(then)}\n{shlex.join(flags)}\n  {said}\n"
        return wrong, sum(skipped for _, skipped in one)


def main(program, draws, seed="1"):
    program, draws, pick = pathlib.Path(program).resolve(), int(draws), random.Random(int(seed))
    wrong = skips = 0
    with tempfile.TemporaryDirectory(prefix="triax-fuzz-fp16-") as folder:
        for _ in range(draws):
            problem, skipped = differences(program, draw(pick, program.name.removeprefix("triax-")), folder)
            skips += skipped
            wrong += problem != ""
            print(problem, end="", flush=True)
    print(f"{draws - wrong} of {draws} pairs of seed {seed} skip as one rank does: it skipped {skips} of {draws * STEPS} steps")
    return wrong > 0 or skips < draws  # too few to tell


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
