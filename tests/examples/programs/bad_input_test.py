"""bad_input_test.py MINIGPT MPIRUN: what a user gets wrong ends with the right code and one report
that says what, where and what to do; on any number of ranks, within three seconds.

MPIRUN may be empty: then only one process is tried. TRIAX_SECONDS: other than three."""

import os
import pathlib
import shutil
import sys
import tempfile
import time

from minigpt_program import MODEL, Run, limited, mpirun, some_text, wait_until, words

minigpt, launcher = sys.argv[1], sys.argv[2]
seconds = float(os.environ.get("TRIAX_SECONDS", "3"))
failures = []


class Workshop:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.count = 0
        self.write("text.txt", some_text())
        self.write("empty.txt", "")
        self.write("short.txt", "abcabc")
        self.write("latin1.txt", b"caf\xe9 au lait " * 50)
        self.write("cut_off.txt", "schön ".encode() * 50 + b"\xc3")
        self.write("file", "in the way")
        (self.path / "directory").mkdir()

    def write(self, name, content):
        path = self.path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def __call__(self, name):
        return self.path / name

    def train(self, **flags):
        """A command line that would train, with changes."""
        self.count += 1
        defaults = dict(MODEL, data=self("text.txt"), steps=20, out=self(f"out{self.count}"))
        return [minigpt, "train", *words(**(defaults | flags))]

    def config(self, text):
        self.count += 1
        return self.train(config=self.write(f"config{self.count}.toml", text))


def expect(shop, name, command, code, *parts, reports=1, again=3):
    """Runs a command line; notes every way in which it does not end as it should. mpirun itself needs
    a second now and then to end the ranks after the first report, and others follow: then again."""
    begun = time.monotonic()
    problems = []
    with Run([str(word) for word in command], shop("stderr.txt")) as job:
        wait_until(lambda: job.process.poll() is not None, 60)
        took = time.monotonic() - begun
        got = job.process.poll()
        error = job.stderr()
        if not wait_until(lambda: not job.processes(), 1):
            problems.append("processes were left behind")
    if got != code:
        problems.append(f"exit code {got}, expected {code}")
    if took > seconds:
        problems.append(f"took {took:.1f} s")
    problems += [f"no `{part}` in the report" for part in parts if str(part) not in error]
    count = error.count("triax: error ")
    if count > reports and not problems and again > 0 and command[0] != minigpt:
        return expect(shop, name, command, code, *parts, reports=reports, again=again - 1)
    if count != reports:
        problems.append(f"{count} reports")
    if command[0] == minigpt and reports and len(error.splitlines()) > 12:
        problems.append("more than 12 lines")
    print(f"{'FAILED' if problems else 'ok'}  {name} ({took:.2f} s)", flush=True)
    if problems:
        failures.append(name)
        print("   ", "; ".join(problems), "\n   ", " ".join(map(str, command)), "\n" + error, flush=True)


def texts(shop):
    def case(name, file, code, *parts):
        expect(shop, name, shop.train(data=shop(file)), code, shop(file), *parts)

    case("no such text", "nowhere.txt", 66, "No such file")
    case("an empty text", "empty.txt", 65, "empty")
    case("a text that is a directory", "directory", 65, "directory")
    case("a text too short for a window", "short.txt", 65, "context 8 needs 9")
    case("bytes that are no UTF-8", "latin1.txt", 65, "byte 4", "UTF-8")
    case("a character cut off", "cut_off.txt", 65, "UTF-8")
    expect(shop, "nothing held out of a short text", shop.train(context=700, val_fraction=0.0001), 65,
           "held out", "--val-fraction 0")


def command_lines(shop):
    def case(name, code, *parts, **flags):
        expect(shop, name, shop.train(**flags), code, *parts)

    expect(shop, "no verb", [minigpt], 64, "Usage", reports=0)
    expect(shop, "unknown verb", [minigpt, "tran"], 64, "unknown verb tran", "train")
    case("unknown flag", 64, "unknown flag --widht", "nearest is --width", widht=3)
    expect(shop, "a word that is no flag", shop.train() + ["32"], 64, "`32` is no flag")
    expect(shop, "a flag without value", shop.train() + ["--seed"], 64, "--seed has no value")
    case("a word for a number", 64, "--steps: `many`", "whole number", steps="many")
    case("a number too large", 64, "--width", "expected", width=10**30)
    case("more replicas than ranks", 78, "dp 3", "mpirun -np 3", "--ranks 3", dp=3)
    case("a mesh that is not the threads", 78, "dp 3", "2 ranks", comm="threads", ranks=2, dp=3)
    case("a negative loss scale", 64, "--loss-scale: `-1`", "a number in [0, ", loss_scale=-1, precision="fp16")
    case("a loss scale that is no number", 64, "--loss-scale", "expected a number", loss_scale="nan")
    case("a word for offload", 64, "--offload: `optimizr`", "optimizer", offload="optimizr")
    case("a model that nothing can hold", 78, "parameters", width=2 * 10**9, heads=2)
    case("a model that this machine cannot hold", 71, "tensors", "--zero", width=2**20, heads=2)
    case("a vocabulary too small", 78, "vocab=3", "Valid: ", vocab=3)
    case("a GPU that is not there", 78, "cuda:63 asked for", device="cuda:63")


