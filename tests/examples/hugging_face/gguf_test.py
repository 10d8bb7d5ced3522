"""gguf_test.py MINIGPT MPIRUN LLAMA: `export --to FILE.gguf` writes the weights, sizes and tokenizer of a model where llama.cpp
looks for them; where the package gguf is installed, by its names, and as it reads them."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "programs"))
from minigpt_program import model_tensors  # noqa: E402

reference = pathlib.Path(__file__).resolve().parents[2] / "reference"
fixture = pathlib.Path(__file__).resolve().parents[2] / "fixtures/bpe"
programs = {"gpt2": sys.argv[1]} | dict.fromkeys(["llama", "llama3", "qwen2", "qwen3", "olmo2", "mistral", "mixtral"], sys.argv[3])
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCALARS = {4: "I", 5: "i", 6: "f", 7: "?"}
HF_KEYS = dict(context_length="max_position_embeddings", embedding_length="hidden_size", block_count="num_hidden_layers",
               feed_forward_length="intermediate_size", vocab_size="vocab_size")


def run(name, words, code=0):
    done = subprocess.run([programs[name], *words.split()], capture_output=True, text=True, timeout=240)
    assert done.returncode == code, f"{name} {words}: {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def read_gguf(path):
    """Keys, and tensors by name: type, dims (the fastest first), bytes."""
    data, at = path.read_bytes(), 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def value(kind):
        nonlocal at
        if kind == 8:
            size = take("Q")
            at += size
            return data[at - size:at].decode()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take(SCALARS[kind])

    assert data[:4] == b"GGUF"
    at = 4
    version, tensors, count = take("I"), take("Q"), take("Q")
    assert version == 3
    keys = {value(8): value(take("I")) for _ in range(count)}
    infos = [(value(8), [take("Q") for _ in range(take("I"))], take("I"), take("Q")) for _ in range(tensors)]
    begin = (at + 31) // 32 * 32
    result = {}
    for name, dims, kind, offset in infos:
        assert offset % 32 == 0
        size = (4 if kind == 0 else 2)
        for dim in dims:
            size *= dim
        result[name] = kind, dims, data[begin + offset:begin + offset + size]
        assert len(result[name][2]) == size, name
    return keys, result


def hub_tensors(directory):
    return {name.removeprefix("transformer."): tensor for name, tensor in model_tensors(directory).items()}


def rows(shape, data):
    width = shape[-1] * 4
    return [data[i:i + width] for i in range(0, len(data), width)]


def expected(name, hub, keys, architecture):
    """A tensor of transformers as llama.cpp has it."""
    shape, data = hub
    if architecture == "gpt2" and name.startswith("h.") and len(shape) == 2:
        columns = list(zip(*(struct.unpack(f"<{shape[1]}f", row) for row in rows(shape, data))))
        return b"".join(struct.pack(f"<{shape[0]}f", *column) for column in columns)
    if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = keys["llama.attention.head_count" + ("_kv" if "k_proj" in name else "")]
        size, all_rows = shape[0] // heads, rows(shape, data)
        return b"".join(all_rows[h * size + half * size // 2 + i] for h in range(heads) for i in range(size // 2) for half in (0, 1))
    return data


def weights_and_keys(path):
    for name in "gpt2", "llama", "llama3", "qwen2", "qwen3", "olmo2":
        run(name, f"import --from {reference / name} --out {path}/{name}")
        said = run(name, f"export --checkpoint {path}/{name} --to {path}/{name}.gguf")
        assert f"to {path}/{name}.gguf" in said and sorted(p.name for p in path.glob(f"{name}.gguf*")) == [f"{name}.gguf"], said
        run(name, f"export --checkpoint {path}/{name} --to {path}/{name}-hf")
        config = json.loads((path / f"{name}-hf/config.json").read_text())
        keys, stored = read_gguf(path / f"{name}.gguf")
        architecture = keys["general.architecture"]
        assert architecture == {"llama3": "llama"}.get(name, name), keys
        hub = hub_tensors(path / f"{name}-hf")
        assert len(stored) == len(hub) + (name == "llama3"), (sorted(stored), sorted(hub))
        left = dict(stored)
        for theirs, tensor in hub.items():
            want = expected(theirs, tensor, keys, architecture)
            found = [ours for ours, (kind, dims, data) in left.items() if data == want and sorted(dims) == sorted(tensor[0])]
            assert found, theirs
            left.pop(found[0])
        assert list(left) == (["rope_freqs.weight"] if name == "llama3" else []), left
        if name != "gpt2":
            for ours, theirs in HF_KEYS.items():
                assert keys[f"{architecture}.{ours}"] == config[theirs], (ours, keys)
            assert keys[f"{architecture}.attention.head_count_kv"] == config["num_key_value_heads"], keys
            assert keys[f"{architecture}.attention.key_length"] == config["head_dim"], keys
        if name == "llama3":  # frequencies are divided by them: some are kept, some divided by all of the factor
            factors = struct.unpack(f"<{config['head_dim'] // 2}f", stored["rope_freqs.weight"][2])
            assert factors[0] == 1 and abs(factors[-1] - config["rope_scaling"]["factor"]) < 1e-6, factors
    run("qwen2", f"export --checkpoint {path}/qwen2 --to {path}/half.gguf --dtype bf16")
    kinds = {name: kind for name, (kind, dims, data) in read_gguf(path / "half.gguf")[1].items() if len(dims) > 1}
    assert set(kinds.values()) == {30} and len(kinds) > 10, kinds


def tokenizers(path):
    text = path / "text"
    text.write_text("some words of a text " * 100)
    run("gpt2", f"train --layers 1 --heads 2 --width 16 --context 8 --steps 1 --data {text} --tokenizer gpt2:{fixture} --vocab 460 "
        f"--out {path}/bpe")
    said = run("gpt2", f"export --checkpoint {path}/bpe --to {path}/bpe.gguf")
    assert "no tokenizer" not in said, said
    keys, _ = read_gguf(path / "bpe.gguf")
    file = json.loads((path / "bpe/tokenizer.json").read_text())
    tokens = keys["tokenizer.ggml.tokens"]
    assert (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2"), keys
    assert len(tokens) == 460 and tokens[-1] == "[PAD459]" and keys["tokenizer.ggml.token_type"][-1] == 5
    assert all(tokens[id] == token for token, id in file["model"]["vocab"].items())
    end = next(t["id"] for t in file["added_tokens"] if t["content"] == "<|endoftext|>")
    assert keys["tokenizer.ggml.token_type"][end] == 3 and keys["tokenizer.ggml.eos_token_id"] == end
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    assert keys["tokenizer.ggml.merges"] == merges and len(merges) > 100
    many = shutil.copytree(path / "bpe", path / "many")
    (many / "tokenizer").mkdir(exist_ok=True)
    (many / "tokenizer/config.json").write_text(json.dumps(dict(model_type="gpt2", eos_token_id=[7, 3])))
    run("gpt2", f"export --checkpoint {many} --to {path}/many.gguf")
    assert read_gguf(path / "many.gguf")[0]["tokenizer.ggml.eos_token_id"] == 7
    (many / "tokenizer/config.json").write_text(json.dumps(dict(model_type="gpt2", eos_token_id=None)))
    said = run("gpt2", f"export --checkpoint {many} --to {path}/none.gguf")
    assert "no token ends texts" in said and "tokenizer.ggml.eos_token_id" not in read_gguf(path / "none.gguf")[0], said
    for pattern, name in {r"\p{N}{1,3}|\p{L}+": "default", LLAMA3: "llama-bpe", LLAMA3.replace("{1,3}", ""): "qwen2"}.items():
        own = json.loads((path / "bpe/tokenizer.json").read_text())
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        own["post_processor"] = name == "llama-bpe" and {"type": "Sequence", "processors": [
            {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]}]} or None
        own["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, level]}
        shutil.rmtree(path / "own", ignore_errors=True)
        (path / "own").mkdir()
        (path / "own/tokenizer.json").write_text(json.dumps(own))
        said = run("gpt2", f"export --checkpoint {path}/bpe --tokenizer {path}/own --to {path}/own-{name}.gguf")
        assert read_gguf(path / f"own-{name}.gguf")[0]["tokenizer.ggml.pre"] == name, name
        assert ("it has no name for how" in said) == (name == "default"), said
        assert read_gguf(path / f"own-{name}.gguf")[0]["tokenizer.ggml.add_bos_token"] == (name == "llama-bpe"), name
    pieces = path / "pieces"  # as SentencePiece's are converted, with a chat template
    pieces.mkdir()
    vocab = {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "a": 3, "b": 4, "ab": 5}
    (pieces / "tokenizer.json").write_text(json.dumps(dict(
        added_tokens=[dict(id=0, content="<unk>", special=True), dict(id=1, content="<s>", special=True)], pre_tokenizer=None,
        model=dict(type="BPE", byte_fallback=True, unk_token="<unk>", vocab=vocab, merges=[["a", "b"]]))))
    (pieces / "chat_template.jinja").write_text("{{ messages }}")
    run("gpt2", f"export --checkpoint {path}/bpe --tokenizer {pieces} --to {path}/pieces.gguf")
    keys, _ = read_gguf(path / "pieces.gguf")
    assert keys["tokenizer.ggml.model"] == "llama" and keys["tokenizer.ggml.token_type"][:6] == [2, 3, 6, 1, 1, 1], keys
    assert keys["tokenizer.ggml.scores"][:3] == [0, -1, -2] and keys["tokenizer.chat_template"] == "{{ messages }}", keys
    for name, puts in dict(prepend=True, first=True, never=False).items():
        said = run("gpt2", f"export --checkpoint {path}/bpe --tokenizer {fixture}/pieces/{name} --to {path}/{name}.gguf")
        assert read_gguf(path / f"{name}.gguf")[0]["tokenizer.ggml.add_space_prefix"] == puts, name
        assert ("may cut some words otherwise: it puts a space also" in said) == (name == "first"), said


def refusals(path):
    run("mistral", f"import --from {reference / 'mistral'} --out {path}/mistral")
    said = run("mistral", f"export --checkpoint {path}/mistral --to {path}/mistral.gguf", 78)
    assert "a window of 5 in a context of" in said and not list(path.glob("mistral.gguf*")), said
    run("mixtral", f"import --from {reference / 'mixtral'} --out {path}/mixtral")
    said = run("mixtral", f"export --checkpoint {path}/mixtral --to {path}/mixtral.gguf", 78)
    assert "a mixtral has experts" in said and "convert_hf_to_gguf.py" in said, said
    said = run("llama", f"export --checkpoint {path}/llama --to {path}/llama.gguf", 78)
    assert "is there already; expected a new file" in said, said
    said = run("llama", f"export --checkpoint {path}/llama --to {path}/x.gguf --peft", 78)
    assert "peft with a file" in said, said


def by_the_package(path):
    """Its reader, its names of tensors, and its names of keys."""
    python = os.environ.get("TRIAX_TRANSFORMERS_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import gguf"], capture_output=True).returncode != 0:
        return print(f"skipped: {python} has no gguf")
    code = """if True:
        import gguf, json, sys
        folder, *names = sys.argv[1:]
        for name in names:
            file = gguf.GGUFReader(f"{folder}/{name}.gguf")
            kind = file.fields["general.architecture"].contents()
            arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == kind)
            layers = file.fields[f"{kind}.block_count"].contents()
            known = gguf.get_tensor_name_map(arch, layers)
            header = open(f"{folder}/{name}-hf/model.safetensors", "rb").read()
            header = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])
            want = {known.get_name(n, (".weight", ".bias")) or known.get_name("transformer." + n, (".weight", ".bias"))
                    for n in header if n != "__metadata__"}
            have = {t.name for t in file.tensors}
            assert None not in want and have - {"rope_freqs.weight"} == want, (name, have ^ want)
            keys = {v.replace("{arch}", kind) for group in vars(gguf.Keys).values() if isinstance(group, type)
                    for v in vars(group).values() if isinstance(v, str)}
            unknown = [k for k in file.fields if not k.startswith("GGUF.") and k not in keys]
            assert not unknown, unknown
    """
    subprocess.run([python, "-c", code, str(path), "gpt2", "llama", "llama3", "qwen2", "qwen3", "olmo2"], check=True)


with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder)
    weights_and_keys(path)
    tokenizers(path)
    refusals(path)
    by_the_package(path)
