"""growth.py MINIGPT MPIRUN [SEED [STEPS]]: over STEPS (20,000) steps neither memory nor descriptors nor threads of a rank
grow, on two ranks that are threads and on two that are processes. Each saves and validates a hundred times;
processes save in the background.

A fifth of the steps is for warming up; after that the resident memory of a rank may grow by 2 MiB, the count of what is
open or runs by nothing. SEED is the run's."""

import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/programs"))
from minigpt_program import MODEL, Run, mpirun, ranks_of, some_text, words  # noqa: E402

minigpt, launcher = sys.argv[1:3]
seed, steps = map(int, (sys.argv[3:5] + ["1", "20000"][len(sys.argv) - 3:]))
MOST_KIB = 2048


def looked_at(pid):
    """KiB in memory, descriptors, threads."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) + int(fields["RssShmem"].split()[0]), \
        len(os.listdir(f"/proc/{pid}/fd")), int(fields["Threads"])


def last_step(run):
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def measure(shop, processes):
    run = shop / ("processes" if processes else "threads")
    flags = dict(MODEL, data=shop / "text.txt", out=run, steps=steps, save_every=max(1, steps // 100), keep=2,
                 val_every=max(1, steps // 100), seed=seed, dp=2)
    if processes:
        flags["save_async"] = "true"
    command = [minigpt, "train", *words(**flags)]
    command = mpirun(launcher, 2) + command if processes else command + ["--comm", "threads", "--ranks", "2"]
    seen, warm = {}, False
    with Run(command, shop / "stderr") as job:
        while job.process.poll() is None:
            warm = warm or last_step(run) * 5 >= steps
            if warm:
                for pid in ranks_of(run):
                    try:
                        seen.setdefault(pid, []).append(looked_at(pid))
                    except (OSError, KeyError):
                        pass  # it ends
            time.sleep(0.005 if warm else 0.05)  # looks with and without a save in every quarter
        assert job.finish() == 0, job.stderr()
    assert seen, "the run was over before it was looked at"
    return [growth(pid, looks) for pid, looks in seen.items()]


def growth(pid, looks):
    """From the first to the last quarter. What is open for a moment, as files that are written are, is no growth."""
    quarter = max(1, len(looks) // 4)
    first, last = list(zip(*looks[:quarter])), list(zip(*looks[-quarter:]))
    kib = max(last[0]) - max(first[0])
    descriptors, threads = (min(last[i]) - min(first[i]) for i in (1, 2))
    print(f"rank in process {pid}: {len(looks)} looks, {kib:+} KiB of {max(first[0])}, {descriptors:+} descriptors, "
          f"{threads:+} threads")
    return kib <= MOST_KIB and descriptors <= 0 and threads <= 0


with tempfile.TemporaryDirectory(prefix="triax-growth-") as path:
    shop = pathlib.Path(path)
    (shop / "text.txt").write_text(some_text())
    good = measure(shop, False) + (measure(shop, True) if launcher else [])
print(f"{steps * all(good)} of {steps} steps")
sys.exit(not all(good))
