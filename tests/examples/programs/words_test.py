"""words_test.py MINIGPT MPIRUN: what the program prints and which words it knows: names that other programs
give to its flags, versions, and lines that fit the terminal. MPIRUN is not used."""

import os
import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import some_text

minigpt = sys.argv[1]
failures = []
GPT = "--layers 2 --heads 2 --width 16 --context 8"
RUN = f"{GPT} --micro-batch 2 --global-batch 8 --warmup 0 --val-every 3 --steps 6 --ledger"
# A step is skipped, so that its line is printed too.
HALF = "--precision fp16 --loss-scale 0"


def run(*command, columns=80):
    environment = dict(os.environ, COLUMNS=str(columns), OMP_NUM_THREADS="1")
    return subprocess.run([minigpt, *map(str, command)], capture_output=True, text=True, env=environment,
                          timeout=240)


def expect(name, problems):
    print(f"{'FAILED' if problems else 'ok'}  {name}", flush=True)
    if problems:
        failures.append(name)
        print("    " + "\n    ".join(problems), flush=True)


def says(code, *parts, command):
    done = run(*command.split())
    said = done.stdout + done.stderr
    problems = [f"no `{part}` in: {said}" for part in parts if part not in said]
    if done.returncode != code:
        problems.append(f"exit code {done.returncode}, expected {code}: {said}")
    expect(command or "no verb", problems)


def names(path):
    for version in "--version", "-v":
        says(0, "minigpt triax 0.2.0", "build ", command=version)
    for page in "--help", "-h", "help":
        says(0, "Usage: minigpt VERB", "train", "parity", "--version", command=page)
    for page in "train --help", "train -h", "help train":
        says(0, "Usage: minigpt train", "Examples:", "mpirun -np", "--micro-batch N", command=page)
    for verb in "train", "parity", "plan":
        pages = [run(verb, "--help").stdout, run("help", verb).stdout]
        expect(f"help {verb}: as {verb} --help", [] if pages[0] == pages[1] else ["they differ"])
    says(64, "unknown flag --batch-size; use --micro-batch", "or --global-batch", command="train --batch-size 8")
    says(64, "unknown flag --learning-rate; use --lr", command="train --learning-rate 0.1")
    says(64, "unknown flag --start; use --prompt", command="sample --start Once")  # nanoGPT's
    says(64, "unknown flag --num_samples; use --samples", command="sample --num_samples 3")
    says(64, "unknown flag --out_dir; use --checkpoint", command="sample --out_dir runs/mine")
    says(64, "unknown verb tokenize; use data", command="tokenize my.txt")
    says(64, "unknown flag --max-steps; use --steps", command="train --max-steps 10")
    says(64, "unknown flag --n-embd; use --width", command="plan --n-embd 10")
    says(64, "unknown verb generate; use sample", command="generate --prompt a")
    says(64, "unknown verb tran; the nearest is train", command="tran")
    (path / "folder").mkdir()
    (path / "folder/file").write_text("no checkpoint")
    says(65, f"{path}/folder: this is not a checkpoint", "manifest.json", "RUN/step-N",
         command=f"sample --checkpoint {path}/folder")
    says(66, f"{path}/text.txt: no such directory", command=f"sample --checkpoint {path}/text.txt")
    says(64, f"`{path}/folder` is no flag; flags are written --name VALUE: --checkpoint {path}/folder",
         command=f"sample {path}/folder")
    for command in "train --batch-sizes-of-all 3", "bake":
        done = run(*command.split())
        expect(f"{command}: nothing is near", ["a hint: " + done.stderr] if "nearest" in done.stderr else [])


def widths(path):
    data = f"--data {path}/text.txt"
    commands = [f"{verb} --help" for verb in ("train", "sample", "parity", "plan", "schedule")] + [
        "--help",
        f"train {data} {RUN} --out {path}/one",
        f"train {data} {RUN} --out {path}/eight --comm threads --ranks 8 --pp 2 --tp 2 --zero 1 {HALF}",
        f"train {data} {RUN} --out {path}/many --comm threads --ranks 16 --tp 2 --global-batch 16",
        f"train {data} {RUN} --out {path}/eight --resume auto --comm threads --ranks 2 --steps 9 --lr 0.01 {HALF}",
        f"parity {data} --mesh 2x2x2 --zero 3 --schedule zb-h1 --sequence-parallel --recompute selective",
        f"parity {data} --mesh 1x1x2 --precision fp16",
        f"plan {data} {GPT} --vocab 90 --ranks 8 --memory 300KB --top 50",
        f"plan {data} --layers 24 --heads 16 --width 2048 --context 64 --vocab 90 --ranks 64 --hardware h100 "
        "--precision bf16 --top 50",
        "schedule --pp 4 --micros 16 --schedule zb-interleaved"]
    for columns in 80, 60, 120:
        for number, command in enumerate(commands):
            # A path may be longer than any line.
            done = run(*command.replace("/eight", f"/eight{columns}").split(), columns=columns)
            lines = (done.stdout + done.stderr).replace(str(path), "PATH").splitlines()
            problems = [f"{len(line)} columns: {line}" for line in lines if len(line) > columns]
            if done.returncode != 0:
                problems.append(f"exit code {done.returncode}: {done.stderr}")
            if command.startswith("train") and "help" not in command:
                problems += readable(lines)
            expect(f"{columns} columns: {command.replace(str(path), 'PATH')}", problems)
            if "/one" in command or "/many" in command:
                subprocess.run(["rm", "-r", command.split("--out ")[1].split()[0]], check=True)


def to_a_full_disk(path):
    """What only prints must not end as if somebody had read it; training goes on."""
    small = f"--data {path}/text.txt {GPT}"
    commands = {"--help": 73, "flags": 73, "manual": 73, "schedule --pp 4 --micros 8": 73, "schedule --pp 4 --json": 73,
                f"plan {small} --vocab 90 --ranks 4": 73, f"parity {small} --steps 1": 73,
                f"train {small} --steps 2 --out {path}/full": 0}
    for command, code in commands.items():
        with open("/dev/full", "w") as full:
            done = subprocess.run([minigpt, *command.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        problems = [] if done.returncode == code else [f"exit code {done.returncode}, expected {code}"]
        if code and "cannot write to stdout: No space left" not in done.stderr:
            problems.append(f"stderr: {done.stderr}")
        expect(f"to a full disk: {command.split()[0]}", problems)


def readable(lines):
    """What is wanted most of a step is on its line at any width."""
    steps = [line for line in lines if line.startswith("step ")]
    return ["no line of a step"] * (not steps) + [f"not in the line of a step: {line}" for line in steps
            if "/s" not in line or "loss" not in line] + ["no validation"] * ("val loss" not in "".join(steps))


with tempfile.TemporaryDirectory(prefix="triax-words-") as name:
    root = pathlib.Path(name)
    (root / "text.txt").write_text(some_text())
    names(root)
    to_a_full_disk(root)
    widths(root)
if failures:
    sys.exit(f"{len(failures)} failed: " + "; ".join(failures))
