# SPDX-License-Identifier: Apache-2.0
"""Where to go on from, and saving and loading with errors that say what happened."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.storage import StorageReader

from .. import _ffi
from ..errors import HearthCorrupt, HearthError, HearthLost, HearthNotFound
from ..job import refuse_in_child
from . import _container, _given, _jobs, _names, _parts, _skipped, _weak
from ._group import OwnGroup
from ._process import DcpSave, portable
from ._unpickle import PickleRefused
from .reader import HearthReader
from .writer import HearthWriter

_ARGUMENTS = ("base", "common", "deadline_s", "step", "accept_loss", "trust")
_GONE = (HearthLost, HearthCorrupt, HearthNotFound)  # what memory cannot give
_log = logging.getLogger("hearth_checkpoint")
_group = OwnGroup()


@dataclass(frozen=True)
class Recovered:
    """What all ranks agreed on.

    step  of the checkpoint
    path  of its container: a checkpoint_id for dcp.load(storage_reader=HearthReader()), and a
          folder of this node with `.metadata` and the common files in it
    info  struct hearth_recovery: how long each part took, what was pulled, from how many nodes
    """

    step: int
    path: str
    info: _ffi.Recovery

    def common(self, name: str) -> bytes:
        """A file that every node has beside the objects: what the save was given, ml-flashpoint's
        `common.pt` and `metadata.json`, what recover() was told. Raises HearthNotFound."""
        member = _jobs.open_member(os.path.dirname(self.path))
        if member is None:
            raise HearthError(f"the job of {self.path} is closed in this process: recover() first")
        with member.lock:
            mine = member.recovered
            if mine is not None and mine.info.now_epoch == self.info.now_epoch:
                return mine.common(name)
        checkpoint = member.job.checkpoint(self.step)
        try:
            return checkpoint.common(name)
        finally:
            checkpoint.close()


def recover(base: str | os.PathLike | None = None, *, common: Sequence[str] = (),
            deadline_s: float | None = None, step: int | None = None, accept_loss: bool = True,
            trust: bool = False, **opts: Any) -> Recovered | None:
    """The newest checkpoint that can be had, agreed on by all ranks, brought here and verified.

    Collective. Needs no process group: the ranks meet through it where there is one, else through
    torchrun's store, else at HEARTH_PORT. None: there is none in memory, start from storage. Ends
    by its deadline, and deletes nothing. Where a protected step is beyond redundancy and there is
    no older one, that is an error in the log, and None, unless accept_loss is False.

    step   roll back, in a running job as well: to the newest save of this step and no other; what
           is newer is given up. HearthNotFound where it is not kept. The same on all ranks
    accept_loss  False: HearthLost is raised then. The same on all ranks
    common further files that every node is to have of a container which another program wrote,
           beside `common.pt` and `metadata.json`
    trust  of load() and load_latest(), which may be called with the same arguments: no item is
           decoded here
    opts   of hearth_checkpoint.job.Job.open(), as HearthWriter's
    """
    _jobs.check(opts, _ARGUMENTS)
    names = tuple(dict.fromkeys((*_container.COMMON, *common)))
    arguments: dict[str, Any] = {"common": names}
    if deadline_s is not None:
        arguments["deadline_s"] = deadline_s
    if step is not None:
        arguments["step"] = step
    base = _jobs.base_of(base)
    try:
        member = _jobs.recover_again(base, opts, **arguments)
    except HearthLost as error:  # the same on all ranks
        if step is not None or not accept_loss:
            raise
        _log.error("hearth: %s", error)
        member = _jobs.recover_again(base, opts, accept_loss=True, **arguments)
    found = member.recovered
    if found is None:
        return None
    return Recovered(found.step, _container.lay(found, names), found.info)


def latest(base: str | os.PathLike | None = None, **opts: Any) -> str | None:
    """Path of what recover() finds, for checkpoint_id=. None: start from storage."""
    found = recover(base, **opts)
    return found.path if found is not None else None


def leave(base: str | os.PathLike | None = None, *, keep: bool = True) -> None:
    """Close the job. keep False: it is over, its memory is freed once all ranks have said so."""
    _jobs.forget(_jobs.base_of(base), keep=keep)


def group() -> Any:
    """A gloo group of our own, so that collectives of a save in another thread cannot meet the
    training's. None where no process group is initialised. Collective the first time."""
    refuse_in_child()
    return _group.make() if dist.is_available() and dist.is_initialized() else None


def forget_group() -> None:
    """The next group() is another one."""
    _group.forget()


_executor: concurrent.futures.ThreadPoolExecutor | None = None


