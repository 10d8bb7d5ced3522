#!/usr/bin/env python3
"""reproduce_test.py PROGRAMS: docs/reproductions.md says what scripts/reproduce.py computes with the programs of this build;
and the script sees a changed figure, and refuses figures that no program has printed."""

import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reproductions.md"
PLANTED = """
title = "Planted"
authors = "Nobody"
arxiv = "0"
compared = "nothing."
not_compared = "all."

[[table]]
name = "One"
kind = "exact"
reader = "schedule"
command = "minigpt schedule --json --schedule gpipe --pp $p --micros $m"
keys = ["p", "m"]
columns = [{ name = "bubble", ours = "OURS" }]
rows = [[2, 8, "0.1111"]]
"""


def reproduce(*arguments):
    done = subprocess.run([sys.executable, "-B", ROOT / "scripts/reproduce.py", "--programs", sys.argv[1], *arguments],
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def expect(status, words, *arguments):
    code, said = reproduce(*arguments)
    if code != status or words not in said:
        raise SystemExit(f"reproduce.py {' '.join(map(str, arguments))}: exit status {code}, expected {status} and "
                         f"`{words}`:\n{said}")


def main():
    expect(0, "cells as computed", "--check", PAGE)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = PAGE.read_text()
        for old, new in (("| 0.2431 |", "| 0.2432 |"), ("minigpt schedule --search", "minigpt schedule --seek")):
            changed = folder / "page.md"
            changed.write_text(text.replace(old, new, 1))
            assert changed.read_text() != text, old
            expect(1, "differs from what the programs print", "--paper", "zero_bubble", "--check", changed)
        data = folder / "planted.toml"
        for ours, status, words in (("bubble / time", 0, "| 2 | 8 | 0.1111 | 0.1111 |"),
                                    ("0.5 * bubble / time", 0, "**0.0556 (-0.0555)** |\n\nbubble, 1 of 1 not exact: not expl"),
                                    ("(p - 1) / (m + p - 1)", 1, "has no figure of a program")):
            data.write_text(PLANTED.replace("OURS", ours))
            expect(status, words, "--data", folder, "--paper", "planted")


if __name__ == "__main__":
    main()
