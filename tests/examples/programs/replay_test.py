"""replay_test.py MINIGPT MPIRUN LLAMA RESNET [DRAWS [SEED]]: `replay` computes any step of any rank again, with the bits
of the run: loss, norm, weights, moments. Its run directory stays as it is.

MPIRUN may be empty: then ranks are threads only. DRAWS: random meshes, each with a random step and rank (6); progress
of more than 20 is on stderr."""

import fcntl
import json
import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from minigpt_program import mpirun, some_text

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "meshes"))
import fuzz  # noqa: E402

programs, launcher = {"minigpt": sys.argv[1], "llama": sys.argv[3], "resnet": sys.argv[4]}, sys.argv[2]
STEPS = 6
SMALL = ("--layers 2 --heads 2 --width 16 --context 8 --dropout 0.1 --micro-batch 2 --global-batch 8 --warmup 2 "
         "--val-every 0 --save-every 2 --keep 100 --steps 8 --data text.txt")


class Shop:
    """A folder with a training text, in which programs are run."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self / "text.txt").write_text(some_text())

    def __truediv__(self, name):
        return self.folder / name

    def run(self, code, *words, program="minigpt", launch=()):
        command = [str(word) for word in (*launch, programs[program], *words)]
        done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=120,
                              env=dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1", COLUMNS="1000"))
        assert done.returncode == code, f"{' '.join(command)}\nexit code {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def replay(self, code, flags, *parts, program="minigpt"):
        """What it says, which has all `parts`."""
        said = self.run(code, "replay", *flags.split(), program=program)
        for part in parts:
            assert part in said, f"replay {flags}: no `{part}` in\n{said}"
        return said


def contents(run):
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in run.rglob("*")}


def rows_of(table):
    """{name: (shape, CRC-32C)} of a list that --out wrote."""
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    return {name: (json.loads(kind.split(" ", 1)[1]), int(crc, 16)) for name, kind, _, crc in rows}


def parts_of(tensor):
    """(elements, CRC-32C) of the parts in which a checkpoint holds a tensor, as its manifest says."""
    for part in tensor["parts"]:
        shape = list(tensor["shape"])
        if "slice" in part:
            shape[part["slice"][0]] = part["slice"][2]
        first, end = part.get("range", [0, math.prod(shape)])
        yield end - first, part["crc32c"]


def compare_with_manifest(table, checkpoint, flags):
    """What the rank holds of weights and moments after the step, where the run saved the same part of a tensor."""
    rows, found = rows_of(table), 0
    held = [name for name in rows if not re.search(r"^loss$|^grad_norm$|/gradient$|/output/\d+$", name)]
    for name, tensor in json.loads((checkpoint / "manifest.json").read_text())["tensors"].items():
        shape, crc = rows.get(name.replace("@", "/"), ([0], 0))
        crcs = [saved for count, saved in parts_of(tensor) if count == math.prod(shape)]
        assert not crcs or crc in crcs, f"{flags}: {name} has CRC {crc:x}, {checkpoint} has {crcs}"
        found += bool(crcs)
    return len(held), found


def training(pick, name):
    """Flags of a run, drawn as those of parity are, and how many ranks it has."""
    flags = fuzz.draw(pick, name, "text.txt", exact=False)
    sizes = list(map(int, flags[1].split("x")))
    axes = ("--dp", "--pp", *("--ep", "--cp")[5 - len(sizes):], "--tp")
    at = flags.index("--steps")
    flags[at + 1] = str(STEPS)
    return [*flags[2:], *(word for axis in zip(axes, sizes) for word in axis)], math.prod(sizes)


def draw(shop, pick, number):
    """A run and a replay of one of its steps, both random."""
    name = pick.choice(["minigpt", "minigpt", "llama", "resnet"])
    flags, ranks = training(pick, name)
    run, step, rank = shop / f"run{number}", pick.randrange(2, STEPS + 1), pick.randrange(ranks)
    launch = mpirun(launcher, ranks) if launcher and ranks <= 4 and pick.random() < 0.3 else []
    where = [] if launch else ["--comm", "threads", "--ranks", ranks]
    shop.run(0, "train", *flags, *where, "--save-every", 1, "--keep", 100, "--val-every", 0, "--warmup", 2, "--out", run,
             program=name, launch=launch)
    before, first = contents(run), pick.randrange(max(1, step - 3), step)
    point = f"--checkpoint {run}/step-{first} --step {step} --rank {rank}"
    said = shop.replay(0, f"{point} --out {run}.tsv", f"EQUAL: loss and norm of {step - first} step", program=name)
    loss, norm = re.search(r"^loss (\S+), gradient norm (\S+?)(?:, skipped)?$", said, re.M).groups()
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[step - 1])
    for mine, key in (loss, "loss"), (norm, "grad_norm"):
        assert float(mine) == line[key] or line[key] is None, f"{flags}: {key} {mine}, in the metrics {line[key]}"
    held, equal = compare_with_manifest(pathlib.Path(f"{run}.tsv"), run / f"step-{step}", f"{name} {flags}")
    assert held == 0 or f"; {held} tensors as in {run}/step-{step}" in said, f"{name} {flags}\n{said}"
    assert contents(run) == before, f"replay {point} changed the run directory"
    shutil.rmtree(run)
    return held, equal


def draws(shop, count, seed):
    pick, held, equal = random.Random(seed), 0, 0
    for number in range(count):
        tensors, by_manifest = draw(shop, pick, number)
        held, equal = held + tensors, equal + by_manifest
        if count > 20:
            print(f"{number + 1} of {count}: {held} tensors, {equal} of them by the manifest", file=sys.stderr, flush=True)
    assert equal > 20 * count, f"{equal} tensors compared with manifests"
    print(f"{count} of {count} replays of seed {seed} have the bits of their runs, {held} tensors", flush=True)


def looked_at(shop):
    """What is printed, written and compared, while another job holds the run directory."""
    shop.run(0, "train", *SMALL.split(), "--comm", "threads", "--ranks", 4, "--pp", 2, "--tp", 2, "--out", "run")
    before = contents(shop / "run")
    with open(shop / "run/lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = shop.replay(0, "--checkpoint run --step 4 --rank 3", "step 4 of rank 3 (dp 0, pp 1, tp 1)", "from run/step-2",
                           "EQUAL: loss and norm of 2 steps as in", "tensors as in run/step-4")
        shop.replay(0, "--checkpoint run", "step 8 of rank 0", "from run/step-6", "tensors as in run/step-8")
    for name in "block1/output/0", "block1/output/3", "head/output/3", "block1.qkv.weight", "block1.qkv.weight/gradient":
        assert re.search(rf"^[0-9a-f]{{8}} +\S+  f32 \[.*\] +{name}$", said, re.M), f"no row of {name} in\n{said}"
    assert "output/4" not in said and "embedding/output" not in said and "block0" not in said, said
    point = "--checkpoint run/step-2/ --step 3 --rank 3"
    said = shop.replay(0, f"{point} --tensor block1.up.weight/gradient", "f32 [32, 16], dim 0 from 32 to 63 of [64, 16]",
                       "0 inf or NaN", "EQUAL: loss and norm of 1 step as in")
    assert "tensors as in" not in said, said  # step 3 was not saved
    shop.replay(0, f"{point} --tensor block1/output/2 --out y.safetensors", "written to y.safetensors")
    data = (shop / "y.safetensors").read_bytes()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    assert header["block1/output/2"]["shape"] == [16, 16] and "step 3 of rank 3" in header["__metadata__"]["replay"], header
    shop.replay(0, f"{point} --out list", "written to list")
    shop.replay(0, f"{point} --compare list", "digests as in list")
    shop.replay(65, f"{point.replace('--step 3', '--step 4')} --compare list", "list is of step 3 of rank 3", "expected one of step 4")
    rows = (shop / "list").read_text()
    assert rows.count("/output/") == 2 * 4, rows  # block1 and head, four micro-batches
    at = rows.index("block1.up.weight/gradient")
    (shop / "other").write_text(rows[:at] + re.sub(r"(.)\n", lambda m: "10"[m[1] == "1"] + "\n", rows[at:], count=2))
    shop.replay(1, f"{point} --compare other", "DIFFERENT: 2 of", "the first is block1.up.weight/gradient: f32 [32, 16]")
    (shop / "cut").write_text(rows[:-1])
    shop.replay(65, f"{point} --compare cut", "expected a table that `replay --out FILE` wrote")
    assert contents(shop / "run") == before, "a replay changed the run directory"
    lines = (shop / "run/metrics.jsonl").read_text()
    (shop / "run/metrics.jsonl").write_text(re.sub(r'("step":3,"loss":\d\.\d)', r"\g<1>1", lines))
    shop.replay(1, "--checkpoint run/step-2 --step 4", "DIFFERENT: step 3 has loss")
    (shop / "run/metrics.jsonl").write_text(lines)
    shutil.copytree(shop / "run", shop / "mixed", ignore=shutil.ignore_patterns("step-4"))
    (shop / "mixed/step-6").rename(shop / "mixed/step-4")
    shop.replay(1, "--checkpoint mixed/step-2 --step 4 --rank 3", "DIFFERENT: ", "tensors differ from those in mixed/step-4; the first is tokens.table: f32 [")


def refused(shop):
    """What is asked for is not there, or the run is not what it was."""
    run = "--checkpoint run/step-4"
    shutil.copytree(shop / "run", shop / "last", ignore=shutil.ignore_patterns("step-[246]"))
    for code, flags, *parts in [
            (78, "--checkpoint last", "checkpoint last/step-8 is of the run's last step", "--save-every and --keep"),
            (78, "--checkpoint run/step-8", "checkpoint run/step-8 is of the run's last step"),
            (78, "--step 5", "checkpoint is not given", "--checkpoint RUN/step-N"),
            (78, f"{run} --step 4", "step=4, and checkpoint run/step-4 is of step 4; expected a later step"),
            (78, "--checkpoint run --step 2", "the first checkpoint of run is step-2"),
            (78, f"{run} --rank 4", "rank=4 on a mesh of dp 1 x pp 2 x tp 2; expected 0 to 3"),
            (64, f"{run} --rank -1", "--rank", "-1"),
            (78, f"{run} --tensor block0.qkv.weigth", "rank 0 has no tensor block0.qkv.weigth; the nearest is block0.qkv.weight"),
            (78, f"{run} --rank 3 --tensor block0.qkv.weight", "rank 3 has no tensor block0.qkv.weight"),
            (78, f"{run} --out list", "list exists; expected another --out"),
            (66, f"{run} --compare nothing", "nothing"),
            (66, "--checkpoint run/step-5", "run/step-5"),
            (66, "--checkpoint nothing --step 3", "nothing")]:
        shop.replay(code, flags, *parts)
    text = (shop / "text.txt").read_text()
    (shop / "text.txt").write_text(text.replace("cat", "cow"))
    shop.replay(78, run, "checkpoint run/step-4 was trained with other", "put them back")
    (shop / "text.txt").unlink()
    shop.replay(66, run, "text.txt")
    (shop / "text.txt").write_text(text)
    damaged = shop / "run/step-6/rank0.safetensors"
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    shop.replay(65, "--checkpoint run/step-6", "run/step-6 is damaged: rank0.safetensors")


def not_finite(shop):
    """A step that diverged: what was computed is shown before the error."""
    flags = SMALL.replace("--warmup 2", "--warmup 0").replace("--save-every 2", "--save-every 1")
    shop.run(77, "train", *flags.split(), "--comm", "threads", "--ranks", 2, "--lr", "1e30", "--out", "wild")
    said = shop.replay(77, "--checkpoint wild --rank 1", "head/output/1", "tokens.table/gradient", "tokens.table/m", "error 77", "at step 2")
    assert "grad_norm" not in said, said


def went_on_otherwise(shop):
    """A run that was resumed on another mesh with another rate and batch: each step has what it was trained with."""
    small = SMALL.replace("--steps 8", "--steps 4")
    shop.run(0, "train", *small.split(), "--comm", "threads", "--ranks", 2, "--zero", 1, "--out", "parts")
    shop.run(0, "train", *SMALL.split(), "--comm", "threads", "--ranks", 4, "--tp", 2, "--global-batch", 12, "--lr", 0.01,
             "--resume", "auto", "--resume-changed", "--out", "parts")
    for first, step, ranks in (2, 3, 2), (2, 4, 2), (4, 6, 4), (6, 7, 4), (4, 5, 4):
        point = f"--checkpoint parts/step-{first} --step {step}"
        shop.replay(0, f"{point} --rank {ranks - 1}", f"EQUAL: loss and norm of {step - first} step")
        shop.replay(78, f"{point} --rank {ranks}", f"rank={ranks} on a mesh")
    shop.replay(78, "--checkpoint parts/step-2 --step 5", "the run went on after step 4 with", "--checkpoint parts/step-4")
    shutil.rmtree(shop / "parts/step-8")  # and once more from step 6, with the settings of steps 5 and 6
    shop.run(0, "train", *SMALL.split(), "--comm", "threads", "--ranks", 4, "--tp", 2, "--global-batch", 12, "--lr", 0.01,
             "--resume", "auto", "--out", "parts")
    shop.replay(0, "--checkpoint parts/step-4 --step 8 --rank 3", "EQUAL: loss and norm of 4 steps", "tensors as in parts/step-8")


def began_with_weights(shop):
    """A run that began with the weights of another, all but some."""
    shop.run(0, "train", *SMALL.split(), "--init", "parts", "--init-new", "final_norm.*", "--out", "tuned")
    shop.replay(0, "--checkpoint tuned/step-2", "EQUAL: loss and norm of 1 step")
    shop.replay(0, "--checkpoint tuned/step-2 --tensor loss", "loss: f64 []")


def velocities_of_experts(shop):
    """Muon keeps one for each expert of a rank: all are compared, and can be looked at."""
    flags = SMALL.replace(" --dropout 0.1", " --kv-heads 2 --experts 4 --optimizer muon --comm threads --ranks 2 --ep 2")
    shop.run(0, "train", *flags.split(), "--out", "muon", program="llama")
    shop.replay(0, "--checkpoint muon/step-2 --step 4 --rank 1", "EQUAL", "block0.experts.down/velocity#1", program="llama")
    shop.replay(0, "--checkpoint muon/step-2 --step 3 --tensor block0.experts.down/velocity#1", "velocity#1: f32", program="llama")


def lay_on_disk(shop):
    """A device map put weights on disk, which a replay does not."""
    (shop / "map.json").write_text('{"block0": "disk", "": "cpu"}')
    (shop / "disk").mkdir()
    shop.run(0, "train", *SMALL.split(), "--device-map", "map.json", "--offload-dir", "disk", "--out", "mapped")
    shop.replay(0, "--checkpoint mapped/step-2 --step 3", "EQUAL")


def checkpoints_were_pruned(shop):
    """The next checkpoint is of a start with another rate, as where --keep-best kept an old one. Paths need quotes."""
    shutil.copy(shop / "text.txt", shop / r'it"s \u0041.txt')
    small = [r'it"s \u0041.txt' if word == "text.txt" else word for word in SMALL.split()]
    small[small.index("--steps") + 1] = 4
    shop.run(0, "train", *small, "--out", "pruned")
    small[small.index("--steps") + 1] = 8
    shop.run(0, "train", *small, "--lr", 0.01, "--resume", "auto", "--resume-changed", "--out", "pruned")
    for step in 4, 6:
        shutil.rmtree(shop / f"pruned/step-{step}")
    for step in 3, 4, 5:  # nothing says that there was no start between: of a step's loss its update tells nothing
        shop.replay(78, f"--checkpoint pruned/step-2 --step {step}", "the run began again with step 5 and ", "with them how step ")


def start_that_nothing_describes(shop):
    """A start whose checkpoints are gone, between two with equal settings: metrics tell its rate."""
    words = [*SMALL.split(), "--lr-schedule", "constant", "--warmup", 0, "--resume", "auto", "--out", "between"]
    for lr, gone in (0.003, [6, 8]), (0.9, [8]), (0.003, [6]):
        shop.run(0, "train", *words, "--lr", lr)
        for step in gone:
            shutil.rmtree(shop / f"between/step-{step}")
    shop.replay(0, "--checkpoint between/step-2 --step 4", "EQUAL")
    shop.replay(1, "--checkpoint between/step-4 --step 5", "DIFFERENT", "lr 0.003", "0.9")


def made_up_validation(shop):
    """A resumed run makes up for a validation: the checkpoint gets its loss, and stays that of the start which made it."""
    words = [*SMALL.split(), "--lr-schedule", "constant", "--warmup", 0, "--out", "made-up"]
    shop.run(0, "train", *words)
    for step in 6, 8:
        shutil.rmtree(shop / f"made-up/step-{step}")
    before = json.loads((shop / "made-up/step-4/manifest.json").read_text())["state"]
    shop.run(0, "train", *words, "--lr", 0.01, "--val-every", 1, "--keep-best", "--resume", "auto")
    after = json.loads((shop / "made-up/step-4/manifest.json").read_text())["state"]
    assert float(after.pop("val_loss")) > 0 and after == before, (before, after)
    shop.replay(0, "--checkpoint made-up/step-2 --step 4", "EQUAL")
    shop.run(0, "checkpoint", "verify", "made-up/step-4")


def checkpoint_of_another_run(shop):
    """The directory has a checkpoint of that step, of another run: it must neither get the loss of the weights that were resumed nor be replaced."""
    words = [*SMALL.split(), "--lr-schedule", "constant", "--warmup", 0]
    for run, lr in ("one", 0.003), ("two", 0.03):
        shop.run(0, "train", *words, "--lr", lr, "--out", run)
    for step in 6, 8:
        shutil.rmtree(shop / f"two/step-{step}")
    before = (shop / "two/step-4/manifest.json").read_bytes()
    refused = shop.run(78, "train", *words, "--lr", 0.003, "--val-every", 1, "--keep-best", "--resume", "one/step-4", "--out", "two")
    assert "run directory two holds step-4" in refused, refused
    assert (shop / "two/step-4/manifest.json").read_bytes() == before


if __name__ == "__main__":
    count, seed = map(int, (sys.argv[5:] + ["6", "1"][len(sys.argv) - 5:]))
    with tempfile.TemporaryDirectory(prefix="triax-replay-") as folder:
        shop = Shop(folder)
        looked_at(shop)
        refused(shop)
        not_finite(shop)
        went_on_otherwise(shop)
        began_with_weights(shop)
        start_that_nothing_describes(shop)
        made_up_validation(shop)
        checkpoint_of_another_run(shop)
        velocities_of_experts(shop)
        lay_on_disk(shop)
        checkpoints_were_pruned(shop)
        draws(shop, count, seed)
