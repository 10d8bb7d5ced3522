"""What the figures of compare_gpu.py and bench_cuda_kernels have to reach.

    python3 bench/gpu/gpu_goals.py ceilings.jsonl       of the latter; exit status 1 if one is missed
"""

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

# GPT-2 124M at T 1024 on an H200 at its ceilings (790 TFLOP/s of bf16 products, 4.3 TB/s of copied
# bytes), nothing between kernels: faster is not possible, there or on an older GPU.
CEILING = 745_000


@dataclass(frozen=True)
class Goal:
    what: str
    found: str
    bound: str
    met: bool


def speeds(results: dict, case: str, side: str) -> list[float]:
    """Tokens per second of each round; empty if it was not measured."""
    runs = results["cases"].get(case, {}).get("sides", {}).get(side, [])
    return [run["tokens_per_second"] for run in runs]


def ratio(results: dict, case: str, side: str, other: str) -> float | None:
    """The median over rounds of side / other."""
    pairs = list(zip(speeds(results, case, side), speeds(results, case, other)))
    return statistics.median(a / b for a, b in pairs) if pairs else None


def possible(results: dict) -> list[Goal]:
    """Every run of 124M is below the ceiling."""
    over = []
    for name, case in results["cases"].items():
        for side in case["sides"] if case["model"] == "124M" else ():
            highest = max(speeds(results, name, side), default=0)
            if highest > CEILING:
                over.append(
                    Goal(f"{name}, {side}: possible", f"{highest:,.0f}", f"most {CEILING:,}", False)
                )
    return over


def at_least(what: str, found: float | None, bound: float, form: str) -> list[Goal]:
    """Nothing if it was not measured."""
    if found is None:
        return []
    return [Goal(what, format(found, form), f"least {format(bound, form)}", found >= bound)]


def peaks(results: dict, kind: str, side: str) -> float | None:
    """The least over rounds of a side's peak in B 64, in GiB: of `tensors` or of the `device`."""
    runs = results["cases"].get("b64", {}).get("sides", {}).get(side, [])
    if kind == "tensors":
        found = [run["tensor_bytes"] / 2**30 for run in runs]
    else:
        found = [run["gpu"]["memory_mib"] / 1024 for run in runs if run["gpu"]]
    return min(found, default=None)


def memory(results: dict) -> list[Goal]:
    """Not above PyTorch's, eager or compiled, whichever is less."""
    found = []
    for kind in ("tensors", "device"):
        ours = peaks(results, kind, "triax bf16")
        theirs = [peaks(results, kind, f"{side} bf16") for side in ("eager", "compiled")]
        theirs = [peak for peak in theirs if peak is not None]
        if ours is not None and theirs:
            what = f"B 64: peak memory of {kind}, GiB"
            bound = min(theirs)
            found.append(Goal(what, f"{ours:.2f}", f"most {bound:.2f}", ours <= bound))
    return found


def goals(results: dict) -> list[Goal]:
    """Of what was measured. Those in tokens per second are an H200's."""
    found = possible(results)
    if "H200" in results["gpu"] and (ours := speeds(results, "b64", "triax bf16")):
        found += at_least("B 64: tokens/s", statistics.median(ours), 600_000, ",.0f")
    compiled = ratio(results, "b64", "triax bf16", "compiled bf16")
    found += at_least("B 64: times torch.compile", compiled, 1.1, ".3f")
    half = ratio(results, "b64", "triax fp16", "triax bf16")
    found += at_least("B 64: fp16 times bf16", half, 0.97, ".3f")
    # Where kernels are long the host is ahead of them, and a graph gains little.
    for case, name, bound in (("b4-graph", "B 4", 1.0), ("tiny-graph", "2 layers", 1.3)):
        graph = ratio(results, case, "triax bf16 --graph", "triax bf16")
        found += at_least(f"{name}: --graph times without", graph, bound, ".3f")
    return found + memory(results)


def kernel_goals(kernels: list[dict]) -> list[Goal]:
    """Of cuda_kernels' lines: what is bound by memory runs at 85 % of a copy of as many bytes or more,
    and attention is faster than an H200 without tensor cores, 67 TFLOP/s, could be: cuDNN did it.
    Nothing is asked of other widths than 124M's, nor of two norm kernels in one line."""
    found = []
    for kernel in kernels:
        one_of_124m = kernel["name"].count("/") < 2 and "weights'" not in kernel["name"]
        if one_of_124m and kernel["name"].startswith(("norm", "cross_entropy", "adamw")):
            what = f"{kernel['name']}: share of copy"
            found += at_least(what, kernel.get("share_of_copy"), 0.85, ".2f")
        if kernel["name"].startswith("attention"):
            found += at_least(f"{kernel['name']}: TFLOP/s", kernel.get("tflops"), 70, ".0f")
    return found


def read_kernels(path: Path) -> list[dict]:
    """bench_cuda_kernels' lines about kernels."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if "name" in row]


def main(path: str) -> int:
    found = kernel_goals(read_kernels(Path(path)))
    for goal in found:
        verdict = "met" if goal.met else "MISSED"
        print(f"  goal: {goal.what}: {goal.found} (at {goal.bound}): {verdict}")
    if not found:
        print("  no kernel that has a goal was measured")
    return 0 if found and all(goal.met for goal in found) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
