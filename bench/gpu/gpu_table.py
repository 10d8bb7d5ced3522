#!/usr/bin/env python3
"""What scripts/gpu_check.sh left in a folder, as results.json and as Markdown for docs/gpu.md.

    python3 bench/gpu/gpu_table.py runs/gpu-check
"""

import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path

from gpu_goals import goals, kernel_goals, ratio, read_kernels

SPEEDS = ("speed.json", "batches.json", "large.json")


def read(path: Path) -> object | None:
    return json.loads(path.read_text()) if path.is_file() else None


def read_parts(folder: Path) -> dict[str, dict]:
    """How each part ended."""
    parts = {}
    for path in sorted((folder / "parts").glob("*")):
        if path.suffix == ".why":
            continue
        result, seconds = path.read_text().split()
        why = path.with_suffix(".why")
        parts[path.name] = {"result": result, "seconds": int(seconds)}
        if why.is_file():
            parts[path.name]["why"] = why.read_text()
    return parts


def collect(folder: Path) -> dict[str, object]:
    results = {"device": read(folder / "device.json"), "parts": read_parts(folder)}
    results["speeds"] = [found for name in SPEEDS if (found := read(folder / name))]
    results["loss"] = read(folder / "loss.json")
    kernels = folder / "ceilings.jsonl"
    results["kernels"] = read_kernels(kernels) if kernels.is_file() else []
    reached = [goal for found in results["speeds"] for goal in goals(found)]
    results["goals"] = [asdict(goal) for goal in reached + kernel_goals(results["kernels"])]
    return results


def table(columns: str, rows: list[list[str]]) -> str:
    """Markdown; nothing without rows. `columns` are divided by |."""
    if not rows:
        return ""
    lines = [f"| {columns} |", "|" + "---|" * len(columns.split("|"))]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def spread(values: list[float], form: str) -> str:
    """The median, and what it lies in."""
    middle, low, high = statistics.median(values), min(values), max(values)
    if len(values) == 1:
        return format(middle, form)
    return f"{middle:{form}} ({low:{form}}-{high:{form}})"


def speed_rows(found: dict) -> list[list[str]]:
    rows = []
    for name, case in found["cases"].items():
        for side, runs in case["sides"].items():
            if not runs:
                continue
            precision = side.split()[1]
            times = ratio(found, name, side, f"compiled {precision}")
            gpus = [run["gpu"] for run in runs if run["gpu"]]
            row = [case["model"], str(case["batch"]), side, str(len(runs))]
            row.append(spread([run["tokens_per_second"] for run in runs], ",.0f"))
            row.append(spread([run["ms"] for run in runs], ".2f"))
            row.append(f"{times:.2f}" if times else "")
            row.append(f"{max(run['tensor_bytes'] for run in runs) / 2**30:.1f}")
            row.append(f"{max(gpu['memory_mib'] for gpu in gpus) / 1024:.1f}" if gpus else "")
            row.append(f"{statistics.median(gpu['sm_mhz'][0] for gpu in gpus):.0f}" if gpus else "")
            rows.append(row)
    return rows


def kernel_row(kernel: dict) -> list[str]:
    flops = "tflops" in kernel
    rate = f"{kernel['tflops']:.0f} TFLOP/s" if flops else f"{kernel['gb_s']:,.0f} GB/s"
    share = kernel.get("share_of_copy")
    ms = f"{kernel['ms']:.3f} ({kernel['ms_low']:.3f}-{kernel['ms_high']:.3f})"
    return [kernel["name"], ms, rate, f"{100 * share:.0f} %" if share else ""]


def device_line(device: dict | None) -> str:
    if not device:
        return "The device was not asked.\n"
    said = ", ".join(f"{name} {value}" for name, value in device.items() if name != "date")
    return f"{device['date']}: {said}.\n"


def loss_line(loss: dict | None) -> str:
    if not loss or "median" not in loss:
        return ""
    return (
        f"Loss of {loss['model']} over {len(loss['triax'])} steps in {loss['precision']} from the "
        f"same weights on the same batches, from {loss['triax'][0]:.4f} to {loss['triax'][-1]:.4f}: "
        f"at most {loss['largest']:.4f} from PyTorch's, {loss['median']:.4f} in the median step. PyTorch "
        f"with a residual stream in float32 is at most {loss['of_pytorch']:.4f} from that, "
        f"{loss['median_of_pytorch']:.4f} in the median step.\n"
    )


def markdown(results: dict) -> str:
    parts = [
        [name, p["result"].replace("-", " "), str(p["seconds"]), p.get("why", "")]
        for name, p in results["parts"].items()
    ]
    goal_rows = [
        [g["what"], g["found"], "at " + g["bound"], "met" if g["met"] else "**missed**"]
        for g in results["goals"]
    ]
    kernels = "kernel|ms, median and quartiles|rate|of a copy"
    speeds = "model|B|what|runs|tokens/s|ms|times torch.compile|tensors, GiB|device, GiB|SM MHz"
    pieces = [
        device_line(results["device"]),
        table(speeds, [row for found in results["speeds"] for row in speed_rows(found)]),
        table("goal|found|bound|", goal_rows),
        loss_line(results["loss"]),
        table(kernels, [kernel_row(kernel) for kernel in results["kernels"]]),
        table("part|result|seconds|why", parts),
    ]
    return "\n".join(piece for piece in pieces if piece)


def main(folder: str) -> None:
    results = collect(Path(folder))
    (Path(folder) / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (Path(folder) / "gpu.md").write_text(markdown(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