def async_save(state_dict: dict[str, Any] | Callable[[], dict[str, Any]], *,
               checkpoint_id: str | os.PathLike | None = None,
               storage_writer: HearthWriter | None = None, planner: Any = None,
               process_group: Any = None,
               no_dist: bool = False, on_error: str = "raise",
               blocked_ms: int = _weak.BLOCKED_MS,
               overlap: bool = False) -> concurrent.futures.Future[Metadata]:
    """dcp.async_save() for large flat states: the same result, without DCP's walk over all keys
    before the copy. Saves are written one after another, in a group of their own.

    state_dict  or a function that gives it: what that raises is an error of all ranks
    on_error    "warn": a save that fails is counted and said in the log (protection()), and its
                future gives None
    blocked_ms  with "warn": that this call waits for this node's engine; then the save is skipped,
                and counted as one that failed
    overlap     as HearthWriter's, where no writer is given
    """
    _weak.check(on_error)
    if overlap and storage_writer is not None:
        raise TypeError("overlap= goes to the storage_writer that is given: "
                        "HearthWriter(overlap=True)")
    writer = storage_writer
    if writer is None:  # the stager is told nothing of the checkpoint_id
        writer = HearthWriter(_jobs.known_base(checkpoint_id, None), overlap=overlap)
    elif not isinstance(writer, HearthWriter):
        raise TypeError(f"storage_writer: a HearthWriter is wanted, not {type(writer).__name__}: "
                        "it is the stager as well; dcp.async_save() takes any")
    if process_group is None and not no_dist:
        process_group = group()
    state = state_dict if callable(state_dict) else {
        key: _given.state_of(value) for key, value in state_dict.items()}
    whole, _ = _parts.split(checkpoint_id, writer._base, writer._parts, writer._step_of,
                            writer._step)
    ends = writer._parts is None or writer._part == writer._parts[-1]

    def begin() -> concurrent.futures.Future[Metadata]:
        current = writer.copy(state)
        entry = None
        if writer._parts is None:
            entry = _skipped.enter(None if no_dist else process_group,
                                   current.error if on_error == "warn" else None)
        return _in_turn().submit(
            _save, current, entry, checkpoint_id=checkpoint_id, storage_writer=writer,
            planner=planner, process_group=process_group, no_dist=no_dist)

    future = _weak.call(_jobs.known_base(whole, writer._base), on_error, begin, ends, blocked_ms)
    return future if future is not None else _weak.none_yet()


def _save(current: DcpSave, entry: _skipped.Entry | None, *, storage_writer: HearthWriter,
          planner: Any, **arguments: Any) -> Metadata:
    """In a thread that goes on to other saves."""
    try:
        if entry is not None:
            try:
                entry.agree()
            except BaseException:
                storage_writer.withdraw(current)
                raise
        # Of a copy that failed there is no state that the caller's planner could be given.
        return save(storage_writer.staged_state(current), storage_writer=storage_writer,
                    planner=None if current.error is not None else planner, **arguments)
    finally:
        storage_writer.give_up()
        _parts.leave()


def save(state_dict: dict[str, Any], *, planner: Any = None, **arguments: Any) -> Metadata:
    """dcp.save() without its walk over all keys."""
    if planner is None:
        writer = arguments.get("storage_writer")
        # A class of the user's may change what the planner gives.
        planner = _given.SavePlanner(
            state_dict, writer.plans if type(writer) is HearthWriter else None)
        state_dict = planner.keyless
    return dcp.save(state_dict, planner=planner, **arguments)


def _after_fork() -> None:
    """The child has the executor, and not its thread."""
    global _executor
    _executor = None


os.register_at_fork(after_in_child=_after_fork)


def _in_turn() -> concurrent.futures.ThreadPoolExecutor:
    """The thread that writes what async_save() staged."""
    global _executor
    if _executor is None:
        _executor = concurrent.futures.ThreadPoolExecutor(1, "hearth-save")
    return _executor


