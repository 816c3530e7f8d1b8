# SPDX-License-Identifier: Apache-2.0
"""What the package asks torch about tensors in GPU memory, and about streams, when it saves. It
asks nothing of torch.cuda elsewhere. ROCm's torch calls its GPUs cuda as well."""

from __future__ import annotations

import torch


def is_gpu(tensor: torch.Tensor) -> bool:
    """Whether the library copies the tensor from where it lies."""
    return tensor.is_cuda


def index(tensor: torch.Tensor) -> int:
    """The number of its GPU."""
    return tensor.get_device()


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """A copy on its GPU, made on the current stream."""
    return tensor.contiguous()


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in host memory, made after what is in the current stream."""
    return tensor.cpu()


def current_stream(gpu: int) -> torch.cuda.Stream:
    return torch.cuda.current_stream(gpu)


def default_stream(gpu: int) -> torch.cuda.Stream:
    return torch.cuda.default_stream(gpu)


def new_stream(gpu: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(gpu)


def is_capturing() -> bool:
    """Whether the current stream is being captured into a graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