def configurations(shop):
    def case(name, text, code, *parts):
        expect(shop, name, shop.config(text), code, *parts)

    case("unknown key", "stepps = 3\n", 78, ".toml:1", "`stepps`", "nearest is `steps`")
    case("number for a text", "resume = 3\n", 78, ".toml:1", "resume")
    case("no TOML", "seed : 3\n", 78, ".toml:1")
    expect(shop, "no such configuration", shop.train(config=shop("no.toml")), 66, shop("no.toml"))
    expect(shop, "a configuration that is a directory", shop.train(config=shop("directory")), 65,
           shop("directory"))


def plans(shop):
    def case(name, code, *parts, **flags):
        defaults = dict(MODEL, data=shop("text.txt"), ranks=4, vocab=96)
        flags = {k: v for k, v in (defaults | flags).items() if v is not None and k not in ("dropout", "warmup", "val_every")}
        expect(shop, name, [minigpt, "plan", *words(**flags)], code, *parts)

    case("a plan for memory that nothing fits", 78, "nothing fits in 1 KB", "needs",
         "Most of it is parameters: try --zero 3, or more ranks.", memory="1KB")
    case("a plan for memory that nothing fits, with all that shards optimizers tried", 78,
         "Most of it is optimizer: try --offload optimizer, or more ranks.", memory="1KB", ranks=1)
    case("memory without a unit", 78, "memory `80`", "like 80GB", memory="80")
    case("memory in no unit", 78, "memory `80XB`", "like 80GB", memory="80XB")
    case("hardware that is not known", 78, "hardware `b300`", "h200", hardware="b300")
    case("a hardware file that is not there", 66, "none.toml", hardware=shop("none.toml"))
    case("many ranks without a vocabulary", 78, "--vocab is not given for 4096 ranks", "Add --vocab N or --data", ranks=4096,
         vocab=None, data=None)
    case("ranks that are no mesh", 78, "7 ranks with dp=open", "tp=3", ranks=7, tp=3)
    case("heads that tp does not divide", 78, "tp=4 does not divide heads=2", ranks=4, tp=4, heads=2)
    case("more stages than blocks", 78, "pp=64", "3 layers", "1 to 3", ranks=64, pp=64)
    calibrate = [minigpt, "calibrate", "--out"]
    expect(shop, "a hardware file that exists", [*calibrate, shop("text.txt")], 73, "exists", "another --out")
    expect(shop, "a hardware file in no directory", [*calibrate, shop("none/a.toml")], 73, "no directory", "another --out")


def offloads(shop):
    def case(name, directory, *parts, code=73, limit="", **flags):
        flags = dict(offload="params", zero=3, offload_dir=directory) | flags
        command = shop.train(**flags)
        if limit:
            command = limited(f"-f {limit}", command)
        expect(shop, name, command, code, f"offload: {directory}", *parts, "expected")

    case("offload into no directory", shop("nowhere"), "No such file", code=66)
    case("offload into a file", shop("file"), "Not a directory")
    case("offload where nobody can write", "/sys", "denied")
    two = dict(comm="threads", ranks=2)
    case("the same on two threads", shop("nowhere"), "No such file", code=66, **two)
    case("offload onto a full disk", shop.path, "room for", limit=32)
    case("the same on two threads", shop.path, "room for", limit=32, **two)
    expect(shop, "parity that offloads into no directory",
           [minigpt, "parity", "--offload", "optimizer", "--offload-dir", shop("nowhere")], 66, "No such file")


def outputs(shop):
    def case(name, *parts, code=73, **flags):
        expect(shop, name, shop.train(**flags), code, *parts)

    case("a file in the way of the run directory", shop("file"), "Not a directory", out=shop("file/run"))
    case("the run directory is a file", shop("file"), out=shop("file"))
    case("a run directory where nobody can write", "/proc/triax", out="/proc/triax")
    for flags in {}, dict(save_async=True), dict(save_async=True, comm="threads", ranks=2, zero=1):
        run = shop(f"no-room{len(flags)}")
        command = limited("-f 24", shop.train(out=run, save_every=2, **flags))
        expect(shop, f"a checkpoint onto a full disk {flags}", command, 73, f"{run}/step-", "File too large")
        if left := list(run.glob("step-*")):
            failures.append(f"a checkpoint that failed left {left}")
    case("metrics onto a full disk", "/dev/full", "No space left", metrics="/dev/full")
    case("metrics in no directory", shop("no/metrics"), "No such file", metrics=shop("no/metrics"))
    case("metrics onto a directory", shop("directory"), "Is a directory", metrics=shop("directory"))
    case("metrics onto the configuration", "keeps config.toml for itself", code=78, out=shop("kept"),
         metrics=shop("kept/config.toml"))
    case("the same on two threads", "/dev/full", "No space left", metrics="/dev/full",
         comm="threads", ranks=2)


