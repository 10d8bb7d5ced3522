"""device_map_test.py MINIGPT MPIRUN [gpus]: a device map changes where layers are and no loss; with `auto` a
model trains in memory that is too small for it; invalid maps end with the right exit code. With `gpus`
MINIGPT is the program whose GPUs are CPU threads. MPIRUN is not used."""

import json
import os
import pathlib
import sys
import tempfile

from minigpt_program import Run, Workshop, limited, records_of, words

minigpt, on_gpus = sys.argv[1], "gpus" in sys.argv
LAYERS = ["embedding", "block0", "block1", "block2", "head"]
MODEL = dict(layers=3, heads=2, width=16, context=8, micro_batch=1, global_batch=4, warmup=0, steps=3,
             val_fraction=0)
failures = []


class Mapping(Workshop):
    def map(self, places):
        path = self.path / "map.json"
        path.write_text(places if isinstance(places, str) else json.dumps(places))
        return path

    def train(self, run, limit=0, gpus=None, **flags):
        """(exit code, what it printed, losses and gradient norms). `limit`: bytes that it may write to."""
        flags = dict(MODEL, data=self.text, out=self.path / run) | flags
        command = [minigpt, "train", *words(**flags)]
        if limit:
            command = limited(f"-d {limit // 1024}", command)
        printed = self.path / f"{run}.txt"
        with Run(command, self.path / "stderr.txt", printed, **(gpus or {})) as job:
            code, error = job.finish(), job.stderr()
        rows = records_of(self.path / run) if (self.path / run / "metrics.jsonl").exists() else []
        return code, printed.read_text() + error, [(row["loss"], row["grad_norm"]) for row in rows if "loss" in row]


def expect(name, got, code, *parts):
    problems = [f"no `{part}`" for part in parts if part not in got[1]]
    if got[0] != code:
        problems.append(f"exit status {got[0]}, expected {code}")
    if problems:
        failures.append(f"{name}: {'; '.join(problems)}\n{got[1]}")


def same_losses(name, got, right, relative=0.0):
    alike = len(got) == len(right) and all(abs(a - b) <= relative * abs(b)
                                           for x, y in zip(got, right) for a, b in zip(x, y))
    if not alike or not right:
        failures.append(f"{name}: {got}, expected {right}")


def maps_change_no_loss(shop):
    right = shop.train("plain", zero=3)[2]
    for number, (places, shown) in enumerate([
            ({"": "disk"}, "disk    embedding block0 block1 block2 head\n"),
            ({"block1": "disk", "embedding": "disk", "": "cpu"}, "disk    block1\n  cpu     block2 head\n"),
            (dict(zip(LAYERS, ["cpu", "disk", "disk", "cpu", "disk"])), "disk    block0 block1\n")]):
        for precision in ["fp32", "bf16"] if number == 1 else ["fp32"]:
            same = right if precision == "fp32" else shop.train("plain16", zero=3, precision=precision)[2]
            got = shop.train(f"map{number}{precision}", device_map=shop.map(places), offload_dir=shop.files,
                             precision=precision, recompute="block" if number == 2 else "off")
            expect(f"map {number}", got, 0, shown)
            same_losses(f"map {number} in {precision}", got[2], same)
    right = shop.train("whole")[2]  # where nothing is elsewhere, nothing is gathered
    for name, place in (("auto", "auto"), ("all", shop.map({"": "cpu"}))):
        got = shop.train(name, device_map=place, offload_dir=shop.files)
        expect(name, got, 0, "cpu     " + " ".join(LAYERS))
        same_losses(name, got[2], right)


