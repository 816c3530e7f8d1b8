# SPDX-License-Identifier: Apache-2.0
"""`.metadata` and small items as Python objects, decoded from a table of globals.

`.metadata` is proved by the library's own reader first, then read by Python's C unpickler; where
the library has no such reader, by the slower one that needs no proof. Small items are what a
checkpoint has thousands of: atoms and containers of them take about a microsecond each.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from .. import _ffi
from ..errors import HearthCorrupt, HearthLibraryMissing
from ._metadata import check_metadata
from ._unpickle import (
    Fast,
    GlobalRefused,
    Globals,
    PickleRefused,
    Strict,
    gc_paused,
    is_flat,
    may_share,
    prove_shape,
    unpickle,
)

__all__ = ["GlobalRefused", "PickleRefused", "decode_item", "encode_item", "is_plain",
           "judge_item", "load_metadata"]


# ---- functions that a pickle may call ---------------------------------------------------------


def _exact(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{what} is made of a {type(value).__name__}")
    return value


def _size(dims: Any) -> torch.Size:
    return torch.Size(_exact(dims, tuple, "a size"))


def _memory_format(number: Any) -> Any:
    return dcp._MEM_FORMAT_ENCODING(_exact(number, int, "a memory format"))


def _member(owner: Any, name: Any) -> Any:
    """builtins.getattr, for members of one enum."""
    if owner is not _memory_format or name not in dcp._MEM_FORMAT_ENCODING.__members__:
        raise TypeError("builtins.getattr is not allowed but for members of _MEM_FORMAT_ENCODING")
    return dcp._MEM_FORMAT_ENCODING[name]


def _path_maker(kind: type) -> Callable[..., Any]:
    def make(*parts: Any) -> Any:
        return kind(*[_exact(part, str, "a path") for part in parts])

    return make


def _layout(name: Any) -> torch.layout:
    return _layouts()[name]


def _no_bytes() -> bytes:
    return b""


def _latin1(text: Any, encoding: Any) -> bytes:
    if encoding != "latin1":
        raise TypeError("_codecs.encode is not allowed but with latin1")
    return _exact(text, str, "bytes").encode("latin1")


def _ordered() -> OrderedDict:
    """Its items follow one by one."""
    return OrderedDict()


def _set(items: Any) -> set:
    if not all(map(is_flat, _exact(items, list, "a set"))):
        raise TypeError("a set of nested tuples")
    return set(items)


# ---- tables -----------------------------------------------------------------------------------


@lru_cache(None)
def _layouts() -> dict[str, torch.layout]:
    return {str(v): v for v in vars(torch).values() if isinstance(v, torch.layout)}


@lru_cache(None)
def dtypes() -> dict[str, torch.dtype]:
    """Every dtype of torch by its name, "float32"."""
    return {str(v)[6:]: v for v in vars(torch).values() if isinstance(v, torch.dtype)}


@lru_cache(None)
def _metadata_globals() -> Globals:
    module = dcp.__name__
    old = "torch.distributed._shard.sharded_tensor.metadata"
    table: dict[tuple[str, str], Any] = {
        (module, kind.__name__): kind
        for kind in (dcp.Metadata, dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata,
                     dcp.BytesStorageMetadata, dcp.TensorProperties, dcp.MetadataIndex,
                     dcp.StorageMeta)}
    table[_StorageInfo.__module__, "_StorageInfo"] = _StorageInfo
    table[module, "_MEM_FORMAT_ENCODING"] = table[old, "MEM_FORMAT_ENCODING"] = _memory_format
    table[old, "TensorProperties"] = dcp.TensorProperties
    table["builtins", "getattr"] = _member
    table["torch", "Size"] = _size
    table["torch.serialization", "_get_layout"] = _layout
    table.update({("torch", name): dtype for name, dtype in dtypes().items()})
    for package in ("pathlib", "pathlib._local"):
        table[package, "PosixPath"] = _path_maker(PosixPath)
        table[package, "PurePosixPath"] = _path_maker(PurePosixPath)
        table[package, "WindowsPath"] = _path_maker(PureWindowsPath)
        table[package, "PureWindowsPath"] = _path_maker(PureWindowsPath)
    return table


@lru_cache(None)
def item_globals() -> Globals:
    """What small items and plain containers are made of."""
    table: dict[tuple[str, str], Any] = {
        ("_codecs", "encode"): _latin1,
        ("collections", "OrderedDict"): _ordered,
        ("torch", "Size"): _size,
        ("torch", "device"): torch.device,
    }
    for module in ("__builtin__", "builtins"):
        table[module, "bytes"] = _no_bytes
        table[module, "set"] = _set
        table[module, "complex"] = complex
    table.update({("torch", name): dtype for name, dtype in dtypes().items()})
    return table


# ---- `.metadata` ------------------------------------------------------------------------------


def _proved(data: bytes) -> bool:
    """Whether the library's reader took `data` as a sound `.metadata`, types, dimensions and names
    of files included; False where there is no such reader. Raises PickleRefused."""
    try:
        library = _ffi.library()
    except HearthLibraryMissing:
        return False
    if not hasattr(library, "hearth_metadata_open"):
        return False
    opened = ctypes.c_void_p()
    library.hearth_metadata_close.argtypes = [ctypes.c_void_p]
    library.hearth_metadata_close.restype = None
    try:
        _ffi.call("hearth_metadata_open", ctypes.c_char_p(data), ctypes.c_size_t(len(data)),
                  ctypes.byref(opened))
    except HearthCorrupt as error:
        raise PickleRefused(f"metadata: {error}", error.code, error.name) from None
    library.hearth_metadata_close(opened)
    return True


def load_metadata(data: bytes) -> dcp.Metadata:
    """A `.metadata` of torch 2.2 to 2.13 as its real classes; types and dimensions are checked
    before anybody sees it. Raises PickleRefused."""
    proved = _proved(data)
    kind = Fast if proved else Strict
    with gc_paused():
        value = unpickle(lambda file: kind(file, _metadata_globals()), data, "metadata")
        try:
            if not proved:
                check_metadata(value)
        except (TypeError, ValueError, AttributeError) as error:
            raise PickleRefused(f"metadata: {error}") from None
    return value


# ---- small items ------------------------------------------------------------------------------

# The plain form of torch.save before its zip files: magic number, version, what wrote it; then the
# object; then the names of the storages, none here. torch.load reads it anywhere.
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_WROTE = {
    "protocol_version": _VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
PREFIX = b"".join(pickle.dumps(part, 2) for part in (_MAGIC, _VERSION, _WROTE))
SUFFIX = pickle.dumps([], 2)
_ATOMS = frozenset({int, float, bool, str, bytes, type(None)})
_CONTAINERS = frozenset({tuple, list, dict})
_SMALL = 4096  # bytes; nesting that fits in here cannot exhaust a stack

# Bytes that are opcodes which import (GLOBAL, INST, EXT*, STACK_GLOBAL) or name a place in the memo
# (PUT, LONG_BINPUT). Where none occurs, Python's loads() can make nothing but atoms and containers.
_DANGER = re.compile(rb"[ci\x82\x83\x84\x93pr]")
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


def decode_item(data: bytes, *, trust: bool = False) -> Any:
    """What encode_item() or torch.save made bytes of. Nothing in it is run.

    trust  take any object, and run what its pickle says: only for bytes of your own
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
        kind = Fast if tiny and not _MEMO_OR_STATE.search(body) else Strict
        try:
            return unpickle(lambda file: kind(file, item_globals()), body, "item")
        except GlobalRefused:
            pass  # torch's own list of what is safe is longer
    return _by_torch(data, trust)


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


def _by_torch(data: bytes, trust: bool) -> Any:
    if not trust:
        prove_shape(data)
    try:
        return torch.load(io.BytesIO(data), weights_only=not trust)
    except pickle.UnpicklingError as error:
        kind = GlobalRefused if "Unsupported global" in str(error) else PickleRefused
        raise kind(f"item: {error}") from None
    except Exception as error:  # whatever odd bytes make torch raise
        if trust:
            raise
        raise PickleRefused(f"item: {type(error).__name__}: {error}") from None
