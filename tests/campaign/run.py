"""run.py BIN [--long | --tiny] [--only NAME]... [--seed S] [--out DIR]: scripts/campaign.sh says what it does. BIN: the
programs of a build. A promise is kept by a program that exists for it, here or among the tests; this one chooses counts
and seeds, adds up, and keeps the log of what failed."""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
MPIRUN = shutil.which("mpirun") or ""
FORMS = {"tiny": 0, "short": 1, "long": 2}


@dataclasses.dataclass
class Promise:
    """`counts` by form, 0: not part of it; so many go into a program's run at a time. `command` of (count, seed) is
    a program with its environment; `found` in what it prints says `N of M`, else all M are done if it ends with 0."""

    name: str
    text: str
    counts: tuple
    command: object
    at_a_time: int = 10**9
    found: str = r"(\d+) of (\d+)"
    repeats: bool = True  # by its seed


def python(script, *words, **environment):
    return [sys.executable, str(TESTS / script), *map(str, words)], environment


def promises(bin_dir):
    programs = ("minigpt", "triax-llama", "triax-resnet", "test_parallel", "test_mpi")
    minigpt, llama, resnet, tests, mpi = (str(bin_dir / name) for name in programs)
    library = next(iter(sorted(bin_dir.glob("*fail_call.so"))), "")

    def gtest(pattern, **environment):
        return [tests, f"--gtest_filter={pattern}"], environment

    def collectives(count, seed, **environment):
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        command = [MPIRUN, "-q", "-np", "2", "--oversubscribe", "--bind-to", "none", *root, mpi, "promises"]
        return command, dict(TRIAX_CALLS=count, TRIAX_SEED=seed, **environment)

    def fuzzing(count, seed):
        limit = ["--seconds", "60"] if count == 60 else ["--inputs", str(count)]
        return [str(ROOT / "scripts/fuzz_parsers.sh"), *limit], {}

    every = dict(found="", repeats=False)
    rows = [
        Promise("kill", "a rank killed at any moment, also while it saves or loads: resumed, bitwise", (2, 40, 1000),
                lambda n, s: python("examples/programs/kill_test.py", minigpt, MPIRUN, TRIAX_KILLS=n, TRIAX_SEED=s,
                                    TRIAX_ONLY="killed_and_resumed"), 20, ""),
        Promise("restart", "a rank killed, and one more while the restart loads: ends bitwise by itself", (0, 3, 100),
                lambda n, s: python("examples/programs/elastic_test.py", minigpt, MPIRUN, 0), 1, "", False) if MPIRUN else None,
        Promise("elastic", "one to three ranks killed: goes on with those that are left, and ends with the bits of a "
                "quiet run", (0, 3, 100), lambda n, s: python("examples/programs/elastic_test.py", minigpt, MPIRUN, n, s), found="")
        if MPIRUN else None,
        Promise("replay", "a random step of a random rank, computed again: loss, norm, weights and moments bitwise",
                (0, 10, 100), lambda n, s: python("examples/programs/replay_test.py", minigpt, MPIRUN, llama, resnet, n, s), found=""),
        Promise("bits", "100 steps with --bitwise on 24 meshes x ZeRO 0 to 3 and on drawn ones: all bits of one rank's",
                (0, 0, 200), lambda n, s: python("examples/meshes/fuzz.py", minigpt, n, s, 100), found=r"(\d+) of (\d+), \d+ drawn"),
        Promise("fp16", "pairs of meshes skip the steps that one rank skips", (0, 5, 60),
                lambda n, s: python("examples/meshes/fuzz_fp16.py", minigpt, n, s), found=r"(\d+) of (\d+) pairs"),
        Promise("writer", "a process killed within its saves: the newest checkpoint is whole", (10, 100, 1000),
                lambda n, s: gtest("KilledWriter.*", TRIAX_KILLS=n), **every),
        Promise("reshard", "ordered pairs of meshes: saved on one, goes on bitwise on the other", (2, 380, 380),
                lambda n, s: python("campaign/reshard.py", minigpt, s, 20 if n == 380 else 2)),
        Promise("damage", "bits of a small checkpoint flipped, and truncations: each found, nothing loaded", (1, 1, 1),
                lambda n, s: gtest("CheckpointDamage.*"), found=r"damaged (\d+) of (\d+)", repeats=False),
        Promise("calls", "system calls of a resume and a save that fail once: the checkpoint before is whole", (3, 0, 0),
                lambda n, s: python("campaign/system_calls.py", minigpt, library, s, n)) if library else None,
        Promise("every_call", "the same, every call, with EIO and with ENOSPC", (0, 1, 1),
                lambda n, s: python("campaign/system_calls.py", minigpt, library), repeats=False) if library else None,
        Promise("operations", "an operation of a save that fails on one of two ranks: nothing is lost", (1, 1, 1),
                lambda n, s: gtest("CheckpointDirectory.*"), **every),
    ]
    for name, over, window in (("collectives", "shared memory", "on"), ("collectives_mpi", "MPI", "off")) if MPIRUN else ():
        rows.append(Promise(name, f"calls over {over} without a false alarm, comparing at most 1 % of each, after 78 kinds of "
                            "mismatches named within 1 s",
                            (1000, 10**6, 10**7), lambda n, s, window=window: collectives(n, s, TRIAX_WINDOW=window), found=""))
    rows += [
        Promise("parsers", "parsers under libFuzzer, 60 s each (long: 10^7 inputs): no crash, no large allocation",
                (0, 60, 10**7), fuzzing, **every),
        Promise("replicas", "a flipped bit in one replica is found, rank and tensor named", (1, 1, 1),
                lambda n, s: gtest("CheckReplicas.*"), **every),
        Promise("growth", "steps without growth of memory, descriptors, threads", (400, 20_000, 200_000),
                lambda n, s: python("campaign/growth.py", minigpt, MPIRUN, s, n)),
        Promise("sanitizers", "every test under address, undefined, leak and thread sanitizers", (0, 0, 1),
                lambda n, s: ([str(ROOT / "scripts/sanitize.sh")], {}), **every),
    ]
    return [row for row in rows if row]


