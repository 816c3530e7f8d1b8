# SPDX-License-Identifier: Apache-2.0
"""The C library's own readers and writers of PyTorch's formats, called as a C program would.

hearth/metadata.h and hearth/value.h: the package itself needs them only to prove a `.metadata`, so
their structs and prototypes are here.
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from hearth_checkpoint import _ffi
from hearth_checkpoint._ffi import I64, P, SIZE, STR, U32, U64, Sized, call
from hearth_checkpoint.job import Piece

NONE, BOOL, INT, FLOAT, TEXT, BYTES, TUPLE, LIST, DICT, TORCH_SIZE, DTYPE, TENSOR = (
    1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 20)


class Text(c.Structure):
    _fields_ = [("data", P), ("len", SIZE)]

    def text(self) -> str | None:
        return None if self.data is None and not self.len else c.string_at(
            self.data, self.len).decode()


class Head(Sized):
    _fields_ = [("struct_size", SIZE), ("entries", SIZE), ("chunks", SIZE), ("stored", SIZE),
                ("checkpoint_id", Text), ("save_id", Text), ("load_id", Text), ("version", Text),
                ("id_kind", U32), ("has_stored", U32), ("has_planner", U32), ("modules", U32)]


class Entry(Sized):
    _fields_ = [("struct_size", SIZE), ("name", Text), ("kind", U32), ("dtype", U32),
                ("ndim", U32), ("requires_grad", U32), ("pin_memory", U32),
                ("memory_format", U32), ("layout", Text), ("shape", c.POINTER(I64)),
                ("chunks", SIZE), ("path", SIZE), ("index", SIZE)]


class Stored(Sized):
    _fields_ = [("struct_size", SIZE), ("name", Text), ("hint", I64), ("ndim", U32),
                ("has_offset", U32), ("offset", c.POINTER(I64)), ("path", Text), ("at", U64),
                ("len", U64), ("transforms", U32)]


class Step(c.Structure):
    _fields_ = [("key", Text), ("index", I64)]


class Value(Sized):
    _fields_ = [("struct_size", SIZE), ("kind", U32), ("dtype", U32), ("integer", I64),
                ("real", c.c_double), ("data", P), ("len", SIZE), ("count", SIZE), ("ndim", U32),
                ("requires_grad", U32), ("conj", U32), ("neg", U32), ("shape", c.POINTER(I64)),
                ("strides", c.POINTER(I64)), ("storage", U64), ("offset", U64), ("handle", U64)]


_PROTOTYPES = {
    "hearth_metadata_open": (c.c_int, [P, SIZE, P, P]),
    "hearth_metadata_close": (None, [P]),
    "hearth_metadata_info": (c.c_int, [P, P, P]),
    "hearth_metadata_entry_at": (c.c_int, [P, SIZE, P, P]),
    "hearth_metadata_path_at": (c.c_int, [P, SIZE, SIZE, P, P]),
    "hearth_metadata_stored_at": (c.c_int, [P, SIZE, P, P]),
    "hearth_metadata_write": (c.c_int, [STR, STR, P, P]),
    "hearth_metadata_add_piece": (c.c_int, [P, P, STR, U64, U64, P]),
    "hearth_metadata_add_bytes": (c.c_int, [P, P, SIZE, STR, U64, U64, P]),
    "hearth_metadata_add_path": (c.c_int, [P, P, SIZE, P, SIZE, P]),
    "hearth_metadata_finish": (c.c_int, [P, P, P, P]),
    "hearth_values_open": (c.c_int, [P, SIZE, P, P]),
    "hearth_values_close": (None, [P]),
    "hearth_value_root": (c.c_int, [P, P, P]),
    "hearth_value_child": (c.c_int, [P, P, SIZE, P, P]),
}


def _c(name: str, *args: Any) -> None:
    function = getattr(_ffi.library(), name)
    function.restype, function.argtypes = _PROTOTYPES[name]
    if function.restype is None:
        function(*args)
    else:
        call(name, *args)


def _dims(pointer: Any, count: int) -> tuple[int, ...]:
    return tuple(pointer[:count]) if count else ()


# ---- .metadata: reading ------------------------------------------------------------------------


class Tensor(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    chunks: int
    path: tuple[str | int, ...]


class Place(NamedTuple):
    name: str
    offset: tuple[int, ...] | None  # None: a byte item
    path: str
    at: int
    len: int


class Metadata(NamedTuple):
    checkpoint_id: str | None
    version: str | None
    entries: dict[str, Tensor | None]  # None: a byte item
    stored: list[Place]


def _path(md: c.c_void_p, entry: Entry) -> tuple[str | int, ...]:
    out: list[str | int] = []
    for i in range(entry.path):
        step = Step()
        _c("hearth_metadata_path_at", md, entry.index, i, c.byref(step))
        out.append(step.index if step.key.data is None else step.key.text() or "")
    return tuple(out)


def _entries(md: c.c_void_p, count: int) -> Iterator[tuple[str, Tensor | None]]:
    for i in range(count):
        entry = Entry()
        _c("hearth_metadata_entry_at", md, i, c.byref(entry))
        tensor = None
        if entry.kind == 10:
            tensor = Tensor(_ffi.DTYPE_NAMES[entry.dtype], _dims(entry.shape, entry.ndim),
                            entry.chunks, _path(md, entry))
        yield entry.name.text() or "", tensor


def _places(md: c.c_void_p, count: int) -> Iterator[Place]:
    for i in range(count):
        stored = Stored()
        _c("hearth_metadata_stored_at", md, i, c.byref(stored))
        assert not stored.transforms
        yield Place(stored.name.text() or "",
                    _dims(stored.offset, stored.ndim) if stored.has_offset else None,
                    stored.path.text() or "", stored.at, stored.len)


def read_metadata(data: bytes) -> Metadata:
    """A `.metadata`, as hearth_metadata_open() understands it."""
    held = c.create_string_buffer(data, len(data))
    md, head = c.c_void_p(), Head()
    _c("hearth_metadata_open", held, len(data), c.byref(md))
    try:
        _c("hearth_metadata_info", md, c.byref(head))
        return Metadata(head.checkpoint_id.text(), head.version.text(),
                        dict(_entries(md, head.entries)), list(_places(md, head.stored)))
    finally:
        _c("hearth_metadata_close", md)


# ---- .metadata: writing ------------------------------------------------------------------------


class MetadataWriter:
    """A `.metadata` made by C."""

    def __init__(self, checkpoint_id: str) -> None:
        self._writer = c.c_void_p()
        _c("hearth_metadata_write", os.fsencode(checkpoint_id), b"made by C",
           c.byref(self._writer))

    def piece(self, piece: Piece, path: str, at: int, length: int) -> None:
        """A piece, stored at [at, at + length) of the object `path`."""
        held, address = _ffi.pack_pieces([piece])
        _c("hearth_metadata_add_piece", self._writer, address, path.encode(), at, length)
        del held

    def bytes(self, name: str, path: str, at: int, length: int) -> None:
        """A byte item."""
        key = name.encode()
        _c("hearth_metadata_add_bytes", self._writer, key, len(key), path.encode(), at, length)

    def nested(self, name: str, steps: Sequence[str | int]) -> None:
        """Where a name lies in the nested state."""
        key, rows = name.encode(), (Step * len(steps))()
        keep = []
        for row, step in zip(rows, steps):
            if isinstance(step, int):
                row.index = step
                continue
            keep.append(c.create_string_buffer(step.encode()))
            row.key = Text(c.addressof(keep[-1]), len(step.encode()))
        _c("hearth_metadata_add_path", self._writer, key, len(key), rows, len(steps))
        del keep

    def finish(self) -> bytes:
        """The pickle."""
        out, length = c.c_void_p(), SIZE()
        _c("hearth_metadata_finish", self._writer, c.byref(out), c.byref(length))
        try:
            return c.string_at(out, length.value)
        finally:
            _ffi.library().hearth_free(out)


# ---- items -------------------------------------------------------------------------------------


@contextmanager
def _values(data: bytes) -> Iterator[c.c_void_p]:
    held = c.create_string_buffer(data, len(data))
    values = c.c_void_p()
    _c("hearth_values_open", held, len(data), c.byref(values))
    try:
        yield values
    finally:
        _c("hearth_values_close", values)
        del held


def read_value(data: bytes) -> Any:
    """What torch.save wrote, as hearth_values_open() understands it; its tensors are new ones."""
    with _values(data) as values:
        root = Value()
        _c("hearth_value_root", values, c.byref(root))
        return _python(values, root)


def _child(values: c.c_void_p, of: Value, index: int) -> Any:
    out = Value()
    _c("hearth_value_child", values, c.byref(of), index, c.byref(out))
    return _python(values, out)


def _python(values: c.c_void_p, value: Value) -> Any:
    kind = value.kind
    if kind == NONE:
        return None
    if kind in (BOOL, INT):
        return bool(value.integer) if kind == BOOL else value.integer
    if kind == FLOAT:
        return value.real
    if kind in (TEXT, BYTES):
        data = c.string_at(value.data, value.len) if value.len else b""
        return data if kind == BYTES else data.decode("utf-8", "surrogatepass")
    if kind == DTYPE:
        return getattr(torch, _ffi.DTYPE_NAMES[value.integer])
    if kind == TENSOR:
        return _tensor(value)
    children = [_child(values, value, i) for i in range(value.count * (1 + (kind == DICT)))]
    if kind == DICT:
        return dict(zip(children[::2], children[1::2]))
    return {TUPLE: tuple, LIST: list, TORCH_SIZE: torch.Size}[kind](children)


def _tensor(value: Value) -> torch.Tensor:
    dtype = getattr(torch, _ffi.DTYPE_NAMES[value.dtype])
    shape, strides = _dims(value.shape, value.ndim), _dims(value.strides, value.ndim)
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    assert value.len % dtype.itemsize == 0
    whole = torch.frombuffer(bytearray(c.string_at(value.data, value.len)), dtype=dtype)
    tensor = whole.as_strided(shape, strides)
    tensor = torch._neg_view(tensor) if value.neg else tensor
    return tensor.conj() if value.conj else tensor
