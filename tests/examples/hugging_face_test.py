"""hugging_face_test.py MINIGPT LLAMA: weights of Hugging Face's transformers through the programs: imported,
sampled, trained further on a mesh, exported; and what a full disk leaves."""

import json
import pathlib
import resource
import struct
import subprocess
import sys
import tempfile

from minigpt_program import metrics, some_text

programs = {"gpt2": sys.argv[1], "llama": sys.argv[2]}
reference = pathlib.Path(__file__).resolve().parents[1] / "reference"
THREADS = "--comm threads --ranks 4"


def run(name, words, code=0, **more):
    done = subprocess.run([programs[name], *words.split()], capture_output=True, text=True, timeout=120, **more)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{name} {words}: exit code {done.returncode}, expected {code}\n{said}"
    return done.stdout if code == 0 else said


def tensor(path, name):
    """Its values, row-major."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    entry = json.loads(data[8:end])[name]
    begin, stop = entry["data_offsets"]
    kind = {"F32": "f", "I64": "q"}[entry["dtype"]]
    return struct.unpack(f"<{(stop - begin) // struct.calcsize(kind)}{kind}", data[end + begin:end + stop])


def samples_what_transformers_would(path):
    file = reference / "gpt2/reference.safetensors"
    ids, last = tensor(file, "ids")[:12], tensor(file, "logits")[11 * 96:12 * 96]
    command = [programs["gpt2"], "sample", "--checkpoint", str(path / "gpt2"), "--prompt",
               " ".join(map(str, ids)), "--tokens", "3", "--temperature", "0"]
    texts = [subprocess.run(command + more.split(), capture_output=True, text=True, check=True).stdout
             for more in ("", f"{THREADS} --pp 2 --tp 2")]
    assert texts[0] == texts[1], texts
    assert texts[0].split()[:13] == [str(i) for i in (*ids, last.index(max(last)))], texts[0]
    assert len(texts[0].split()) == 15, texts[0]
    said = run("gpt2", f"sample --checkpoint {path}/gpt2 --prompt a", 65)
    assert "`a`: the model came without a tokenizer; expected numbers of tokens, 0 to 95" in said, said
    said = run("gpt2", f"sample --checkpoint {path}/gpt2", 78)  # a line break
    assert "prompt has no tokens" in said, said


def exports_master_weights(path):
    run("gpt2", f"train --init {path}/gpt2 --data {path}/text.txt --steps 2 --warmup 0 --micro-batch 2 --global-batch 4 "
        f"--precision bf16 --out {path}/half")
    run("gpt2", f"export --checkpoint {path}/half --to {path}/half-out")
    exact = (path / "half-out/model.safetensors").read_bytes()
    values = tensor(path / "half-out/model.safetensors", "transformer.wte.weight" if b"transformer.wte" in exact
                    else "wte.weight")
    assert any(struct.pack("<f", v)[:2] != b"\0\0" for v in values), "weights of bf16 precision"


def trains_further_on_a_mesh(name, path):
    flags = (f"--init {path}/{name} --data {path}/text.txt --steps 3 --warmup 0 --micro-batch 2 --global-batch 8 "
             "--val-every 3")
    run(name, f"train {flags} --out {path}/{name}-one")
    run(name, f"train {flags} --out {path}/{name}-many {THREADS} --pp 2 --tp 2 --zero 1")
    one, many = metrics(path / f"{name}-one"), metrics(path / f"{name}-many")
    assert len(one) == len(many) == 3
    for a, b in zip(one, many):
        assert abs(a["loss"] - b["loss"]) < 1e-4 * a["loss"], (a, b)
        assert abs(a["grad_norm"] - b["grad_norm"]) < 1e-3 * a["grad_norm"], (a, b)
    run(name, f"export --checkpoint {path}/{name}-many --to {path}/{name}-back")
    run(name, f"import --from {path}/{name}-back --out {path}/{name}-again")
    again = f"--init {path}/{name}-again --steps 1 --out {path}/{name}-next"
    said = run(name, f"train {flags} {again} --layers 3", 78)
    assert "layers 2; this run asks for 3" in said, said
    run(name, f"train {flags} {again}")
    assert f"--init {path}/{name}-again" not in (path / f"{name}-next/config.toml").read_text()
    assert f'init = "{path}/{name}-again"' in (path / f"{name}-next/config.toml").read_text()
    said = run(name, f"train {flags} --resume {path}/{name}/step-0 --out {path}/{name}-resumed", 78)
    assert "holds weights alone" in said, said


def a_full_disk_leaves_nothing(path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    before = sorted(p.name for p in path.iterdir())
    for words in f"import --from {reference}/gpt2 --out {path}/x", f"export --checkpoint {path}/gpt2 --to {path}/x":
        said = run("gpt2", words, 73, preexec_fn=small_files, restore_signals=False)  # SIGXFSZ stays ignored
        assert "File too large" in said, said
    assert sorted(p.name for p in path.iterdir()) == before


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    (path / "text.txt").write_text(some_text())
    for name in programs:
        run(name, f"import --from {reference}/{name} --out {path}/{name}")
        trains_further_on_a_mesh(name, path)
    exports_master_weights(path)
    samples_what_transformers_would(path)
    a_full_disk_leaves_nothing(path)
    assert "model_type is `llama`" in run("gpt2", f"import --from {reference}/llama --out {path}/x", 65)
    assert "is there already" in run("gpt2", f"import --from {reference}/gpt2 --out {path}/gpt2", 78)
    assert "must be given" in run("gpt2", "export", 78)
print("ok")