def little_memory(shop):
    """10 million parameters, 161 MB with gradients and optimizer state."""
    if os.environ.get("TRIAX_SANITIZED"):
        return
    model = dict(layers=12, heads=8, width=264, steps=2, comm="threads")
    limit = 150 * 1000 * 1000
    expect("too little memory", shop.train("small", limit=limit, **model), 71, "memory: no ")
    got = shop.train("none", limit=limit // 2, device_map="auto", offload_dir=shop.files, **model)
    expect("auto in no memory", got, 71, "device map: with all layers elsewhere")
    got = shop.train("little", limit=limit, device_map="auto", offload_dir=shop.files, **model)
    expect("auto in little memory", got, 0, "cpu     embedding", "disk ")
    same_losses("auto in little memory", got[2], shop.train("much", zero=3, **model)[2])


def mistakes(shop):
    def case(name, places, code, *parts, **flags):
        place = shop.map(places) if places else "auto"
        expect(name, shop.train("wrong", device_map=flags.pop("device_map", place), **flags), code, *parts)

    case("a layer that is misspelt", {"": "cpu", "blok1": "cpu"}, 78, "no layer `blok1`; the nearest is `block1`",
         "Layers: embedding, block0, block1, block2, head.")
    case("layers without a place", {"block0": "cpu"}, 78, "no place for layer embedding, block1, block2, head")
    case("a place that is none", {"": "dsk"}, 65, '"" of the map is `dsk`; expected the number of a GPU, cuda:0')
    case("a GPU without its number", {"": "cuda"}, 65, "`cuda`; expected the number of a GPU, cuda:0")
    case("a place that is half", {"": 1.5}, 65, "is not a number")
    case("no JSON", "block0: cpu", 65, "does not start with an open brace")
    case("a layer twice", '{"": "cpu", "head": "cpu", "head": "cpu"}', 65, "head is given twice")
    case("no such file", None, 66, "nowhere.json", device_map=shop.path / "nowhere.json")
    case("no directory for files", {"": "disk"}, 78, "layer embedding is on disk", "--offload-dir DIR")
    case("stages beside a map", {"": "cpu"}, 78, "device-map with", pp=3)
    case("offload beside a map", {"": "cpu"}, 78, "device-map with", zero=3, offload="params")
    case("chunks beside a map", {"": "cpu"}, 78, "schedule=interleaved", schedule="interleaved")
    case("an average beside offloaded layers", {"": "disk"}, 78, "device-map with average", average=0.9,
         offload_dir=shop.files)
    case("a transport beside a map", {"": "cpu"}, 78, "device-map with comm=mpi", comm="mpi")
    case("ZeRO beside a map", {"": "cpu"}, 78, "device-map with zero=1", zero=1)
    case("one GPU of several", {"": "cpu"}, 78, "device=cuda:1", device="cuda:1")
    if not on_gpus:
        case("a GPU that is not there", {"": 0}, 78, "a layer is on GPU 0; this process sees none")


def gpus(shop):
    def of(count, memory):
        return dict(GPU_ON_CPU_DEVICES=str(count), GPU_ON_CPU_MEMORY=str(memory))

    right = shop.train("cpu")[2]
    two = of(2, 1 << 30)
    places = dict(zip(LAYERS, [0, 0, "cpu", 1, "cpu"]))
    got = shop.train("two", gpus=two, device_map=shop.map(places))
    expect("two GPUs and the host", got, 0, "pp 2", "cuda:0  embedding block0\n  cpu     block1\n  cuda:1  block2")
    same_losses("two GPUs and the host", got[2], right, 1e-5)
    got = shop.train("disk", gpus=two, device_map=shop.map({"": 0, "block1": "disk"}), offload_dir=shop.files)
    expect("a GPU and files", got, 0, "disk    block1")
    same_losses("a GPU and files", got[2], right, 1e-5)

    model = dict(layers=6, width=128, global_batch=2, micro_batch=1)
    small = of(2, 50 << 20)  # 4.8 MB of weights, 19 MB of all
    expect("too small a GPU", shop.train("small", gpus=of(1, 12 << 20), device="cuda", **model), 71, "cuda:0 has")
    got = shop.train("auto", gpus=of(2, 50 << 20), device="cuda", device_map="auto", **model)
    expect("auto on two GPUs", got, 0, "cuda:0  embedding", "cuda:1  ", "cpu     ")
    same_losses("auto on two GPUs", got[2], shop.train("cpu6", **model)[2], 1e-5)
    expect("more GPUs than there are", shop.train("more", gpus=of(1, 1 << 30), device_map=shop.map({"": 0, "head": 1})),
           78, "a layer is on GPU 1; this process sees GPU 0")
    expect("GPUs in another order", shop.train("order", gpus=small, device_map=shop.map({"": 1, "head": 0})), 78,
           "layers on GPU 1 follow those on GPU 0; expected GPUs from 0 in the order")


with tempfile.TemporaryDirectory(prefix="triax-device-map-") as name:
    workshop = Mapping(name)
    for group in (gpus, mistakes) if on_gpus else (maps_change_no_loss, little_memory, mistakes):
        group(workshop)
print("\n".join(failures) or "all as expected")
sys.exit(bool(failures))
