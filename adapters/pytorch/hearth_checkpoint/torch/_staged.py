# SPDX-License-Identifier: Apache-2.0
"""A rank's state copied into pool memory: one object of it, or one of each part."""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any

from ..errors import HearthError
from ..job import Checkpoint, Job, Save, save_bytes
from . import _parts, _proof, _stage
from ._skeleton import Skeleton, with_places


def object_name(rank: int, part: str | None = None) -> str:
    """Of a rank's state, or of a part of it."""
    return f"checkpoint_{rank}.pt" if part is None else f"checkpoint_{rank}.{part}.pt"


def parts_of(checkpoint: Checkpoint, rank: int) -> dict[str, str]:
    """The parts that a rank has written, and their objects."""
    form = re.compile(rf"checkpoint_{rank}\.([\w-]+)\.pt")
    for everywhere in (False, True):
        named = [form.fullmatch(name) for name in sorted(
            {item.object for item in checkpoint.items(everywhere)})]
        found = {match[1]: match[0] for match in named if match}
        if found:
            return found
    return {}


class StagedObject(dict):
    """A state's copy in pool memory, with the save that it belongs to. To others it is a dict,
    whose tensors are readable until it is written or given up; it is empty then.

    base  of the job that the copy is in
    turn  of a part: the save is its group's, and what gives the copy up fails all of it
    """

    def __init__(self, state: dict, save: Save, items: list[tuple[bytes, bytes]],
                 step: int | None, blobs: list[_proof.Blob],
                 turn: _parts.Turn | None = None) -> None:
        super().__init__(state)
        self.blobs = blobs  # to be proved before it is committed
        self._lock = threading.Lock()
        self._save: Save | None = save
        self.items_left = items  # to be added when the step is known
        self.base, self.step, self.turn = save.job.base, step, turn
        self._end = (weakref.finalize(self, Save.abort, save) if turn is None
                     else weakref.finalize(self, _drop, turn))
        self._end.atexit = False

    def take(self) -> Save:
        """The save, once."""
        with self._lock:
            save, self._save = self._save, None
        if save is None:
            raise HearthError("this staged state was written already, or given up by a later one")
        self._end.detach()
        self.clear()  # its tensors' memory is the library's again
        return save

    def give_up(self) -> None:
        """Free its memory unless it was taken. Twice is harmless."""
        with self._lock:
            save, self._save = self._save, None
        if save is not None:
            self.clear()
            self._end()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _drop(turn: _parts.Turn) -> None:
    """A part that was staged is not written."""
    turn.drop()
    turn.over.set()


def stage(job: Job, state: Any, rank: int, boxes: _stage.Boxes, wait_s: float,
          step: int | None, ranks: tuple[int, ...] | None = None) -> StagedObject:
    """Copy a state into a new save: one call copies all tensors. step None: it is said later, and
    the copy can be read."""
    skeleton = Skeleton(state, boxes)
    pieces = _stage.pieces_of(skeleton.sources)
    items = skeleton.items()
    save = job.begin(step, save_bytes(pieces, items), name=object_name(rank), wait_s=wait_s,
                     ranks=ranks)
    try:
        addresses = save.stage(pieces) if pieces else []
        items = with_places(items, save.places())
        return StagedObject(
            _copy(skeleton, addresses, step), save, items, step, skeleton.blobs(items))
    except BaseException:
        save.abort()
        raise


def stage_part(job: Job, state: Any, rank: int, boxes: _stage.Boxes, wait_s: float,
               turn: _parts.Turn, parts: tuple[str, ...], ranks: tuple[int, ...] | None,
               step: int | None = None) -> StagedObject:
    """The same into one more object of the save that is open, whole: the next part's comes behind
    it."""
    group = turn.group
    try:
        turn.join(parts, step, ranks)
        skeleton = Skeleton(state, boxes, turn.part)
        pieces = _stage.pieces_of(
            source._replace(path=(turn.part, *source.path)) for source in skeleton.sources)
        items = skeleton.items()
        with group.lock:
            group.open_object(job, save_bytes(pieces, items), wait_s, object_name(rank, turn.part))
            save = group.save
            addresses = save.stage(pieces) if pieces else []
            items = with_places(items, save.places())
            save.add_bytes(items)
        return StagedObject(
            _copy(skeleton, addresses, step), save, [], step, skeleton.blobs(items), turn)
    except BaseException as error:
        turn.fail(f"{error}")
        turn.over.set()
        raise


def _copy(skeleton: Skeleton, addresses: list[int], step: int | None) -> dict[str, Any]:
    if step is not None:
        return {}
    built = skeleton.rebuild(list(_stage.views(addresses, skeleton.sources)))
    return built if isinstance(built, dict) else {"state": built}
