"""commands_test.py REPOSITORY PROGRAMS PAGE..: every block of a page of commands does what the page says.

The blocks of a page are run in their order, by bash, in a folder that looks like a clone: PROGRAMS is build/release/bin there,
and `gpt2` a tiny model of random weights. A comment in the line before a block says what it is; none is an error:

    <!-- test: commands [FLAGS] -->     runs; FLAGS are added to its last command, to make it short
    <!-- test: interrupted [FLAGS] -->  gets Ctrl-C when it has trained for some steps, and ends with 75
    <!-- test: typed WORDS -->          reads WORDS, a line each, as if they were typed
    <!-- test: output -->               its lines were printed by the block before, but for the digits in them
    <!-- test: exactly -->              is what the block before printed, but for spaces
    <!-- test: file NAME -->            is what NAME holds
    <!-- test: python -->               prints what the block before did; runs where transformers is installed for
                                        TRIAX_TRANSFORMERS_PYTHON, or else for this Python
    <!-- test: skip because REASON -->  is not run
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading

import pages

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_MCA_mpi_yield_when_idle="1", COLUMNS="110",
                   OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LIMIT = 240  # seconds


def tiny_gpt2(root, folder):
    """What `GPT2LMHeadModel.save_pretrained` leaves: 2 layers of 16 features, and GPT-2's kind of tokenizer."""
    shutil.copytree(root / "tests/fixtures/bpe", folder, ignore=shutil.ignore_patterns("*.txt", "*.jsonl", "*.json"))
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(root / "tests/fixtures/bpe" / name, folder)
    vocab, w = len(json.loads((folder / "vocab.json").read_text())), 16
    config = json.loads((root / "tests/reference/gpt2/config.json").read_text())
    config |= {"n_embd": w, "n_head": 2, "n_layer": 2, "n_positions": 64, "vocab_size": vocab}
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"wte.weight": [vocab, w], "wpe.weight": [64, w], "ln_f.weight": [w], "ln_f.bias": [w]}
    for layer in range(2):
        part = {"ln_1.weight": [w], "ln_1.bias": [w], "attn.c_attn.weight": [w, 3 * w], "attn.c_attn.bias": [3 * w],
                "attn.c_proj.weight": [w, w], "attn.c_proj.bias": [w], "ln_2.weight": [w], "ln_2.bias": [w],
                "mlp.c_fc.weight": [w, 4 * w], "mlp.c_fc.bias": [4 * w], "mlp.c_proj.weight": [4 * w, w],
                "mlp.c_proj.bias": [w]}
        shapes |= {f"h.{layer}.{name}": shape for name, shape in part.items()}
    draw, header, data = random.Random(1), {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [float("ln_" in name and "weight" in name) + draw.gauss(0, 0.5) for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


def clone(root, programs, folder):
    for name in ("scripts", "docs", "examples", "README.md"):
        (folder / name).symlink_to(root / name)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/bin").symlink_to(programs)
    (folder / "build/release/share").symlink_to(programs.parent / "share")
    tiny_gpt2(root, folder / "gpt2")


class Page:
    """The blocks of a page, run one after the other; `said` is what the last one printed."""

    def __init__(self, folder):
        self.folder, self.said, self.done = folder, "", {}

    def bash(self, text, typed="", interrupt=False):
        """The exit code."""
        script = f'set -euo pipefail\nPATH="{self.folder}/build/release/bin:$PATH"\n{text}'
        process = subprocess.Popen(["bash", "-c", script], cwd=self.folder, env=ENVIRONMENT, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        watch = threading.Timer(LIMIT, lambda: os.killpg(process.pid, signal.SIGKILL))
        watch.start()
        process.stdin.write(typed)
        process.stdin.close()
        self.said = ""
        for line in process.stdout:
            self.said += line
            if interrupt and line.startswith("step "):
                os.killpg(process.pid, signal.SIGINT)
                interrupt = False
        code = process.wait()
        watch.cancel()
        return code

    def run(self, block):
        """What is wrong with a block; empty if nothing is."""
        text = block.text.rstrip("\n")
        flags = f" {block.rest}" if block.what in ("commands", "interrupted") and block.rest else ""
        if block.what in ("commands", "interrupted", "typed"):
            typed = block.rest + "\n" if block.what == "typed" else ""
            wanted = 75 if block.what == "interrupted" else 0
            code = self.bash(text + flags, typed, block.what == "interrupted")
            return "" if code == wanted else f"exit code {code}, expected {wanted}\n{self.said}"
        if block.what == "output":
            missing = [line for line in text.splitlines() if shape(line) not in shape(self.said)]
            return f"not printed: {missing}\n{self.said}" if missing else ""
        if block.what == "exactly":
            return "" if text.split() == self.said.split() else f"printed:\n{self.said}\nexpected:\n{text}"
        if block.what == "file":
            (self.folder / block.rest).write_text(text + "\n")
            return ""
        if block.what == "python":
            python = os.environ.get("TRIAX_TRANSFORMERS_PYTHON", sys.executable)
            if subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode != 0:
                print(f"skipped: {python} has no transformers")
                return ""
            (self.folder / "block.py").write_text(text)
            before = self.said
            code = self.bash(f"{python} block.py 2>block.err")
            same = self.said.strip() and self.said.strip() in before
            return "" if code == 0 and same else f"exit code {code}\n{self.said}\nbefore:\n{before}"
        if block.what == "skip" and re.match(r"because \w+", block.rest):
            return ""
        return f"`{block.what} {block.rest}`; expected commands, interrupted, typed, output, exactly, file, python or skip"


def shape(line):
    return re.sub(r"[\d.]+", "0", " ".join(line.split()))


def check(root, programs, name):
    with tempfile.TemporaryDirectory(prefix="triax-page-") as folder:
        folder = pathlib.Path(folder)
        clone(root, programs, folder)
        page, count = Page(folder), 0
        for block in pages.blocks(root, name):
            if block.language == "cpp":
                continue
            wrong = page.run(block)
            if wrong:
                sys.exit(f"{block.place}: {wrong}")
            count += 1
        print(f"{name}: {count} blocks")


if __name__ == "__main__":
    for page in sys.argv[3:]:
        check(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), page)
