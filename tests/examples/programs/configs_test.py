"""configs_test.py BIN: the ready configurations of examples/*/configs are those of their papers: `plan
--config` counts as many parameters, and so do their comments. BIN is the folder of the programs."""

import pathlib
import re
import string
import subprocess
import sys
import tempfile

PARAMETERS = {
    "tiny": 809_856,
    "char-shakespeare": 10_770_816,  # nanoGPT's 10.65 M have no biases, and it counts no positions
    "gpt2-124m": 124_439_808,
    "gpt2-350m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1.5b": 1_557_611_200,
    "gpt2-1.5b-24-heads": 1_552_009_728,
    "tinyllama-1.1b": 1_100_048_384,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
}
TP = {"gpt2-1.5b-24-heads": (2, 4, 8)}  # which their heads are there for
CHARACTERS = string.ascii_letters + " \n!$&',-.3:;?"  # the 65 of tiny Shakespeare

root = pathlib.Path(__file__).parents[3]
programs = pathlib.Path(sys.argv[1])


def plan(file, text, *more):
    program = programs / {"minigpt": "minigpt", "llama": "triax-llama"}[file.parts[-3]]
    flags = ["--config", file, "--data", text, "--micro-batch", 1, "--global-batch", 1, "--memory", "9999TB", "--zero", 0]
    return subprocess.run([program, "plan", *map(str, flags), *map(str, more)], capture_output=True, text=True, timeout=120)


def problems(file, text):
    """What is wrong with a configuration, on one rank with room for everything, and with its tp."""
    for tp in TP.get(file.stem, ()):
        done = plan(file, text, "--ranks", tp, "--tp", tp)
        if done.returncode != 0:
            yield f"tp {tp}: exit code {done.returncode}: {done.stderr}"
    done = plan(file, text, "--ranks", 1)
    counted = re.search(r"(\d+) parameters", done.stdout)
    if done.returncode != 0 or not counted:
        yield f"exit code {done.returncode}: {done.stderr}"
    elif int(counted[1]) != PARAMETERS.get(file.stem):
        yield f"{counted[1]} parameters; expected {PARAMETERS.get(file.stem, 'its number in this test')}"
    stated = re.search(r"([\d,]{9,}) parameters", file.read_text())
    if stated and int(stated[1].replace(",", "")) != PARAMETERS.get(file.stem):
        yield f"its comment says {stated[1]}"


with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(folder) / "text.txt"
    text.write_text(CHARACTERS * 1400)
    files = {file.stem: file for file in sorted(root.glob("examples/*/configs/*.toml"))}
    failures = [f"{name}: no such file" for name in PARAMETERS if name not in files]
    for name, file in files.items():
        wrong = list(problems(file, text))
        print(f"{'FAILED' if wrong else 'ok'}  {name}", *wrong, flush=True)
        failures += wrong
sys.exit(1 if failures else 0)
