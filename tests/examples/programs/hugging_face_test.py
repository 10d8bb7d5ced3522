"""hugging_face_test.py MINIGPT LLAMA: weights of Hugging Face's transformers through the programs: imported,
sampled, trained further on a mesh, exported with their tokenizer; and what a full disk and a kill leave.

TRIAX_KILLS: how often to kill import, and export (6)."""

import json
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from minigpt_program import Run, kill, metrics, some_text

programs = {"gpt2": sys.argv[1]} | dict.fromkeys(["llama", "llama3", "qwen2", "qwen3", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "mistral", "olmo2"], sys.argv[2])
reference = pathlib.Path(__file__).resolve().parents[2] / "reference"
fixture = pathlib.Path(__file__).resolve().parents[2] / "fixtures/bpe"
kills = int(os.environ.get("TRIAX_KILLS", "6"))
choice = random.Random(int(os.environ.get("TRIAX_SEED", "1")))
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
    for name in programs:
        file = reference / name / "reference.safetensors"
        ids, last = tensor(file, "ids")[:12], tensor(file, "logits")[11 * 96:12 * 96]
        command = [programs[name], "sample", "--checkpoint", str(path / name), "--prompt",
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
    said = run("gpt2", f"train --init {path}/gpt2 --data {path}/text.txt --steps 2 --out {path}/half", 78)
    assert "the checkpoint has no tokenizer" in said, said
    run("gpt2", f"train --init {path}/gpt2 --data {path}/text.txt --tokenizer char --steps 2 --warmup 0 --micro-batch 2 "
        f"--global-batch 4 --precision bf16 --out {path}/half")
    run("gpt2", f"export --checkpoint {path}/half --to {path}/half-out")
    exact = (path / "half-out/model.safetensors").read_bytes()
    values = tensor(path / "half-out/model.safetensors", "transformer.wte.weight" if b"transformer.wte" in exact
                    else "wte.weight")
    assert any(struct.pack("<f", v)[:2] != b"\0\0" for v in values), "weights of bf16 precision"


def exports_in_16_bits_and_in_several_files(path):
    """transformers loads them; imported again, the weights are those of one file in 32 bits, rounded."""
    run("qwen3", f"export --checkpoint {path}/qwen3 --to {path}/one-file --dtype bf16")
    said = run("qwen3", f"export --checkpoint {path}/qwen3 --to {path}/files --dtype bf16 --max-shard-gb 1e-5")
    assert "in bf16" in said, said
    config = json.loads((path / "files/config.json").read_text())
    assert config["torch_dtype"] == "bfloat16", config
    index = json.loads((path / "files/model.safetensors.index.json").read_text())
    names = sorted(set(index["weight_map"].values()))
    count = len(names)
    assert count > 2 and names == [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)], names
    sizes = [(path / "files" / name).stat().st_size for name in names]
    one = (path / "one-file/model.safetensors").read_bytes()
    header = json.loads(one[8:8 + int.from_bytes(one[:8], "little")])
    assert header.keys() - {"__metadata__"} == index["weight_map"].keys()
    assert {entry["dtype"] for name, entry in header.items() if name != "__metadata__"} == {"BF16"}
    assert index["metadata"]["total_size"] == max(e["data_offsets"][1] for n, e in header.items() if n != "__metadata__")
    assert sum(sizes) > index["metadata"]["total_size"], sizes
    for directory in "one-file", "files":
        run("qwen3", f"import --from {path}/{directory} --out {path}/{directory}-run")
    steps = [path / f"{directory}-run/step-0" for directory in ("one-file", "files")]
    tensors = [sorted(p.read_bytes() for p in step.glob("*.safetensors")) for step in steps]
    assert tensors[0] == tensors[1] and tensors[0], "weights of one file and of several"


def trains_further_on_a_mesh(name, path):
    flags = (f"--init {path}/{name} --data {path}/text.txt --steps 3 --warmup 0 --micro-batch 2 --global-batch 8 "
             "--val-every 3 --tokenizer char")
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


