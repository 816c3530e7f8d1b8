# SPDX-License-Identifier: Apache-2.0
"""The bytes of a `.metadata`, most of which are those of the save before.

Where a plan is used again and its items lie at the same places, two `.metadata` differ in their
storage_meta only: id of the checkpoint, id of the save. Pickling the rest takes 15 us a tensor. So
storage_meta is pickled last, and what comes before it is kept:

    class Metadata, a new object of it   ┐
    a dict with its other attributes     │ head: refers to no memo number but its own
    MARK                                 ┘
    "storage_meta", its value            ┐ tail: sets no memo number and fetches none
    SETITEMS, BUILD, STOP                ┘

A reader of it makes the object that pickle.dumps() describes. Each part is what a pickler has
written of a whole value, without the PROTO at its begin; the STOP at its end, which belongs to its
frame, is replaced by the opcode of one byte that comes next.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from typing import Any, NamedTuple

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import WriteResult

from . import _proof
from ._unpickle import gc_paused

_PROTOCOL = 4
_PROTO = bytes((0x80, _PROTOCOL))
_LAST = "storage_meta"
_NEW = copyreg.__newobj__, (Metadata,)  # type: ignore[attr-defined]
_KEY = pickle.SHORT_BINUNICODE + bytes((len(_LAST),)) + _LAST.encode()


def _alone(value: Any) -> bytes:
    """A pickle that uses no memo, so that it may stand anywhere in another one."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, _PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return file.getvalue()


def _push(dumped: bytes, then: bytes) -> bytes:
    """Opcodes that put a value on the stack, and one more opcode of one byte."""
    assert dumped.startswith(_PROTO) and dumped.endswith(pickle.STOP) and len(then) == 1
    return dumped[len(_PROTO):-1] + then


def _head(metadata: Metadata) -> bytes | None:
    """None: its class, or a later torch, pickles it in another way."""
    reduced = metadata.__reduce_ex__(_PROTOCOL)
    if type(reduced) is not tuple or reduced[:2] != _NEW or any(reduced[3:]):
        return None
    state: Any = reduced[2]
    if type(state) is not dict or _LAST not in state:
        return None
    before = {name: value for name, value in state.items() if name != _LAST}
    return (_PROTO + _push(_alone(Metadata), pickle.EMPTY_TUPLE) + pickle.NEWOBJ
            + _push(pickle.dumps(before, _PROTOCOL), pickle.MARK))


def _tail(metadata: Metadata) -> bytes:
    return (_KEY + _push(_alone(metadata.storage_meta), pickle.SETITEMS)
            + pickle.BUILD + pickle.STOP)


class _Last(NamedTuple):
    results: list[list[WriteResult]]
    head: bytes
    structure: int


class Dumped:
    """What was dumped last of one plan. Any thread."""

    def __init__(self) -> None:
        self._last: _Last | None = None

    @gc_paused()
    def of(self, metadata: Metadata, results: list[list[WriteResult]]) -> tuple[bytes, int]:
        """A save's `.metadata`, and its structure as _proof wants it.

        metadata  the same for each save of the plan, but for storage_meta, and for storage_data,
                  which is made of the results
        """
        last = self._last
        if last is None or last.results != results:
            head, structure = _head(metadata), _proof.structure(metadata)
            if head is None:
                return pickle.dumps(metadata, _PROTOCOL), structure
            last = self._last = _Last(results, head, structure)
        return last.head + _tail(metadata), last.structure
