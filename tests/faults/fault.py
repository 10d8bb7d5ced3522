"""What a planted fault is, and what `parity` of minigpt or llama must say of it."""

import dataclasses


@dataclasses.dataclass
class Run:
    """What parity with these flags, beside those of every run, must report as the first difference."""
    flags: str
    expect: str      # `step 1: gradient of block0.qkv.weight`, as it is printed; a regular expression
    guess: str = ""  # a part of the line `perhaps: ...`
    program: str = "minigpt"


@dataclasses.dataclass
class Fault:
    """A small change of one file, or of others that an edit names. Each old text occurs exactly once."""
    name: str
    file: str
    edits: list  # of (old text, new text), or (old text, new text, another file)
    runs: list   # of Run


@dataclasses.dataclass
class Unseen:
    """A fault that is alike on every mesh, or asleep in every run: parity says EQUAL, and these tests
    of the test program `program` fail; of a Python program in tests/examples/programs, these functions."""
    name: str
    file: str
    edits: list
    why: str
    flags: str
    program: str
    tests: str  # --gtest_filter, or names of functions


INITIAL = "before the first step"
