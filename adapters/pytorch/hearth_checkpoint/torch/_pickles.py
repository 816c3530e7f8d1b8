# SPDX-License-Identifier: Apache-2.0
"""`.metadata` and small items as Python objects, decoded from a table of globals.

`.metadata` is proved by the library's own reader first, then read by Python's C unpickler. Small
items are what a checkpoint has thousands of: atoms and containers of them take about a microsecond
each.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from .. import _ffi
from ..errors import HearthCorrupt
from ._forms import MAGIC, VERSION, find
from ._harmless import check_values, exact, harmless
from ._metadata import Unknown, set_properties, settle, stand_in
from ._tensors import Values, dtypes, item_table, layout, layouts, size
from ._unpickle import (
    Fast,
    GlobalRefused,
    PickleRefused,
    Strict,
    Table,
    gc_paused,
    may_share,
    unpickle,
)

__all__ = ["GlobalRefused", "PickleRefused", "decode_item", "dtypes", "encode_item", "is_plain",
           "judge_item", "load_metadata"]


# ---- `.metadata` ------------------------------------------------------------------------------


def _memory_format(number: Any) -> Any:
    if exact(number, int, "a memory format") not in range(len(dcp._MEM_FORMAT_ENCODING), 256):
        return dcp._MEM_FORMAT_ENCODING(number)
    return stand_in(f"torch.memory_format {number}")()


def _layout(name: Any) -> Any:
    if type(name) is str and name.startswith("torch.") and name not in layouts():
        return stand_in(name)()
    return layout(name)


def _member(owner: Any, name: Any) -> Any:
    """builtins.getattr, for members of one enum."""
    if owner is not _memory_format or name not in dcp._MEM_FORMAT_ENCODING.__members__:
        raise TypeError("builtins.getattr is not allowed but for members of _MEM_FORMAT_ENCODING")
    return dcp._MEM_FORMAT_ENCODING[name]


class _Properties(dcp.TensorProperties):
    """Takes a state of any later torch, and becomes the class that torch knows."""

    def __setstate__(self, state: Any) -> None:
        self.__class__ = dcp.TensorProperties  # type: ignore[assignment]
        set_properties(self, state)


@lru_cache(None)
def _metadata_table() -> Table:
    module = dcp.__name__
    old = "torch.distributed._shard.sharded_tensor.metadata"
    records = (dcp.Metadata, dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata,
               dcp.BytesStorageMetadata, dcp.MetadataIndex, dcp.StorageMeta)
    names: dict[tuple[str, str], Any] = {(module, kind.__name__): kind for kind in records}
    names[_StorageInfo.__module__, "_StorageInfo"] = _StorageInfo
    names[module, "_MEM_FORMAT_ENCODING"] = names[old, "MEM_FORMAT_ENCODING"] = _memory_format
    names[old, "TensorProperties"] = names[module, "TensorProperties"] = _Properties
    names["builtins", "getattr"] = _member
    names["torch", "Size"] = size
    names["torch.serialization", "_get_layout"] = _layout
    names.update({("torch", name): dtype for name, dtype in dtypes().items()})
    names.update({name: make for name, make in harmless().names.items() if "pathlib" in name[0]})
    return Table(names)


class _Names(Fast):
    """Classes that are not known here are stood in for, and never made."""

    def __init__(self, file: io.BytesIO, table: Table) -> None:
        super().__init__(file, table)
        self.unknown: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Of the table, or a stand-in."""
        known = self._table.names.get((module, name)) or self.unknown.get((module, name))
        if known is None:
            known = Unknown if len(self.unknown) >= _STAND_INS else stand_in(f"{module}.{name}")
            self.unknown[module, name] = known
        return known


_STAND_INS = 1000  # each is a class


class _Head(ctypes.Structure):
    """struct hearth_metadata_head"""

    _fields_ = [("struct_size", ctypes.c_size_t), *((name, ctypes.c_size_t) for name in (
        "entries", "chunks", "stored")), ("texts", ctypes.c_size_t * 8),
        ("kinds", ctypes.c_uint32 * 4), ("unknown", ctypes.c_size_t)]


def _proved(data: bytes) -> int:
    """The library's reader took `data` as a sound `.metadata`, types, dimensions and names of files
    included, but for this many entries of classes that it does not know. Raises PickleRefused."""
    opened, head = ctypes.c_void_p(), _Head(ctypes.sizeof(_Head))
    try:
        _ffi.call("hearth_metadata_open", data, len(data), ctypes.byref(opened))
    except HearthCorrupt as error:
        raise PickleRefused(f"metadata: {error}", error.code, error.name) from None
    try:
        _ffi.call("hearth_metadata_info", opened, ctypes.byref(head))
    finally:
        _ffi.library().hearth_metadata_close(opened)
    return head.unknown


def load_metadata(data: bytes) -> dcp.Metadata:
    """A `.metadata` of torch 2.2 or any later one as its real classes. Fields that are not known
    here are left out; an entry of a class that is not known is a Spoiled, the others are good.
    Raises PickleRefused."""
    unknown = _proved(data)
    made: list[_Names] = []

    def make(file: io.BytesIO) -> _Names:
        made.append(_Names(file, _metadata_table()))
        return made[0]

    with gc_paused():
        value = unpickle(make, data, "metadata")
        if unknown or made[0].unknown:
            settle(value)
    return value


