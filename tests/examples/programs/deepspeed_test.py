"""deepspeed_test.py MINIGPT MPIRUN: DeepSpeed's JSON trains as the flags that it stands for do, on threads and
under mpirun, and what cannot be is refused. MPIRUN may be empty."""

import pathlib
import subprocess
import sys
import tempfile

from minigpt_program import MODEL, RANKS_SHARING_CORES, metrics, mpirun, some_text, words

minigpt, launcher = sys.argv[1], sys.argv[2]
failures = []

JSON = """{
    "fp16": { "enabled": "auto", // true
              "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
              "hysteresis": 2, "min_loss_scale": 1 },
    "optimizer": { "type": "AdamW",
                   "params": { "lr": 3e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7 } },
    "scheduler": { "type": "WarmupLR",
                   "params": { "warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": 3 } },
    "zero_optimization": { "stage": 2, "allgather_bucket_size": 2e8, "overlap_comm": true,
                           "offload_optimizer": { "device": "cpu", "pin_memory": true } },
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.5,
    "steps_per_print": 2000,
    "train_micro_batch_size_per_gpu": 2,
    "wall_clock_breakdown": false
}
"""
FLAGS = dict(lr=3e-3, beta1=0.8, beta2=0.999, eps=1e-8, weight_decay=3e-7, lr_schedule="constant", warmup=3,
             warmup_shape="log", zero=2, offload="optimizer", clip=0.5, micro_batch=2, global_batch=8)


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=60,
                          env=RANKS_SHARING_CORES)


def expect(name, ok, said=""):
    print(f"{'ok' if ok else 'FAILED'}  {name}", flush=True)
    if not ok:
        failures.append(name)
        print(said, flush=True)


def tests(path):
    (path / "text.txt").write_text(some_text())
    (path / "ds.json").write_text(JSON)
    model = {k: v for k, v in MODEL.items() if k not in ("micro_batch", "global_batch", "warmup")}
    common = words(**model, data=path / "text.txt", steps=6)
    threads = words(comm="threads", ranks=2)

    def train(out, *flags):
        return run(minigpt, "train", *common, "--out", path / out, *flags)

    done = train("json", *threads, "--deepspeed", path / "ds.json")
    expect("the JSON trains", done.returncode == 0, done.stderr)
    for part in ("sets ", "leaves to flags: ", "steps_per_print", "pin_memory", "wall_clock_breakdown"):
        expect(f"it says {part}", part in done.stdout, done.stdout)
    train("flags", *threads, *words(**FLAGS))
    expect("as the flags do", metrics(path / "json") == metrics(path / "flags"))
    configs = [(path / out / "config.toml").read_text() for out in ("json", "flags")]
    expect("config.toml is that of the flags", configs[0] == configs[1], "\n".join(configs))
    run(minigpt, "train", "--config", path / "json/config.toml", "--out", path / "again")
    expect("config.toml repeats the run", metrics(path / "json") == metrics(path / "again"))

    (path / "low.toml").write_text("clip = 3.0\nseed = 7\n")
    train("order", *threads, "--config", path / "low.toml", "--deepspeed", path / "ds.json", "--beta2", 0.9)
    order = (path / "order/config.toml").read_text()
    for line in "clip = 0.5", "seed = 7", "beta2 = 0.9\n", "beta1 = 0.8":
        expect(f"flags over JSON over --config: {line.strip()}", line in order, order)

    for name, file, code, part in [("TOML for JSON", "low.toml", 78, "TOML is read by --config FILE"),
                                   ("no such file", "no.json", 66, "no.json")]:
        done = train("none", *threads, "--deepspeed", path / file)
        expect(name, done.returncode == code and part in done.stderr, done.stderr)

    if launcher:
        done = run(*mpirun(launcher, 2), minigpt, "train", *common, "--out", path / "mpi",
                   "--deepspeed", path / "ds.json")
        expect("the same under mpirun", done.returncode == 0 and
               metrics(path / "mpi") == metrics(path / "flags"), done.stderr)
    torchrun = ["env", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0"]
    done = run(*torchrun, minigpt, "train", *common, "--out", path / "none")
    expect("torchrun is refused", done.returncode == 78 and "mpirun -np 2" in done.stderr, done.stderr)
    done = run(*torchrun, minigpt, "train", *common, "--out", path / "none", *threads)
    expect("threads of it too", done.returncode == 78 and not (path / "none").exists(), done.stderr)
    other = ["env", "RANK=1", "WORLD_SIZE=2"]
    done = run(*other, "LOCAL_RANK=1", minigpt, "train", *common, "--out", path / "none")
    expect("its other ranks are silent", done.returncode == 78 and done.stderr == "", done.stderr)
    for pod in [], ["LOCAL_RANK=0"]:
        done = run(*other, *pod, minigpt, "train", *common, "--out", path / "none")
        expect(f"a pod of its own has the message {pod}", done.returncode == 78 and
               done.stderr.count("mpirun -np 2") == 1, done.stderr)
    second = [*other, "LOCAL_RANK=0", minigpt]
    done = run(*second, "plan", "--rank", "2")
    expect("of other mistakes nobody else tells", done.returncode == 64 and "--rank" in done.stderr and
           "on rank" not in done.stderr, done.stderr)
    done = run(*second, "--help")
    expect("a pod has help", done.returncode == 0 and "Usage: minigpt" in done.stdout, done.stderr)
    done = run("env", "WORLD_SIZE=2", minigpt, "train", *common, "--out", path / "alone", *words(micro_batch=2))
    expect("one variable is no launcher", done.returncode == 0, done.stderr)
    if launcher:
        done = run(*torchrun, *mpirun(launcher, 2), minigpt, "train", *common, "--out", path / "both",
                   "--deepspeed", path / "ds.json")
        expect("mpirun counts where both are", done.returncode == 0 and
               metrics(path / "both") == metrics(path / "flags"), done.stderr)


with tempfile.TemporaryDirectory() as folder:
    tests(pathlib.Path(folder))
print(f"{len(failures)} failures", failures or "")
sys.exit(1 if failures else 0)