def samples(shop):
    run = shop("trained")
    expect(shop, "training", shop.train(out=run), 0, reports=0)
    checkpoint = run / "step-20"

    def case(name, code, *parts, **flags):
        flags = dict(checkpoint=checkpoint, prompt="the ") | flags
        expect(shop, name, [minigpt, "sample", *words(**flags)], code, *parts, reports=int(code != 0))

    def copy(name):
        return pathlib.Path(shutil.copytree(checkpoint, shop(name)))

    case("sampling", 0)
    case("an unknown character", 65, "character", "not in the vocabulary", prompt="the Ω")
    case("a prompt that is no UTF-8", 64, "UTF-8", prompt=os.fsdecode(b"\xff\xfe"))
    case("no such checkpoint", 66, "nowhere", checkpoint=shop("nowhere"))
    case("a directory without checkpoint", 66, "directory", checkpoint=shop("directory"))
    case("an empty checkpoint", 64, "--checkpoint is empty; expected DIR", checkpoint="")
    cut = copy("cut")
    os.truncate(cut / "rank0.safetensors", 1000)
    case("a cut checkpoint", 65, cut, "damaged", "rank0.safetensors", checkpoint=cut)
    garbage = copy("garbage")
    (garbage / "manifest.json").write_text("{}")
    case("a manifest that is none", 65, garbage, "manifest.json", checkpoint=garbage)

    # The files beside the checkpoints are for people: no run depends on them.
    (run / "tokenizer.json").write_text("rubbish")
    (run / "config.toml").write_text("rubbish")
    case("sampling from a run with other files damaged", 0, checkpoint=run)
    expect(shop, "resuming it", shop.train(out=run, resume="auto", steps=24), 0, reports=0)
    case("sampling again", 0, checkpoint=run)
    if (run / "tokenizer.json").read_text() == "rubbish":
        failures.append("resuming wrote no new tokenizer.json")
    expect(shop, "resuming with another seed", shop.train(out=run, resume="auto", seed=2), 78,
           "seed 1", "asks for 2")


def under_mpirun(shop):
    def ranks(count, command):
        return mpirun(launcher, count) + [str(word) for word in command]

    def each(first, second):
        """A rank of its own for each command line."""
        return [*mpirun(launcher, 1), *map(str, first), ":", "-np", "1", *map(str, second)]

    both, files = dict(out=shop("both")), dict(offload="optimizer")
    expect(shop, "mpirun: a mesh that is not the ranks", ranks(2, shop.train(dp=3)), 78, "dp 3")
    expect(shop, "mpirun: unknown flag", ranks(2, shop.train(widht=3)), 64, "--widht")
    expect(shop, "mpirun: unknown key", ranks(3, shop.config("stepps = 3\n")), 78, "`stepps`")
    expect(shop, "mpirun: ranks that are threads", ranks(2, shop.train(comm="threads", ranks=2)), 78,
           "a launcher started 2 processes", "--comm threads")
    expect(shop, "mpirun: no such text", ranks(2, shop.train(data=shop("nowhere"))), 66, "nowhere")
    expect(shop, "mpirun: a file in the way", ranks(2, shop.train(out=shop("file/run"))), 73,
           "Not a directory")
    expect(shop, "mpirun: a full disk", ranks(2, shop.train(metrics="/dev/full")), 73, "/dev/full",
           "No space left")
    expect(shop, "mpirun: one rank has no directory to offload to",
           each(shop.train(**both, **files, offload_dir=shop.path),
                shop.train(**both, **files, offload_dir=shop("nowhere"))), 66, "nowhere")
    expect(shop, "mpirun: one rank lacks the text",
           each(shop.train(**both), shop.train(**both, data=shop("nowhere"))), 66, "nowhere")
    expect(shop, "mpirun: one rank has a bad flag",
           each(shop.train(**both), shop.train(**both, widht=3)), 64, "--widht")
    expect(shop, "mpirun: ranks disagree about the learning rate",
           each(shop.train(**both), shop.train(**both, lr=0.002)), 78,
           "rank 0: lr = 0.001", "rank 1: lr = 0.002")
    shop.write("other.txt", some_text()[::-1])
    expect(shop, "mpirun: ranks disagree about the text",
           each(shop.train(**both), shop.train(**both, data=shop("other.txt"))), 78, "rank 1: data = ")


with tempfile.TemporaryDirectory(prefix="triax-bad-") as path:
    workshop = Workshop(path)
    for group in (texts, command_lines, configurations, plans, offloads, outputs, samples):
        group(workshop)
    if launcher:
        under_mpirun(workshop)
if failures:
    sys.exit(f"{len(failures)} failed: " + "; ".join(failures))