def saves_ended(unless: threading.Event | None = None) -> None:
    """Until all that was handed to that thread is written, or has failed; unless that comes
    first."""
    if _executor is None:
        return
    last = _executor.submit(int)
    while not concurrent.futures.wait([last], 0.1).done and not (unless and unless.is_set()):
        pass


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
         storage_reader: HearthReader | None = None, trust: bool = False,
         part: str | None = None, planner: Any = None, **arguments: Any) -> None:
    """dcp.load() whose error names what HearthReader found wrong, where DCP says
    "metadata is None". trust, part: as HearthReader's, where none is given."""
    if storage_reader is not None and (trust or part is not None):
        name = "trust" if trust else "part"
        raise TypeError(f"{name}= goes to the storage_reader that is given: "
                        f"HearthReader({name}=...)")
    arguments |= {"checkpoint_id": checkpoint_id, "storage_reader": storage_reader}
    if storage_reader is None:
        arguments["storage_reader"] = HearthReader(part=part, trust=trust)
    if planner is not None:
        _named_load(state_dict, planner=planner, **arguments)
        return
    own = _given.LoadPlanner(state_dict)
    _named_load(own.keyless, planner=own, **arguments)
    own.forget()
    arguments.clear()
    own.fill()


def _named_load(state_dict: dict[str, Any], *, storage_reader: Any, **arguments: Any) -> None:
    """dcp.load() with an error that names what the reader found wrong."""
    try:
        dcp.load(state_dict, storage_reader=storage_reader, **arguments)
    except CheckpointException as error:
        why = getattr(storage_reader, "error", None)  # another's reader has none
        if why is not None:
            _put_in(error, why)
            raise error from why
        raise


def _put_in(error: CheckpointException, why: BaseException) -> None:
    """What was found wrong for the assertion that an older torch has of it, which says nothing."""
    for rank, (raised, where) in error.failures.items():
        if isinstance(raised, AssertionError) and not str(raised):
            error.failures[rank] = why, where


def load_latest(state_dict: dict[str, Any], *, base: str | os.PathLike | None = None,
                fallback: StorageReader | None = None, planner: Any = None, trust: bool = False,
                part: str | None = None, parts: Sequence[str] | None = None,
                **opts: Any) -> int | None:
    """Load the newest checkpoint in memory, else the newest of `fallback`. The step, or None where
    neither has one. Collective; all ranks step down together, which takes a process group.

    Storage is asked where memory has nothing, or cannot give what it had: it is lost, not there any
    more, or wrong in every copy. Any other error is raised, on all ranks: a key that the checkpoint
    lacks, a shape that differs, an item that needs trust, a deadline that has passed. For those the
    newest checkpoint is still there, and an older one would be a silent step back.

    fallback  a reader with a `path`, such as FileSystemReader: a checkpoint (step 0 if its name has
              none), or a folder of step folders (names as saves have them)
    trust     as HearthReader's
    part      the state is this part of a save, under its own names. On storage it is a checkpoint
              in a folder of that name, <step>/<part>, or what a checkpoint has behind that key
    parts     the state has these, each behind its name: all of them are of one step, on storage too
    opts      of recover()
    """
    _jobs.check(opts, (*_ARGUMENTS, "fallback", "planner", "part", "parts"))
    names = _asked(state_dict, part, parts)
    if group() is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise HearthError("load_latest() needs torch's process group: call init_process_group() "
                          "first, or use latest() and load()")
    found, error = None, None
    try:
        found = recover(base, **opts)
    except Exception as raised:  # whatever it is, the other ranks wait to hear of it
        error = raised
    causes = _causes(error)
    if causes:
        _raise_if_not_gone(causes, error, fallback)
    elif found is None:
        return _from_storage(state_dict, fallback, planner, part, names)
    else:
        reader = HearthReader(os.path.dirname(found.path), trust=trust, part=part)
        try:
            with _plain(state_dict) if parts is not None else nullcontext(state_dict) as state:
                load(state, checkpoint_id=found.path, storage_reader=reader, planner=planner,
                     process_group=group())
            return found.step
        except CheckpointException as raised:  # the same on every rank, but for what DCP swallowed
            causes = {rank: failed[0] for rank, failed in raised.failures.items()}
            causes.update(_causes(reader.error))
            _raise_if_not_gone(causes, raised, fallback)
    _log.warning("hearth: memory cannot give its checkpoint, falling back to storage: %s",
                 _say(causes))
    return _from_storage(state_dict, fallback, planner, part, names)


def _asked(state: dict[str, Any], part: str | None, parts: Sequence[str] | None) -> tuple[str, ...]:
    """The parts that a load asks for, which may be none. TypeError, ValueError."""
    if part is not None:
        if parts is not None:
            raise TypeError("part= and parts=: give one of the two")
        return (part,)
    if parts is None:
        return ()
    names = _parts.declared(None, parts) or ()
    if set(names) != set(state):
        raise ValueError(f"parts: {', '.join(names)} are asked for, and the state has "
                         f"{', '.join(map(str, state))}")
    return names


