#!/usr/bin/env python3
"""Train ResNet-18 for images of 32 x 32 pixels in PyTorch: the model, optimizer and metrics file of
`triax-resnet train`.

The images are random numbers: they cost nothing to make, and a step takes as long as on others.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train_pytorch import resident_peak


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile forward and loss")
    return parser.parse_args()


class ConvNorm(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = ConvNorm(inputs, outputs, stride=stride)
        self.second = ConvNorm(outputs, outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else ConvNorm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x), inplace=True))
        return F.relu(y + self.shortcut(x), inplace=True)


def resnet(width: int, classes: int = 10) -> nn.Sequential:
    layers, inputs = [ConvNorm(3, width), nn.ReLU(inplace=True)], width
    for stage in range(4):
        for block in range(2):
            outputs = width << stage
            layers.append(Block(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def main() -> None:
    a = parse_arguments()
    torch.manual_seed(1)
    model, images = resnet(a.width), torch.randn(a.micro_batch, 3, 32, 32)
    labels = torch.randint(10, (a.micro_batch,))
    if a.channels_last:
        model, images = (x.to(memory_format=torch.channels_last) for x in (model, images))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True
    )

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels)

    compute = torch.compile(loss_of) if a.compile else loss_of
    with a.metrics.open("w") as metrics:
        for step in range(1, a.steps + 1):
            begin = time.perf_counter()
            loss = compute(images, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), torch.inf)  # triax logs the norm, too
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            row = {"step": step, "loss": loss.item(), "images": a.micro_batch}
            row["seconds"] = time.perf_counter() - begin
            metrics.write(json.dumps(row) + "\n")
    print(json.dumps({"torch": torch.__version__, "rss": resident_peak()}))


if __name__ == "__main__":
    main()
