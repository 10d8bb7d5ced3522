"""Data parallelism of train_pytorch.py over the processes that torchrun starts: DDP or FSDP2, gloo.

FSDP2 is imported only where it is used: the memory of PyTorch in one process is measured too.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Loss(nn.Module):
    """The model's loss as a forward pass, which DDP's hooks need."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(inputs, targets)


class Replicas:
    """The processes of one job and how they share a model: "ddp", "fsdp", or none for one process.
    Each computes a part of every batch."""

    def __init__(self, kind: str | None):
        self.kind, self.rank, self.count = kind, 0, 1
        if kind:
            dist.init_process_group("gloo")  # rank and count from torchrun's environment
            self.rank, self.count = dist.get_rank(), dist.get_world_size()

    def wrap(self, model: nn.Module, blocks: int) -> nn.Module:
        """A module of the mean loss over this process's inputs and targets, whose backward leaves
        gradients of the mean over all. FSDP2 shards the parameters of `model`."""
        if self.kind == "ddp":
            return nn.parallel.DistributedDataParallel(Loss(model), gradient_as_bucket_view=True)
        if self.kind == "fsdp":
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard

            mesh = init_device_mesh("cpu", (self.count,))
            for i in range(blocks):
                fully_shard(model.get_submodule(f"block{i}"), mesh=mesh)
            fully_shard(model, mesh=mesh)
        return Loss(model)

    def mean(self, loss: Tensor) -> Tensor:
        if self.count == 1:
            return loss.detach()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total / self.count

    def clip(self, model: nn.Module, limit: float) -> Tensor:
        """Returns the norm of the gradient over all processes before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        return norm.full_tensor() if self.kind == "fsdp" else norm

    def open_metrics(self, path: os.PathLike):
        """The first process writes them."""
        return open(path if self.rank == 0 else os.devnull, "w")

    def close(self) -> None:
        """Ends the process where there are several. PyTorch 2.15 sometimes aborts in its destructors
        after FSDP2 over gloo ("terminate called without an active exception")."""
        if self.kind:
            dist.barrier()
            sys.stdout.flush()
            os._exit(0)
