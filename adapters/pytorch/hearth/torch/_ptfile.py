# SPDX-License-Identifier: Apache-2.0
"""A file of torch.save as a stored state: its structure first, then only the bytes asked for.

Its directory says where each storage lies, so this works for files of every torch, also for views,
strided, shared, expanded, empty and conjugated tensors. What a file may hold beyond plain tensors
(sparse ones, classes that the user allowed) is made of the mapped file. Nothing but this package's
own reader ever sees bytes of a file that the caller does not trust.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import OrderedDict
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ._forms import find
from ._harmless import check_values, harmless
from ._partial import Pairs, TensorRef
from ._pickles import decode_form
from ._tensors import (
    TORCH_KEYS,
    check_bits,
    check_extent,
    check_storage,
    numbers,
    plain_names,
    tensor_names,
)
from ._unpickle import GlobalRefused, PickleRefused, Strict, Table, unpickle


class _Storage:
    """A storage of the file, by its number."""

    __slots__ = ("key", "dtype", "location", "elements", "used")

    def __init__(self, key: str, dtype: torch.dtype, location: str, elements: int) -> None:
        self.key, self.dtype, self.location, self.elements = key, dtype, location, elements
        self.used = False


class _Place(NamedTuple):
    """Where a tensor's elements are in the file."""

    storage: _Storage
    offset: int  # elements
    stride: tuple[int, ...]
    conj: bool
    neg: bool


# ---- what a file's pickle may call ------------------------------------------------------------


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, dtype: torch.dtype,
            flags: Any) -> TensorRef:
    if type(storage) is not _Storage:
        raise ValueError("a tensor without storage")
    check_bits(flags)
    check_extent(offset, size, stride, dtype.itemsize, storage.elements * storage.dtype.itemsize)
    storage.used = True
    flags = flags or {}
    return TensorRef(dtype, torch.Size(size), storage.location, _Place(
        storage, offset, numbers(stride), bool(flags.get("conj")), bool(flags.get("neg"))))


def _tensor_v2(storage: Any, offset: Any, size: Any, stride: Any, _requires_grad: Any = None,
               _hooks: Any = None, flags: Any = None) -> TensorRef:
    dtype = storage.dtype if type(storage) is _Storage else torch.uint8
    return _tensor(storage, offset, size, stride, dtype, flags)


def _tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, _requires_grad: Any,
               _hooks: Any, dtype: Any, flags: Any = None) -> TensorRef:
    if type(dtype) is not torch.dtype:
        raise ValueError("a tensor without dtype")
    return _tensor(storage, offset, size, stride, dtype, flags)


def _parameter(data: Any, *_rest: Any) -> TensorRef:
    if type(data) is not TensorRef:
        raise ValueError("a parameter without tensor")
    return data


def _typed(make: Any, kind: Any, args: Any, _state: Any) -> Any:
    """A tensor with attributes of its own; they are not tensors' business."""
    if kind is not _parameter or make not in (_tensor_v2, _tensor_v3, _parameter):
        raise GlobalRefused("a subclass of Tensor is not for this reader")
    return make(*args)


@lru_cache(None)
def _table() -> Table:
    own = harmless()
    names = {**own.names, **plain_names(),
             **tensor_names(_tensor_v2, _tensor_v3, _parameter, _typed, _parameter)}
    return Table(names, own.new, own.states, own.keys | TORCH_KEYS, hashing=own.hashing)


