# SPDX-License-Identifier: Apache-2.0
"""A rank's state copied into pool memory: one object of it, or one of each part."""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any

from ..errors import HearthError
from ..job import Checkpoint, Job, Pieces, Save, save_bytes
from . import _parts, _proof, _stage
from ._copies import Copies, on_gpus
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
    whose tensors are readable until it is written or given up; it is empty then. Those that were in
    GPU memory have their values when wait() has returned.

    base   of the job that the copy is in
    call   that wrote it: what gives the copy up fails the whole save
    blobs  to be proved before it is committed
    """

    def __init__(self, state: dict, save: Save, blobs: list[_proof.Blob],
                 call: _parts.PartCall, copies: Copies | None) -> None:
        super().__init__(state)
        self._lock = threading.Lock()
        self._save: Save | None = save
        self.base, self.blobs, self.call = save.job.base, blobs, call
        self.copies = copies
        self._end = weakref.finalize(self, _drop, call)
        self._end.atexit = False

    def wait(self) -> None:
        """Until nothing is being copied out of GPU memory any more. Raises HearthError where a copy
        has failed, and with it the save."""
        if self.copies is not None:
            self.copies.wait()

    def take(self) -> Save:
        """The save, once, with all its bytes. Raises HearthError: they did not come."""
        self.wait()
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


def _drop(call: _parts.PartCall) -> None:
    """What was staged is not written."""
    call.drop()
    call.over.set()


def stage(job: Job, state: Any, rank: int, shards: _stage.ShardOffsets, wait_s: float,
          call: _parts.PartCall, parts: tuple[str, ...] | None, ranks: tuple[int, ...] | None,
          step: int | None = None) -> StagedObject:
    """Copy a state into one more object of a save, at once for all tensors. step None: it is said
    later, and the copy can be read."""
    whole = call.whole
    try:
        call.join(parts or (), step, ranks)
        skeleton = Skeleton(state, shards, call.part)
        if job.off:
            skeleton.sources = _stage.on_host(skeleton.sources)
        pieces = Pieces(_stage.pieces_of(
            source._replace(path=(*call.path, *source.path)) for source in skeleton.sources))
        kinds = [(source.tensor.dtype, source.tensor.shape) for source in skeleton.sources]
        gpu = on_gpus(source.tensor for source in skeleton.sources)
        items = skeleton.items()
        with whole.lock:
            whole.open_object(job, save_bytes(pieces, items), wait_s, object_name(rank, call.part),
                              gpu)
            save = whole.save
            addresses, copies = _stage.copy_in(save, pieces, gpu, kinds)
            items = with_places(items, save.places())
            save.add_bytes(items)
        return StagedObject(
            _copy(skeleton, addresses, kinds, step), save, skeleton.blobs(items), call, copies)
    except BaseException as error:
        call.fail(f"{error}")
        call.over.set()
        raise


def _copy(skeleton: Skeleton, addresses: list[int], kinds: _stage.Kinds,
          step: int | None) -> dict[str, Any]:
    if step is not None:
        return {}
    built = skeleton.rebuild(list(_stage.views(addresses, kinds)))
    return built if isinstance(built, dict) else {"state": built}
