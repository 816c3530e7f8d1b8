# SPDX-License-Identifier: Apache-2.0
"""A save is proved: before it is committed, its items are read back by the code that a load will
use. If an item cannot be loaded, the save fails while the save before it is still there.

    byte items    each one's bytes are judged as HearthReader decodes them
    headers       one of each dtype and number of dimensions, out of the pool
    `.metadata`   as it goes to the nodes

It takes place where the save is written, beside the trainer, and once for a structure: an item
again when it has become another kind of thing, `.metadata` when keys, kinds, dtypes or shapes are
others, all of it under another torch.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from .. import _ffi
from ..errors import HearthError, HearthNotFound
from ..job import Checkpoint, Handle, Job
from ._metadata import Spoiled
from ._pickles import PREFIX, GlobalRefused, decode_item, dtypes, judge_item, load_metadata
from ._unpickle import Fast, PickleRefused, Table, unpickle

_log = logging.getLogger("hearth_checkpoint")
_LISTED = 10  # keys in one line
_KEPT = 1 << 20  # items and structures that are remembered, before all of it is forgotten
_LOOKED_AT = 1 << 20  # bytes of an item in which its classes are looked for
_GLOBAL = re.compile(rb"c([\w.]+\n[\w.]+)\n")  # as protocol 2 names a class, which torch.save takes
_STACK_GLOBAL = b"\x93"  # as later ones do


class Blob(NamedTuple):
    """A byte item.

    key   of the state
    kind  the class that it was made of; None: a planner of the user's gave the bytes
    """

    key: str
    data: bytes
    kind: type | None = None


class Header(NamedTuple):
    """The header of a tensor that was written."""

    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    address: int


def short(error: BaseException) -> str:
    """An error in one line: torch's own have pages of advice."""
    return str(error).split("\n")[0][:300]


# ---- kinds --------------------------------------------------------------------------------------


def _kind(blob: Blob) -> Any:
    """What sort of thing it is: its class, and the classes that its pickle names."""
    if blob.kind is not None and blob.data.startswith(PREFIX):
        return blob.kind
    seen = blob.data[:_LOOKED_AT]
    if blob.kind is None and _STACK_GLOBAL in seen:
        return hash(blob.data)
    return blob.kind, frozenset(_GLOBAL.findall(seen))


def structure(metadata: Metadata) -> int:
    """Keys, kinds, dtypes and shapes; not where the bytes lie."""
    entries = tuple([(key, *_entry(entry)) for key, entry in metadata.state_dict_metadata.items()])
    paths: Any = metadata.planner_data
    if isinstance(paths, dict):
        paths = tuple(paths.items())
    places = metadata.storage_data or {}
    rest = tuple((name, type(value)) for name, value in sorted(vars(metadata).items()))
    all_of_it = (type(metadata), entries, paths, frozenset(map(type, places.values())), rest)
    try:
        return hash(all_of_it)
    except TypeError:  # a planner's own sort of path or property
        return hash(repr(all_of_it))


def _entry(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, TensorStorageMetadata):
        return (type(entry),)
    properties, chunks = entry.properties, entry.chunks
    return (type(entry), tuple(entry.size), len(chunks), type(chunks[0]) if chunks else None,
            type(properties), tuple(vars(properties).values()))


# ---- headers ------------------------------------------------------------------------------------


Headers = Mapping[tuple[torch.dtype, int], tuple[str, int]]


class _TensorHeader:
    """As ml-flashpoint has it: what is in front of each tensor."""

    dtype: torch.dtype
    shape: torch.Size


@lru_cache(None)
def _header_table() -> Table:
    names: dict[tuple[str, str], Any] = {("torch", name): kind for name, kind in dtypes().items()}
    names["torch", "Size"] = torch.Size
    names["ml_flashpoint.core.tensor_header", "TensorHeader"] = _TensorHeader
    return Table(names)


def read_header(data: bytes) -> tuple[torch.dtype, tuple[int, ...]]:
    """dtype and shape of [u32 length][pickle]. Raises PickleRefused."""
    header = unpickle(lambda file: Fast(file, _header_table()), data[4:], "header")
    if type(header) is not _TensorHeader:
        raise PickleRefused(f"header: it is a {type(header).__name__}")
    return header.dtype, tuple(header.shape)


def _header_bytes(address: int) -> bytes:
    length = int.from_bytes(ctypes.string_at(address, 4), "little")
    if not 0 < length <= 4096:
        raise PickleRefused(f"header: its length is given as {length} bytes")
    return ctypes.string_at(address, 4 + length)


def _same(saved: Metadata, loaded: Metadata) -> None:
    """A reader leaves out what it does not know: here nothing may be."""
    for key, entry in saved.state_dict_metadata.items():
        got = loaded.state_dict_metadata.get(key)
        if isinstance(got, Spoiled):
            raise PickleRefused(f"{key}: its entry is made of {type(got)}")
        if type(got) is not type(entry):
            raise PickleRefused(f"{key}: its entry is a {type(got).__name__} there, not a "
                                f"{type(entry).__name__}")
    for name in ("storage_data", "planner_data"):
        were, are = (len(getattr(value, name) or ()) for value in (saved, loaded))
        if were != are:
            raise PickleRefused(f"its {name} has {are} of {were} entries there")


