# SPDX-License-Identifier: Apache-2.0
"""What a load asks for, where that is simple: a plain tensor that was saved whole is read whole.

DCP's planner walks a state four times and cuts each tensor along the chunks that were saved. Most
tensors of most states need none of this. Values that do are given to DCP's own functions, one by
one and in their order, so that plans and errors are DCP's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._sharded_tensor_utils import _flatten_sharded_tensors
from torch.distributed.checkpoint.default_planner import create_default_local_load_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem
from torch.distributed.checkpoint.planner_helpers import _init_state_dict
from torch.distributed.tensor import DTensor

from ._again import DICTS, PLAIN

_WHOLE = PLAIN | {DTensor}
_NUMBERS = frozenset({int, float, bool, str, bytes, type(None)})


class Alike(Exception):
    """Two names of a state read the same when it is flattened."""


def flatten(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The flat state, and each name's path, as DefaultLoadPlanner.set_up_planner() makes them."""
    flat: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    _flatten(state, (), flat, paths)
    return flat, paths


def _flatten(state: dict[Any, Any], path: tuple[Any, ...], flat: dict[str, Any],
             paths: dict[str, Any]) -> None:
    if len(set(map(str, state))) < len(state):
        raise Alike  # DCP puts the two into one, or has an error of its own
    for key, value in state.items():
        kind = type(value)
        if kind in _NUMBERS or (kind in _WHOLE and not value.is_meta):
            _add((*path, str(key)), value, flat, paths)
        elif kind in DICTS:
            _flatten(value, (*path, str(key)), flat, paths)
        else:
            one = {key: value}
            _init_state_dict(one)
            state[key] = one[key]
            parts, inner = flatten_state_dict(_flatten_sharded_tensors(one))
            for name, part in parts.items():
                _add((*path, *inner[name]), part, flat, paths)


def _add(path: tuple[Any, ...], value: Any, flat: dict[str, Any], paths: dict[str, Any]) -> None:
    name = ".".join(map(str, path))
    if name in flat:
        raise Alike
    flat[name], paths[name] = value, path


@lru_cache(None)
def _zeros(dimensions: int) -> torch.Size:
    return torch.Size([0] * dimensions)


def is_plain(value: Any) -> bool:
    """A tensor of which DCP asks nothing but its size."""
    return type(value) in PLAIN and not value.__dict__


def items(flat: dict[str, Any], metadata: Metadata) -> list[ReadItem]:
    """What create_default_local_load_plan() asks for."""
    out: list[ReadItem] = []
    for name, value in flat.items():
        entry = metadata.state_dict_metadata.get(name)
        if is_plain(value) and type(entry) is TensorStorageMetadata and _is_whole(entry, value):
            size, origin = value.shape, _zeros(value.dim())
            index = MetadataIndex(name, origin, 0)
            out.append(ReadItem(LoadItemType.TENSOR, index, origin, index, origin, size))
        else:
            out += create_default_local_load_plan({name: value}, metadata).items
    return out


def _is_whole(entry: TensorStorageMetadata, value: torch.Tensor) -> bool:
    """It was saved as one chunk of the size that the tensor has."""
    size = value.shape
    if entry.size != size or 0 in size or len(entry.chunks) != 1:
        return False
    chunk = entry.chunks[0]
    return (type(chunk) is ChunkStorageMetadata and chunk.sizes == size
            and chunk.offsets == _zeros(len(size)))