SMALL = "--layers 1 --heads 2 --width 16 --context 8 --micro-batch 2 --global-batch 4 --warmup 0 --steps 2"


def the_tokenizer_goes_along(path):
    """From a run to a model directory, to its import and to runs that start from it, without --tokenizer."""
    text = f"{path}/text.txt"
    run("gpt2", f"train {SMALL} --data {text} --tokenizer gpt2:{fixture} --out {path}/bpe")
    said = run("gpt2", f"export --checkpoint {path}/bpe --to {path}/bpe-hf")
    assert "tokenizer files: merges.txt, tokenizer.json, vocab.json, tokenizer_config.json" in said, said
    tokenizer = (path / "bpe/tokenizer.json").read_bytes()
    assert (path / "bpe-hf/tokenizer.json").read_bytes() == tokenizer
    config = json.loads((path / "bpe-hf/tokenizer_config.json").read_text())
    assert config == {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                      "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}, config
    model = json.loads((path / "bpe-hf/config.json").read_text())
    end = [t["id"] for t in json.loads(tokenizer)["added_tokens"] if t["content"] == "<|endoftext|>"]
    assert [model["eos_token_id"]] == [model["bos_token_id"]] == end, model
    (path / "chat").mkdir()
    for name, content in {"tokenizer.json": tokenizer, "chat_template.jinja": b"{{ messages }}",
                          "generation_config.json": b"{}", "notes.txt": b"mine"}.items():
        (path / "chat" / name).write_bytes(content)
    run("gpt2", f"export --checkpoint {path}/bpe --to {path}/bpe-chat --tokenizer {path}/chat")
    assert sorted(f.name for f in (path / "bpe-chat").iterdir()) == [
        "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"]
    assert json.loads((path / "bpe-chat/config.json").read_text())["eos_token_id"] == end[0]
    (path / "empty").mkdir()
    said = run("gpt2", f"export --checkpoint {path}/bpe --to {path}/x --tokenizer {path}/empty", 66)
    assert "has no tokenizer.json" in said and not (path / "x").exists(), said
    run("gpt2", f"import --from {path}/bpe-hf --out {path}/bpe-again")
    further = "--micro-batch 2 --global-batch 4 --warmup 0 --steps 1"
    run("gpt2", f"train --init {path}/bpe-again {further} --data {text} --out {path}/further")
    assert (path / "further/tokenizer.json").read_bytes() == tokenizer
    (path / "two").mkdir()  # the same tokenizer in other files
    for name in "vocab.json", "merges.txt":
        shutil.copy(fixture / name, path / "two")
    run("gpt2", f"train --init {path}/bpe-again {further} --data {text} --tokenizer gpt2:{path}/two --out {path}/alike")
    assert (path / "alike/tokenizer.json").read_bytes() != tokenizer
    said = run("gpt2", f"train --init {path}/bpe-again {further} --data {text} --tokenizer char", 78)
    assert "another tokenizer" in said and "leave --tokenizer out" in said, said
    # Token files without a tokenizer are of the checkpoint's.
    tokens = [i * i % 440 for i in range(200)]
    (path / "tokens.bin").write_bytes(struct.pack("<200H", *tokens))
    run("gpt2", f"train --init {path}/bpe-again {further} --data {path}/tokens.bin --out {path}/tokens")
    assert (path / "tokens/tokenizer.json").read_bytes() == tokenizer
    run("gpt2", f"train {SMALL} --data {path}/tokens.bin --out {path}/numbers")
    run("gpt2", f"train {SMALL} --data {path}/tokens.bin --vocab 500 --out {path}/more-numbers")  # as many as the model has
    (path / "largest.bin").write_bytes(struct.pack("<200H", *[499] * 200))
    run("gpt2", f"evaluate --checkpoint {path}/more-numbers --data {path}/largest.bin")
    for init, rows in (("bpe-again", 447), ("numbers", max(tokens) + 1), ("more-numbers", 500)):
        (path / "more.bin").write_bytes(struct.pack("<200H", *[1] * 199, rows))
        said = run("gpt2", f"train --init {path}/{init} {further} --data {path}/more.bin", 65)
        assert f"token 199 is {rows}, which the vocabulary of {rows} tokens does not have" in said, said
        (path / "fewer.bin").write_bytes(struct.pack("<200H", *[1] * 200))
        run("gpt2", f"train --init {path}/{init} {further} --data {path}/fewer.bin --out {path}/{init}-fewer")
    (path / "greek.txt").write_text("\u03a9" * 100)  # a character that the run did not have
    run("gpt2", f"train {SMALL} --data {text} --out {path}/characters")
    said = run("gpt2", f"train --init {path}/characters {further} --data {path}/greek.txt", 65)
    assert f"data: {path}/greek.txt: character '\\u{{3a9}}' U+03A9 at byte 0 is not in the vocabulary" in said, said
    said = run("gpt2", f"sample --checkpoint {reference}/gpt2 --prompt a", 65)
    assert "not a checkpoint" in said and f"minigpt import --from {reference}/gpt2 --out NEW" in said, said
    said = run("llama", f"sample --checkpoint {path}/characters --prompt a", 65)
    assert "expected a checkpoint of triax-llama" in said, said
    said = run("gpt2", f"export --checkpoint {path}/numbers --to {path}/numbers-hf")
    assert "no tokenizer files: the checkpoint has no BPE" in said, said


def a_tokenizer_is_written_as_it_was_read(path):
    """By every verb; added tokens may be anywhere in the vocabulary, and be bytes or merged tokens too."""
    for name in "first", "bytes", "otherwise", "old":
        folder, out, shards = fixture / "added" / name, path / f"added-{name}", path / f"added-{name}-shards"
        text = (folder / "tokenizer.json").read_text()
        run("gpt2", f"train {SMALL} --data {path}/text.txt --tokenizer gpt2:{folder} --out {out}")
        run("gpt2", f"data {path}/text.txt --tokenizer gpt2:{folder} --out {shards}")
        assert "tokenizer: " in run("gpt2", f"data inspect {shards}")
        run("gpt2", f"sample --checkpoint {out} --prompt a --tokens 2")
        run("gpt2", f"export --checkpoint {out} --to {out}-hf")
        run("gpt2", f"train --init {out} --micro-batch 2 --global-batch 4 --warmup 0 --steps 1 --data {shards} "
            f"--out {out}-more")
        for place in out, shards, pathlib.Path(f"{out}-hf"), pathlib.Path(f"{out}-more"):
            assert ((place / "tokenizer.json").read_text() == text) == (name != "old"), f"{place} of {name}"


def a_trained_model_keeps_the_files_of_its_tokenizer(path):
    hub, further = path / "hub", "--micro-batch 2 --global-batch 4 --warmup 0 --steps 1"
    run("gpt2", f"train {SMALL} --data {path}/text.txt --tokenizer gpt2:{fixture}/added/first --vocab 460 "
        f"--out {path}/for-hub")
    run("gpt2", f"export --checkpoint {path}/for-hub --to {hub}")
    (hub / "additional_chat_templates").mkdir()
    for name, content in {"chat_template.jinja": "{{ messages }}", "generation_config.json": '{"top_k": 5}',
                          "special_tokens_map.json": '{"bos_token": "<s>"}', "tokenizer.model": "\0\xff",
                          "additional_chat_templates/rag.jinja": "{{ documents }}",
                          "tokenizer_config.json": '{"chat_template": "{{ messages }}"}'}.items():
        (hub / name).write_text(content)
    config = json.loads((hub / "config.json").read_text())
    (hub / "config.json").write_text(json.dumps(config | {"bos_token_id": 7, "eos_token_id": [2, 3], "pad_token_id": 4}))
    own = {p.relative_to(hub): p.read_bytes() for p in hub.rglob("*")
           if p.is_file() and p.name not in ("config.json", "model.safetensors")}
    run("gpt2", f"import --from {hub} --out {path}/hub-run")
    run("gpt2", f"data {path}/text.txt --tokenizer gpt2:{hub} --out {path}/hub-shards")
    runs = {"init": f"--init {path}/hub-run --data {path}/text.txt",
            "init-shards": f"--init {path}/hub-run --data {path}/hub-shards",
            "twice": f"--init {path}/hub-of-init --data {path}/text.txt",
            "files": f"{SMALL} --vocab 460 --data {path}/text.txt --tokenizer gpt2:{hub}",
            "shards": f"{SMALL} --vocab 460 --data {path}/hub-shards"}
    for name, flags in runs.items():
        out = path / f"hub-of-{name}"
        run("gpt2", f"train {flags} {further} --out {out}")
        run("gpt2", f"train {flags} {further} --out {out} --resume auto --steps 2")
        run("gpt2", f"export --checkpoint {out} --to {out}-back")
        back = {p.relative_to(f"{out}-back"): p.read_bytes() for p in pathlib.Path(f"{out}-back").rglob("*")
                if p.is_file() and p.name not in ("config.json", "model.safetensors")}
        assert back == own, (name, back.keys() ^ own.keys())
        config = json.loads((path / f"hub-of-{name}-back/config.json").read_text())
        assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (7, [2, 3], 4), config
    shutil.copytree(path / "hub-of-init/step-2", path / "alone/step-2")
    said = run("gpt2", f"export --checkpoint {path}/alone/step-2 --to {path}/alone-hf")
    assert "no chat template or other files" in said and "--tokenizer DIR names a directory" in said, said
    assert (path / "alone-hf/tokenizer.json").read_bytes() == own[pathlib.Path("tokenizer.json")]
    (path / "only-generation").mkdir()
    for name in "config.json", "model.safetensors":
        shutil.copy(reference / "gpt2" / name, path / "only-generation")
    (path / "only-generation/generation_config.json").write_text("{}")
    run("gpt2", f"import --from {path}/only-generation --out {path}/only-run")
    said = run("gpt2", f"export --checkpoint {path}/only-run --to {path}/only-back")
    assert "no tokenizer files" in said and "copied: generation_config.json" in said, said


def the_lines_of_python_in_the_docs_make_tokens(path):
    """Those of docs/data.md, where transformers is installed: see tests/docs/commands_test.py."""
    python = os.environ.get("TRIAX_TRANSFORMERS_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import numpy, transformers"], capture_output=True).returncode != 0:
        return print(f"skipped: {python} has no transformers")
    page = (pathlib.Path(__file__).resolve().parents[3] / "docs/data.md").read_text()
    blocks = (block.split("```")[0] for block in page.split("```python\n")[1:])
    lines = next(block for block in blocks if "transformers" in block)
    shutil.copytree(path / "bpe-hf", path / "ids/my-model")
    shutil.copy(path / "text.txt", path / "ids/my.txt")
    subprocess.run([python, "-c", lines], cwd=path / "ids", check=True, stderr=subprocess.DEVNULL)
    run("gpt2", f"train {SMALL} --data {path}/ids/tokens --vocab 447 --out {path}/ids/run")
    run("gpt2", f"data {path}/text.txt --tokenizer gpt2:{fixture} --out {path}/ids/shards")
    tokens = (path / "ids/tokens/train.bin").read_bytes()[1024:] + (path / "ids/tokens/val.bin").read_bytes()[1024:]
    shards = (path / "ids/shards/tokens-00000.bin").read_bytes()
    assert struct.unpack(f"<{len(tokens) // 4}I", tokens) == struct.unpack(f"<{len(shards) // 2}H", shards)
    run("gpt2", f"export --checkpoint {path}/ids/run --to {path}/ids/back --tokenizer {path}/ids/my-model")


