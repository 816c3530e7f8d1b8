# SPDX-License-Identifier: Apache-2.0
"""Copies of values that are pickled when they are saved: made by pickling them, so that a copy
holds what a file would.

Storages are not pickled: each is copied once, to the host. A mesh or a process group stays what it
is.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.storage import TypedStorage, UntypedStorage

_KEPT = (DeviceMesh, dist.ProcessGroup)


class _Pickler(pickle.Pickler):
    """beside: what is not pickled; its numbers in the list are the persistent ids."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.beside: list[Any] = []
        self._known: dict[int, tuple[Any, int]] = {}

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, TypedStorage):
            return self._number(value._untyped_storage), value.dtype
        if isinstance(value, (UntypedStorage, *_KEPT)):
            return self._number(value), None
        return None

    def _number(self, value: Any) -> int:
        key = value._cdata if isinstance(value, UntypedStorage) else id(value)
        if key not in self._known:
            self._known[key] = value, len(self.beside)
            self.beside.append(value if isinstance(value, _KEPT) or value.device.type == "meta"
                               else value.clone() if value.device.type == "cpu" else value.cpu())
        return self._known[key][1]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, beside: list[Any]) -> None:
        super().__init__(file)
        self._beside = beside

    def find_class(self, module: str, name: str) -> Any:
        """torch makes tensors of storages with a dtype, and pickles some without."""
        return (_rebuild_tensor_v3 if name == "_rebuild_tensor_v3" and module == "torch._utils"
                else super().find_class(module, name))

    def persistent_load(self, pid: Any) -> Any:
        number, dtype = pid
        there = self._beside[number]
        return there if dtype is None else _typed(there, dtype)


def _typed(storage: UntypedStorage, dtype: torch.dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _rebuild_tensor_v3(storage: UntypedStorage, *how: Any) -> torch.Tensor:
    return torch._utils._rebuild_tensor_v3(_typed(storage, torch.uint8), *how)


def copy_of(value: Any) -> Any:
    """A copy. Raises what pickling it raises: no save of it can be written then."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(value)
    stream.seek(0)
    return _Unpickler(stream, pickler.beside).load()


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether the tensor's numbers lie at its address; not so of what _make_wrapper_subclass() has
    made."""
    if not tensor.numel() or tensor.is_meta:
        return True
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:
        return False