def keep(promise, count, seed):
    """Runs it once: how many are right of how many."""
    command, environment = promise.command(count, seed)
    log = out / f"{promise.name}-{seed}.log"
    with open(log, "w") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                              env=dict(os.environ, **{k: str(v) for k, v in environment.items()})).returncode
    said = re.findall(promise.found, log.read_text(errors="replace")) if promise.found else []
    good, all_of = map(sum, zip(*[map(int, pair) for pair in said])) if said else (count * (code == 0), count)
    if code == 0 and good == all_of:
        log.unlink()
    return (good, all_of, True) if code == 0 else (min(good, all_of - 1), all_of, False)


def fulfil(promise):
    total, begun = promise.counts[FORMS[form]], time.monotonic()
    good = done = 0
    failed, seed = [], arguments.seed
    for first in range(0, total, promise.at_a_time):
        right, of, well = keep(promise, min(promise.at_a_time, total - first), seed)
        good, done = good + right, done + of
        if not well or right != of:
            failed.append(seed)
            print(f"  {promise.name}: failed; again: scripts/campaign.sh --{form} --only {promise.name}"
                  f"{f' --seed {seed}' if promise.repeats else ''}; log: {out / f'{promise.name}-{seed}.log'}", flush=True)
        seed += 1
        if arguments.again:
            break
    print(f"| {promise.name} | {promise.text} | {good} of {done} | {time.monotonic() - begun:.0f} |", flush=True)
    return not failed and good == done


parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("bin", type=lambda text: pathlib.Path(text).resolve())
for name in ("--long", "--short", "--tiny"):
    parser.add_argument(name, action="store_const", dest="form", const=name[2:], default="short")
parser.add_argument("--only", action="append", default=[])
parser.add_argument("--seed", type=int)
parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/campaign")
arguments = parser.parse_args()
form, out, rows = arguments.form, arguments.out, promises(arguments.bin)
arguments.again = arguments.seed is not None
arguments.seed = arguments.seed if arguments.again else 1
if unknown := set(arguments.only) - {row.name for row in rows}:
    sys.exit(f"campaign: no promise {', '.join(sorted(unknown))}\n  There are: {', '.join(row.name for row in rows)}")
out.mkdir(parents=True, exist_ok=True)
print("| name | promise | kept | seconds |\n|---|---|---|---|", flush=True)
kept = [fulfil(row) for row in rows if row.name in (arguments.only or [row.name]) and row.counts[FORMS[form]]]
sys.exit(not all(kept) or not kept)