class _Structure(Strict):
    """The pickle of a file, its tensors as TensorRefs."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, _table())
        self.storages: dict[str, _Storage] = {}

    def persistent_load(self, name: Any) -> _Storage:
        """A storage that the tensors lie in."""
        dtype, key, location, elements = check_storage(name)
        storage = self.storages.setdefault(key, _Storage(key, dtype, location, elements))
        if (storage.dtype, storage.elements) != (dtype, elements):
            raise ValueError(f"storage {key[:50]!r} is said to be two things")
        return storage


# ---- the file ---------------------------------------------------------------------------------


class PtFile:
    """A torch.save file, opened. Close it. trust: run what its pickle says beyond tensors."""

    def __init__(self, path: str | os.PathLike, *, trust: bool = False) -> None:
        self.path, self._trust = os.fspath(path), trust
        self._file = open(path, "rb")
        self._at: dict[str, tuple[int, int]] = {}
        try:
            size = os.fstat(self._file.fileno()).st_size
            if not size:
                raise PickleRefused(f"{self.path}: an empty file")
            # Ours to write to: tensors that lie in it may be changed, the file is not.
            self._map = mmap.mmap(self._file.fileno(), size, mmap.MAP_PRIVATE,
                                  mmap.PROT_READ | mmap.PROT_WRITE)
            try:
                self._form = find(self._map)
            except PickleRefused as error:
                raise PickleRefused(f"{self.path}: {error}") from None
        except BaseException:
            self.close()
            raise

    def load(self, map_location: Any) -> Any:
        """All of it, as torch.load makes it of harmless bytes."""
        if self._trust:
            return torch.load(self.path, map_location=map_location, weights_only=False)
        return decode_form(self._map, self.path, map_location, self._read)

    def _read(self, begin: int, length: int) -> bytearray:
        """Bytes of their own: whoever saves to this path next cuts the file, and what is mapped of it
        is gone."""
        memory = bytearray(length)
        self._pread(begin, memory)
        return memory

    def structure(self) -> Structure:
        """The stored state for fill()."""
        if self._form.little:
            made: list[_Structure] = []

            def make(file: Any) -> _Structure:
                made.append(_Structure(file))
                return made[0]

            try:
                begin, end = self._form.pickle
                root = unpickle(make, self._map[begin:end], self.path)
                check_values(root)
            except GlobalRefused:
                return self._whole()
            if all(storage.used for storage in made[0].storages.values()):
                for storage in made[0].storages.values():
                    self._find(storage)
                return Structure(self, root)
        return self._whole()

    def _whole(self) -> Structure:
        """What holds more than plain tensors: all of it, tensors over the mapped file."""
        if self._trust:
            return Structure(self, _as_refs(self.load("cpu")))
        return Structure(self, _as_refs(decode_form(self._map, self.path, "cpu")))

    def _find(self, storage: _Storage) -> None:
        """Note where a storage's bytes begin; there are as many as it says."""
        try:
            begin, size = self._form.storages[storage.key]
        except KeyError:
            raise PickleRefused(f"{self.path}: storage {storage.key[:50]!r} is missing") from None
        if size != storage.elements * storage.dtype.itemsize:
            raise PickleRefused(f"{self.path}: storage {storage.key[:50]!r} of {storage.elements} "
                                f"elements has {size} bytes")
        self._at[storage.key] = begin, size

    def pread(self, key: str, offset: int, memory: Any) -> None:
        """Bytes of a storage into memory."""
        self._pread(self._at[key][0] + offset, memory)

    def _pread(self, at: int, memory: Any) -> None:
        view, done = memoryview(memory).cast("B"), 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done:]], at + done)
            if count <= 0:
                raise PickleRefused(f"{self.path} ended while it was read")
            done += count

    def close(self) -> None:
        """Twice is harmless."""
        self._file.close()  # the map goes with the last tensor that lies in it


def _as_refs(value: Any) -> Any:
    """A state of real tensors as a stored state. Tensors that are not plain stay what they are."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_quantized:
            return value.clone()  # not of the file
        return TensorRef(value.dtype, value.size(), "cpu", value)
    if type(value) is dict or type(value) is OrderedDict:
        for key in list(value):
            value[key] = _as_refs(value[key])
        return value
    if type(value) is list or type(value) is tuple:
        return type(value)([_as_refs(part) for part in value])
    return value


class Structure:
    """Source of a file's tensors."""

    def __init__(self, file: PtFile, root: Any) -> None:
        self._file, self.root = file, root

    def read(self, pairs: Pairs) -> int:
        """Fill each tensor from its place in the file; the bytes read."""
        return sum(self._read(ref, into) for ref, into in pairs)

    def _read(self, ref: TensorRef, into: torch.Tensor) -> int:
        if isinstance(ref.place, torch.Tensor):
            into.copy_(ref.place)
            return ref.nbytes
        if not ref.nbytes:
            return 0
        place: _Place = ref.place
        width = ref.dtype.itemsize
        last = sum((n - 1) * step for n, step in zip(ref.shape, place.stride))
        span = (last + 1) * width
        plain = not place.conj and not place.neg and _is_c_order(ref.shape, place.stride)
        if plain and into.device.type == "cpu" and into.is_contiguous() and not (
                into.is_conj() or into.is_neg()):
            memory: Any = (ctypes.c_char * span).from_address(into.data_ptr())
            self._file.pread(place.storage.key, place.offset * width, memory)
            return span
        memory = bytearray(span)
        self._file.pread(place.storage.key, place.offset * width, memory)
        stored = torch.frombuffer(memory, dtype=ref.dtype).as_strided(ref.shape, place.stride)
        stored = stored.conj() if place.conj else stored
        into.copy_(stored._neg_view() if place.neg else stored)
        return span


def _is_c_order(shape: torch.Size, stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride)):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
