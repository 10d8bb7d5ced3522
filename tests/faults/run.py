"""run.py REPOSITORY SCRATCH [--list] [--from NAME] [NAME ...]: scripts/faults.sh says what it does.

SCRATCH/tree is a copy of the repository, built in SCRATCH/tree/build/release. A fault is planted in the
copy, never in the repository.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from table import FAULTS, FLAGS, MESHES, TEXT, UNSEEN

EQUAL, SECONDS = "no difference", 120


class Broken(Exception):
    """The copy cannot be built or run."""


class Copy:
    """The repository as it is now, where faults can be planted."""

    def __init__(self, root, scratch):
        self.root, self.tree = root, scratch / "tree"
        self.build = self.tree / "build/release"
        self.text = scratch / "text.txt"
        self.environment = os.environ | {"CCACHE_BASEDIR": str(self.tree), "CCACHE_NOHASHDIR": "1",
                                         "OMP_NUM_THREADS": "1", "TRIAX_TIMEOUT": "30"}

    def update(self):
        """Writes only what differs, so that little is built again."""
        listed = self.command(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                              cwd=self.root).stdout.split("\0")
        wanted = {name for name in listed if name and (self.root / name).is_file()}
        for name in sorted(wanted):
            content, to = (self.root / name).read_bytes(), self.tree / name
            if not to.is_file() or to.read_bytes() != content:
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(content)
                to.chmod((self.root / name).stat().st_mode)
        for path in self.tree.rglob("*"):
            name = str(path.relative_to(self.tree))
            if path.is_file() and name not in wanted and not name.startswith("build/"):
                path.unlink()
        self.text.write_text(TEXT)
        if not (self.build / "build.ninja").is_file():
            self.command(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja",
                          "-DCMAKE_BUILD_TYPE=Release", "-DTRIAX_CUDA=OFF"])

    def command(self, words, **options):
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, **options)
        if done.returncode != 0:
            raise Broken(f"{' '.join(map(str, words))}\n{(done.stdout + done.stderr)[-3000:]}")
        return done

    def make(self, target):
        self.command(["ninja", "-C", self.build, target])

    @contextlib.contextmanager
    def planted(self, fault):
        healthy = {}
        try:
            for old, new, *other in fault.edits:
                path = self.tree / (other[0] if other else fault.file)
                text = path.read_text()
                healthy.setdefault(path, text)
                if text.count(old) != 1:
                    raise Broken(f"{path} has {text.count(old)} times, expected once:\n{old}")
                path.write_text(text.replace(old, new))
            yield
        finally:
            for path, text in healthy.items():
                path.write_text(text)

    def parity(self, flags, program="minigpt"):
        """The first difference as it is printed, and the guess under it."""
        self.make(program)
        words = [self.build / "bin" / {"llama": "triax-llama"}.get(program, program), "parity", "--data", self.text, *FLAGS[program].split(), *flags.split()]
        try:
            done = subprocess.run(words, capture_output=True, text=True, env=self.environment,
                                  timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end after {SECONDS} s", ""
        difference = re.search(r"^DIFFERENT (?:at )?(.*)$", done.stdout, re.MULTILINE)
        guess = re.search(r"^  perhaps: (.*)$", done.stdout, re.MULTILINE)
        if difference:
            return difference[1], guess[1] if guess else ""
        if done.returncode == 0 and re.search(r"^EQUAL:", done.stdout, re.MULTILINE):
            return EQUAL, ""
        return f"exit status {done.returncode}: {done.stderr.strip()}", ""

    def tests_fail(self, program, tests):
        """Do all of them fail that this filter picks?"""
        if program.endswith(".py"):
            script = self.tree / "tests/examples/programs" / program
            done = subprocess.run(["python3", script, self.build / "bin/minigpt", shutil.which("mpirun") or "",
                                   *tests.split()], capture_output=True, text=True, env=self.environment,
                                  timeout=SECONDS)
            return done.returncode != 0 and "AssertionError" in done.stderr
        self.make(program)
        done = subprocess.run([self.build / "bin" / program, f"--gtest_filter={tests}"],
                              capture_output=True, text=True, env=self.environment, timeout=SECONDS)
        return done.returncode != 0 and "[  FAILED  ]" in done.stdout


def judge(copy, fault):
    """What was seen of a fault, and what of it is not as expected."""
    seen, problems = "", []
    for run in fault.runs:
        found, guess = copy.parity(run.flags, run.program)
        seen = seen or found
        if not re.fullmatch(run.expect, found):
            problems.append(f"{run.flags}: {found}; expected {run.expect}")
        elif run.guess not in guess:
            problems.append(f"{run.flags}: perhaps {guess or 'nothing'}; expected {run.guess}")
    return seen, problems


def judge_unseen(copy, fault):
    problems = []
    found, _ = copy.parity(fault.flags)
    if found != EQUAL:
        problems.append(f"{fault.flags}: {found}; expected {EQUAL}, since {fault.why}")
    if not copy.tests_fail(fault.program, fault.tests):
        problems.append(f"{fault.program} {fault.tests} passes; expected a failure")
    return f"{EQUAL}, but {fault.program} {fault.tests} fails", problems


def plant(copy, fault, judgement):
    """One line, more if it is not as expected. True if it is."""
    began = time.monotonic()
    try:
        with copy.planted(fault):
            seen, problems = judgement(copy, fault)
    except Broken as e:
        seen, problems = "", [str(e)]
    verdict = "NOT AS EXPECTED" if problems else seen
    print(f"{fault.name}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    for problem in problems:
        print(f"  {problem}", flush=True)
    return not problems


def try_meshes(copy):
    silent = 0
    for flags in MESHES:
        found, guess = copy.parity(flags)
        silent += found == EQUAL
        print(f"{flags}: {found} {guess}".rstrip(), flush=True)
    return silent


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--from", dest="first")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    every = [f.name for f in FAULTS + UNSEEN] + ["meshes"]
    unknown = sorted(set(asked.names + ([asked.first] if asked.first else [])) - set(every))
    if unknown:
        sys.exit(f"faults: unknown {', '.join(unknown)}; scripts/faults.sh --list has the names")
    if asked.list:
        print("\n".join(every))
        return
    chosen = set(asked.names or every[every.index(asked.first or every[0]):])
    copy = Copy(asked.repository.resolve(), asked.scratch.resolve())
    copy.update()
    seen = [f for f in FAULTS if f.name in chosen]
    unseen = [f for f in UNSEEN if f.name in chosen]
    named = sum(plant(copy, f, judge) for f in seen)
    held = sum(plant(copy, f, judge_unseen) for f in unseen)
    meshes = len(MESHES) if "meshes" in chosen else 0
    silent = try_meshes(copy) if meshes else 0
    print(f"{len(seen)} faults planted, {named} found and named as expected; {len(unseen)} unseen by "
          f"parity, {held} found by their tests; {meshes} meshes without a fault, {silent} without an alarm")
    sys.exit(0 if (named, held, silent) == (len(seen), len(unseen), meshes) else 1)


if __name__ == "__main__":
    try:
        main()
    except Broken as e:
        sys.exit(f"faults: {e}")
