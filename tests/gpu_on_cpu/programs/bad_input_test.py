"""bad_input_test.py MINIGPT MPIRUN: what a user of GPUs gets wrong ends with the right code and one report
that says what, where and what to do.

MINIGPT is the one with GPUs made of CPU threads: GPU_ON_CPU_DEVICES of them with GPU_ON_CPU_MEMORY bytes
each. MPIRUN may be empty: then ranks are threads only."""

import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/programs"))
from minigpt_program import MODEL, Run, mpirun, some_text, wait_until, words  # noqa: E402

minigpt, launcher = sys.argv[1], sys.argv[2]
failures = []
SMALL = dict(steps=2, warmup=0, val_fraction=0)
del MODEL["val_every"]


def expect(folder, name, gpus, flags, code, *parts, ranks=0, on_rank_1="", again=3):
    """With these GPUs in the environment, the program ends with `code` and one report that holds `parts`. mpirun needs a
    second now and then to end the ranks after the first report, and others follow: then again. `on_rank_1`: what the
    environment of that rank has too."""
    defaults = dict(MODEL, data=folder / "text.txt", out=folder / f"out {name}", device="cuda")
    command = [minigpt, "train", *words(**(defaults | SMALL | flags))]
    if on_rank_1:
        command = ["sh", "-c", f'[ $OMPI_COMM_WORLD_RANK = 1 ] && export {on_rank_1}; exec "$0" "$@"', *command]
    if ranks:
        command = mpirun(launcher, ranks) + command
    problems = []
    with Run([str(word) for word in command], folder / "stderr.txt", **gpus) as job:
        wait_until(lambda: job.process.poll() is not None, 60)
        got, error = job.process.poll(), job.stderr()
    if got != code:
        problems.append(f"exit status {got}, expected {code}")
    problems += [f"no `{part}`" for part in parts if part not in error]
    reports = len(re.findall("^triax: error", error, re.M))
    if ranks and reports > 1 and not problems and again > 0:
        return expect(folder, name, gpus, flags, code, *parts, ranks=ranks, on_rank_1=on_rank_1, again=again - 1)
    if reports != (code != 0):
        problems.append(f"{reports} reports")
    if problems:
        failures.append(f"{name}: {'; '.join(problems)}\n{error}")


def everything(folder):
    def case(name, gpus, flags, *rest, **more):
        memory = gpus.get("memory", 1 << 30)
        environment = dict(GPU_ON_CPU_DEVICES=str(gpus.get("count", 1)), GPU_ON_CPU_MEMORY=str(memory),
                           GPU_ON_CPU_DRIVER=str(gpus.get("driver", 13000)))
        expect(folder, name, environment, flags, *rest, **more)

    two = dict(comm="threads", ranks=2)
    case("one GPU is enough", {}, {}, 0)
    case("no GPU", dict(count=0), {}, 78, "cuda:0 asked for, but no GPU was found")
    case("an old driver", dict(driver=12040), {}, 78, "the driver is one for CUDA 12.4", "CUDA 13.0", "580 or later")
    case("an index too large", dict(count=2), dict(device="cuda:2"), 78, "cuda:2 asked for", "2 GPUs, numbered from 0")
    case("a head too wide", {}, dict(heads=1, width=257), 78, "head size 257", "at most 256")
    case("threads that are to use NCCL", {}, dict(comm="nccl", ranks=2), 78, "ranks=2 with comm=nccl", "--comm threads")
    case("a graph of ranks that share a GPU", {}, dict(two, graph=True), 78, "graph with 2 ranks", "--comm nccl")
    case("a graph with ZeRO-3", {}, dict(two, graph=True, zero=3), 78, "graph", "zero")
    case("a graph with offload", {}, dict(graph=True, offload="optimizer"), 78, "graph", "offload")
    case("a graph with stages", {}, dict(two, graph=True, pp=2, layers=2), 78, "graph", "pp")
    case("more than the GPU holds", dict(memory=1 << 20), dict(width=256), 71, "a rank holds", "cuda:0 has 1.05 MB free",
         "--micro-batch")
    case("more than it holds for two", dict(memory=5 << 20), dict(two, device="cuda:0", width=128), 71,
         "2 ranks hold", "--zero 3")
    case("more than one of two holds for four", dict(memory=5 << 20, count=2), dict(two, ranks=4, width=128), 71,
         "2 ranks hold", "cuda:0 has")
    # What kernels need beside tensors is not foreseen: then there is a table of who holds what.
    case("no room for a workspace", dict(memory=3_420_000), dict(width=128), 71, "memory: no", "bytes left on the GPU",
         "parameters  ", "gradients  ", "optimizer  ", "--micro-batch")
    if launcher:
        case("more ranks than GPUs with NCCL", {}, dict(comm="nccl"), 78, "ranks 0 and 1 have the same GPU",
             "--comm mpi", ranks=2)
        # Every rank has a GPU of its own, but one has an NCCL that is too old, or another than the first: all decide alike.
        old = "nccl: version 2.18.3 was found; 2.26 or later is needed (rank 1 on host "
        for name, flags, parts in [("auto", {}, [old, "far slower", "--comm mpi"]), ("nccl", dict(comm="nccl"), [old])]:
            case(f"an old NCCL on one rank, {name}", dict(count=2), flags, 78, *parts, ranks=2,
                 on_rank_1="GPU_ON_CPU_NCCL=21803")
        case("another NCCL on one rank", dict(count=2), {}, 78, "nccl: rank 0 on host ", "has 2.26.2; all ranks need the same",
             ranks=2, on_rank_1="GPU_ON_CPU_NCCL=22602")
        case("an old NCCL is not asked", dict(count=2), dict(comm="mpi"), 0, ranks=2, on_rank_1="GPU_ON_CPU_NCCL=21803")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="triax-gpu-") as name:
        path = pathlib.Path(name)
        (path / "text.txt").write_text(some_text())
        everything(path)
    print("\n".join(failures) or "all as expected")
    sys.exit(bool(failures))
