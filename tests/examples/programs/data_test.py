"""data_test.py MINIGPT LLAMA: texts become shards of tokens, which train, sample and compare as a text does; what is killed
goes on; memory is bounded; wrong input ends with the right code and one report.

TRIAX_KILLS: how often to kill (20)."""

import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from minigpt_program import MODEL, RANKS_SHARING_CORES, Run, files_of, kill, limited, some_text, words

minigpt, llama = sys.argv[1:3]
FIXTURE = pathlib.Path(__file__).resolve().parents[2] / "fixtures/bpe"
kills = int(os.environ.get("TRIAX_KILLS", "20"))
choice = random.Random(int(os.environ.get("TRIAX_SEED", "1")))
SMALL = {k: MODEL[k] for k in ("layers", "heads", "width", "context", "micro_batch", "global_batch")}
LLAMA = dict(layers=1, heads=4, kv_heads=2, width=16, hidden=24, context=8, micro_batch=2, global_batch=8)


def call(*command, code=0):
    """What it printed."""
    done = subprocess.run([str(word) for word in command], text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120, env=dict(RANKS_SHARING_CORES, COLUMNS="300"))
    assert done.returncode == code, f"{command}: exit code {done.returncode}, expected {code}\n{done.stdout}"
    return done.stdout


def peak_of(pid):
    """Largest resident memory so far, in kB; that of getrusage would be the parent's, if it is larger."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def many_words(megabytes):
    """Like a text: few words are frequent, many are rare."""
    vocabulary = ["".join(choice.choices("etaoinshrdlu", k=choice.randrange(1, 12))) for _ in range(30000)]
    weights = [1 / (i + 1) for i in range(len(vocabulary))]
    part = " ".join(choice.choices(vocabulary, weights, k=170000)) + "\n數據 ٣٤٥ 😀, it's\n"
    return part * (megabytes * 10**6 // len(part.encode()) + 1)


def trained_and_sampled(folder):
    text, shards, run = folder / "text.txt", folder / "shards", folder / "run"
    text.write_text(some_text() * 3 + "数据 😀")
    said = call(minigpt, "data", text, "--tokenizer", "bpe:270", "--out", shards, "--shard-size", "500")
    assert "tokens of 270 in" in said and "shards of u16" in said, said
    said = call(minigpt, "data", "inspect", shards)
    assert " ok\n" in said and "tokenizer: 270 tokens" in said and "begins: " in said and "??" not in said, said
    train = [minigpt, "train", *words(**SMALL, data=shards, out=run, steps=6, save_every=3)]
    assert "270 tokens" in call(*train)
    assert (run / "tokenizer.json").read_bytes() == (shards / "tokenizer.json").read_bytes()
    sample = [minigpt, "sample", "--checkpoint", run, "--tokens", "5", "--prompt"]
    assert "the 数据 and what it never saw: Ω" in call(*sample, "the 数据 and what it never saw: Ω")
    # The text with the tokenizer of the shards is the same data: the run goes on.
    on_text = words(**SMALL, data=text, tokenizer=f"gpt2:{shards}", out=run, steps=8, resume="auto")
    assert "step 8/8" in call(minigpt, "train", *on_text)
    # Another tokenizer is not.
    call(minigpt, "train", *words(**SMALL, data=text, tokenizer="bpe:260", out=run, steps=9, resume="auto"), code=78)
    said = call(minigpt, "train", *words(init=run, data=text, tokenizer="bpe:260", steps=9), code=78)
    assert "has another tokenizer, which its weights were trained with" in said, said
    call(llama, "train", *words(**LLAMA, data=shards, out=folder / "llama", steps=3))
    call(minigpt, "train", *words(**SMALL, data=text, tokenizer=f"gpt2:{FIXTURE}", out=folder / "gpt2", steps=3))
    # Tokens of other programs.
    plain = folder / "plain"
    plain.mkdir()
    tokens = [i * i % 97 for i in range(2000)]
    (plain / "train.bin").write_bytes(struct.pack("<2000H", *tokens))
    (plain / "val.bin").write_bytes(struct.pack("<500H", *tokens[:500]))
    said = call(minigpt, "train", *words(**SMALL, data=plain, out=folder / "nano", steps=3))
    assert "2000 training tokens, 499 held out" in said, said
    said = call(minigpt, "sample", "--checkpoint", folder / "nano", "--prompt", "a", code=65)
    assert "without a tokenizer" in said, said


def equal_on_meshes(folder):
    tokens = ["--data", folder / "shards"]
    text = ["--data", folder / "text.txt", "--tokenizer", "bpe:280"]
    call(minigpt, "data", FIXTURE / "text.txt", "--tokenizer", f"gpt2:{folder}/shards", "--out", folder / "more")
    mixed = ["--data", f"{folder}/shards:0.8,{folder}/more:0.2"]
    for program, what in ((minigpt, tokens), (minigpt, text), (minigpt, mixed), (llama, tokens)):
        for mesh in ("2x2x1", "1x2x2 --zero 3"):
            said = call(program, "parity", "--mesh", *mesh.split(), *what, "--steps", "2")
            assert "\nEQUAL: " in said, said


def killed_and_resumed(folder):
    text, whole, out = folder / "long.txt", folder / "whole", folder / "killed"
    text.write_text(many_words(24))
    flags = ["--tokenizer", f"gpt2:{FIXTURE}", "--shard-size", "400000"]
    begun = time.monotonic()
    peak = 0
    with Run([minigpt, "data", str(text), "--out", str(whole), *flags], folder / "stderr.txt") as job:
        while job.process.poll() is None:
            peak = max(peak, peak_of(job.process.pid))
            time.sleep(0.01)
        assert job.process.returncode == 0, job.stderr()
    took = time.monotonic() - begun
    assert peak < 40_000 or os.environ.get("TRIAX_SANITIZED"), f"{peak / 1000:.0f} MB for a text of 24 MB"
    expected, resumed, hit = files_of(whole), 0, 0
    for number in range(kills):
        manifest = (out / "manifest.json").read_text() if (out / "manifest.json").exists() else "{}"
        finished = [shard["file"] for shard in json.loads(manifest).get("shards", [])]
        kept = {name: (out / name).stat().st_mtime_ns for name in finished}
        with Run([minigpt, "data", str(text), "--out", str(out), *flags], folder / "stderr.txt") as job:
            time.sleep(choice.uniform(0, took / 3))
            hit += job.process.poll() is None
            kill(job.process.pid)
            job.process.wait()
        for name, stamp in kept.items():
            assert (out / name).stat().st_mtime_ns == stamp, f"{name} was made again"
        for path in out.glob("*.bin"):
            assert path.read_bytes() == expected[pathlib.Path(path.name)], f"{path.name} differs after a kill"
        resumed += bool(kept)
        if (out / "manifest.json").exists() and b'"complete": true' in (out / "manifest.json").read_bytes():
            shutil.rmtree(out)
    call(minigpt, "data", text, "--out", out, *flags)
    assert files_of(out) == expected, "the resumed shards differ"
    print(f"24 MB in {took:.1f} s; peak {peak / 1000:.0f} MB; {hit} of {kills} kills met a living process, "
          f"{resumed} began with shards that were there")
    assert hit > kills // 2 and resumed > kills // 4, "most kills came at the wrong time to mean anything"


def wrong_input(folder):
    text, shards, run = folder / "text.txt", folder / "shards", folder / "run"
    bad = folder / "bad"
    bad.mkdir()

    def refused(code, *parts, command, limit=""):
        command = [str(word) for word in command]
        if limit:
            command = limited(f"-f {limit}", command)
        said = call(*command, code=code)
        for part in parts:
            assert str(part) in said, f"no `{part}` in the report of {command}:\n{said}"
        assert said.count("triax: error ") == 1, said
        print(f"ok  {code}  {parts[0]}", flush=True)

    def data(*words_, out=None):
        return [minigpt, "data", *words_, "--out", out or pathlib.Path(tempfile.mkdtemp(dir=folder)) / "out"]

    def train(**flags):
        return [minigpt, "train", *words(**(dict(SMALL, steps=2, out=folder / "no-run") | flags))]

    (bad / "empty.txt").write_text("")
    (bad / "latin1.txt").write_bytes(b"caf\xe9 au lait")
    refused(64, "INPUT.. is not given", command=[minigpt, "data"])
    refused(64, "DIR is not given", command=[minigpt, "data", "inspect"])
    refused(78, "out is not given", command=[minigpt, "data", text])
    refused(64, "unknown flag --outt", command=[minigpt, "data", text, "--outt", "x"])
    refused(66, "No such file", bad / "no.txt", command=data(bad / "no.txt"))
    refused(65, "is empty", bad / "empty.txt", command=data(bad / "empty.txt"))
    refused(65, "byte 4 is 0x20", bad / "latin1.txt", command=data(bad / "latin1.txt"))
    refused(65, "byte 4 is 0x20", command=train(data=bad / "latin1.txt", tokenizer="bpe:300"))
    refused(65, "is empty", command=train(data=bad / "empty.txt", tokenizer="bpe:300"))
    refused(78, "tokenizer=`bpe:12`", "257 to", command=data(text, "--tokenizer", "bpe:12"))
    refused(78, "tokenizer=`word`", "Valid: char", command=train(data=text, tokenizer="word"))
    refused(66, "no vocab.json", bad, command=data(text, "--tokenizer", f"gpt2:{bad}"))
    refused(78, "made with other --tokenizer", command=data(text, "--tokenizer", "char", out=shards))
    full = folder / "full"
    refused(73, "File too large", command=data(text, "--tokenizer", "char", out=full), limit=4)
    assert not [p for p in full.iterdir() if ".bin" in p.name], "half a shard was left"
    call(*data(text, "--tokenizer", "char", out=full))  # with room again it goes on
    refused(73, "Permission denied" if os.getuid() else "/proc", command=data(text, out="/proc/triax"))

    for name in ("vocab.json", "merges.txt"):
        shutil.copy(FIXTURE / name, bad / name)
    (bad / "merges.txt").write_text("#version: 0.2\nzz qq\n")
    refused(65, "`zz` is not in the vocabulary", bad / "merges.txt", command=data(text, "--tokenizer", f"gpt2:{bad}"))
    (bad / "vocab.json").write_text('{"a": ')
    refused(65, "not JSON", bad / "vocab.json", command=train(data=text, tokenizer=f"gpt2:{bad}"))

    def damaged(name, change):
        copy = folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(shards, copy)
        (copy / name).write_bytes(change((copy / name).read_bytes()))
        return copy

    def flip(content):
        return content[:40] + bytes([content[40] ^ 1]) + content[41:]

    for command in (lambda d: train(data=d), lambda d: [minigpt, "data", "inspect", d]):
        refused(65, "is damaged: crc32c", "tokens-00001.bin", command=command(damaged("tokens-00001.bin", flip)))
        refused(65, "bytes; expected", command=command(damaged("tokens-00001.bin", lambda c: c[:-2])))
        refused(65, "is not the tokenizer", command=command(
            damaged("tokenizer.json", lambda _: (folder / "gpt2/tokenizer.json").read_bytes())))
        refused(65, "is not complete", command=command(
            damaged("manifest.json", lambda c: c.replace(b'"complete": true', b'"complete": false'))))
    refused(78, "vocab=269 is less than the 270 tokens", command=train(data=shards, vocab=269))
    refused(65, "without tokens to train on", command=train(data=folder / "llama"))
    refused(65, "is no directory and no .bin", command=[minigpt, "data", "inspect", text])
    refused(66, "No such file", command=[minigpt, "data", "inspect", folder / "nowhere"])
    refused(64, "UTF-8", command=[minigpt, "sample", "--checkpoint", run, "--prompt", os.fsdecode(b"\xff")])
    # A training run of one vocabulary cannot go on with tokens of another.
    refused(78, "vocabulary", command=train(data=folder / "plain", out=run, steps=9, resume="auto"))


with tempfile.TemporaryDirectory(prefix="triax-data-") as path:
    for group in (trained_and_sampled, equal_on_meshes, killed_and_resumed, wrong_input):
        begun = time.monotonic()
        group(pathlib.Path(path))
        print(f"{group.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
