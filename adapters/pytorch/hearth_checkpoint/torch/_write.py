# SPDX-License-Identifier: Apache-2.0
"""The items of a plan that a rank writes: a staged item is found by its address, others are copied
now. Where the plan is the one of the save before, they are described to the library as they were,
with other addresses."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import (
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from ..errors import HearthError
from ..job import Job, Pieces, Save, save_bytes
from . import _copies, _parts, _proof, _stage
from ._pickles import encode_item
from ._given import SavePlanner as OwnPlanner
from ._process import DcpSave
from ._unpickle import gc_paused


def where_of(current: DcpSave) -> str:
    call = current.call
    part = f", part {call.part}" if call is not None and call.part is not None else ""
    return f"step {current.step} ({current.base}/{current.name}{part})"


def refuse_items(plan: SavePlan) -> None:
    """Of two items with one index a load would find one. Of a key that is no UTF-8 it would find
    none: `.metadata` has it as text."""
    seen = set()
    for item in plan.items:
        try:
            item.index.fqn.encode()
        except UnicodeEncodeError as error:
            wrong = ascii(error.object[error.start])
            raise HearthError(f"{ascii(item.index.fqn)}: this key has {wrong} at character "
                              f"{error.start}, which is no character that UTF-8 has, and cannot be "
                              "stored: give it another name") from None
        if item.index in seen and item.tensor_storage_size() != 0:
            offset = item.index.offset
            part = "this item" if offset is None else f"the part at {tuple(offset)}"
            raise HearthError(f"{item.index.fqn}: {part} is to be written twice in one save, and "
                              "one of the two would be lost")
        seen.add(item.index)


def _refuse_unplanned(item: WriteItem, tensor: torch.Tensor) -> None:
    """`.metadata` has what the plan says, and a load could not read another dtype or shape."""
    data = item.tensor_data
    if data is None or (tensor.dtype == data.properties.dtype and tensor.shape == data.chunk.sizes):
        return
    planned = data.properties.dtype, tuple(data.chunk.sizes)
    stored = tensor.dtype, tuple(tensor.shape)
    if stored != planned:
        raise HearthError(f"{item.index.fqn}: the planner gives {stored[0]} {stored[1]} to be "
                          f"stored, and the plan has {planned[0]} {planned[1]}, so that no load "
                          "could read it: a planner that changes tensors changes the plan as well")


def _locals(items: list[WriteItem], state: dict[str, Any]) -> list[torch.Tensor] | None:
    """The tensors of a flat state that the planner has found to be as the last one; None: they lie
    in memory in another way."""
    tensors = [state[item.index.fqn] for item in items]
    tensors = [value._local_tensor if type(value) is DTensor else value for value in tensors]
    odd = any(tensor.is_conj() or tensor.is_neg() or not _stage.has_memory(tensor)
              for tensor in tensors)
    return None if odd else tensors


def _first(tensors: Iterable[torch.Tensor]) -> list[int]:
    """The numbers of those that are the first of their dtype and dimensions."""
    kinds = {(tensor.dtype, tensor.dim()): number
             for number, tensor in reversed(list(enumerate(tensors)))}
    return sorted(kinds.values())


class Staged(NamedTuple):
    """What was written of a plan, by a save whose tensors were all staged.

    tensors    the items that are tensors
    places     of the copy: another dict if it is laid out in another way
    distances  of the tensors from the object's data
    name       of the object
    first      as of _Written
    """

    items: list[WriteItem]
    tensors: list[WriteItem]
    places: dict[int, _stage.Place]
    distances: list[int]
    name: str
    first: list[int]
    results: list[WriteResult]


class _Written:
    """What was written of a plan, by a save whose tensors were not staged.

    items    of the plan: it is another one if this is another list
    tensors  the items among them that are tensors
    first    the numbers of those that are the first of their dtype and dimensions
    pieces   of these, which one save at a time points to its tensors
    results  of all items, and the names and places that they are for
    """

    def __init__(self, items: list[WriteItem], path: tuple[str, ...],
                 fresh: list[tuple[WriteItem, torch.Tensor]], pieces: Pieces) -> None:
        self.items, self.path, self.pieces = items, path, pieces
        self.tensors = [item for item, _ in fresh]
        self.first = _first(tensor for _, tensor in fresh)
        self.lock = threading.Lock()
        self.results: tuple[Any, list[WriteResult]] | None = None


class Write:
    """One rank's write_data."""

    def __init__(self, job: Job, current: DcpSave, call: _parts.PartCall, plan: SavePlan,
                 planner: SavePlanner) -> None:
        self._job, self._current, self._planner = job, current, planner
        self._tensors = [i for i in plan.items if i.type != WriteItemType.BYTE_IO]
        self._bytes = [i for i in plan.items if i.type == WriteItemType.BYTE_IO]
        self._results: list[WriteResult] = []
        self._headers: list[_proof.Header] = []
        self._call, self._whole = call, call.whole
        self._name = call.object  # that items are written into
        self._items = plan.items
        self._plans = planner.plans if type(planner) is OwnPlanner else None
        self._kept: _Written | None = None  # whose pieces are used again, under its lock
        self.save: Save

    def run(self) -> list[WriteResult]:
        try:
            return self._run(*(self._again() or self._staged_again() or self._anew()))
        finally:
            if self._kept is not None:
                self._kept.lock.release()

    def _again(self) -> tuple[list[tuple[WriteItem, torch.Tensor]], Pieces] | None:
        """The tensors, and the pieces of the save before with their addresses. The lock of these is
        held then."""
        kept = None if self._plans is None else self._plans.written
        if (kept is None or kept.items is not self._items or kept.path != self._call.path
                or self._current.staged is not None):
            return None
        tensors = _locals(kept.tensors, self._planner.state_dict)
        if tensors is None or not kept.lock.acquire(blocking=False):
            return None
        self._kept = kept
        kept.pieces.point_to([tensor.data_ptr() for tensor in tensors])
        return list(zip(kept.tensors, tensors)), kept.pieces

    @gc_paused()
    def _staged_again(self) -> tuple[list[tuple[WriteItem, torch.Tensor]], Pieces] | None:
        """Note the results of the save before, where all tensors lie in the copy as they did."""
        kept = None if self._plans is None else self._plans.staged
        staged = self._current.staged
        if (kept is None or staged is None or kept.items is not self._items
                or kept.places is not staged.places or kept.name != self._name):
            return None
        tensors = _locals(kept.tensors, self._planner.state_dict)
        if tensors is None or kept.distances != [
                tensor.data_ptr() - staged.base for tensor in tensors]:
            return None
        self._results += kept.results
        for number in kept.first:
            self._note_header(staged.save, kept.tensors[number], tensors[number],
                              staged.places[kept.distances[number]].offset)
        self._prove_headers()
        return [], Pieces([])

    def _keep_staged(self, tensors: list[torch.Tensor]) -> None:
        """Where all tensors of a plan that may be used again lie in the copy."""
        staged = self._current.staged
        if (staged is None or self._plans is None or not self._plans.knows(self._items)
                or len(self._results) != len(self._tensors)):
            return
        self._plans.staged = Staged(
            self._items, self._tensors, staged.places,
            [tensor.data_ptr() - staged.base for tensor in tensors], self._name, _first(tensors),
            list(self._results))

    @gc_paused()
    def _anew(self) -> tuple[list[tuple[WriteItem, torch.Tensor]], Pieces]:
        """The tensors that are not staged, and their pieces."""
        tensors = [(item, self._tensor(item)) for item in self._tensors]
        is_staged = self._current.staged is not None
        fresh = self._staged_results(tensors)
        self._keep_staged([tensor for _, tensor in tensors])
        self._prove_headers()  # while their object is mapped
        sources = [_stage.Source((*self._call.path, item.index.fqn), tensor, *_box(item))
                   for item, tensor in fresh]
        pieces = Pieces(_stage.pieces_of(sources, again=self._current.staged is not None))
        if (self._plans is not None and self._plans.knows(self._items) and not is_staged
                and self._are_themselves(tensors)):
            kept = _Written(self._items, self._call.path, fresh, pieces)
            kept.lock.acquire()  # until this save has copied, no other one points them elsewhere
            self._kept = self._plans.written = kept
        return fresh, pieces

    def _are_themselves(self, tensors: list[tuple[WriteItem, torch.Tensor]]) -> bool:
        """Whether the library reads the state's own tensors, and no copies of them."""
        own = _locals(self._tensors, self._planner.state_dict)
        return own is not None and all(
            mine.data_ptr() == tensor.data_ptr() and mine.stride() == tensor.stride()
            for mine, (_, tensor) in zip(own, tensors))

    def _run(self, fresh: list[tuple[WriteItem, torch.Tensor]],
             pieces: Pieces) -> list[WriteResult]:
        stock = is_stock(self._planner)
        made = [self._blob(item, stock) for item in self._bytes]
        if not self._job.off:
            _proof.proof_of(self._current.base).items(where_of(self._current), made)
        keys = _stage.keys_of(blob.key for blob in made)
        blobs = [(key, blob.data) for key, blob in zip(keys, made)]
        gpu = _copies.on_gpus(tensor for _, tensor in fresh)
        self._make_room(pieces, blobs, gpu)
        before = len(self.save.places()) if pieces or blobs else 0
        if pieces:
            self.save.add(pieces)
        if gpu:  # the tensors are the caller's again when the save returns
            _copies.Copies(self.save, gpu).wait()
        if blobs:
            self.save.add_bytes(blobs)
        if pieces or blobs:
            self._written(self.save.places()[before:], fresh)
        self._prove_headers()
        return self._results

    @gc_paused()
    def _written(self, places: list[tuple[int, int]],
                 fresh: list[tuple[WriteItem, torch.Tensor]]) -> None:
        """Note where tensors and byte items lie that were copied now."""
        kept, where = self._kept, (self._name, places)
        if kept is not None and kept.results is not None and kept.results[0] == where:
            self._results += kept.results[1]
            for number in kept.first:
                self._note_header(self.save, *fresh[number], places[number][0])
            return
        for (item, tensor), (offset, length) in zip(fresh, places):
            self._tensor_result(self.save, item, tensor, offset, length)
        for item, (offset, length) in zip(self._bytes, places[len(fresh):]):
            self._result(item, self._name, offset, length)
        if kept is not None:
            kept.results = where, list(self._results)

    def _tensor(self, item: WriteItem) -> torch.Tensor:
        tensor = self._planner.resolve_data(item)
        _stage.refuse((item.index.fqn,), tensor)
        _refuse_unplanned(item, tensor)
        return _copies.copyable(tensor.detach())

    def _blob(self, item: WriteItem, stock: bool) -> _proof.Blob:
        """A byte item; with a stock planner, without its torch.save."""
        key = ".".join((*self._call.path, item.index.fqn))
        if stock:
            value = self._planner.lookup_object(item.index)
            return _proof.Blob(key, encode_item(value), type(value))
        return _proof.Blob(key, self._planner.resolve_data(item).getbuffer().tobytes())

    def _staged_results(
            self, tensors: list[tuple[WriteItem, torch.Tensor]]
    ) -> list[tuple[WriteItem, torch.Tensor]]:
        """Note those that lie in the staged save; the others come back."""
        staged = self._current.staged
        if staged is None:
            return tensors
        fresh = []
        for item, tensor in tensors:
            place = staged.places.get(tensor.data_ptr() - staged.base) if tensor.nbytes else None
            if place is None or not place.has(tensor):
                fresh.append((item, tensor))
            else:
                self._tensor_result(staged.save, item, tensor, place.offset, place.length)
        if (self._call.part is None and tensors and not self._results
                and not _stage.lies_in(staged.save, [t for _, t in fresh])):
            self._whole.restart()  # nothing of it is written, nor read from it
            self._current.staged, self._call.object = None, ""
        return fresh

    def _make_room(self, pieces: Pieces, blobs: list[tuple[bytes, bytes]],
                   gpu: list[torch.Tensor]) -> None:
        """A save of this step with room for what is to come: behind what was staged, if that is
        still the open object, else in one more."""
        need = save_bytes(pieces, blobs)
        whole, staged = self._whole, self._current.staged
        if whole.object:
            whole.has_step()
        if staged is not None and whole.object == self._call.object:
            more = need > staged.room
        else:
            more = need > 0 or not whole.object
        if more:
            self._name = whole.open_object(self._job, need, 60.0, gpu=gpu)
        else:
            whole.follow(gpu)
        self.save = whole.has_step()

    def _result(self, item: WriteItem, name: str, offset: int, length: int) -> None:
        self._results.append(WriteResult(
            index=item.index, size_in_bytes=length,
            storage_data=_StorageInfo(name, offset, length)))

    def _tensor_result(self, save: Save, item: WriteItem, tensor: torch.Tensor, offset: int,
                       length: int) -> None:
        """Note the item, and where its header lies while the object is being written."""
        self._result(item, self._name, offset, length)
        self._note_header(save, item, tensor, offset)

    def _note_header(self, save: Save, item: WriteItem, tensor: torch.Tensor, offset: int) -> None:
        """Note the first of each dtype and number of dimensions."""
        known = tensor.dtype, tensor.dim()
        if known not in self._whole.headers and not self._job.off:
            self._whole.headers[known] = self._name, offset
            base, _ = self._call.span if self._name == self._call.object else save.data()
            self._headers.append(_proof.Header(
                item.index.fqn, tensor.dtype, tuple(tensor.shape), base + offset))

    def _prove_headers(self) -> None:
        _proof.proof_of(self._current.base).headers(where_of(self._current), self._headers)
        self._headers.clear()


def _box(item: WriteItem) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    data = item.tensor_data
    if data is None or data.chunk is None:
        return None, None
    return tuple(data.size), tuple(data.chunk.offsets)


def is_stock(planner: SavePlanner) -> bool:
    """Byte items may be taken from the planner's state without its torch.save."""
    def own(name: str) -> object:  # of its class, or put on this one planner
        return getattr(getattr(planner, name, None), "__func__", None)

    return (own("resolve_data") is DefaultSavePlanner.resolve_data
            and own("transform_object") is DefaultSavePlanner.transform_object)