def a_model_directory_is_imported_where_a_checkpoint_is_expected(path):
    """Once for each content, also by processes that start at the same time; evaluate takes the average, too."""
    folder, tokens = path / "own-place", path / "tokens-of-hub"
    folder.mkdir()
    tokens.mkdir()
    for file, count in (("train.bin", 2000), ("val.bin", 200)):
        (tokens / file).write_bytes(struct.pack(f"<{count}H", *(i * i % 96 for i in range(count))))
    hub = shutil.copytree(reference / "gpt2", folder / "hub")
    own = dict(cwd=folder)
    shown = run("gpt2", f"evaluate --checkpoint {path}/gpt2 --data {tokens}").splitlines()[-1]
    command = [programs["gpt2"], "evaluate", "--checkpoint", "hub/", "--data", str(tokens)]
    for _ in range(3):
        shutil.rmtree(folder / "runs", ignore_errors=True)
        at_once = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        said = [process.communicate() for process in at_once]
        assert all(process.returncode == 0 for process in at_once) and all(out.splitlines()[-1] == shown for out, _ in said), (shown, said)
        assert [err for _, err in said if err] == [err for _, err in said if "imported hub/ to runs/imported/hub-" in err][:1], said
        imported = [p.name for p in (folder / "runs/imported").iterdir() if not p.name.endswith(".lock")]
        assert len(imported) == 1 and imported[0].startswith("hub-"), imported
    shutil.rmtree(folder / "runs")
    # Flags of the run that imports are not of what it imports; and the launcher reads one line.
    small = f"train --init hub --data {tokens} --warmup 0 --micro-batch 2 --global-batch 4 --steps 1"
    lines = run("gpt2", f"{small} --lora 2 --mesh-for 2", **own).splitlines()
    assert len(lines) == 1 and lines[0].startswith("2 "), lines
    assert "trained;" in run("gpt2", f"{small} --lora 2 --out adapted", **own)
    said = run("gpt2", f"{small} --out all", **own)
    assert "trained;" not in said, said
    flags = f"train --init hub --data {tokens} --warmup 0 --micro-batch 2 --global-batch 4 --average 0.5 --lr 0.05 --steps"
    run("gpt2", f"{flags} 2 --out run", **own)
    shutil.rmtree(folder / "runs")
    run("gpt2", f"{flags} 3 --out run --resume auto", **own)
    assert not (folder / "runs").exists(), "a run that is resumed needs it no more"
    losses = [run("gpt2", f"evaluate --checkpoint run --data {tokens} --weights {which}", **own).splitlines()[-1]
              for which in ("average", "trained")]
    trained = metrics(folder / "run")[-1]
    assert losses[0] != losses[1] and abs(float(losses[0].split()[1]) - trained["val_loss"]) < 1e-5, (losses, trained)
    said = run("gpt2", f"evaluate --checkpoint {path}/gpt2 --data {tokens} --weights average", 78)
    assert "whose run had none" in said, said
    (folder / "closed").mkdir()
    (folder / "closed/runs").write_text("a file where a folder should be made")
    said = run("gpt2", f"evaluate --checkpoint {hub} --data {tokens}", 73, cwd=folder / "closed")
    assert f"minigpt import --from {hub} --out NEW" in said, said
    (hub / "notes").write_text("another content")
    said = run("llama", f"evaluate --checkpoint hub --data {tokens}", 65, **own)
    assert "Use the program `minigpt`" in said and not (folder / "runs/imported/hub.unfinished").exists(), said


