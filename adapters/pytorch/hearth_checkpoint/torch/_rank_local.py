# SPDX-License-Identifier: Apache-2.0
"""Rank-local saves: each rank writes and reads its own state, and nothing is resharded.

hearth_checkpoint.torch.experimental and what saves a trainer's checkpoint whole (_whole) are made
of these. Of torch.distributed.checkpoint._experimental there is nothing here: torch 2.8 lacks it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from logging import getLogger
from typing import Any, Protocol

from ..errors import HearthCorrupt, HearthNotFound
from ..job import Checkpoint, Handle, Job, Save
from . import _jobs, _names, _parts, _proof, _stage
from ._partial import fill
from ._ptfile import PtFile
from ._skeleton import StoredState, StoredParts
from ._staged import StagedObject, object_name, parts_of, stage

_log = getLogger(__name__)
_WAIT_S = 600.0


def ordered(path: Any, state: Any) -> tuple[str, Any]:
    """Path and state, in whichever order they were given."""
    if not isinstance(path, (str, os.PathLike)) and isinstance(state, (str, os.PathLike)):
        path, state = state, path
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"a path and a state are wanted, not {type(path).__name__} and "
                        f"{type(state).__name__}")
    return os.fspath(path), state


class Hook(Protocol):
    """What torch's WriterHook does."""

    def pre_commit(self, path: str, **kwargs: Any) -> None: ...

    def post_commit(self, path: str, **kwargs: Any) -> None: ...


class Meeting(Protocol):
    """What torch's Barrier does."""

    def execute_barrier(self) -> None: ...


def _job_of(job: Job | None, folder: str, opts: dict[str, Any]) -> Job:
    """The job given, or the one of this base, opened and recovered once per process."""
    return job if job is not None else _jobs.membership(folder, opts).job


def _bare(path: str, owner: Job | StagedObject | None) -> str | None:
    """The owner's base, for a path that is a step's name and nothing else."""
    return owner.base if owner is not None and not os.path.dirname(path.rstrip("/")) else None


def _is_base(folder: str) -> bool:
    """Whether this is a job's memory, or said to be."""
    root, job = os.environ.get("HEARTH_ROOT"), os.environ.get("HEARTH_JOB")
    told = bool(root and job) and os.path.abspath(os.path.join(root, job)) == folder
    return told or os.path.isdir(os.path.join(folder, ".hearth"))


# ---- staging ----------------------------------------------------------------------------------


class Stager:
    """Copies a state into pool memory; then the tensors are the caller's again.

    rank       whose state it is. None: this process's
    job, base  the writer's. None: AsyncCheckpointer says the path's; else HEARTH_ROOT and
               HEARTH_JOB, or the one that is open
    wait_s     for room, while an older save is undecided
    ranks      that save, where not all do
    part       of `parts`, the writer's, that is staged here. None: AsyncCheckpointer says the
               path's
    """

    def __init__(self, rank: int | None = None, *, job: Job | None = None,
                 base: str | os.PathLike | None = None, wait_s: float = _WAIT_S,
                 ranks: tuple[int, ...] | None = None, part: str | None = None,
                 parts: Sequence[str] | None = None, **opts: Any) -> None:
        self._rank = _jobs.rank_and_world()[0] if rank is None else rank
        self._job, self._base, self._wait_s = job, base, wait_s
        self._ranks = ranks
        self._part, self._parts = part, _parts.declared(part, parts)
        self._next = part
        self._path_base: str | None = None  # that the last path says
        self._opts = _jobs.own_options(job, opts)
        self._shards = _stage.ShardOffsets()
        self._last: weakref.ref[StagedObject] | None = None

    def for_path(self, path: str) -> None:
        """The next state goes to this path, if no job or base was given, and is the part that it
        says."""
        whole, named = _parts.split(path, None, self._parts)
        self._next = _parts.same(self._part, named)
        if self._job is None and self._base is None:
            self._path_base = _jobs.resolve(whole, None, None)[0]

    def stage(self, state_dict: Any, **kwargs: Any) -> StagedObject:
        """The copy. Keywords are the writer's hooks' and are ignored here. Work that is enqueued
        in the current streams from here on runs after the copies out of GPU memory."""
        self.close()
        job = self._job or _job_of(
            None, _jobs.base_of(self._base or self._path_base), self._opts)
        call = (_parts.alone(job.base) if self._parts is None
                else _parts.take(job.base, self._told(), self._parts, None))
        staged = stage(job, state_dict, self._rank, self._shards, self._wait_s, call, self._parts,
                       self._ranks)
        self._last = weakref.ref(staged)
        if staged.copies is not None:
            staged.copies.fence()
        return staged

    def _told(self) -> str:
        if self._next is None:
            raise ValueError(f"a stager is not told the path, which would name one of "
                             f"{', '.join(self._parts or ())}: give it part=")
        return self._next

    def close(self) -> None:
        """Give up what was staged and not written. Twice is harmless."""
        last, self._last = self._last, None
        staged = last() if last is not None else None
        if staged is not None:
            staged.give_up()


