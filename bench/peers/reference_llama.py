"""The model of triax's llama in PyTorch, with the same parameter names.

Pre-norm blocks of Llama 2 (Touvron et al. 2023): RMS norm, rotary positions, grouped-query causal
attention, SwiGLU MLP; the head is not tied to the token embedding, and nothing has a bias:

    tokens.table [vocab, width]    head.table [vocab, width]    norm.gamma [width]
    block{i}.norm1.gamma [width]   block{i}.norm2.gamma [width]
    block{i}.qkv.weight [(heads + 2 * kv_heads) * head_dim, width]
    block{i}.out.weight [width, width]
    block{i}.gate_up.weight [2 * hidden, width]
    block{i}.down.weight [width, hidden]

Output features are ordered as is fastest in PyTorch: those of qkv are all queries, all keys, all
values, and those of gate_up first gate, then up. load_state_dict takes the weights in triax's
order, [kv_heads, queries of the group, key, value] and gate 0, up 0, gate 1, up 1, ...
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference_gpt import Embedding, Gpt, Linear


@dataclass(frozen=True)
class LlamaConfig:
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    context: int
    vocab: int


class RmsNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.gamma, 1e-5)


class Rotary(nn.Module):
    """Turns feature i of a head with i + head_dim / 2 by position * 10000^(-2 i / head_dim)."""

    def __init__(self, context: int, head_dim: int):
        super().__init__()
        turns = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angles = torch.outer(torch.arange(context), turns)[:, None]  # [context, 1, head_dim / 2]
        cos, sin = angles.cos().float(), angles.sin().float()
        self.register_buffer("cos", torch.cat((cos, cos), -1), persistent=False)
        self.register_buffer("sin", torch.cat((-sin, sin), -1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # [batch, time, heads, head_dim]
        cos, sin = (t[: x.shape[1]].to(x.dtype) for t in (self.cos, self.sin))
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


class Block(nn.Module):
    def __init__(self, c: LlamaConfig):
        super().__init__()
        self.head_dim = c.width // c.heads
        self.split = [c.heads + c.kv_heads, c.kv_heads]  # what is turned, and values
        self.heads = [c.heads, c.kv_heads]
        residual_std = 0.02 / math.sqrt(2 * c.layers)
        self.rotary = Rotary(c.context, self.head_dim)
        self.norm1 = RmsNorm(c.width)
        self.qkv = Linear(c.width, (c.heads + 2 * c.kv_heads) * self.head_dim, bias=False)
        self.out = Linear(c.width, c.width, residual_std, bias=False)
        self.norm2 = RmsNorm(c.width)
        self.gate_up = Linear(c.width, 2 * c.hidden, bias=False)
        self.down = Linear(c.hidden, c.width, residual_std, bias=False)
        self.register_load_state_dict_pre_hook(reorder)

    def forward(self, x: Tensor) -> Tensor:  # [batch, time, width]
        x = x + self.out(self.attention(self.qkv(self.norm1(x))))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def attention(self, qkv: Tensor) -> Tensor:
        turned, v = qkv.unflatten(-1, (-1, self.head_dim)).split(self.split, 2)
        q, k = self.rotary(turned).split(self.heads, 2)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [batch, heads, time, head_dim]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return y.transpose(1, 2).flatten(2)


def reorder(block: Block, weights: dict[str, Tensor], prefix: str, *_) -> None:
    """The rows of qkv and gate_up from triax's order into that of this model."""
    qkv, gate_up = prefix + "qkv.weight", prefix + "gate_up.weight"
    heads, kv_heads = block.heads
    grouped = weights[qkv].unflatten(0, (kv_heads, -1, block.head_dim))
    parts = grouped.split([heads // kv_heads, 1, 1], 1)
    weights[qkv] = torch.cat([part.flatten(0, 2) for part in parts])
    weights[gate_up] = weights[gate_up].unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1)


class Llama(nn.Module):
    """`forward(ids [batch, time])` gives logits [batch, time, vocab]."""

    def __init__(self, c: LlamaConfig):
        super().__init__()
        self.tokens = Embedding(c.vocab, c.width)
        for i in range(c.layers):
            self.add_module(f"block{i}", Block(c))
        self.norm = RmsNorm(c.width)
        self.head = Embedding(c.vocab, c.width)
        self.layers = c.layers

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for i in range(self.layers):
            x = self.get_submodule(f"block{i}")(x)
        return F.linear(self.norm(x), self.head.table)

    loss = Gpt.loss
