"""bisect_test.py PLANTED_RUNS: scripts/bisect_runs.py finds every difference that PLANTED_RUNS has planted, at the right step
and tensor, where ranks hold copies at the right rank, and nothing in equal runs. What is certified is what checkpoints hold."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/bisect_runs.py"
WORD = (1 << 64) - 1
FIRST = dict(weight="the weights that the step read", moment="the update", gradient="a gradient", row="the loss",
             rate="the update", seed="the state that the runs began with")


def bisect(*runs, code):
    done = subprocess.run([sys.executable, SCRIPT, *runs], capture_output=True, text=True)
    assert done.returncode == code, (runs, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def found(a, b, step, kind, tensor, rank):
    said = bisect(a, b, code=1)
    assert re.search(rf"DIFFERENT: the runs part in step {step}[;\n]", said), said
    assert f"\n  {FIRST[kind]} parts first" + (f": {tensor}\n" if tensor else "") in said, said
    if kind == "seed":
        assert "\n  seed: 1 and 7\n" in said and "seed differ, which explains it." in said, said
    if kind == "rate":
        assert "\n  lr: 0.001 and 0.002\n" in said and "at learning rates" in said, said
    if tensor:
        assert f"\n  {b}: of {tensor}, rank " in said, said
    for place in a, b:
        if step > 2:
            assert f" replay --checkpoint {place}/step-" in said or kind == "rate", said
    return said


def mixed(x):
    """SplitMix64's finalizer, written from docs/runs.md."""
    for shift, factor in (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1):
        x = (x ^ x >> shift) * factor & WORD
    return x


def checkpoint_hashes(place):
    """By the names of a checkpoint: the hash of each tensor, of one file without parts, read by hand."""
    data = next(pathlib.Path(place).glob("*.safetensors")).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    hashes = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        width = {"F32": 4, "BF16": 2}[entry["dtype"]]
        elements = [data[at:at + width] for at in range(begin, end, width)]
        hashes[name] = sum(mixed(int.from_bytes(e, "little") + (i + 1) * 0x9E3779B97F4A7C15 & WORD)
                           for i, e in enumerate(elements)) & WORD
    return hashes


def derived_again(run):
    """The chain and the hashes of a run of one rank, by the text of the documentation alone."""
    chain, hashes = "", {}
    for text in (pathlib.Path(run) / "certificate.jsonl").read_text().splitlines():
        head, tail = text.rsplit(',"chain":"', 1)
        value = 0xCBF29CE484222325
        for byte in (chain + head).encode():
            value = (value ^ byte) * 0x100000001B3 & WORD
        chain = f"{value:016x}"
        assert tail == chain + '"}', text
        record = json.loads(text)
        hashes[record["step"]] = record["hashes"]
    compared = 0
    for step in 2, 4, 6:
        for name, value in checkpoint_hashes(f"{run}/step-{step}").items():
            tensor, _, kind = name.partition("@")
            assert hashes[step][f"{tensor}/{kind or 'weight'}"] == f"{value:016x}", (run, step, name)
            compared += 1
    assert compared > 30, compared


def main():
    with tempfile.TemporaryDirectory(prefix="triax-bisect-") as folder:
        done = subprocess.run([sys.argv[1], folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        pairs = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("planted\t")]
        assert len(pairs) == 30, pairs
        for number, (a, b, step, kind, tensor, rank) in enumerate(pairs):
            said = found(a, b, int(step), kind, tensor, int(rank))
            print(f"{number}: step {step}, {kind} {tensor}: found", flush=True)
        assert "other bits than a lower rank, which should hold the same, has: block0.down.weight/read of rank 1" in \
            bisect(pairs[1][0], pairs[1][1], code=1)
        resumed = bisect(f"{folder}/alone", f"{folder}/resumed", code=0)
        assert "EQUAL: loss, gradients, weights and optimizer state of 7 common steps, up to step 6" in resumed, resumed
        assert "EQUAL: the chain of 7 lines" in bisect(f"{folder}/resumed", code=0)
        equal = [pairs[i][0] for i in (0, 2, 3, 4, 5)]
        for a, b in zip(equal, equal[1:]):
            assert "EQUAL: loss, gradients, weights and optimizer state of 7 common steps, up to step 6" in bisect(a, b, code=0)
        for run in equal:
            assert "checkpoints of steps 2, 4, 6" in bisect(run, code=0)
        derived_again(pairs[0][0])
        derived_again(pairs[7][0])
        changed(pairs[0][0], folder)
        without_certificates(*pairs[2][:2], folder)
        assert "block1.up.weight in " in bisect(pairs[0][1], code=1), "it was flipped before the checkpoint was written"


def changed(run, folder):
    """A line that was changed breaks the chain; another tensor in a checkpoint is not what was certified."""
    copy = pathlib.Path(folder) / "changed"
    shutil.copytree(run, copy)
    file = copy / "certificate.jsonl"
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    file.write_text(text.replace('"step":3,"loss":', '"step":3,"loss":1'))
    assert "chain does not follow in step 3" in bisect(copy, code=1)
    assert "the chain does not follow in step 3" in bisect(run, copy, code=65)
    file.write_text("".join(lines[:2] + lines[3:]))
    assert "chain does not follow in step 3" in bisect(copy, code=1)
    file.write_text(text)
    shutil.rmtree(copy / "step-4")
    shutil.copytree(copy / "step-6", copy / "step-4")
    assert re.search(r"DIFFERENT: \S+ in .*step-4 is not what the certificate says", bisect(copy, code=1))


def without_certificates(a, b, folder):
    """Then checkpoints are compared."""
    for run in a, b:
        shutil.copytree(run, f"{folder}/plain/{pathlib.Path(run).name}")
    a, b = (f"{folder}/plain/{pathlib.Path(run).name}" for run in (a, b))
    for run in a, b:
        (pathlib.Path(run) / "certificate.jsonl").unlink()
    said = bisect(a, b, code=1)
    assert "the runs part between step 2 and step 4; --certify would say" in said, said
    shutil.rmtree(f"{b}/step-4"), shutil.rmtree(f"{b}/step-6")
    assert "EQUAL: weights and optimizer state of 1 common checkpoints, up to step 2" in bisect(a, b, code=0)
    shutil.rmtree(f"{b}/step-2")
    assert "neither certificates nor checkpoints of a common step" in bisect(a, b, code=66)


main()
