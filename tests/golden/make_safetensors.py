#!/usr/bin/env python3
"""Writes python.safetensors beside it with the format's own package (safetensors, NumPy and PyTorch's bfloat16):

    python3 tests/golden/make_safetensors.py

tests/io/safetensors.cpp reads it.
"""
import pathlib

import numpy
import torch
from safetensors.torch import save_file

arrays = {
    "float32": numpy.array([[0, 0.5, 1], [1.5, -2, 1e-45]], numpy.float32),
    "float64": numpy.array([0.1, 5e-324], numpy.float64),
    "int32": numpy.array([[-(2**31)], [7]], numpy.int32),
    "int64": numpy.full((1,) * 6, -(2**63), numpy.int64),
    "uint64": numpy.array(2**64 - 1, numpy.uint64),
    "uint8": numpy.array([1, 2, 255], numpy.uint8),
    "bool": numpy.array([True, False, True]),
    "empty": numpy.zeros((0, 5), numpy.float32),
    'layers.0.é\n"': numpy.array([3], numpy.float32),
}
tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
tensors["bfloat16"] = torch.tensor([1.5, -3], dtype=torch.bfloat16)
save_file(tensors, pathlib.Path(__file__).parent / "python.safetensors", {"format": "np"})
