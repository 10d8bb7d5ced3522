"""The GPT-2-shaped model of triax's minigpt, in PyTorch, with the same parameter names.

Token and position embedding, pre-norm blocks (layer norm, packed qkv, causal attention, projection,
tanh-form GELU MLP), final layer norm, head tied to the token embedding without a bias
(Radford et al. 2019). Weights can be exchanged with triax by name:

    tokens.table [vocab, width]             positions.table [context, width]
    block{i}.norm1.gamma/.beta [width]      block{i}.norm2.gamma/.beta [width]
    block{i}.qkv.weight [3 * width, width]  block{i}.qkv.bias [3 * width]
    block{i}.proj.weight [width, width]     block{i}.proj.bias [width]
    block{i}.up.weight [4 * width, width]   block{i}.up.bias [4 * width]
    block{i}.down.weight [width, 4 * width] block{i}.down.bias [width]
    final_norm.gamma/.beta [width]

The output features of qkv are head-major, [heads, 3, head_dim]: for each head query, key, value.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    layers: int
    heads: int
    width: int
    context: int
    vocab: int
    dropout: float = 0.0
    residual: torch.dtype | None = None  # of the residual stream; None: as autocast leaves it, float32


class Embedding(nn.Module):
    def __init__(self, rows: int, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.empty(rows, width).normal_(std=0.02))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)


class LayerNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.gamma, self.beta, 1e-5)


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int, std: float = 0.02, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(std=std))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.heads, self.dropout = c.heads, c.dropout
        residual_std = 0.02 / math.sqrt(2 * c.layers)
        self.norm1 = LayerNorm(c.width)
        self.qkv = Linear(c.width, 3 * c.width)
        self.proj = Linear(c.width, c.width, residual_std)
        self.norm2 = LayerNorm(c.width)
        self.up = Linear(c.width, 4 * c.width)
        self.down = Linear(4 * c.width, c.width, residual_std)

    def forward(self, x: Tensor) -> Tensor:  # [batch, time, width]
        x = x + self.drop(self.proj(self.attention(self.qkv(self.norm1(x)))))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))

    def attention(self, qkv: Tensor) -> Tensor:
        batch, time, packed = qkv.shape
        # [batch, time, heads, 3, head_dim] -> three of [batch, heads, time, head_dim]
        q, k, v = qkv.view(batch, time, self.heads, 3, -1).transpose(1, 2).unbind(3)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        return y.transpose(1, 2).reshape(batch, time, packed // 3)

    def drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Gpt(nn.Module):
    """`forward(ids [batch, time])` gives logits [batch, time, vocab]."""

    def __init__(self, c: Config):
        super().__init__()
        if c.width % c.heads:
            raise ValueError(f"Gpt: width {c.width} is not a multiple of {c.heads} heads")
        self.config = c
        self.tokens = Embedding(c.vocab, c.width)
        self.positions = Embedding(c.context, c.width)
        for i in range(c.layers):
            self.add_module(f"block{i}", Block(c))
        self.final_norm = LayerNorm(c.width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.table[: ids.shape[1]]
        if self.config.dropout:
            x = F.dropout(x, self.config.dropout, self.training)
        x = x.to(self.config.residual or x.dtype)
        for i in range(self.config.layers):
            x = self.get_submodule(f"block{i}")(x)
        return F.linear(self.final_norm(x), self.tokens.table)

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of targets [batch, time]."""
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


def adamw(model: nn.Module, lr: float, weight_decay: float = 0.1, **options) -> torch.optim.AdamW:
    """AdamW that decays matrices (embeddings among them) and leaves vectors alone."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, **options)
