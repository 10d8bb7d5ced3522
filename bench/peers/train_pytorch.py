#!/usr/bin/env python3
"""Train the model of reference_gpt.py or, with --kv-heads and --hidden, of reference_llama.py in
PyTorch, with triax's flags and metrics file.

The work of a step is that of `minigpt train` and `triax-llama train`: one batch of random windows,
forward, backward, gradient norm and clipping, AdamW, and reading back loss and norm. bf16 and fp16
are autocast over float32 weights, fp16 with GradScaler. On a GPU nothing waits for a step before
the next one is queued, and seconds are those between CUDA events. On success the last line of
stdout is one JSON object of facts about PyTorch. --parallel trains on the processes of torchrun.
"""

import argparse
import json
import time
from collections import deque
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from minigpt_run import Sampler, Weight, read_weights
from reference_gpt import Config, Gpt, adamw
from reference_llama import Llama, LlamaConfig
from torch_parallel import Replicas

AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "heads", "width", "context", "vocab", "micro-batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--kv-heads", type=int, help="of a Llama")
    parser.add_argument("--hidden", type=int, help="features of its MLP")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true", help="torch.compile forward and loss")
    parser.add_argument("--compile-mode", default="default", help="torch.compile's mode")
    parser.add_argument("--narrow-residual", action="store_true", help="of a GPT, in --precision")
    parser.add_argument("--checkpoint", type=Path, help="of triax, to start from its weights")
    parser.add_argument("--same-order", action="store_true", help="of samples as in triax")
    parser.add_argument("--parallel", choices=("ddp", "fsdp"), help="on CPUs, started by torchrun")
    a = parser.parse_args()
    if a.parallel and a.device != "cpu":
        parser.error(f"--parallel {a.parallel}: runs over gloo on CPUs; got --device {a.device}")
    return a


def read_characters(path: Path, vocab: int) -> Tensor:
    """The text as ids of its characters, in order of code point."""
    text = path.read_text(encoding="utf-8")
    characters = sorted(set(text))
    if len(characters) > vocab:
        raise SystemExit(f"{path}: {len(characters)} distinct characters, but --vocab {vocab}")
    ids = {character: i for i, character in enumerate(characters)}
    return torch.tensor([ids[character] for character in text])


def resident_peak() -> int:
    """Bytes of VmHWM of this process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


class HostClock:
    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin


class GpuClock:
    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return begin.elapsed_time(end) / 1e3


class Step(NamedTuple):
    number: int
    begin: object  # of the clock
    end: object
    figures: Tensor  # [2] on the host, there once `end` is reached: loss, gradient norm


class Batches:
    """Random windows of the text, on the device. All processes draw the whole batch."""

    def __init__(self, a: argparse.Namespace, data: Tensor, replicas: Replicas):
        self.count, self.device = a.micro_batch * replicas.count, torch.device(a.device)
        self.mine = slice(a.micro_batch * replicas.rank, a.micro_batch * (replicas.rank + 1))
        self.samples, self.tokens = len(data) - a.context, self.count * a.context  # of a step
        self.data = data.to(self.device)
        self.window = torch.arange(a.context + 1, device=self.device)
        self.order = Sampler(self.samples, a.seed) if a.same_order else None

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets [batch, time] of this process in a step, from 1."""
        if self.order:
            first = (step - 1) * self.count
            starts = torch.tensor([self.order.at(first + i) for i in range(self.count)])
        else:
            starts = torch.randint(self.samples, (self.count,))
        starts = starts[self.mine]
        if self.device.type == "cuda":
            starts = starts.pin_memory()
        windows = self.data[starts.to(self.device, non_blocking=True)[:, None] + self.window]
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def build(a: argparse.Namespace) -> nn.Module:
    if a.kv_heads is None:
        residual = AUTOCAST.get(a.precision) if a.narrow_residual else None
        sizes = (a.layers, a.heads, a.width, a.context, a.vocab)
        return Gpt(Config(*sizes, dropout=a.dropout, residual=residual))
    names = ("layers", "heads", "kv_heads", "width", "hidden", "context", "vocab")
    return Llama(LlamaConfig(**{name: getattr(a, name) for name in names}))


def tensor(weight: Weight) -> Tensor:
    return torch.frombuffer(bytearray(weight.data), dtype=torch.float32).view(weight.shape)


def train(a: argparse.Namespace, data: Tensor, replicas: Replicas) -> None:
    on_gpu = a.device != "cpu"
    model = build(a)
    if a.checkpoint:
        model.load_state_dict({name: tensor(w) for name, w in read_weights(a.checkpoint).items()})
    model.to(a.device)
    loss_module = replicas.wrap(model, a.layers)
    optimizer = adamw(model, a.lr, a.weight_decay, fused=True)
    scaler = torch.amp.GradScaler("cuda" if on_gpu else "cpu", enabled=a.precision == "fp16")
    clock, delay = (GpuClock(), 1) if on_gpu else (HostClock(), 0)
    batches, waiting = Batches(a, data, replicas), deque()
    figures = torch.empty(a.steps, 2, pin_memory=on_gpu)  # item() would wait for all that is queued

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        narrow = AUTOCAST.get(a.precision)
        kind = "cuda" if on_gpu else "cpu"
        with torch.autocast(kind, narrow or torch.bfloat16, enabled=narrow is not None):
            return loss_module(inputs, targets)

    compute = torch.compile(loss_of, mode=a.compile_mode) if a.compile else loss_of
    with replicas.open_metrics(a.metrics) as metrics:
        begin = clock.now()
        for number in range(1, a.steps + 1):
            loss = compute(*batches.at(number))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = replicas.clip(model, a.clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            row = figures[number - 1]
            row.copy_(torch.stack((replicas.mean(loss), norm)), non_blocking=True)
            end = clock.now()
            waiting.append(Step(number, begin, end, row))
            if len(waiting) > delay:
                write(metrics, waiting.popleft(), clock, batches)
            begin = end if on_gpu else clock.now()
        while waiting:
            write(metrics, waiting.popleft(), clock, batches)


def write(metrics, step: Step, clock, batches: Batches) -> None:
    """One line; waits for the step."""
    seconds, tokens = clock.seconds(step.begin, step.end), batches.tokens
    loss, norm = step.figures.tolist()
    row = {"step": step.number, "loss": loss, "grad_norm": norm}
    row |= {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}
    if batches.device.type == "cuda":
        row["memory_bytes"] = torch.cuda.max_memory_allocated()
    metrics.write(json.dumps(row) + "\n")
    metrics.flush()


def main() -> None:
    a = parse_arguments()
    imported = resident_peak()
    torch.manual_seed(a.seed)
    if a.device != "cpu":
        torch.cuda.set_device(a.device)
        if a.precision != "fp32":
            torch.set_float32_matmul_precision("high")
    replicas = Replicas(a.parallel)
    train(a, read_characters(a.data, a.vocab), replicas)
    facts = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "rss_after_import": imported,
    }
    if a.device != "cpu":
        facts |= {
            "gpu": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "peak_allocated": torch.cuda.max_memory_allocated(),
            "peak_reserved": torch.cuda.max_memory_reserved(),
        }
    if replicas.rank == 0:
        print(json.dumps(facts))
    replicas.close()


if __name__ == "__main__":
    main()
