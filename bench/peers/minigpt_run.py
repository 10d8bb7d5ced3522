"""What a run of minigpt leaves and how it goes through its data, for other trainers to start from
the same weights and see the same batches."""

import json
from pathlib import Path
from typing import NamedTuple

MASK = (1 << 64) - 1


class Weight(NamedTuple):
    shape: list[int]
    data: bytes  # f32


def read_weights(checkpoint: Path) -> dict[str, Weight]:
    """The weights of a checkpoint of one rank by name: the f32 masters where there are such."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    files = [checkpoint / file["name"] for file in manifest["files"]]
    tensors, weights = manifest["tensors"], {}
    for name in (name for name in tensors if "@" not in name):
        entry = tensors.get(name + "@master", tensors[name])
        if len(entry["parts"]) != 1 or entry["dtype"] != "f32":
            raise ValueError(f"{checkpoint}: {name}: not one f32 part; expected a run of one rank")
        part = entry["parts"][0]
        data = read_tensor(files[part["file"]], part["tensor"])
        weights[name] = Weight(entry["shape"], data)
    return weights


def read_tensor(path: Path, name: str) -> bytes:
    """Of a safetensors file: 8 bytes of length, a JSON header, then the tensors' bytes."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(header_bytes))[name]
        begin, end = entry["data_offsets"]
        file.seek(8 + header_bytes + begin)
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}; expected F32")
        return file.read(end - begin)


def philox_x(key: int, row: int, column: int) -> int:
    """The first word of core/random.h's philox."""
    x, y, z, w = row & 0xFFFFFFFF, row >> 32, column & 0xFFFFFFFF, column >> 32
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * x, 0xCD9E8D57 * z
        x, y, z, w = (b >> 32) ^ y ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ w ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x


def random_key(seed: int, name: str) -> int:
    """core/random.h's key."""
    h = 14695981039346656037 ^ (seed * 0x9E3779B97F4A7C15 & MASK)
    for byte in name.encode():
        h = (h ^ byte) * 1099511628211 & MASK
    return h


class Sampler:
    """The order of samples of parallel/data/sampler.h."""

    def __init__(self, size: int, seed: int):
        self.size, self.key, self.half_bits = size, random_key(seed, "sampler"), 1
        while 1 << (2 * self.half_bits) < size:
            self.half_bits += 1

    def permuted(self, x: int, epoch: int) -> int:
        mask = (1 << self.half_bits) - 1
        left, right = x >> self.half_bits, x & mask
        for i in range(8):
            left, right = right, left ^ (philox_x(self.key, epoch, i << 32 | right) & mask)
        return left << self.half_bits | right

    def at(self, consumed: int) -> int:
        epoch, x = divmod(consumed, self.size)
        x = self.permuted(x, epoch)
        while x >= self.size:
            x = self.permuted(x, epoch)
        return x