def _staged_in(staged: StagedObject, folder: str, path: str) -> str:
    """The base of the job that has the copy. ValueError, and it is given up, where the path is of
    another: it would be a step of a job that nobody named, and push out one of that job's."""
    if os.path.realpath(folder) != os.path.realpath(staged.base):
        staged.give_up()
        raise ValueError(f"{path} does not lie in {staged.base}, the base of the job that this "
                         "state was staged in")
    return staged.base


def prove(job: Job, path: str, staged: StagedObject) -> None:
    """What could not be read again is not written."""
    if not job.off:
        _proof.proof_of(job.base).items(path, staged.blobs)


# ---- writing ----------------------------------------------------------------------------------


class Writer:
    """Writes a rank's state as object checkpoint_<rank>.pt of the step that the path names.

    rank   whose state it is. None: this process's
    job    None: the one whose base the path lies in, opened and recovered at the first write
    level  what write() waits for: "PROTECTED", "COMPLETE"
    parts  names of what a save consists of, where each is written by a call of its own; the same
           for all of them, on all ranks. The last one's call commits, with the hook and the
           barrier; the others return when their bytes are in memory
    part   which of them this writer writes. None: the path says it
    opts   options of struct hearth_opts for a job that is opened here
    """

    def __init__(self, rank: int | None = None, barrier: Meeting | None = None,
                 commit_hook: Hook | None = None, *, job: Job | None = None,
                 level: str = "PROTECTED", part: str | None = None,
                 parts: Sequence[str] | None = None, **opts: Any) -> None:
        self._rank = _jobs.rank_and_world()[0] if rank is None else rank
        self._barrier, self._commit_hook = barrier, commit_hook
        self._job, self._level, self._opts = job, level, _jobs.own_options(job, opts)
        self._part, self._parts = part, _parts.declared(part, parts)
        self._shards = _stage.ShardOffsets()

    def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
        """Copy, hand over, wait for the level. Path and state come in either order; keywords go to
        the hook.

        The hook's pre_commit and the barrier run when the bytes are handed over, post_commit when
        the step has its level; what they raise before the commit cancels the step on all ranks.
        """
        path, state = ordered(path, state_dict)
        whole, named = _parts.split(path, None, self._parts)
        part = _parts.same(self._part, named)
        owner = self._job or (state if isinstance(state, StagedObject) else None)
        folder, step = _jobs.resolve(whole, _bare(whole, owner), None)
        if self._job is not None and folder != self._job.base:
            raise ValueError(f"{path} does not lie in the job's base {self._job.base}")
        if isinstance(state, StagedObject):
            folder = _staged_in(state, folder, path)
        name = _jobs.id_of(whole, step)
        _jobs.ids_of(folder).check(step, name)
        call, job = self._call_of(path, state, folder, step, part)
        try:
            self._write(call, path, name, state, job, step, kwargs)
        finally:
            _parts.leave()

    def _call_of(self, path: str, state: Any, folder: str, step: int,
                 part: str | None) -> tuple[_parts.PartCall, Job | None]:
        """The call that writes the state, and the job that the state is to be staged in; None: it
        is staged already."""
        staged = state.call if isinstance(state, StagedObject) else None
        if staged is not None and (staged.part is None) != (self._parts is None):
            raise ValueError(f"{path}: this state was staged as " + (
                "a save without parts" if staged.part is None else f"part {staged.part}"))
        if self._parts is None:
            _parts.pass_by(folder, step)
        if staged is not None:
            return staged, None
        if self._parts is not None and part is None:
            raise ValueError(f"part= is not given, nor does the path name one of "
                             f"{', '.join(self._parts)}")
        job = _job_of(self._job, folder, self._opts)
        if self._parts is None:
            return _parts.alone(job.base), job
        assert part is not None
        return _parts.take(job.base, part, self._parts, step), job

    def _write(self, call: _parts.PartCall, path: str, name: str, state: Any, job: Job | None,
               step: int, kwargs: dict[str, Any]) -> None:
        """Into the call's save; after the last part, commit it. What fails gives it up."""
        try:
            call.enter(2 * self._timeout + 60)
            staged = state
            if job is not None:
                staged = stage(job, state, self._rank, self._shards, self._timeout, call,
                               self._parts, None, step)
            save = staged.take()
            call.named(step, name)
            call.whole.has_step()  # what fails from here on fails on all ranks
            prove(save.job, path, staged)
            call.wrote()
            call.finish(None)
            if not call.last:
                return
            self._seal(save, path, kwargs)
            call.whole.taken()
        except BaseException as error:
            call.fail(f"{error}")
            raise
        self._commit(save, path, name, step, kwargs)

    def _seal(self, save: Save, path: str, kwargs: dict[str, Any]) -> None:
        save.seal()
        if self._commit_hook is not None:
            self._commit_hook.pre_commit(path, **kwargs)
        if self._barrier is not None:
            self._barrier.execute_barrier()

    def _commit(self, save: Save, path: str, name: str, step: int,
                kwargs: dict[str, Any]) -> None:
        job, handle = save.job, save.commit()
        with _jobs.ids_of(job.base).noted(step, "" if job.off else name):
            self._wait(handle)
        if self._commit_hook is not None:
            self._commit_hook.post_commit(path, **kwargs)

    @property
    def _timeout(self) -> float:
        """Of each wait."""
        return _WAIT_S

    def _wait(self, handle: Handle) -> None:
        try:
            handle.wait(self._level, self._timeout)
        finally:
            handle.close()


