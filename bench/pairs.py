"""Paired alternating runs of triax and PyTorch or another peer, and how PyTorch runs best."""

import argparse
import contextlib
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from measure import Run, spread


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")


def check_python(python: str) -> None:
    """Raises ValueError unless it is an interpreter that can import torch."""
    try:
        subprocess.run([python, "-c", "import torch"], check=True, capture_output=True, text=True)
    except OSError as error:
        raise ValueError(f"--python {python}: {error}") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1]
        raise ValueError(
            f"--python {python}: {reason}; expected an interpreter with PyTorch (pip install torch)"
        ) from error


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Keeps `count` processes meanwhile that do nothing but compute."""
    neighbours = []
    try:
        for _ in range(count):
            neighbours.append(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def installed_library(name: str) -> str | None:
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout
    paths = [line.split("=>")[1].strip() for line in listed.splitlines() if f"lib{name}" in line]
    return paths[0] if paths else None


def malloc_environments() -> dict[str, dict[str, str]]:
    big = str(1 << 40)
    kept = {
        "MALLOC_MMAP_THRESHOLD_": big,
        "MALLOC_TRIM_THRESHOLD_": big,
        "MALLOC_TOP_PAD_": str(64 << 20),
    }
    found = {
        "default": {},
        "kept": kept,
        "kept-huge": kept | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    }
    forever = "oversize_threshold:1,dirty_decay_ms:-1,muzzy_decay_ms:-1"
    if path := installed_library("jemalloc"):
        found["jemalloc"] = {"LD_PRELOAD": path, "MALLOC_CONF": forever}
    if path := installed_library("tcmalloc"):
        found["tcmalloc"] = {"LD_PRELOAD": path}
    return found


Pair = tuple[Run, Run]  # of triax, of its peer


@dataclass(frozen=True)
class Pairs:
    """Compares the median step after the warm-up."""

    warmup: int  # steps not counted
    unit: str = "tokens"
    peer: str = "PyTorch"

    def speed(self, result: Run) -> float:
        return result.tokens_per_second(self.warmup)

    def ratio(self, pair: Pair) -> float:
        """Step time of the peer over that of triax."""
        return self.speed(pair[0]) / self.speed(pair[1])

    def run(self, ours: Callable[[], Run], theirs: Callable[[], Run], count: int) -> list[Pair]:
        pairs = []
        for i in range(count):
            pair = ours(), theirs()
            shown = f" | {self.peer} ".join(self.describe(result) for result in pair)
            print(f"  pair {i + 1}: triax {shown} | ratio {self.ratio(pair):.2f}", flush=True)
            pairs.append(pair)
        return pairs

    def describe(self, r: Run) -> str:
        ms = 1e3 * statistics.median(r.seconds[self.warmup :])
        rate = f"{self.speed(r):,.1f} {self.unit}/s, {ms:.1f} ms"
        return f"{rate}, {r.peak_rss / 1e6:.0f} MB, loss {r.losses[0]:.3f} -> {r.losses[-1]:.3f}"

    def row(self, title: str, setting: str, pairs: list[Pair]) -> str:
        """Markdown: title | triax's speed | the peer's and its setting | ratio | MB | MB."""
        ours, theirs = ([self.speed(r) for r in side] for side in zip(*pairs))
        ratios = [self.ratio(pair) for pair in pairs]
        columns = [title, spread(ours, ",.1f"), f"{spread(theirs, ',.1f')} {setting}"]
        columns.append(spread(ratios, ".2f"))
        columns += [f"{max(r.peak_rss for r in side) / 1e6:.0f}" for side in zip(*pairs)]
        return f"| {' | '.join(columns)} |"
