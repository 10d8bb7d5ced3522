"""Writes safetensors_from_python.safetensors, which tests/nn/state_test.cpp reads; or, given a
FILE that triax wrote, checks that it holds the same.

    python tests/reference/safetensors_from_python.py [FILE]
"""
import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TENSORS = {
    f"{name}.{kind}": tensor.to(dtype)
    for kind, dtype in {
        "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
        "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8,
    }.items()
    for name, tensor in {
        "matrix": torch.arange(6).reshape(2, 3),
        "scalar": torch.tensor(5),
        "none": torch.zeros(2, 0),
    }.items()
}
METADATA = {"format": "pt", "note": 'quotes " and ünïcode'}

if len(sys.argv) > 1:
    read = load_file(sys.argv[1])
    assert read.keys() == TENSORS.keys(), read.keys() ^ TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert read[name].dtype == tensor.dtype and read[name].shape == tensor.shape, name
        assert torch.equal(read[name], tensor), name
    with safe_open(sys.argv[1], "pt") as file:
        assert file.metadata() == METADATA, file.metadata()
    print(f"{len(read)} tensors equal")
else:
    save_file(TENSORS, pathlib.Path(__file__).with_suffix(".safetensors"), METADATA)
