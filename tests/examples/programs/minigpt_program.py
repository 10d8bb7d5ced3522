"""What the tests of the built minigpt program share: starting it, and reading what it left."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

MODEL = dict(layers=1, heads=2, width=16, context=8, dropout=0.1, micro_batch=2, global_batch=8,
             warmup=5, val_every=10)
RANKS_SHARING_CORES = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1")


def least_address_space(program):
    """KiB that the program needs to start: those of its libraries, which are many with CUDA's."""
    too_little, enough = 1000, 1 << 24
    while enough - too_little > 1000:
        middle = (too_little + enough) // 2
        if subprocess.run(limited(f"-v {middle}", [program, "--help"]), capture_output=True).returncode == 0:
            enough = middle
        else:
            too_little = middle
    return enough


def words(**flags):
    """--micro-batch 2 from micro_batch=2, --ledger from ledger=True."""
    parts = []
    for name, value in flags.items():
        parts += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
    return parts


def model_tensors(directory):
    """Those of the safetensors files in a model directory, by name: shape, and bytes row-major."""
    values = {}
    for path in directory.glob("*model*.safetensors"):
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:end]).items():
            if name != "__metadata__":
                begin, stop = entry["data_offsets"]
                values[name] = entry["shape"], data[end + begin:end + stop]
    return values


def mpirun(path, ranks):
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    return [path, "-np", str(ranks), "--oversubscribe", "--bind-to", "none", *root]


def some_text(characters=1600):
    pick = random.Random(1)
    syllables = ["the ", "cat ", "sat ", "on ", "a ", "mat. ", "dog ", "ran "]
    text = ""
    while len(text) < characters:
        text += pick.choice(syllables)
    return text


class Workshop:
    """A folder with a training text and a directory to offload to."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.text, self.files = self.path / "text.txt", self.path / "files"
        self.text.write_text(some_text())
        self.files.mkdir()


class Run:
    """A program that was started in a session of its own; what is left of it ends with the `with` block."""

    def __init__(self, command, stderr, stdout=os.devnull, **environment):
        self.stderr_path = stderr
        with open(stderr, "wb") as err, open(stdout, "wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env=dict(RANKS_SHARING_CORES, **environment),
                                            start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in self.processes():
            kill(pid)
        self.process.wait()

    def finish(self, seconds=60):
        return self.process.wait(timeout=seconds)

    def stderr(self):
        return pathlib.Path(self.stderr_path).read_text(errors="replace")

    def processes(self):
        return processes_of(self.process.pid)

    def ranks(self):
        """Process ids: those that the launcher started, or the program itself."""
        launched = [pid for pid in self.processes() if pid != self.process.pid]
        return launched or [self.process.pid]


def processes_of(session):
    """Those alive, orphans too."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:  # pid (name) state parent group session
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(int(entry.name))
    return found


def ranks_of(run):
    """Process ids of those that train into this directory, in whatever session."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().startswith("minigpt") and \
                    str(run).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            pass
    return sorted(found)


def kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_until(condition, seconds=30):
    """Was it true in that time?"""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.0005)
    return True


def records_of(run):
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def metrics(run):
    """Those without what a clock says."""
    clock = ("seconds", "tokens_per_second", "memory_bytes")
    return [{key: value for key, value in record.items() if key not in clock} for record in records_of(run)]


def files_of(folder):
    """Paths and bytes, but of the lock, which names the last job that looked, and of what is unfinished."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*")
            if p.is_file() and p.name != "lock" and ".tmp-" not in p.name}


def limited(option, command):
    """The command under `ulimit`: -f, what no file may exceed, in 512 bytes; -d, -v, its memory in KiB."""
    return ["sh", "-c", f'ulimit {option}; exec "$@"', "sh", *map(str, command)]


def run_each(tests, names, prefix):
    """The tests of these names, all if there are none, each in a folder with a training text of its own."""
    for test in tests:
        if names and test.__name__ not in names:
            continue
        with tempfile.TemporaryDirectory(prefix=prefix) as path:
            shop = pathlib.Path(path)
            (shop / "text.txt").write_text(some_text())
            test(shop)
        print(test.__name__, flush=True)


def newest_step(run):
    steps = [int(p.name[5:]) for p in run.glob("step-*") if p.name[5:].isdigit()]
    return max(steps, default=0)


def tensors(run, step):
    """The bytes of a checkpoint's weights and moments, with their names."""
    files = sorted((run / f"step-{step}").glob("*.safetensors"))
    assert files, f"no tensors in {run}/step-{step}"
    return {file.name: file.read_bytes() for file in files}


def assert_same_run(run, reference, steps, not_validated=0):
    """Metrics and last checkpoints are alike, but for the validation of one step."""
    ours, expected = metrics(run), metrics(reference)
    if not_validated:
        expected[not_validated - 1].pop("val_loss", None)
    assert [r["step"] for r in expected] == list(range(1, steps + 1))
    assert [r["step"] for r in ours] == list(range(1, steps + 1)), "a step is missing or there twice"
    for a, b in zip(ours, expected):
        assert a == b, f"{run}: step {a['step']} differs:\n  {a}\n  {b}"
    assert tensors(run, steps) == tensors(reference, steps), f"{run}: the last checkpoints differ"


def assert_no_leftovers(run):
    left = [p.name for p in run.iterdir() if ".tmp" in p.name]
    assert not left, f"{run}: left behind: {left}"


def other_tensors(folder, a, b):
    """What differs in the tensors of two checkpoints; empty for nothing. Their settings may: the mesh is one."""
    script = pathlib.Path(__file__).resolve().parents[3] / "scripts/compare_checkpoints.py"
    done = subprocess.run([sys.executable, script, a, b], cwd=folder, capture_output=True, text=True)
    alike = done.returncode == 0 or " settings and 0 tensors differ" in done.stdout
    return "" if alike else done.stdout + done.stderr
