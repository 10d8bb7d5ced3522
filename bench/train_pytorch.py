#!/usr/bin/env python3
"""Train the model of reference_gpt.py in PyTorch, with minigpt's flags and minigpt's metrics file.

The work of a step is that of `minigpt train`: one batch of random windows, forward, backward,
gradient norm and clipping, AdamW, and reading back loss and norm. bf16 is autocast over float32
weights. On success the last line of stdout is one JSON object of facts about PyTorch.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from reference_gpt import Config, Gpt, adamw


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "heads", "width", "context", "vocab", "micro-batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true", help="torch.compile forward and loss")
    return parser.parse_args()


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


def train(a: argparse.Namespace, data: Tensor) -> None:
    config = Config(a.layers, a.heads, a.width, a.context, a.vocab, a.dropout)
    model = Gpt(config)
    optimizer = adamw(model, a.lr, a.weight_decay, fused=True)

    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            return model.loss(inputs, targets)

    compute = torch.compile(loss_of) if a.compile else loss_of
    tokens = a.micro_batch * a.context
    with a.metrics.open("w") as metrics:
        for step in range(1, a.steps + 1):
            begin = time.perf_counter()
            starts = torch.randint(len(data) - a.context, (a.micro_batch,)).tolist()
            windows = torch.stack([data[s : s + a.context + 1] for s in starts])
            loss = compute(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            row = {"step": step, "loss": loss.item(), "grad_norm": norm.item()}
            seconds = time.perf_counter() - begin
            row |= {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}
            metrics.write(json.dumps(row) + "\n")


def main() -> None:
    a = parse_arguments()
    imported = resident_peak()
    torch.manual_seed(a.seed)
    train(a, read_characters(a.data, a.vocab))
    facts = {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "rss_after_import": imported,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