def exports_the_average(path):
    run("gpt2", f"train {SMALL} --data {path}/text.txt --average 0.9 --lr 0.01 --out {path}/averaged")
    run("gpt2", f"export --checkpoint {path}/averaged --weights average --to {path}/averaged-hf")
    run("gpt2", f"export --checkpoint {path}/averaged --to {path}/trained-hf")
    stored = path / "averaged/step-2/rank0.safetensors"
    name, average, trained = "wpe.weight", path / "averaged-hf", path / "trained-hf"
    assert tensor(average / "model.safetensors", name) == tensor(stored, "positions.table@average")
    assert tensor(trained / "model.safetensors", name) == tensor(stored, "positions.table")
    assert tensor(average / "model.safetensors", name) != tensor(trained / "model.safetensors", name)
    said = run("gpt2", f"export --checkpoint {path}/bpe --weights average --to {path}/x", 78)
    assert "weights=average of checkpoint" in said and "had none" in said, said


def write_gpt2(folder, layers, width):
    """A model directory of any size; the weights are not random."""
    shapes = {"wte.weight": (96, width), "wpe.weight": (16, width), "ln_f.weight": (width,), "ln_f.bias": (width,)}
    for i in range(layers):
        for name, shape in (("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
            shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = shape, shape[1:]
        for name in "ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias":
            shapes[f"h.{i}.{name}"] = (width,)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    pattern = struct.pack("<1009f", *(i / 1009 for i in range(1009)))
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text +
                                               (pattern * (at // len(pattern) + 1))[:at])
    config = dict(model_type="gpt2", n_layer=layers, n_head=4, n_embd=width, n_positions=16, vocab_size=96)
    (folder / "config.json").write_text(json.dumps(config))
    for name in "vocab.json", "merges.txt":
        shutil.copy(reference / "gpt2" / name, folder)


def exports_what_transformers_has(path):
    small = f"train {SMALL} --kv-heads 2 --hidden 24 --data {path}/text.txt --experts 4"
    for number, (flags, parts) in enumerate({
            "--router-score sigmoid": ["Qwen3ForCausalLM: not with this experts", "MixtralForCausalLM: not with this router-score"],
            "--router-weights plain": ["MixtralForCausalLM: not with this router-weights"],
            "--qk-norm all --router-scale 2": ["OlmoeForCausalLM: not with this router-scale"],
            "--qk-norm head --shared-experts 1": ["Qwen3MoeForCausalLM: not with this shared-experts"],
            "--qkv-bias --shared-experts 1": ["Qwen2MoeForCausalLM: not with this shared-gate"],
            "--layers 2 --dense-layers 1": ["MixtralForCausalLM: not with this dense-layers"],
            "--balance-bias 0.1": ["MixtralForCausalLM: not with this balance-bias"]}.items()):
        run("llama", f"{small} {flags} --out {path}/other{number}")
        said = run("llama", f"export --checkpoint {path}/other{number} --to {path}/x", 78)
        assert "transformers has no such model" in said and all(part in said for part in parts), said
    # An expert's size of its own is the only one of a Mixtral.
    run("llama", f"{small} --expert-hidden 20 --balance 0.01 --out {path}/own-size")
    run("llama", f"export --checkpoint {path}/own-size --to {path}/own-size-hf")
    config = json.loads((path / "own-size-hf/config.json").read_text())
    assert (config["model_type"], config["intermediate_size"]) == ("mixtral", 20), config
    run("llama", f"import --from {path}/own-size-hf --out {path}/own-size-again")
    said = run("llama", f"{small} --shared-gate --out {path}/x", 78)
    assert "shared-gate of shared-experts=0; expected 1 or more" in said, said


def keeps_the_class_and_a_tokenizer_that_is_larger(path):
    """Mistral without a window is Llama but for its name, by which transformers chooses the class of the tokenizer."""
    hub = shutil.copytree(reference / "mistral", path / "wide")
    config = json.loads((hub / "config.json").read_text())
    (hub / "config.json").write_text(json.dumps(config | {"sliding_window": None}))
    shutil.copy(fixture / "added/first/tokenizer.json", hub)  # of more tokens than the model has rows
    run("mistral", f"import --from {hub} --out {path}/wide-run")
    said = run("mistral", f"export --checkpoint {path}/wide-run --to {path}/wide-back")
    back = json.loads((path / "wide-back/config.json").read_text())
    assert (back["model_type"], back["sliding_window"]) == ("mistral", None) and "as a MistralForCausalLM" in said, (back, said)
    assert "the tokenizer has" in said and "the model 96 rows" in said, said
    scaled = shutil.copytree(reference / "llama", path / "scaled")  # transformers takes rope_scaling, if both are there
    config = json.loads((scaled / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": 77.0}
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 2.0}
    (scaled / "config.json").write_text(json.dumps(config))
    said = run("llama", f"import --from {scaled} --out {path}/scaled-run", 65)
    assert "yarn" in said, said


def leaves_alone_what_others_made(path):
    (path / "mine.unfinished").mkdir()
    (path / "mine.unfinished/notes").write_text("mine")
    (path / "mine.unfinished/lock").write_text("of a run that was set aside")
    said = run("gpt2", f"import --from {reference}/gpt2 --out {path}/mine", 78)
    assert "was not left by an import or export" in said, said
    assert (path / "mine.unfinished/notes").read_text() == "mine" and not (path / "mine").exists()


def killed_at_any_moment(path):
    """What is there under its name is whole, and the next call makes it and leaves nothing else."""
    def files(folder):
        return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}

    write_gpt2(path / "large", 4, 384)
    for verb, words in (("import", ["--from", path / "large", "--out"]),
                        ("export", ["--checkpoint", path / "large-run", "--to"])):
        command = [programs["gpt2"], verb, *map(str, words)]
        whole, out = path / f"large-{'run' if verb == 'import' else 'back'}", path / f"{verb}-killed"
        took = 60.0
        for to in whole, out:
            begun = time.monotonic()
            subprocess.run([*command, to], check=True, stdout=subprocess.DEVNULL)
            took = min(took, time.monotonic() - begun)
        expected = files(whole)
        shutil.rmtree(out)
        done = hit = unfinished = published = 0
        while done < kills or (unfinished == 0 and done < 10 * kills):
            done += 1
            with Run([*command, str(out)], path / "stderr.txt") as job:
                time.sleep(choice.uniform(0, took))
                hit += job.process.poll() is None
                kill(job.process.pid)
            unfinished += pathlib.Path(f"{out}.unfinished").exists()
            if out.exists():
                assert files(out) == expected, f"{verb}: half of it got its name"
                shutil.rmtree(out)
                published += 1
        subprocess.run([*command, out], check=True, stdout=subprocess.DEVNULL)
        assert files(out) == expected and not (out / "lock").exists(), f"{verb} after kills differs"
        assert not pathlib.Path(f"{out}.unfinished").exists(), f"{verb}: something was left behind"
        print(f"{verb}: {hit} of {done} kills met a living process, {unfinished} left something unfinished, "
              f"{published} came after it was done; {took:.2f} s")
        assert unfinished > 0, "no kill came at a time that means anything"


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
    exports_in_16_bits_and_in_several_files(path)
    exports_what_transformers_has(path)
    the_tokenizer_goes_along(path)
    the_lines_of_python_in_the_docs_make_tokens(path)
    a_tokenizer_is_written_as_it_was_read(path)
    a_trained_model_keeps_the_files_of_its_tokenizer(path)
    a_model_directory_is_imported_where_a_checkpoint_is_expected(path)
    exports_the_average(path)
    keeps_the_class_and_a_tokenizer_that_is_larger(path)
    leaves_alone_what_others_made(path)
    killed_at_any_moment(path)
    samples_what_transformers_would(path)
    a_full_disk_leaves_nothing(path)
    said = run("gpt2", f"train --init {path}/gpt2 --context 8 --data {path}/text.txt --tokenizer char", 78)
    assert "`import --context N`" in said, said
    run("gpt2", f"import --from {reference}/gpt2 --context 8 --out {path}/gpt2-8")
    run("gpt2", f"train --init {path}/gpt2-8 --data {path}/text.txt --tokenizer char --steps 1 --micro-batch 2 --out {path}/8")
print("ok")