# ---- small items ------------------------------------------------------------------------------

# The plain form of torch.save before its zip files: magic number, version, what wrote it; then the
# object; then the names of the storages, none here. torch.load reads it anywhere.
_WROTE = {
    "protocol_version": VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
PREFIX = b"".join(pickle.dumps(part, 2) for part in (MAGIC, VERSION, _WROTE))
SUFFIX = pickle.dumps([], 2)
_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})
_CONTAINERS = frozenset({tuple, list, dict})
_SMALL = 4096  # bytes; nesting that fits in here cannot exhaust a stack

# Bytes that are opcodes which import (GLOBAL, INST, EXT*, STACK_GLOBAL) or name a place in the memo
# (PUT, LONG_BINPUT), or allocate before they read (BYTEARRAY8). Where none occurs, Python's loads()
# can make nothing but atoms and containers.
_DANGER = re.compile(rb"[ci\x82\x83\x84\x93\x96pr]")
_MEMO_OR_STATE = re.compile(rb"[prb]")  # PUT, LONG_BINPUT, BUILD: not for the C unpickler
_TEXT = re.compile(rb"\x80\x02X(.{4})(.*)q\0\.", re.DOTALL)  # a string and nothing else


def is_plain(value: Any) -> bool:
    """Whether `value` is an exact atom, or a tuple, list or dict of them."""
    if type(value) in _ATOMS:
        return True
    if type(value) not in _CONTAINERS:
        return False
    seen = {id(value)}
    todo = [value]
    while todo:
        container = todo.pop()
        if type(container) is dict:
            if not _ATOMS.issuperset(map(type, container)):
                return False
            container = container.values()
        for child in container:
            kind = type(child)
            if kind in _ATOMS:
                continue
            if kind not in _CONTAINERS:
                return False
            if id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return True


def encode_item(value: Any) -> bytes:
    """`value` as torch.load() reads it: the plain form for atoms and containers of them, else what
    torch.save writes."""
    if is_plain(value):
        return PREFIX + pickle.dumps(value, 2) + SUFFIX
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def _plain_body(data: bytes) -> bytes | None:
    if data.startswith(PREFIX) and data.endswith(SUFFIX):
        return data[len(PREFIX):-len(SUFFIX)]
    return None


def decode_item(data: bytes, *, trust: bool = False, map_location: Any = None) -> Any:
    """What encode_item() or torch.save made bytes of. Nothing in it is run.

    trust         take any object, and run what its pickle says: only for bytes of your own
    map_location  as torch.load takes it
    """
    body = _plain_body(data)
    if body is not None:
        tiny = len(body) <= _SMALL and not may_share(body)
        if tiny and not _DANGER.search(body) and body.count(b".") == 1:
            try:
                return pickle.loads(body)
            except Exception as error:  # whatever odd bytes make Python raise
                raise PickleRefused(f"item: {type(error).__name__}: {error}") from None
        text = _TEXT.fullmatch(body)
        if text and int.from_bytes(text[1], "little") == len(text[2]):
            return _text(text[2])
    if trust:
        return _by_torch(data, map_location)
    if body is None:
        return decode_form(data, "item", map_location)
    fast = tiny and not _MEMO_OR_STATE.search(body)
    value = unpickle(partial(Fast if fast else Strict, table=item_table()), body, "item")
    return _checked(value, "item")


def decode_form(data: Any, what: str, map_location: Any = None,
                read: Callable[[int, int], Any] | None = None, table: Table | None = None) -> Any:
    """What torch.save wrote, tensors and all, made of the table and of the bytes that are there.

    data   bytes, whose storages are copied, or a map of a file
    read   (begin, length) -> memory for tensors to lie in
    table  None: item_table()
    """
    try:
        form = find(data)
    except PickleRefused as error:
        raise PickleRefused(f"{what}: {error}") from None
    if not form.little:
        raise GlobalRefused(f"{what}: its numbers are in big-endian order; trust=True unpickles it")
    view = memoryview(data)

    def storage(key: str) -> Any:
        try:
            begin, length = form.storages[key]
        except KeyError:
            raise PickleRefused(f"storage {key[:50]!r} is missing") from None
        return bytearray(view[begin:begin + length]) if read is None else read(begin, length)

    make = partial(Values, table=table or item_table(), storage=storage,
                   restore=torch.serialization._get_restore_location(map_location))
    return _checked(unpickle(make, view[slice(*form.pickle)], what), what)


def _checked(value: Any, what: str) -> Any:
    try:
        check_values(value)
    except GlobalRefused as error:
        raise GlobalRefused(f"{what}: {error}") from None
    return value


def judge_item(data: bytes) -> PickleRefused | None:
    """Whether decode_item(data) will work. None: yes. A GlobalRefused, not raised: only with trust,
    and its text names the class. Any other PickleRefused: never."""
    try:
        decode_item(data)
    except PickleRefused as error:
        return error
    return None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise PickleRefused(f"item: {error}") from None


def _by_torch(data: bytes, map_location: Any) -> Any:
    try:
        return torch.load(io.BytesIO(data), map_location=map_location, weights_only=False)
    except pickle.UnpicklingError as error:
        raise PickleRefused(f"item: {error}") from None