# ---- reading ----------------------------------------------------------------------------------


class Reader:
    """Reads what Writer wrote, from this node or from peers, and files of torch.save.

    rank        whose state is read. None: this process's
    job         None: the one whose base the path lies in, if it is open, or if the folder is one of
                Hearth; opened and recovered at the first read, which is collective
    trust       objects beyond plain ones are made, and so their code is run: for files of your own
    part        of a save that was written in parts: only this one. The path says it as well. None:
                all of them, each behind its name
    bytes_read  bytes of tensors that the last read() took; of a whole file, its length
    """

    def __init__(self, rank: int | None = None, *, job: Job | None = None,
                 trust: bool = False, part: str | None = None, **opts: Any) -> None:
        self._rank = _jobs.rank_and_world()[0] if rank is None else rank
        self._job, self._trust, self._opts = job, trust, _jobs.own_options(job, opts)
        self._part = part
        self.bytes_read = 0

    def read(self, path: Any, state_dict: Any = None, *, map_location: Any = None,
             **kwargs: Any) -> tuple[Any, list[Any]]:
        """The state and the keys that the checkpoint lacks. Other keywords are ignored.

        state_dict    what to fill, and so what to read; None: everything, new
        map_location  as torch.load's, for tensors that are new; those given stay where they are
        """
        if state_dict is not None:
            path, state_dict = ordered(path, state_dict)
        path = os.fspath(path)
        stored = self._stored(path, map_location)
        if stored is not None:
            checkpoint, source = stored
            try:
                state, missing, self.bytes_read = fill(
                    state_dict, source, map_location=map_location)
                return state, missing
            finally:
                checkpoint.close()
        return self._read_file(path, state_dict, map_location)

    def _stored(self, path: str, map_location: Any) -> Any:
        """The checkpoint that the path names and its state, if Hearth has it."""
        path, named = _parts.split(path, None, ())
        part = _parts.same(self._part, named)
        name = os.path.basename(path.rstrip("/"))
        folder = _bare(path, self._job) or os.path.dirname(os.path.abspath(path))
        step = _names.step_of(name)
        if step is None:
            return None
        job = self._job
        if job is None and (folder in _jobs.open_bases() or _is_base(folder)):
            job = _jobs.membership(folder, self._opts).job
        if job is None or job.base != folder:
            return None
        try:
            checkpoint = job.checkpoint(step)
        except HearthNotFound:
            return None
        try:
            return checkpoint, self._source(checkpoint, part, map_location)
        except BaseException:
            checkpoint.close()
            raise

    def _source(self, checkpoint: Checkpoint, part: str | None, map_location: Any) -> StoredState:
        how = {"trust": self._trust, "map_location": map_location}
        try:
            return StoredState(checkpoint, object_name(self._rank, part), part=part, **how)
        except HearthCorrupt:
            there = parts_of(checkpoint, self._rank)
            if part is not None and part not in there:
                raise _parts.NoPart(
                    f"{checkpoint.path} has no part {part!r} of rank {self._rank}" + (
                    f": it has {', '.join(there)}" if there else "")) from None
            if part is not None or not there:
                raise
        return StoredParts(checkpoint, there, **how)

    def _read_file(self, path: str, state_dict: Any, map_location: Any) -> tuple[Any, list[Any]]:
        name = os.path.join(path, object_name(self._rank))
        try:
            file = PtFile(name, trust=self._trust)
        except FileNotFoundError:
            _log.error("Checkpoint file not found at %s", name)
            raise FileNotFoundError(f"Checkpoint file not found at {name}") from None
        try:
            if state_dict is None:
                self.bytes_read = os.path.getsize(name)
                return file.load(map_location), []
            state, missing, self.bytes_read = fill(
                state_dict, file.structure(), map_location=map_location)
            return state, missing
        finally:
            file.close()
