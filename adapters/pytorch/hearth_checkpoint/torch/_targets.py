# SPDX-License-Identifier: Apache-2.0
"""Tensors that a load writes into.

The library writes into their memory, past torch. So what torch's own copy_() checks and records is
checked and recorded here: elements that share memory are refused, and version counters go up, by
which autograd finds that a tensor of its graph was changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ..errors import HearthError


def check(key: str, target: torch.Tensor) -> None:
    """HearthError for a target that copy_() would refuse."""
    if target.layout != torch.strided:
        raise HearthError(f"{key}: the tensor to be filled has layout {target.layout}: a load "
                          "fills strided tensors only")
    if target.is_nested or target.is_contiguous() or 0 in target.shape:
        return
    if any(size > 1 and not step for size, step in zip(target.shape, target.stride())):
        raise HearthError(
            f"{key}: unsupported operation: more than one element of the written-to tensor refers "
            f"to a single memory location (shape {tuple(target.shape)}, strides "
            f"{target.stride()}): clone() the tensor before it is loaded into")


def on_host(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory to read into, whatever torch's default device is."""
    return torch.empty(tuple(shape), dtype=dtype, device="cpu")


def write_to(tensors: Iterable[torch.Tensor]) -> None:
    """Count up the versions of tensors that the library is about to write into: before it does, as
    a read that fails has written too. A tensor of inference mode has no version."""
    torch.autograd.graph.increment_version(
        [tensor for tensor in tensors if not tensor.is_inference()])
