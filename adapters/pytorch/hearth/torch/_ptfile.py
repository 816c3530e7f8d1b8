# SPDX-License-Identifier: Apache-2.0
"""A file of torch.save as a stored state: its structure first, then only the bytes asked for.

The zip's directory says where each storage lies, so this works for files of every torch that wrote
zips, also for views, strided, shared, expanded, empty and conjugated tensors. What a file may
hold beyond plain tensors (sparse ones, classes that the user allowed) torch.load(weights_only=True)
reads, mapped. The older form of torch.save, without a zip, is read as a whole.
"""

from __future__ import annotations

import ctypes
import io
import os
import struct
import warnings
import zipfile
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ._partial import Pairs, TensorRef
from ._pickles import item_globals
from ._unpickle import (
    SHALLOW,
    GlobalRefused,
    Globals,
    PickleRefused,
    Strict,
    may_share,
    prove_stream,
    unpickle,
)

_LOCAL_HEADER = 30  # bytes of a zip's local header before name and extra field


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


def _numbers(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, torch.Size) or not all(
            type(v) is int and 0 <= v < 2**62 for v in values):
        raise ValueError("sizes and strides are numbers from 0 on")
    return tuple(values)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, dtype: torch.dtype,
            flags: Any) -> TensorRef:
    size, stride = _numbers(size), _numbers(stride)
    (offset,) = _numbers((offset,))
    if type(storage) is not _Storage or len(size) != len(stride):
        raise ValueError("a tensor without storage, or with too few strides")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride))
    held = storage.elements * storage.dtype.itemsize
    if 0 not in size and (last + 1) * dtype.itemsize > held:
        raise ValueError(f"a tensor reaches out of its storage {storage.key!r}")
    if flags is not None and (type(flags) is not dict or not set(flags) <= {"conj", "neg"}):
        raise GlobalRefused("a tensor with more than conj and neg bits is not for this reader")
    storage.used = True
    flags = flags or {}
    return TensorRef(dtype, torch.Size(size), storage.location, _Place(
        storage, offset, stride, bool(flags.get("conj")), bool(flags.get("neg"))))


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
def _file_globals() -> Globals:
    table = dict(item_globals())
    for name, make in (("_rebuild_tensor", _tensor_v2), ("_rebuild_tensor_v2", _tensor_v2),
                       ("_rebuild_tensor_v3", _tensor_v3), ("_rebuild_parameter", _parameter),
                       ("_rebuild_parameter_with_state", _parameter)):
        table["torch._utils", name] = make
    table["torch._tensor", "_rebuild_from_type_v2"] = _typed
    table["torch", "Tensor"] = table["torch.nn.parameter", "Parameter"] = _parameter
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kind in list(vars(torch).items()):
            if name.endswith("Storage") and isinstance(getattr(kind, "dtype", None), torch.dtype):
                table["torch", name] = kind.dtype
    table["torch.storage", "UntypedStorage"] = torch.uint8
    table["torch", "UntypedStorage"] = torch.uint8
    return table


