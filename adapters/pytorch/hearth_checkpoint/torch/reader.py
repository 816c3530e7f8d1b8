# SPDX-License-Identifier: Apache-2.0
"""HearthReader: torch.distributed.checkpoint loads from peers' memory.

    dcp.load(state, checkpoint_id="/mnt/hearth/job/step-10_ckpt", storage_reader=HearthReader())

Tensors go straight from pool memory, or from the peer that holds them, into the targets: the boxes
that a plan asks for are read with one C call. Items that other programs wrote (ml-flashpoint, plain
DCP) are decoded by this package's own reader; no pickle of foreign bytes is ever run.

All that a plan asks for is looked up, and byte items are decoded, while DCP makes its plan: what is
missing or refused is an error on all ranks then, before any of them has written into its state.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint._extension import ExtensionRegistry, StreamTransformExtension
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    Metadata,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader

from ..errors import HearthError, HearthNotFound, HearthRefused
from ..job import Box, Checkpoint, Job, refuse_in_child
from . import _copies, _gpu, _jobs, _names, _parts, _targets
from ._pickles import PickleRefused, decode_item, load_metadata
from ._progress import Progress
from ._proof import short
from ._stage import dtype_name
from ._unpickle import gc_paused

HEAR_S = 5.0  # a save that is PROTECTED for the coordinator is heard of here in milliseconds
_MISS_S = 0.5  # the same, of a step that this process has not written: most likely there is none
_ARGUMENTS = ("base", "step", "step_of", "part", "trust", "extension_registry")
_GROUP_BYTES = 256 << 20  # read in one C call, so that Ctrl-C and progress come through


class Done:
    """A future that is done."""

    def wait(self) -> None:
        """Nothing to wait for."""

    def value(self) -> None:
        """No value."""


class _Blob(NamedTuple):
    """A byte item. value: decoded; a planner of the user's gets the bytes."""

    data: bytes
    value: Any


