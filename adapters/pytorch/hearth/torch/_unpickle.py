# SPDX-License-Identifier: Apache-2.0
"""Unpicklers with a table of globals: nothing is looked up by name, nothing else can be called.

Python's C unpickler can be made to ask for 64 GiB by ten bytes (a number in the memo), and any
unpickler to end the process: the hash of a tuple recurses, so a million of nested tuples as a key
exhaust the stack. Sixty that hold the one before twice keep it busy for years, with no way to stop
it. Fast is for bytes that were proved or are small; Strict is for all others.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo

from ..errors import HearthCorrupt

Globals = Mapping[tuple[str, str], Any]
SHALLOW = 32 << 10  # bytes: a pickle as short as this cannot nest deeply enough to do harm


class PickleRefused(HearthCorrupt, pickle.UnpicklingError):
    """A pickle that is damaged, or holds what it must not; the text names the global."""


class GlobalRefused(PickleRefused):
    """A pickle that names a global which is not in the table."""


def _look_up(table: Globals, module: str, name: str) -> Any:
    try:
        return table[module, name]
    except (KeyError, TypeError):
        raise GlobalRefused(f"global {module}.{name} is not allowed"[:300]) from None


class Fast(pickle.Unpickler):
    """Python's C unpickler with a table of globals."""

    def __init__(self, file: io.BytesIO, table: Globals) -> None:
        super().__init__(file)
        self._table = table

    def find_class(self, module: str, name: str) -> Any:
        return _look_up(self._table, module, name)


_FLAT = frozenset({str, int, float, bool, bytes, complex, type(None), torch.dtype, torch.device})
_BUILT = frozenset({
    dcp.Metadata, dcp.TensorStorageMetadata, dcp.ChunkStorageMetadata, dcp.StorageMeta,
    dcp.BytesStorageMetadata, dcp.MetadataIndex, _StorageInfo, OrderedDict})
# What writers use. No EXT*, INST, OBJ, NEWOBJ_EX, FROZENSET, buffers, or numbers as text.
_OPCODES = (b"\x80\x95\x94hjqr\x8c\x8dXTU\x93c)\x85\x86\x87(t]ae}su\x8f\x90\x81RbN\x88\x89KMJ"
            b"\x8a\x8bG.BC\x8eQ")
_python = pickle._Unpickler  # type: ignore[attr-defined]


_PARTS = 1000  # of all tuples in a key, counted wherever they are held again

# Opcodes that make a tuple, take something again, and hash. It takes all three to share parts.
_TUPLE, _AGAIN = re.compile(rb"[t\x85\x86\x87]"), re.compile(rb"[2ghj]")
_HASH = re.compile(rb"[su\x90\x91]")


def may_share(data: bytes) -> bool:
    """Whether a key in a pickle may hold tuples again and again. Text has such bytes, too."""
    return bool(_TUPLE.search(data) and _AGAIN.search(data) and _HASH.search(data))


def is_flat(key: Any, leaves: frozenset = _FLAT) -> bool:
    """Whether the hash of `key` takes neither much stack nor much time."""
    if type(key) is dcp.MetadataIndex:
        return is_flat(getattr(key, "fqn", None)) and is_flat(getattr(key, "offset", None))
    todo, parts = [key], 0
    while todo:
        part = todo.pop()
        if type(part) is not tuple and type(part) is not torch.Size:
            if type(part) not in leaves:
                return False
        elif part and leaves.issuperset(map(type, part)):
            parts += 1
        else:
            parts += 1 + len(part)
            todo.extend(part if parts <= _PARTS else ())
        if parts > _PARTS:
            return False
    return True


