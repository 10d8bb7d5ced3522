"""adapters_test.py MINIGPT MPIRUN LLAMA: --lora trains adapters alone, alike on any mesh, from weights without them, and exports them
merged and as PEFT's files."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

from minigpt_program import metrics, model_tensors, some_text

reference = pathlib.Path(__file__).resolve().parents[2] / "reference"
programs = {"gpt2": sys.argv[1]} | dict.fromkeys(["llama", "qwen2", "mixtral"], sys.argv[3])
SHAPE = dict(gpt2="--heads 4", llama="--heads 4 --kv-heads 2 --hidden 48", qwen2="--heads 4 --kv-heads 2 --hidden 48 --qkv-bias",
             mixtral="--heads 4 --kv-heads 2 --hidden 48 --experts 4")
MESHES = dict(gpt2=["2x2x2 --zero 2", "2x1x2 --sequence-parallel --zero 3", "2x1x2 --bitwise --tp-slices 2 --lora-alpha 3",
                     "2x2x2 --zero 3 --optimizer muon"],
              llama=["2x2x2 --zero 1", "1x1x2x2 --sequence-parallel", "1x2x2 --recompute selective --precision bf16"],
              qwen2=["2x2x2 --zero 3"], mixtral=["2x1x2 --zero 2", "1x1x2x1x1", "1x1x2x2x1 --zero 1 --optimizer muon"])


def run(name, words, code=0):
    done = subprocess.run([programs[name], *words.split()], capture_output=True, text=True, timeout=240)
    said = done.stdout + done.stderr
    assert done.returncode == code, f"{name} {words}: exit code {done.returncode}, expected {code}\n{said}"
    return said


def floats(directory):
    return {name: (shape, struct.unpack(f"<{len(data) // 4}f", data)) for name, (shape, data) in model_tensors(directory).items()}


def parity_on_meshes(path):
    for name, meshes in MESHES.items():
        for mesh in meshes:
            said = run(name, f"parity --data {path}/text --layers 2 --width 32 --context 16 --micro-batch 2 --global-batch 8 "
                       f"--steps 4 --lr 0.01 {SHAPE[name]} --lora 4 --mesh {mesh}")
            assert "EQUAL" in said and "frozen weights" in said, (name, mesh, said)


def merged_is_base_and_adapters(path, name):
    """Trained on 2x2x2 from weights without adapters."""
    flags = f"--init {path}/{name} --data {path}/tokens --steps 3 --warmup 0 --micro-batch 2 --global-batch 8 --lr 0.02 --lora 3"
    run(name, f"train {flags} --out {path}/{name}-one")
    run(name, f"train {flags} --out {path}/{name}-many --comm threads --ranks 8 --dp 2 --pp 2 --tp 2 --zero 1")
    for a, b in zip(metrics(path / f"{name}-one"), metrics(path / f"{name}-many"), strict=True):
        assert abs(a["loss"] - b["loss"]) < 1e-5 * a["loss"] and abs(a["grad_norm"] - b["grad_norm"]) < 1e-4 * a["grad_norm"], (a, b)
    run(name, f"train {flags} --out {path}/{name}-many --resume auto --steps 4")  # has adapters of its own
    run(name, f"export --checkpoint {path}/{name}-many/step-3 --to {path}/{name}-merged")
    run(name, f"export --checkpoint {path}/{name}-many/step-3 --to {path}/{name}-peft --peft")
    base, merged = floats(reference / name), floats(path / f"{name}-merged")
    adapters = floats(path / f"{name}-peft")
    config = json.loads((path / f"{name}-peft/adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == (3, 6, name == "gpt2"), config
    changed = 0
    for full, (shape, weight) in merged.items():
        stem = f"base_model.model.{'transformer.' if name == 'gpt2' else ''}{full.removesuffix('.weight')}.lora_"
        was = base.get(full) or base["transformer." + full]
        if stem + "A.weight" not in adapters:
            assert was[1] == weight, f"{full} changed"
            continue
        (r, n_in), a = adapters[stem + "A.weight"]
        (n_out, _), b = adapters[stem + "B.weight"]
        assert stem.split(".")[-2] in config["target_modules"], config
        for o in range(0, n_out, 5):
            for i in range(0, n_in, 7):
                at = i * n_out + o if name == "gpt2" else o * n_in + i
                added = 2 * sum(b[o * r + k] * a[k * n_in + i] for k in range(r))
                assert abs(weight[at] - was[1][at] - added) < 1e-6, (full, o, i, weight[at], was[1][at], added)
                changed += abs(added) > 1e-4
    assert changed > 100, changed
    return flags


def logits_of_peft(path, name):
    """Those of the merged model, where peft is installed."""
    python = os.environ.get("TRIAX_TRANSFORMERS_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import peft, transformers"], capture_output=True).returncode != 0:
        return print(f"skipped: {python} has no peft")
    code = """if True:
        import sys, torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM
        base, merged = (AutoModelForCausalLM.from_pretrained(d).eval() for d in sys.argv[1:3])
        x = torch.arange(12)[None] * 5 % 96
        with torch.no_grad():
            plain = base(x).logits
            a, b = merged(x).logits, PeftModel.from_pretrained(base, sys.argv[3]).eval()(x).logits
        assert (a - b).abs().max() < 1e-5 < 1e-2 < (plain - a).abs().max(), ((a - b).abs().max(), (plain - a).abs().max())
    """
    directories = [reference / name, path / f"{name}-merged", path / f"{name}-peft"]
    subprocess.run([python, "-c", code, *map(str, directories)], check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})


def errors(path, flags):
    said = run("llama", f"train {flags.replace('--lora 3', '--lora 5')} --out {path}/llama-many --resume auto --steps 5", 65)
    assert "lora_" in said and "expected [24, 5]" in said, said
    said = run("llama", f"train {flags.replace('--lora 3', '--lora 0')} --init {path}/llama-many --out {path}/x", 65)
    assert "lora_" in said and "has no place in this model" in said, said
    said = run("llama", f"train {flags.replace('--lora 3', '--lora-alpha 3')} --out {path}/x", 78)
    assert "lora-alpha=3" in said and "without lora" in said, said
    said = run("llama", f"export --checkpoint {path}/llama --to {path}/x --peft", 78)
    assert "has no adapters" in said and not (path / "x").exists(), said
    said = run("llama", f"evaluate --checkpoint {path}/llama-many --data {path}/tokens --val-fraction 1 --tp 2 --comm threads --ranks 2")
    assert "perplexity" in said, said


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    (path / "text").write_text(some_text())
    (path / "tokens").mkdir()
    for file, count in (("train.bin", 4000), ("val.bin", 400)):
        (path / "tokens" / file).write_bytes(struct.pack(f"<{count}H", *(i * i % 96 for i in range(count))))
    parity_on_meshes(path)
    for name in "gpt2", "qwen2", "llama":
        run(name, f"import --from {reference / name} --out {path}/{name}")
        flags = merged_is_base_and_adapters(path, name)
        logits_of_peft(path, name)
    errors(path, flags)