class HearthReader(StorageReader):
    """Reads DCP checkpoints of this job's nodes.

    base    "<root>/<job>"; None: the folder of the checkpoint_id, or HEARTH_ROOT/HEARTH_JOB
    step    where the checkpoint_id names none. None: the newest that is PROTECTED, or what the
            ranks recovered if that is newer
    step_of as HearthWriter's
    part    of a save that was written in parts: only this one, under its own names. An id such as
            "<base>/step-10_ckpt/model" says it as well. None: all of them, each name behind its
            part's and a dot
    extension_registry  as FileSystemReader's: undoes what a FileSystemWriter's _extensions did
    trust   True: byte items are unpickled as torch.load(weights_only=False) does it, which runs
            whatever code their writer put there
    opts    of hearth_checkpoint.job.Job.open(), when this is the first use of the job in the
            process. A job
            that is open already must have been opened with the same

    peer_bytes  of what the last load asked for: of items in objects that this node has no copy of
    """

    def __init__(self, base: str | os.PathLike | None = None, *, step: int | None = None,
                 step_of: _names.StepOf | None = None, part: str | None = None,
                 trust: bool = False,
                 extension_registry: ExtensionRegistry | None = None, **opts: Any) -> None:
        super().__init__()
        _jobs.check(opts, _ARGUMENTS)
        self._base = None if base is None else os.fspath(base)
        self._extensions = extension_registry
        self._step, self._step_of, self._trust, self._opts = step, step_of, trust, opts
        self._part = part
        self._id: str | None = None
        self._checkpoint: Checkpoint | None = None  # from read_metadata() until the data is read
        self._metadata: Metadata | None = None
        self._blobs: dict[str, _Blob] = {}  # read when the plan was made
        self._alone = False  # the metadata is this rank's own
        self.error: BaseException | None = None  # of read_metadata(), which DCP swallows
        self.peer_bytes = 0

    @property
    def checkpoint_id(self) -> str | None:
        """DCP logs it."""
        return self._id

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Another checkpoint is meant from here on. A bad id is refused in read_metadata()."""
        refuse_in_child()  # no other rank waits for a child
        self.close()
        self.error = None
        self._id = None if checkpoint_id is None else str(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """`.metadata`, through the restricted reader. With rank=: the one that rank wrote alone."""
        failed, self.error = self.error, None
        try:
            rank = kwargs.get("rank")
            if rank is None:  # a load begins: what one that failed has left open may be older
                self.close()
            if rank is not None and isinstance(failed, _parts.NoPart):
                raise failed  # there is a common one
            self._alone = rank is not None
            # DCP asks for a rank's own right after there was no common one: no need to wait again
            return self._read_metadata(rank, 0.0 if rank is not None and failed else HEAR_S)
        except Exception as error:
            self.error = error
            raise

    def common(self, name: str) -> bytes:
        """A file that every node has beside the objects, such as `common.pt`. Collective where the
        job is not open yet. Raises HearthNotFound."""
        before = self._checkpoint
        try:
            return self._open().common(name)
        finally:
            if before is None:
                self.close()

    def _read_metadata(self, rank: int | None, wait_s: float) -> Metadata:
        checkpoint = self._open(wait_s)
        name = ".metadata" if rank is None else f"__{rank}.metadata"
        try:
            metadata = load_metadata(checkpoint.common(name))
        except HearthNotFound as error:
            raise HearthRefused(
                f"{checkpoint.path}/{name}: {error}. The checkpoint is here, but it is none of "
                "torch.distributed.checkpoint's: was it saved with "
                "hearth_checkpoint.torch.experimental, or "
                "with use_collectives=False by other ranks?", error.code, error.name) from None
        except PickleRefused as error:
            raise HearthRefused(
                f"{checkpoint.path}/{name}: this reader does not take it: {error} (torch "
                f"{torch.__version__})", error.code, error.name) from None
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = f"hearth-{checkpoint.info.epoch:x}-{checkpoint.step}"
        part = _parts.same(self._part, self._split()[1])
        return metadata if part is None else _parts.view(metadata, part, checkpoint.path)

    def _split(self) -> tuple[Any, str | None]:
        """The id of the save, and the part that the id says."""
        return _parts.split(self._id, self._base, (), self._step_of, self._step)

    def _open(self, wait_s: float = HEAR_S) -> Checkpoint:
        """The checkpoint that is meant: a save of this epoch, or what was recovered."""
        if self._checkpoint is not None:
            return self._checkpoint
        checkpoint_id, _ = self._split()
        known = _jobs.known_base(checkpoint_id, self._base)
        if known is not None:  # collective the first time: before what may fail on one rank
            _jobs.membership(known, self._opts)
        if self._id is None and self._step is None:
            member = _jobs.membership(_jobs.base_of(self._base), self._opts)
            self._checkpoint = _newest(member)
        else:
            base, step = _jobs.resolve(
                checkpoint_id, self._base, self._step, self._step_of)
            member = _jobs.membership(base, self._opts)
            self._checkpoint = member.job.checkpoint(
                step, wait_s=wait_s if step <= member.wrote else min(wait_s, _MISS_S))
        return self._checkpoint

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any,
                              **kwargs: Any) -> None:
        """Where things lie."""
        self._metadata = metadata
        if metadata.storage_data is None:
            raise HearthError(f"{self._open().path}: its .metadata has no storage_data")

    @gc_paused()
    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Look up all that is asked for. What only peers hold begins to come. Which save it is goes
        along, to be compared."""
        checkpoint = self._open()
        blobs = [item for item in plan.items if item.type == LoadItemType.BYTE_IO]
        boxes, files = [], []
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                continue
            place = self._place(item)
            if self._is_ours(place):
                boxes.append(self._box(item, place, 1))
            else:
                files.append((place.relative_path, place.offset + place.length, 0))
        checkpoint.read_ranges(files)  # nothing of them, but they must be there
        self._blobs = dict(self._read_blobs(checkpoint, blobs))
        checkpoint.prefetch(boxes)  # last: to read elsewhere in an object ends what is on its way
        assert self._metadata is not None
        meta = self._metadata.storage_meta
        save_id = None if meta is None or self._alone else meta.save_id
        return dataclasses.replace(
            plan, storage_data=(checkpoint.step, checkpoint.info.epoch, save_id))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Each rank reads its own, all of the same save."""
        saves = {plan.storage_data: rank for rank, plan in reversed(list(enumerate(plans)))
                 if plan.storage_data is not None}
        if len(saves) > 1:
            (one, a), (other, b) = list(saves.items())[:2]
            raise HearthError(
                f"the ranks would load different saves: rank {a} {_say(one)}, rank {b} "
                f"{_say(other)}; give all of them the same checkpoint_id, after the save has ended")
        return plans

    def _place(self, item: ReadItem) -> Any:
        """The _StorageInfo of an item."""
        assert self._metadata is not None
        try:
            return self._metadata.storage_data[item.storage_index]
        except KeyError:
            raise HearthNotFound(
                f"{item.storage_index.fqn}: .metadata has no place for its chunk at "
                f"{item.storage_index.offset}") from None

    def _dtype(self, item: ReadItem) -> torch.dtype:
        assert self._metadata is not None
        entry = self._metadata.state_dict_metadata[item.storage_index.fqn]
        assert isinstance(entry, TensorStorageMetadata)
        return entry.properties.dtype

    def _box(self, item: ReadItem, place: Any, dst: int,
             strides: tuple[int, ...] | None = None, gpu: bool = False) -> Box:
        """The box of a tensor item at a place that is _is_ours()."""
        return Box(place.relative_path, place.offset, dtype_name(self._dtype(item)),
                   item.storage_offsets, item.lengths, dst, strides, gpu)

    def _is_ours(self, place: Any) -> bool:
        """Whether tensor items of this place's object are tensors with headers, and not files of
        torch.save, or what an extension has made of such."""
        if getattr(place, "transform_descriptors", None):
            return False
        known = self.__dict__.setdefault("_layouts", {})
        name = place.relative_path
        if name not in known:
            try:
                known[name] = self._open().item_in(name, place.offset).is_tensor
            except HearthNotFound:
                known[name] = False
        return known[name]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Done:
        """Everything the plan asks for, into the planner's tensors."""
        with self._closing() as checkpoint:
            places = [self._place(item) for item in plan.items]
            self.peer_bytes = self._from_peers(checkpoint, places)
            self._read_all(checkpoint, zip(plan.items, places), planner)
        return Done()

    @staticmethod
    def _from_peers(checkpoint: Checkpoint, places: list[Any]) -> int:
        """Bytes of the items at these places that are in no object of this node."""
        here = {name: os.path.exists(f"{checkpoint.path}/{name}")
                for name in {place.relative_path for place in places}}
        return sum(place.length for place in places if not here[place.relative_path])

    @contextmanager
    def _closing(self) -> Iterator[Checkpoint]:
        """The checkpoint, for the last time: while it is open its memory cannot be used again."""
        try:
            yield self._open()
        finally:
            self.close()

    def _read_all(self, checkpoint: Checkpoint, items: Iterable[tuple[ReadItem, Any]],
                  planner: LoadPlanner) -> None:
        """Read items, each with its place. Whatever may be found wrong comes before the first byte
        that is written."""
        fast, slow, blobs = self._sorted(items, planner)
        values = self._values(checkpoint, blobs, planner)
        raw = self._stored(checkpoint, [item for item, _ in slow])
        files = [self._decode(item, raw.pop(0)) for item, _ in slow]
        with Progress("hearth: load", sum(target.nbytes for _, _, target in fast)) as progress:
            self._read_boxes(checkpoint, fast, planner, progress)
        self._read_files(slow, files, planner)
        for put in values:
            put()

    @gc_paused()
    def _sorted(self, items: Iterable[tuple[ReadItem, Any]], planner: LoadPlanner) -> tuple[
            list[tuple[ReadItem, Any, torch.Tensor]], list[tuple[ReadItem, torch.Tensor]],
            list[ReadItem]]:
        """Tensors of our layout, those in files of torch.save, and byte items."""
        fast: list[tuple[ReadItem, Any, torch.Tensor]] = []
        slow: list[tuple[ReadItem, torch.Tensor]] = []
        blobs: list[ReadItem] = []
        for item, place in items:
            if item.type == LoadItemType.BYTE_IO:
                blobs.append(item)
            elif self._is_ours(place):
                fast.append((item, place, self._target(item, planner)))
            else:
                slow.append((item, self._target(item, planner)))
        return fast, slow, blobs

    @staticmethod
    def _target(item: ReadItem, planner: LoadPlanner) -> torch.Tensor:
        target = planner.resolve_tensor(item).detach()
        if target.size() != item.lengths:
            raise AssertionError(f"req {item.storage_index} mismatch sizes "
                                 f"{target.size()} vs {item.lengths}")
        _targets.check(item.dest_index.fqn, target)
        return target

    def _read_boxes(self, checkpoint: Checkpoint, items: list[tuple[ReadItem, Any, torch.Tensor]],
                    planner: LoadPlanner, progress: Progress) -> None:
        boxes: list[Box] = []
        after: list[tuple[torch.Tensor, torch.Tensor]] = []
        done: list[tuple[ReadItem, torch.Tensor]] = []
        size = 0

        def flush() -> None:
            nonlocal size
            _targets.write_to(target for _, target in done)
            _copies.in_order(target for _, target in done)
            checkpoint.read_boxes(boxes)
            for target, temporary in after:
                target.copy_(temporary)
            for item, target in done:
                planner.commit_tensor(item, target)
            progress.add(size)
            boxes.clear(), after.clear(), done.clear()
            size = 0

        for item, place, target in items:
            near, dtype = target, self._dtype(item)
            if not _is_direct(target, dtype):
                near = _targets.on_host(item.lengths, dtype)
                after.append((target, near))
            strides = None if near.is_contiguous() else near.stride()
            boxes.append(self._box(item, place, near.data_ptr() or 1, strides,
                                   _gpu.is_gpu(near)))
            done.append((item, target))
            size += near.nbytes
            if size >= _GROUP_BYTES:
                flush()
        if boxes:
            flush()

    def _stored(self, checkpoint: Checkpoint, items: list[ReadItem]) -> list[bytes]:
        """The stored bytes of items, with any transformations undone."""
        places = [self._place(item) for item in items]
        raw = checkpoint.read_ranges([(p.relative_path, p.offset, p.length) for p in places])
        return [self._undo(part, getattr(place, "transform_descriptors", None))
                for part, place in zip(raw, places)]

    def _undo(self, data: bytes, descriptors: Any) -> bytes:
        """What extensions of the writer did to the bytes; the last of the list is undone first."""
        if not descriptors:
            return data
        registry = self._extensions or ExtensionRegistry()
        for extension in reversed(list(registry.from_descriptor_list(descriptors))):
            assert isinstance(extension, StreamTransformExtension)
            data = extension.transform_from(io.BytesIO(data)).read()
        return data

    @staticmethod
    def _read_files(items: list[tuple[ReadItem, torch.Tensor]], files: list[torch.Tensor],
                    planner: LoadPlanner) -> None:
        """Tensors that torch.save wrote."""
        for (item, target), stored in zip(items, files):
            for dim, (offset, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                stored = stored.narrow(dim, offset, length)
            target.copy_(stored)
            planner.commit_tensor(item, target)

    def _read_blobs(self, checkpoint: Checkpoint,
                    items: list[ReadItem]) -> Iterator[tuple[str, _Blob]]:
        """Byte items, by key: each is one chunk. Decoded here where that does no harm: with trust
        only who wants the values may do it."""
        for item, data in zip(items, self._stored(checkpoint, items)):
            value = None if self._trust else self._decode(item, data)
            yield item.storage_index.fqn, _Blob(data, value)

    def _values(self, checkpoint: Checkpoint, items: list[ReadItem],
                planner: LoadPlanner) -> list[Callable[[], None]]:
        """What puts the byte items where they are wanted."""
        if not items:
            return []
        new = [item for item in items if item.storage_index.fqn not in self._blobs]
        self._blobs.update(self._read_blobs(checkpoint, new))
        out: list[Callable[[], None]] = []
        put = _putter(planner) if is_stock(planner) else None
        for item in items:
            data, value = self._blobs[item.storage_index.fqn]
            if put is None:
                out.append(partial(planner.load_bytes, item, io.BytesIO(data)))
                continue
            if self._trust:
                value = self._decode(item, data)
            out.append(partial(put, item.dest_index.fqn, value))
        return out

    def _decode(self, item: ReadItem, data: bytes) -> Any:
        key = item.storage_index.fqn
        try:
            return decode_item(data, trust=self._trust, map_location="cpu")
        except Exception as error:
            why = short(error)
            if self._trust:
                raise HearthRefused(f"{key}: this item cannot be decoded: {why}") from error
            raise HearthRefused(
                f"{key}: this item cannot be decoded safely ({why}); trust=True, of load(), "
                "load_latest() or HearthReader, unpickles it, whatever it does") from error

    def close(self) -> None:
        """Done with the checkpoint. Twice is harmless, and so is a later use."""
        checkpoint, self._checkpoint = self._checkpoint, None
        self.__dict__.pop("_layouts", None)
        self._blobs = {}
        if checkpoint is not None:
            checkpoint.close()

    def __del__(self) -> None:
        if self.__dict__.get("_checkpoint") is not None:
            self.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Hearth is chosen by name, never by the look of an id."""
        return False


def _newest(member: _jobs.Membership) -> Checkpoint:
    """The newest save that is PROTECTED, or what was recovered, if that is newer and still here."""
    job, recovered = member.job, member.recovered
    newest = _find(job, None, HEAR_S)
    if recovered is not None and (newest is None or newest.step < recovered.step):
        found = _find(job, recovered.step)
        if found is not None:
            if newest is not None:
                newest.close()
            return found
    return newest if newest is not None else job.checkpoint(None)  # whose error says what there is


def _find(job: Job, step: int | None, wait_s: float = 0.0) -> Checkpoint | None:
    try:
        return job.checkpoint(step, wait_s=wait_s)
    except HearthNotFound:
        return None


def _say(save: tuple[int, int, str | None]) -> str:
    step, epoch, save_id = save
    return f"step {step} (epoch {epoch}, save {save_id})"


def _is_direct(target: torch.Tensor, dtype: torch.dtype) -> bool:
    """The library can write into it: on the host or a GPU, as stored, no bits to be carried out."""
    return ((target.device.type == "cpu" or _gpu.is_gpu(target)) and target.dtype == dtype
            and target.layout == torch.strided and not target.is_conj() and not target.is_neg()
            and type(target) in (torch.Tensor, torch.nn.Parameter))


def _putter(planner: Any) -> Callable[[str, Any], None]:
    """Puts a value where DefaultLoadPlanner.load_bytes does, without its torch.load."""
    from torch.distributed.checkpoint._nested_dict import set_element

    if not planner.flatten_state_dict:
        return planner.state_dict.__setitem__
    state, mappings = planner.original_state_dict, planner.mappings
    return lambda fqn, value: set_element(state, mappings[fqn], value)


def is_stock(planner: LoadPlanner) -> bool:
    """Byte items may be put into the planner's state without its torch.load."""
    own = getattr(planner, "load_bytes", None)  # of its class, or put on this one planner
    return getattr(own, "__func__", None) is DefaultLoadPlanner.load_bytes
