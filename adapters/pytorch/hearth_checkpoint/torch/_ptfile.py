# SPDX-License-Identifier: Apache-2.0
"""A file of torch.save as a stored state: its structure first, then only the bytes asked for.

The file's directory has the place of each storage, so this works for files of every torch, also for
views, strided, shared, expanded, empty and conjugated tensors. The tensors are made over untouched
memory of the file's length; the bytes of a tensor are read when it is asked for. A file that holds
more than plain tensors (sparse ones, classes that the user allowed) is read whole. Only this
package's own reader reads bytes of a file that the caller does not trust.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from ._harmless import harmless
from ._partial import Pairs, TensorRef
from ._pickles import decode_form
from ._tensors import TORCH_KEYS, item_table, plain_table
from ._unpickle import GlobalRefused, PickleRefused, Table

_NORESERVE = 0x4000  # Linux: of a large file most stays untouched
_DICTS = frozenset({dict, OrderedDict, defaultdict, Counter})
_LISTS = frozenset({list, deque})
_OBJECTS = frozenset({SimpleNamespace, Namespace})


@lru_cache(None)
def _holds_nothing() -> frozenset:
    """Classes whose objects hold no tensor."""
    known = harmless()
    return (known.keys | known.states.keys() | TORCH_KEYS | {
        int, float, bool, str, bytes, bytearray, complex, type(None), slice, set, frozenset,
        torch.Size}) - _DICTS - _OBJECTS


class PtFile:
    """A torch.save file, opened. Close it. trust: run what its pickle says beyond tensors."""

    def __init__(self, path: str | os.PathLike, *, trust: bool = False) -> None:
        self.path, self._trust = os.fspath(path), trust
        self._file = open(path, "rb")
        try:
            self._size = os.fstat(self._file.fileno()).st_size
            if not self._size:
                raise PickleRefused(f"{self.path}: an empty file")
            self._map = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        except BaseException:
            self.close()
            raise

    def load(self, map_location: Any) -> Any:
        """All of it, as torch.load makes it of harmless bytes."""
        if self._trust:
            return torch.load(self.path, map_location=map_location, weights_only=False)
        return decode_form(self._map, self.path, map_location, self._read)

    def _read(self, begin: int, length: int) -> bytearray:
        """Bytes of their own: whoever saves to this path next cuts the file, and what is mapped of
        it is gone."""
        memory = bytearray(length)
        self.pread(begin, memory)
        return memory

    def structure(self) -> Structure:
        """The stored state for fill()."""
        memory = mmap.mmap(-1, self._size, mmap.MAP_PRIVATE | _NORESERVE)
        try:
            found = self._made_over(memory, plain_table())
            if found.is_plain:
                return found
        except GlobalRefused:
            if self._trust:
                return Structure(self, self.load("cpu"), memory, {})
        self.pread(0, memory)
        return self._made_over(memory, item_table())

    def _made_over(self, memory: mmap.mmap, table: Table) -> Structure:
        """Tensors that lie in the memory as their bytes lie in the file."""
        view, locations = memoryview(memory), {}

        def note(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
            locations[storage._cdata] = location
            return storage

        root = decode_form(self._map, self.path, note,
                           lambda begin, length: view[begin:begin + length], table)
        return Structure(self, root, memory, locations)

    def pread(self, at: int, memory: Any) -> None:
        """Bytes of the file into memory."""
        view, done = memoryview(memory).cast("B"), 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done:]], at + done)
            if count <= 0:
                raise PickleRefused(f"{self.path} ended while it was read")
            done += count

    def close(self) -> None:
        """Twice is harmless."""
        self._file.close()


class Structure:
    """Source of a file's tensors.

    root      the state, with a TensorRef for each plain tensor, whose place is that tensor
    is_plain  there are no other tensors, and nothing that could hold one
    """

    def __init__(self, file: PtFile, root: Any, memory: mmap.mmap,
                 locations: dict[int, str]) -> None:
        self._file, self._memory, self._locations = file, memory, locations
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._known: dict[int, tuple[Any, Any]] = {}  # by id: a part, and what stands for it
        self.is_plain = True
        self.root = self._refs(root)
        self._known.clear()

    def _refs(self, value: Any) -> Any:
        """The value with references in place of its tensors; containers stay what they are."""
        kind = type(value)
        if kind in _holds_nothing():
            return value
        if id(value) not in self._known:
            self._known[id(value)] = value, value  # it may hold itself
            self._known[id(value)] = value, self._refs_in(kind, value)
        return self._known[id(value)][1]

    def _refs_in(self, kind: type, value: Any) -> Any:
        if kind in (torch.Tensor, torch.nn.Parameter):
            return self._ref(value)
        if kind is tuple:
            return tuple(map(self._refs, value))
        if kind in _DICTS or kind in _LISTS:
            for key in list(value) if kind in _DICTS else range(len(value)):
                value[key] = self._refs(value[key])
        elif kind not in _OBJECTS:
            self.is_plain = False
            return value
        for name, part in getattr(value, "__dict__", {}).items():
            vars(value)[name] = self._refs(part)
        return value

    def _ref(self, value: torch.Tensor) -> Any:
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            self.is_plain = False
            return value.clone()  # not of the file
        where = self._locations.get(value.untyped_storage()._cdata, "cpu")
        return TensorRef(value.dtype, value.size(), where, value)

    def read(self, pairs: Pairs) -> int:
        """Fill each tensor from its place in the file; the bytes read."""
        return sum(self._read(ref, into) for ref, into in pairs)

    def _read(self, ref: TensorRef, into: torch.Tensor) -> int:
        stored: torch.Tensor = ref.place.detach()
        if not ref.nbytes:
            return 0
        at = stored.data_ptr() - self._base
        if not 0 <= at < len(self._memory):  # torch has made it
            into.copy_(stored)
            return ref.nbytes
        last = sum((n - 1) * step for n, step in zip(stored.shape, stored.stride()))
        span = (last + 1) * ref.dtype.itemsize
        if not any(map(_is_odd, (stored, into))):
            memory: Any = (ctypes.c_char * span).from_address(into.data_ptr())
            self._file.pread(at, memory)
            return span
        self._file.pread(at, memoryview(self._memory)[at:at + span])
        into.copy_(stored)
        return span


def _is_odd(tensor: torch.Tensor) -> bool:
    """Its bytes in memory are not its numbers in C order."""
    return (tensor.device.type != "cpu" or not tensor.is_contiguous() or tensor.is_conj()
            or tensor.is_neg())
