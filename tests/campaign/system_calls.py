"""system_calls.py MINIGPT FAIL_CALL [SEED [POINTS]]: every system call of a resume and a save fails once, with EIO and with
ENOSPC. The run ends with 73 or 74, or goes on; the checkpoint before stays whole, whatever has the name of a checkpoint
verifies, and the run that is resumed ends bitwise as one that nothing happened to.

FAIL_CALL: the library of fail_call.cpp. POINTS: only so many, drawn with SEED; 0 for all."""

import errno
import itertools
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples/programs"))
from minigpt_program import MODEL, RANKS_SHARING_CORES, some_text, tensors, words  # noqa: E402

minigpt, library = sys.argv[1:3]
seed, points = map(int, (sys.argv[3:5] + ["1", "0"][len(sys.argv) - 3:]))
CALLS = ["open", "write", "pread", "fsync", "fstat", "rename", "renameat2", "mkdir", "openat", "unlinkat"]
ALLOWED = (0, 73, 74)


def call(*command, **environment):
    return subprocess.run([minigpt, *map(str, command)], capture_output=True, text=True, timeout=60,
                          env=dict(RANKS_SHARING_CORES, **environment))


def train(run, text, steps, resume="auto", keep=2, **environment):
    flags = dict(MODEL, data=text, out=run, steps=steps, save_every=3, keep=keep, val_every=0, warmup=0, zero=1,
                 comm="threads", ranks=2, resume=resume)
    return call("train", *words(**flags), **environment)


def damage(checkpoint):
    """So that --resume last-good goes back, and the run comes to this step again."""
    file = next(checkpoint.glob("rank*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def finish(run, text):
    done = train(run, text, 6, "last-good" if (run / "step-3").exists() else "auto")
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr}"


def fail_once(shop, point):
    """One call fails; was there one?"""
    name, at, error = point
    run, note = shop / "run", shop / "note"
    again, keep = name == "renameat2", 1 if name == "unlinkat" else 2  # calls of a step that is replaced, or removed
    shutil.copytree(shop / ("whole" if again else "base"), run)
    if again:
        damage(run / "step-6")
    note.unlink(missing_ok=True)
    done = train(run, shop / "text.txt", 6, "last-good", keep, LD_PRELOAD=library, FAIL_UNDER=f"{run}/", FAIL_CALL=name,
                 FAIL_AT=str(at), FAIL_ERRNO=str(error), FAIL_NOTE=str(note))
    failed = note.exists()
    assert done.returncode in ALLOWED, f"exit code {done.returncode}\n{done.stderr}"
    assert failed or done.returncode == 0, done.stderr
    saved = (run / "step-6").exists() and not (again and done.returncode)  # else it is what was to be replaced
    for checkpoint in ["step-3"] * (keep > 1 or not saved) + ["step-6"] * saved:
        assert call("checkpoint", "verify", run / checkpoint).returncode == 0, f"{checkpoint} is not whole"
    if failed and not saved:
        finish(run, shop / "text.txt")
    assert tensors(run, 6) == tensors(shop / "whole", 6), "other bits in the end"
    shutil.rmtree(run)
    return failed


def attempt(shop, results, point):
    try:
        met = fail_once(shop, point)
    except AssertionError as e:
        shutil.rmtree(shop / "run", ignore_errors=True)
        print(f"{point[0]} number {point[1]}, {errno.errorcode[point[2]]}: {e}", flush=True)
        results.append(False)
        return True
    results += [True] * met
    return met


def every(shop, results):
    for name, error in itertools.product(CALLS, (errno.EIO, errno.ENOSPC)):
        for at in itertools.count():
            if not attempt(shop, results, (name, at, error)):
                break
        if at == 0:
            print(f"{name} is never called")
            results.append(False)


def some(shop, results):
    pick = random.Random(seed)
    for _ in range(points):
        attempt(shop, results, (pick.choice(CALLS), pick.randrange(2), pick.choice([errno.EIO, errno.ENOSPC])))


with tempfile.TemporaryDirectory(prefix="triax-calls-") as path:
    shop, results = pathlib.Path(path), []
    (shop / "text.txt").write_text(some_text())
    done = train(shop / "base", shop / "text.txt", 3)
    assert done.returncode == 0, done.stderr
    shutil.copytree(shop / "base", shop / "whole")
    finish(shop / "whole", shop / "text.txt")
    (some if points else every)(shop, results)
print(f"{sum(results)} of {len(results)} calls")
sys.exit(not all(results) or not results)