class Strict(_python):
    """Python's own unpickler with a table of globals and the opcodes that writers really use.
    Its memo is a dict and keys are flat, so neither memory nor stack can be asked for; a state is
    given to new records only, never to a class or function."""

    dispatch = {op: _python.dispatch[op] for op in _OPCODES}

    def __init__(self, file: io.BytesIO, table: Globals) -> None:
        super().__init__(file)
        self._table = table

    def find_class(self, module: str, name: str) -> Any:
        return _look_up(self._table, module, name)

    def load(self) -> Any:
        value = super().load()
        frame = self._unframer.current_frame
        if frame is not None and frame.read(1):
            raise PickleRefused("something follows the end")
        return value

    def flat(self, key: Any) -> bool:
        return is_flat(key)

    def _check_keys(self, keys: list) -> None:
        for key in keys:
            if not self.flat(key):
                raise PickleRefused(f"a key is a {type(key).__name__}")

    def load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        super().load_setitems()

    def load_additems(self) -> None:
        self._check_keys(self.stack)
        super().load_additems()

    def load_build(self) -> None:
        state, owner = self.stack[-1], self.stack[-2]
        named = type(state) is dict and all(type(name) is str for name in state)
        if not (type(owner) in _BUILT and named) and not (
                type(owner) is dcp.TensorProperties and type(state) is tuple):
            raise PickleRefused(f"a {type(owner).__name__} is given a state")
        super().load_build()

    dispatch[ord("s")] = load_setitem
    dispatch[ord("u")] = load_setitems
    dispatch[0x90] = load_additems
    dispatch[ord("b")] = load_build


class _Anything:
    """Stands for every object that a pickle could make; takes what it is given, and drops it."""

    def __new__(cls, *_args: Any) -> _Anything:
        return object.__new__(cls)

    def append(self, _value: Any) -> None:
        pass

    def extend(self, _values: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass


_LEAVES = _FLAT | {_Anything, type}


class _Everything(dict):
    def __missing__(self, _key: tuple[str, str]) -> type:
        return _Anything


class _Shape(Strict):
    """Goes through a pickle without making anything of it."""

    dispatch = dict(Strict.dispatch)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, _Everything())

    def flat(self, key: Any) -> bool:
        return is_flat(key, _LEAVES)

    def persistent_load(self, _name: Any) -> Any:
        return _Anything()

    def load_build(self) -> None:
        del self.stack[-1]

    dispatch[ord("b")] = load_build


def prove_stream(file: Any, count: int) -> None:
    """Go through the next `count` pickles of a file; PickleRefused if unpickling them could exhaust
    the stack. Of other harm torch.load(weights_only=True) takes care."""
    try:
        for _ in range(count):
            _Shape(file).load()
    except PickleRefused:
        raise
    except Exception as error:  # whatever odd bytes make Python raise
        raise PickleRefused(f"{type(error).__name__}: {error}"[:500]) from None


def prove_shape(data: bytes) -> None:
    """prove_stream() for what torch.save wrote, in either form."""
    if data[:2] != b"PK":
        if len(data) > SHALLOW or may_share(data):
            prove_stream(io.BytesIO(data), 4)  # magic number, version, what wrote it, the object
        return
    try:
        pickled = _pickle_of_zip(data)
    except PickleRefused:
        raise
    except Exception as error:  # whatever odd bytes make zipfile raise
        raise PickleRefused(f"{type(error).__name__}: {error}"[:500]) from None
    if len(pickled) > SHALLOW or may_share(pickled):
        prove_stream(io.BytesIO(pickled), 1)


def _pickle_of_zip(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED:
                raise PickleRefused(f"{info.filename[:100]!r} is compressed")
        for name in archive.namelist():
            if name.endswith("/data.pkl") or name == "data.pkl":
                return archive.read(name)
    raise PickleRefused("no data.pkl: torch.save did not write this")


@contextmanager
def gc_paused() -> Iterator[None]:
    """The collector would walk millions of new objects again and again: 9 µs a chunk."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def unpickle(kind: Callable[[io.BytesIO], Any], data: bytes, what: str) -> Any:
    """All of `data` as one object. Raises PickleRefused."""
    file = io.BytesIO(data)
    try:
        value = kind(file).load()
    except GlobalRefused as error:
        raise GlobalRefused(f"{what}: byte {file.tell()}: {error}") from None
    except Exception as error:  # whatever odd bytes make Python raise
        name = "" if isinstance(error, PickleRefused) else f"{type(error).__name__}: "
        raise PickleRefused(f"{what}: byte {file.tell()}: {name}{error}"[:500]) from None
    if file.tell() != len(data):
        raise PickleRefused(f"{what}: byte {file.tell()}: something follows the end")
    return value