class _Structure(Strict):
    """The pickle of a file, its tensors as TensorRefs."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _file_globals())
        self.storages: dict[str, _Storage] = {}

    def persistent_load(self, name: Any) -> _Storage:
        kind, dtype, key, location, elements = name
        _numbers((elements,))
        if kind != "storage" or type(dtype) is not torch.dtype or type(key) is not str:
            raise ValueError("this names no storage")
        if type(location) is not str:
            raise ValueError("a storage without a location")
        if key not in self.storages:
            self.storages[key] = _Storage(key, dtype, location, elements)
        return self.storages[key]


# ---- the file ---------------------------------------------------------------------------------


class PtFile:
    """A torch.save file, opened. Close it. trust: run what its pickle says beyond tensors."""

    def __init__(self, path: str | os.PathLike, *, trust: bool = False) -> None:
        self.path, self._trust = os.fspath(path), trust
        self._file = open(path, "rb")
        self._size = os.fstat(self._file.fileno()).st_size
        self._zip: zipfile.ZipFile | None = None
        self._at: dict[str, tuple[int, int]] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        if self._file.read(2) != b"PK":
            self._file.seek(0)
            if not self._trust:
                prove_stream(self._file, 4)
            return
        try:
            self._zip = zipfile.ZipFile(self._file)
            names = self._zip.namelist()
            for info in self._zip.infolist():
                if info.compress_type != zipfile.ZIP_STORED or info.file_size > self._size:
                    raise PickleRefused(f"{info.filename[:100]!r} is compressed")
            main = next((n for n in names if n.endswith("/data.pkl") or n == "data.pkl"), None)
            if main is None:
                raise PickleRefused("no data.pkl: this is no file of torch.save")
            self._folder = main[:-len("data.pkl")]
            self._pickle = self._zip.read(main)
            order = self._folder + "byteorder"
            self._native = order not in names or self._zip.read(order) == b"little"
        except PickleRefused as error:
            raise PickleRefused(f"{self.path}: {error}") from None
        except Exception as error:  # whatever odd bytes make zipfile raise
            raise PickleRefused(f"{self.path}: {type(error).__name__}: {error}") from None

    def load(self, map_location: Any) -> Any:
        """All of it, as torch.load makes it of harmless bytes."""
        return self._by_torch(map_location, False)

    def _by_torch(self, map_location: Any, mmap: bool) -> Any:
        if self._zip is not None and not self._trust and (
                len(self._pickle) > SHALLOW or may_share(self._pickle)):
            prove_stream(io.BytesIO(self._pickle), 1)
        return torch.load(
            self.path, map_location=map_location, weights_only=not self._trust, mmap=mmap)

    def structure(self) -> Structure:
        """The stored state for fill()."""
        if self._zip is not None and self._native:
            made: list[_Structure] = []

            def make(file: io.BytesIO) -> _Structure:
                made.append(_Structure(file))
                return made[0]

            try:
                root = unpickle(make, self._pickle, self.path)
            except GlobalRefused:
                return self._mapped()
            if all(storage.used for storage in made[0].storages.values()):
                for storage in made[0].storages.values():
                    self._find(storage)
                return Structure(self, root)
        return self._mapped()

    def _mapped(self) -> Structure:
        """What only torch knows: tensors over the mapped file."""
        return Structure(self, _as_refs(self._by_torch("cpu", self._zip is not None)))

    def _find(self, storage: _Storage) -> None:
        """Note where a storage's bytes begin."""
        if storage.key in self._at:
            return
        assert self._zip is not None
        try:
            info = self._zip.getinfo(f"{self._folder}data/{storage.key}")
        except KeyError:
            raise PickleRefused(f"{self.path}: storage {storage.key[:50]!r} is missing") from None
        header = os.pread(self._file.fileno(), _LOCAL_HEADER, info.header_offset)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise PickleRefused(f"{self.path}: storage {storage.key[:50]!r} has no header")
        name, extra = struct.unpack_from("<HH", header, 26)
        begin = info.header_offset + _LOCAL_HEADER + name + extra
        needed = storage.elements * storage.dtype.itemsize
        if needed > info.file_size or begin + info.file_size > self._size:
            raise PickleRefused(f"{self.path}: storage {storage.key[:50]!r} is cut off")
        self._at[storage.key] = begin, info.file_size

    def pread(self, key: str, offset: int, memory: Any) -> None:
        """Bytes of a storage into memory."""
        view = memoryview(memory).cast("B")
        at, done = self._at[key][0] + offset, 0
        while done < len(view):
            count = os.preadv(self._file.fileno(), [view[done:]], at + done)
            if count <= 0:
                raise PickleRefused(f"{self.path} ended while it was read")
            done += count

    def close(self) -> None:
        """Twice is harmless."""
        if self._zip is not None:
            self._zip.close()
        self._file.close()


def _as_refs(value: Any) -> Any:
    """A state of real tensors as a stored state. Tensors that are not plain stay what they are."""
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout != torch.strided or value.is_quantized:
            return value
        return TensorRef(value.dtype, value.size(), "cpu", value)
    if isinstance(value, dict):
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
