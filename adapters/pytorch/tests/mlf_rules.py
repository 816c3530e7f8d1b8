# SPDX-License-Identifier: Apache-2.0
"""What ml-flashpoint does with containers that it finds: which it takes, what it fetches for that,
what it reads. Its rules, and none of its code.

    a candidate   begins with `step-<N>_ckpt`, on every node that has any, with no marker beside it
    viable        `.metadata` is somewhere; each object that it names, and on the first rank of
                  each node `common.pt`, is here or on another node. By name alone, of any length
    taken         the viable one with the highest number
"""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

_CANDIDATE = re.compile(r"(step-(\d+)_ckpt)")
_OWNER = re.compile(r"src(\d+)")
BLOCK = 4096


class Taken(NamedTuple):
    """A container that it takes. fetched: of each node, what comes from another one."""

    step: int
    name: str
    fetched: list[list[str]]


def _candidates(base: str) -> set[str]:
    names = os.listdir(base) if os.path.isdir(base) else []
    found = {name: match for name in names if (match := _CANDIDATE.match(name))}
    dirty = {match[1] for name, match in found.items() if name.endswith("unfinished")}
    return {name for name, match in found.items()
            if not name.endswith("unfinished") and match[1] not in dirty}


def _plan(paths: list[str], ranks: int) -> list[list[str]] | None:
    """Of each node what it lacks; None: not viable. Ranks are spread evenly, in order."""
    here = [set(os.listdir(path)) if os.path.isdir(path) else set() for path in paths]
    planner = next((path for path, names in zip(paths, here) if ".metadata" in names), None)
    if planner is None:
        return None
    try:
        metadata = load_metadata(planner)
    except Exception:
        return None
    objects = {place.relative_path for place in metadata.storage_data.values()}
    fetched = []
    for node, names in enumerate(here):
        owned = {name for name in objects if (match := _OWNER.search(name))
                 and int(match[1]) * len(paths) // ranks == node}
        fetched.append(sorted((owned | {".metadata", "common.pt"}) - names))
    if any(not any(name in names for names in here) for lacks in fetched for name in lacks):
        return None
    return fetched


def latest(bases: list[str], ranks: int) -> Taken | None:
    """What a job on these nodes goes on from."""
    lists = [found for base in bases if (found := _candidates(base))]
    common = set.intersection(*lists) if lists else set()
    for name in sorted(common, key=lambda name: -int(_CANDIDATE.match(name)[2])):
        fetched = _plan([f"{base}/{name}" for base in bases], ranks)
        if fetched is not None:
            return Taken(int(_CANDIDATE.match(name)[2]), name, fetched)
    return None


# ---- reading -------------------------------------------------------------------------------------


def load_metadata(path: str) -> Any:
    with open(f"{path}/.metadata", "rb") as file:
        return pickle.load(file)


class _Header:
    """Of a tensor item: dtype and shape."""

    dtype: torch.dtype
    shape: torch.Size


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "ml_flashpoint.core.tensor_header" and name == "TensorHeader":
            return _Header
        return super().find_class(module, name)


def _item(data: bytes, signature: bytes, tensor: bool) -> Any:
    if not tensor or signature == b"TORCH___":
        return torch.load(io.BytesIO(data), weights_only=tensor)
    (length,) = struct.unpack_from("<I", data)
    header = _Unpickler(io.BytesIO(data[4:4 + length])).load()
    raw = bytearray(data[4 + length:])
    return torch.frombuffer(raw, dtype=header.dtype).reshape(header.shape)


def read(path: str, owners: set[int]) -> dict[tuple[str, tuple[int, ...] | None], Any]:
    """The items of the objects of these ranks, by name and place in the whole tensor."""
    metadata, out = load_metadata(path), {}
    for index, place in metadata.storage_data.items():
        if int(_OWNER.search(place.relative_path)[1]) not in owners:
            continue
        with open(f"{path}/{place.relative_path}", "rb") as file:
            written, signature = struct.unpack("<Q8s", file.read(16))
            assert place.offset + place.length <= written, index
            file.seek(BLOCK + place.offset)
            data = file.read(place.length)
        entry = metadata.state_dict_metadata[index.fqn]
        tensor = isinstance(entry, TensorStorageMetadata)
        at = None if index.offset is None else tuple(index.offset)
        out[index.fqn, at] = _item(data, signature, tensor)
    return out
