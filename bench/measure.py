"""Run one training program as a child process and read its speed and peak memory; machine facts."""

import json
import os
import platform
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

CPU_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16")


@dataclass(frozen=True)
class Job:
    """A program that writes a metrics.jsonl as triax does, and how to start it."""

    command: list[str]
    metrics: Path
    threads: int  # of a process
    cpus: int = 0  # that it may use with its children; 0: as many as threads
    until: int = 0  # lines of metrics after which it is killed: what follows is not measured
    environment: dict[str, str] = field(default_factory=dict)
    unit: str = "tokens"  # what the metrics count


@dataclass(frozen=True)
class Run:
    seconds: list[float]  # of every step
    losses: list[float]
    tokens: int  # of one step, or what else the metrics count
    peak_rss: int  # bytes, VmHWM of the process without its children
    tensor_bytes: int  # the most that the metrics say was held by tensors; 0 if they do not say
    stdout: str

    def tokens_per_second(self, warmup: int) -> float:
        return self.tokens / statistics.median(self.seconds[warmup:])


def run(job: Job) -> Run:
    """Run to the end on the first CPUs. Raises RuntimeError with its last output if it
    fails, ValueError if its metrics are not those of equal steps."""
    cpus = sorted(os.sched_getaffinity(0))[: job.cpus or job.threads]
    job.metrics.unlink(missing_ok=True)
    log = job.metrics.with_suffix(".log")
    with log.open("w+") as output:
        child = subprocess.Popen(
            job.command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": str(job.threads)} | job.environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        )
        try:
            peak = watch(child, job)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        output.seek(0)
        text = output.read()
    if child.returncode != 0 and not (job.until and lines_of(job.metrics) >= job.until):
        shown = " ".join(job.command)
        raise RuntimeError(f"{shown}\nfailed with exit code {child.returncode}:\n{text[-3000:]}")
    rows = [json.loads(line) for line in job.metrics.read_text().splitlines()[: job.until or None]]
    if len({row[job.unit] for row in rows}) != 1:
        raise ValueError(f"{job.metrics}: steps of unequal numbers of {job.unit}, or no steps")
    seconds, losses = [row["seconds"] for row in rows], [row["loss"] for row in rows]
    tensors = max(row.get("memory_bytes", 0) for row in rows)
    return Run(seconds, losses, rows[0][job.unit], peak, tensors, text)


def lines_of(path: Path) -> int:
    """Complete ones."""
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def watch(child: subprocess.Popen, job: Job) -> int:
    """Wait for the end; VmHWM only grows, so that asking often misses at most the last moment.
    (getrusage would also count what the parent was before exec, and compilers it starts.)"""
    peak = 0
    while child.poll() is None:
        try:
            status = Path(f"/proc/{child.pid}/status").read_text()
        except OSError:
            break  # it has just ended
        if "VmHWM:" in status:
            peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
        if job.until and lines_of(job.metrics) >= job.until:
            child.kill()
        time.sleep(0.02)
    child.wait()
    return peak


def machine() -> dict[str, object]:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = cpuinfo.split("flags")[1].split("\n")[0].split()
    name = cpuinfo.split("model name")[1].split("\n")[0].strip("\t :")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": name,
        "cores": len(os.sched_getaffinity(0)),
        "features": [feature for feature in CPU_FEATURES if feature in flags],
        "memory_gb": round(memory / 1e9, 1),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
    }


def spread(values: list[float], form: str) -> str:
    """Median (lowest-highest)."""
    numbers = (statistics.median(values), min(values), max(values))
    middle, low, high = (format(value, form) for value in numbers)
    return f"{middle} ({low}-{high})"