# ---- proofs -------------------------------------------------------------------------------------


class Proof:
    """What was proved of a job's saves in this process. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget("")

    def _forget(self, version: str) -> None:
        self._version = version
        self._items: dict[str, Any] = {}
        self._structures: set[Any] = set()

    def _begin(self) -> None:
        with self._lock:
            full = len(self._items) + len(self._structures) > _KEPT
            if full or self._version != torch.__version__:
                self._forget(torch.__version__)

    def items(self, where: str, blobs: Iterable[Blob]) -> None:
        """Judge those that were not judged yet. HearthError by key for what nobody will decode; a
        line in the log for what wants trust.

        where  begins the sentences: "step 5"
        """
        self._begin()
        untrusted: list[tuple[str, str]] = []
        for blob in blobs:
            kind = _kind(blob)
            if self._items.get(blob.key, self) == kind:
                continue
            refused = judge_item(blob.data)
            if refused is not None:
                if blob.kind is not None and not isinstance(refused, GlobalRefused):
                    self._try_with_trust(where, blob)
                untrusted.append((blob.key, short(refused)))
            self._items[blob.key] = kind
        if untrusted:
            _warn(where, untrusted)

    @staticmethod
    def _try_with_trust(where: str, blob: Blob) -> None:
        try:
            decode_item(blob.data, trust=True)
        except Exception as error:  # whatever unpickling it raises
            raise HearthError(
                f"{where}: {blob.key}: this item could not be decoded by a load, not even with "
                f"trust=True: {short(error)} (torch {torch.__version__}); the save was given up"
            ) from None

    def headers(self, where: str, headers: Iterable[Header]) -> None:
        """Read one of each dtype and number of dimensions back."""
        self._begin()
        for header in headers:
            kind = header.dtype, len(header.shape)
            if kind in self._structures:
                continue
            try:
                found = read_header(_header_bytes(header.address))
                if found != (header.dtype, header.shape):
                    raise PickleRefused(f"header: it has {found[0]} {found[1]}")
            except PickleRefused as error:
                raise HearthError(
                    f"{where}: {header.key}: the header of this tensor, {header.dtype} "
                    f"{header.shape}, could not be read by a load: {short(error)}; the save was "
                    "given up") from None
            self._structures.add(kind)

    def metadata(self, where: str, name: str, metadata: Metadata, data: bytes, of: int) -> bool:
        """Read a `.metadata` back; whether that was done, which it is once for a structure.

        of  structure(metadata)
        """
        self._begin()
        known = name, of
        if known in self._structures:
            return False
        try:
            _same(metadata, load_metadata(data))
        except PickleRefused as error:
            raise HearthError(
                f"{where}: its {name} could not be loaded again: {short(error)} (torch "
                f"{torch.__version__}); the save was given up, and what is in memory stays"
            ) from None
        self._structures.add(known)
        return True

    def after_commit(self, where: str, job: Job, step: int, handle: Handle, name: str,
                     data: bytes, headers: Headers) -> None:
        """Open the committed save as a load does: `.metadata` is the one that was given, and of
        each (dtype, dimensions) a tensor is at its (object, offset). Where it is not PROTECTED by
        then, a load would have to wait for that, and nothing is done."""
        if handle.test().level < _ffi.LEVELS["PROTECTED"]:
            return
        try:
            checkpoint = job.checkpoint(step)
        except HearthNotFound:
            return  # a newer save has taken its place
        try:
            _look(where, checkpoint, name, data, headers)
        except BaseException:
            with self._lock:
                self._forget("")  # it is tried again with the next save
            raise
        finally:
            checkpoint.close()


def _warn(where: str, untrusted: Sequence[tuple[str, str]]) -> None:
    said = "; ".join(f"{key} ({why})" for key, why in untrusted[:_LISTED])
    more = f"; and {len(untrusted) - _LISTED} more" if len(untrusted) > _LISTED else ""
    _log.warning("hearth: %s: a load will need trust=True for %s%s", where, said, more)


def _look(where: str, checkpoint: Checkpoint, name: str, data: bytes, headers: Headers) -> None:
    if checkpoint.common(name) != data:
        raise HearthError(f"{where}: the {name} that memory gives is not the one that was saved")
    for (dtype, dims), (place, offset) in headers.items():
        item = checkpoint.item_in(place, offset)
        if item.dtype != str(dtype)[6:] or len(item.shape) != dims:
            raise HearthError(
                f"{where}: {item.key.decode(errors='replace')} in {place} is {item.dtype} "
                f"{item.shape} in memory, and was saved as {dtype} of {dims} dimensions")


_proofs: dict[str, Proof] = {}
_lock = threading.Lock()


def proof_of(base: str) -> Proof:
    """The proofs of a job's saves."""
    with _lock:
        return _proofs.setdefault(base, Proof())