def _causes(mine: BaseException | None) -> dict[int, BaseException]:
    """What went wrong on each rank on which something did."""
    carried = None if mine is None else portable(mine)
    return {rank: error for rank, error in enumerate(gathered(carried)) if error is not None}


def raise_of_any(mine: BaseException | None) -> None:
    """Raise on all ranks what any of them has. Collective."""
    causes = _causes(mine)
    if causes:
        raise mine if mine is not None else HearthError(_say(causes))


def _say(causes: dict[int, BaseException]) -> str:
    return "; ".join(f"rank {rank}: {error}" for rank, error in sorted(causes.items()))


def _raise_if_not_gone(causes: dict[int, BaseException], mine: BaseException | None,
                       fallback: StorageReader | None) -> None:
    """Raise, on all ranks, unless what memory had is gone and storage is to be asked."""
    wrong = {rank: error for rank, error in causes.items()
             if not isinstance(error, _GONE) or isinstance(error, (PickleRefused, _parts.NoPart))}
    if not wrong and fallback is not None:
        return
    first = next(iter((wrong or causes).values()))
    if isinstance(mine, CheckpointException):
        raise mine from first
    raise mine if mine is not None else HearthError(_say(wrong or causes)) from first


def gathered(mine: Any) -> list[Any]:
    ours = group()
    if ours is None or dist.get_world_size() == 1:
        return [mine]
    out: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(out, mine, group=ours)
    return out


# ---- storage -------------------------------------------------------------------------------------


def _kind(path: Path, names: tuple[str, ...]) -> str | None:
    """Whether there is a checkpoint: "whole", or "parts" in folders of these names. Raises nothing:
    other ranks wait."""
    try:
        if (path / ".metadata").exists():
            return "whole"
        return "parts" if names and all(
            (path / name / ".metadata").exists() for name in names) else None
    except OSError as error:
        _log.error("hearth: %s", error)
        return None


def children(path: Path) -> list[Path]:
    """What lies in a folder. Raises nothing: other ranks wait."""
    try:
        return sorted(path.iterdir()) if path.is_dir() else []
    except OSError as error:
        _log.error("hearth: %s", error)
        return []


def _from_storage(state_dict: dict[str, Any], reader: StorageReader | None, planner: Any,
                  part: str | None, names: tuple[str, ...]) -> int | None:
    """The newest step that every rank sees in the reader's folder."""
    if reader is None:
        return None
    if not hasattr(reader, "path"):
        raise TypeError(f"fallback: {type(reader).__name__} has no path to look for steps in")
    path = Path(os.fspath(reader.path))

    def load_from(folder: Path, kind: str) -> None:
        arguments = {"storage_reader": reader, "planner": planner, "process_group": group()}
        if not names:
            dcp.load(state_dict, checkpoint_id=folder, **arguments)
        elif kind == "whole":
            with _plain({part: state_dict} if part is not None else state_dict) as state:
                dcp.load(state, checkpoint_id=folder, **arguments)
        else:
            of = {part: state_dict} if part is not None else state_dict
            for name in names:
                with _plain({name: of[name]}) as state:
                    dcp.load(state[name], checkpoint_id=folder / name, **arguments)

    try:
        return _load_newest(path, names, load_from)
    finally:
        reader.reset(path)  # DCP has made it one of the step's folder


def _load_newest(path: Path, names: tuple[str, ...],
                 load_from: Callable[[Path, str], None]) -> int | None:
    """The newest step that every rank sees in a folder, or the checkpoint that the folder is."""
    kinds = set(gathered(_kind(path, names)))
    if len(kinds) == 1 and None not in kinds:
        load_from(path, kinds.pop())
        return _names.step_of(path.name) or 0
    here: dict[tuple[int, str], Path] = {}
    for child in children(path):
        step, kind = _names.step_of(child.name), _kind(child, names)
        if step is not None and kind is not None:
            here[step, kind] = child
    common = set.intersection(*[set(found) for found in gathered(list(here))])
    if not common:
        return None
    newest = max(common)
    load_from(here[newest], newest[1])
    return newest[0]


@contextmanager
def _plain(parts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """States of parts, of which each is Stateful or has such in it, as dicts that DCP fills where
    they are."""
    plain = {name: {key: _given.state_of(value) for key, value in of.items()} if type(of) is dict
             else _given.state_of(of) for name, of in parts.items()}
    yield plain
    for name, of in parts.items():
        if _given.is_stateful(of):
            of.load_state_dict(plain[name])
            continue
        for key, value in of.items():
            if _given.is_stateful(value):
                value.load_state_dict(plain[name][key])
            else:
                of[key] = plain[name][key]
