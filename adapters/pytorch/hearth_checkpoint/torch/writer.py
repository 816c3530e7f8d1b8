# SPDX-License-Identifier: Apache-2.0
"""HearthWriter: torch.distributed.checkpoint saves into peers' memory.

    writer = HearthWriter("/mnt/hearth/job")
    dcp.async_save(state, checkpoint_id="/mnt/hearth/job/step-10_ckpt", storage_writer=writer)

The writer is its own stager. What each call of DCP does:

    stage           (async) copy into a pool slot; the step is not known yet
    storage_meta    every later hook's first: the save of this thread begins
    write_data      what was not staged is copied, the objects are sealed; ends at COPIED
    finish          (coordinator) `.metadata` to every node, commit, wait for the level asked for

With parts= a save takes several such rows of calls, and the last one commits (_parts.py).

The last two read back what they write (_proof.py), so that what could not be loaded fails the save.

With AsyncCheckpointerType.PROCESS all but staging happens in DCP's checkpoint process, which takes
the staged save over without a copy (_process.py).

An error outside DCP's own wrappers would hang the other ranks, so staging and reset() keep theirs,
and storage_meta() raises them: DCP then raises on every rank.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult

from .. import _calls
from ..errors import HearthError
from ..job import Handle, Job, Save, refuse_in_child
from . import _container, _given, _jobs, _names, _parts, _planned, _process, _proof, _stage
from ._metadata import more_of
from ._pickles import load_metadata
from ._process import DcpSave, portable
from ._write import Write, refuse_items, where_of

_LEVELS = ("SEALED", "COPIED", "COMPLETE", "PROTECTED")
_ARGUMENTS = ("base", "step", "step_of", "part", "parts", "level", "timeout_s", "overwrite",
              "common", "ranks", "overlap")
_NAMED = 16  # of the ranks that an error lists
_TAKES_FUTURES = hasattr(state_dict_saver, "AsyncSaveResponse")  # of a stager; not torch 2.8
_OURS = "hearth-"  # begins the save_id of saves that were written here


def _carried(hook: Callable[..., Any]) -> Callable[..., Any]:
    """An exception that cannot be pickled would hang the other ranks: its text goes instead."""

    @functools.wraps(hook)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return hook(*args, **kwargs)
        except BaseException as error:
            carried = portable(error)
            if carried is not error:
                raise carried from error
            raise

    return wrapper


def _comes_to_the_end(instead: Callable[..., Any]) -> Callable[..., Any]:
    """Around a hook: if it raises, the save is given up.

    Without collectives DCP's ranks exchange nothing, but wait for each other at the end of each
    call. A rank that raised would not come there, so its failed part ends like the others' written
    parts. The call of the save's last part raises, on all ranks.

    instead  gives what the hook returns then, from the hook's arguments
    """

    def decorate(hook: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(hook)
        def wrapper(self: HearthWriter, *args: Any, **kwargs: Any) -> Any:
            current = self._current()
            if current.told_later:
                return instead(*args)
            try:
                return hook(self, *args, **kwargs)
            except BaseException as error:
                if (current.use_collectives or not self._more_to_come(current)
                        or not isinstance(error, Exception)):
                    self.give_up()
                    raise
                if current.call is not None:
                    current.call.fail(f"{error}")
                current.end()  # what this rank has not begun is counted at once
                current.error, current.told_later = error, True
                return instead(*args)

        return wrapper

    return decorate


class Waiting:
    """A future that ends when this rank's objects are COPIED. DCP uses wait() and value() alone;
    torch's own Future would not hear Ctrl-C."""

    def __init__(self, handle: Handle | None, level: str, timeout_s: float, value: Any) -> None:
        self._handle, self._level, self._timeout_s = handle, level, timeout_s
        self._value = value

    @_carried
    def wait(self) -> Any:
        if self._handle is not None:
            self._handle.wait(self._level, self._timeout_s)
            self._handle.close()
            self._handle = None
        return self._value

    def value(self) -> Any:
        return self.wait()

    def done(self) -> bool:
        return self._handle is None


class _Staging(Future):
    """Of a staged state. result() waits for the copies in its own thread, as DCP's that writes the
    save does first. It raises nothing: what went wrong is told to all ranks by that."""

    def __init__(self, current: DcpSave, state: _process.StagedState) -> None:
        super().__init__()
        self._current, self._staged = current, state

    def result(self, timeout: float | None = None) -> _process.StagedState:
        self._current.copied()
        with contextlib.suppress(InvalidStateError):
            self.set_result(self._staged)
        return self._staged


class _Begun:
    """The save that a thread writes. DCP tells a writer nothing of a failure in a planner or on
    another rank: the save is given up when the thread ends, at the latest."""

    def __init__(self, current: DcpSave) -> None:
        self.current, self._pid, self._is_over = current, os.getpid(), False

    def end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self.current.end()

    def __del__(self) -> None:
        if not sys.is_finalizing() and os.getpid() == self._pid:
            self.end()


class HearthWriter(StorageWriter):
    """Writes DCP checkpoints into the memory of this job's nodes. A step has one id: it may be
    saved again under that, and no other.

    base       "<root>/<job>"; None: the folder of the checkpoint_id, or HEARTH_ROOT/HEARTH_JOB
    step       of the save, where the checkpoint_id names none in a form of _names.FORMS
    step_of    for ids of other forms: the step of the id's last component, or None. It goes along
               to DCP's checkpoint process: a function of a module there
    parts      names of what a save consists of, where each is written by a call of its own; the
               same for all of them, on all ranks. The last one's call commits, the others return
               when their bytes are in memory, at level SEALED at most
    part       which of them this writer writes. None: the id says it, "<base>/step-10_ckpt/model".
               A staged save needs it: DCP does not tell a stager the id
    level      that save() and the upload future wait for: SEALED, COPIED, COMPLETE or PROTECTED
    timeout_s  for each wait. Keep it below the process group's
    overwrite  False: a step that exists already is refused
    common     files that every node gets beside the objects, {name: bytes}, or a function that
               gives them, called when the state is copied: of ml-flashpoint `common.pt`,
               `metadata.json`. Rank 0's are taken, or those of the lowest of `ranks`
    ranks      that save, where not all do, as (0,) for rank 0 alone: these alone call
               dcp.save(..., no_dist=True), or have a process group of their own. All ranks have
               joined the job before (recover()), and all recover what these have saved
    overlap    True: tensors in GPU memory are copied beside training, and the caller waits for
               staging_completion or calls before_step() before anything changes them. False: what
               is enqueued in the current streams after an asynchronous save runs after the copies
    opts       of hearth_checkpoint.job.Job.open(), when this is the first use of the job in the
               process. A job
               that is open already must have been opened with the same
    """

    def __init__(self, base: str | os.PathLike | None = None, *, step: int | None = None,
                 step_of: _names.StepOf | None = None, part: str | None = None,
                 parts: Sequence[str] | None = None, level: str = "PROTECTED",
                 timeout_s: float = 600.0, overwrite: bool = True,
                 common: Mapping[str, bytes] | Callable[[], Mapping[str, bytes]] | None = None,
                 ranks: Iterable[int] | None = None, overlap: bool = False,
                 **opts: Any) -> None:
        super().__init__()
        _jobs.check(opts, _ARGUMENTS)
        if level not in _LEVELS:
            raise ValueError(f"level {level!r} is none of {', '.join(_LEVELS)}")
        _container.check(common)
        self._common = common
        self._ranks = None if ranks is None else tuple(sorted(set(ranks)))
        self._base = None if base is None else os.fspath(base)
        self._step, self._level, self._timeout_s = step, level, timeout_s
        self._step_of = step_of
        self._part, self._parts = part, _parts.declared(part, parts)
        self._overwrite, self._opts, self._overlap = overwrite, opts, overlap
        self._layouts = _stage.Layouts()
        self.plans = _planned.Plans()
        self._lock = threading.Lock()
        self._local = threading.local()
        self._staged: list[DcpSave] = []  # neither written nor sent to another process yet
        self._rank: _jobs.Rank | None = None  # in another process: whom it helps
        self._brought: BaseException | None = None  # there: what went wrong with common=
        self._synchronize_after_execute = True
        self.checkpoint_id: str | None = None

    # ---- the stager -----------------------------------------------------------------------

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Staging is over when stage() returns."""
        return self._synchronize_after_execute

    def synchronize_staging(self) -> None:
        """Nothing is left to wait for."""

    def stage(self, state_dict: dict[str, Any] | Callable[[], dict[str, Any]]
              ) -> _process.StagedState | Future[_process.StagedState]:
        """A copy of the state, or of that which a function gives, in pool memory. An error is kept,
        for all ranks to hear of it. With overlap a future of it, where torch takes one: it ends
        when nothing is being copied out of GPU memory any more."""
        current = self.copy(state_dict)
        if current.error is not None and not callable(state_dict):
            return self._staged_state(current, state_dict)
        state = self.staged_state(current)
        return _Staging(current, state) if self._overlap and _TAKES_FUTURES else state

    def copy(self, state_dict: dict[str, Any] | Callable[[], dict[str, Any]]) -> DcpSave:
        """What stage() does, but for the state made of the copies, which staged_state() gives."""
        refuse_in_child()  # no other rank waits for a child
        current = DcpSave()
        try:
            current.base = _jobs.base_of(self._base)
            job = self._member(current.base).job
            current.joined = self._joined(current.base)
            state = state_dict() if callable(state_dict) else state_dict
            if not isinstance(state, dict):
                raise TypeError(f"the state is a {type(state).__qualname__}, and must be a dict")
            self._stage(job, current, state)
            current.common = self._common_of(job)
        except BaseException as error:
            if current.call is not None:
                current.call.fail(f"{error}")
            if isinstance(error, KeyboardInterrupt):
                raise
            current.error = error
        with self._lock:
            self._staged.append(current)
        if current.staged is not None and current.staged.copies and not self._overlap:
            current.staged.copies.fence()
        return current

    def staged_state(self, current: DcpSave) -> _process.StagedState:
        """The state that copy() has copied; of one that failed an empty one."""
        staged = current.staged
        return self._staged_state(
            current, {} if staged is None or current.error is not None else staged.state)

    def _staged_state(self, current: DcpSave, state: dict[str, Any]) -> _process.StagedState:
        return _process.StagedState(state, current, functools.partial(self._pack, current))

    def withdraw(self, current: DcpSave) -> None:
        """Give up a save that copy() has copied and that will not be written."""
        with self._lock:
            if current in self._staged:
                self._staged.remove(current)
        current.drop()

    def _stage(self, job: Job, current: DcpSave, state: dict[str, Any]) -> None:
        """Into an object of the save that the state is of."""
        if self._parts is not None and self._part is None:
            raise ValueError("a stager is not told the checkpoint_id, which would name the part: "
                             "give the HearthWriter of each part part=, or use "
                             "hearth_checkpoint.torch.dcp.async_save()")
        call = self._call_of(current, self._part, None)

        def begin(nbytes: int, gpu: list[torch.Tensor]) -> Save:
            call.object = call.whole.open_object(job, nbytes, self._timeout_s, gpu=gpu)
            return call.whole.save

        with call.whole.lock:
            current.staged = _stage.stage(
                self._layouts, state, begin=begin, path=call.path, off=job.off)
            call.span = current.staged.save.data()

    def _call_of(self, current: DcpSave, part: str | None, step: int | None) -> _parts.PartCall:
        """Of a part, or of a save without parts; a part joins the save that is open."""
        call = current.call = (
            _parts.alone(current.base) if self._parts is None or part is None
            else _parts.take(current.base, part, self._parts, step))
        if step is not None:
            call.enter(self._before_s)
        call.join(self._parts or (), step, self._ranks)
        return call

    def _pack(self, current: DcpSave, state: dict[str, Any]) -> bytes:
        """A staged state for another process, where it is written then. Waits for the save before,
        longer than that one may take."""
        with self._lock:
            if current in self._staged:
                self._staged.remove(current)
        self._local.packed = True
        if self._parts is not None and current.call is not None:
            current.refuse(HearthError(
                "parts of one save cannot be written in DCP's checkpoint process: the save cannot "
                "be in two processes; use the thread (AsyncCheckpointerType.THREAD)"))
        return _process.pack(
            _jobs.open_member(current.base), current, state, 2 * self._timeout_s + 60)

    def close(self) -> None:
        """Give up what was staged and never written. Twice is harmless."""
        with self._lock:
            left, self._staged = self._staged, []
        for current in left:
            current.drop()
            if current.call is not None:
                current.call.over.set()

    # ---- the writer -----------------------------------------------------------------------

    def _member(self, base: str) -> _jobs.Membership:
        if self._rank is not None and self._rank.base == base:
            return _jobs.assist(self._rank)
        return _jobs.membership(base, self._opts)

    @staticmethod
    def _joined(base: str) -> str:
        member = _jobs.open_member(base)
        return "" if member is None else member.joined

    def _current(self) -> DcpSave:
        begun: _Begun = self._local.begun
        return begun.current

    def _call(self) -> _parts.PartCall:
        call = self._current().call
        assert call is not None
        return call

    def _common_of(self, job: Job) -> dict[str, bytes]:
        """What this rank gives to all nodes now."""
        first = min(self._ranks) if self._ranks else 0
        return _container.given(self._common) if job.rank == first else {}

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """A new save of this id; what is wrong with it is said in storage_meta()."""
        refuse_in_child()
        self._local.id, self._local.part = checkpoint_id, None
        self.checkpoint_id = None if checkpoint_id is None else str(checkpoint_id)
        self._local.refused = None
        try:
            self._local.id, named = _parts.split(
                checkpoint_id, self._base, self._parts, self._step_of, self._step)
            self._local.part = _parts.same(self._part, named)
            if self._staged or _process.waits():
                return  # joined before it was staged, or never
            self._join(self._local.id, self._base)
        except Exception as error:
            self._local.refused = error

    def _join(self, checkpoint_id: object, base: str | None) -> None:
        """Join, which is collective, before whatever may fail on one rank, if the base is known."""
        base = _jobs.known_base(checkpoint_id, base)
        if base is not None:
            self._member(base)

    @_carried
    def storage_meta(self) -> StorageMeta:
        """What `.metadata` says of the save as a whole. The first call of every save."""
        self.give_up()
        _parts.leave()
        current = self._begun() or _process.arrived() or DcpSave()
        current.ranks = self._ranks
        self._local.begun = _Begun(current)
        current.copied()
        if current.call is not None:
            current.call.enter(self._before_s)
        checkpoint_id = self._local.__dict__.pop("id", None)
        self._local.save_id = f"{_OURS}{uuid.uuid4()}"
        refused = self._local.__dict__.pop("refused", None) or self._brought
        base = current.base or self._base
        if current.error is not None:
            return self._meta_of_failed(current, checkpoint_id, base, refused)
        if refused is not None:
            raise refused
        self._join(checkpoint_id, base)
        current.base, current.step = _jobs.resolve(
            checkpoint_id, base, self._step, self._step_of)
        current.name = _jobs.id_of(checkpoint_id, current.step)
        if self._parts is None:
            _parts.pass_by(current.base, current.step)
        current.joined = current.joined or self._joined(current.base)
        try:
            self._join_part(current)
        except HearthError as error:
            if not self._more_to_come(current):
                raise
            current.error = error  # set_up_storage_writer() raises it
            return self._meta(current)
        current.count_missed()
        return self._meta(current)

    def _meta_of_failed(self, current: DcpSave, checkpoint_id: object, base: str | None,
                        refused: BaseException | None) -> StorageMeta:
        """Of a save that stage() has refused: set_up_storage_writer() raises that, since it is told
        whether other ranks hear of it. Raised here where this rank cannot name the step."""
        assert current.error is not None
        if refused is not None:
            raise current.error
        try:
            current.base, current.step = _jobs.resolve(
                checkpoint_id, base, self._step, self._step_of)
        except ValueError:
            raise current.error from None
        current.name = _jobs.id_of(checkpoint_id, current.step)
        return self._meta(current)

    @property
    def _before_s(self) -> float:
        """For the part before: longer than its waits may take."""
        return _calls.limited(2 * self._timeout_s + 60)

    def _join_part(self, current: DcpSave) -> None:
        """The part joins the save of its step, if it was not staged there."""
        part = self._local.__dict__.pop("part", None) or self._part
        if part is None and self._parts is not None:
            raise ValueError(f"part= is not given, nor does the checkpoint id name one of "
                             f"{', '.join(self._parts)}")
        call = current.call or self._call_of(current, part, current.step)
        if part is None:
            call.whole.ranks = self._ranks  # of a save that came from another process, too
        try:
            call.named(current.step, current.name)
        except HearthError as error:
            call.fail(f"{error}")
            raise

    def _begun(self) -> DcpSave | None:
        """What was staged of the state that this thread saves."""
        current = _process.begun()
        with self._lock:
            if current not in self._staged:
                return None
            self._staged.remove(current)
        return current

    def _meta(self, current: DcpSave) -> StorageMeta:
        return StorageMeta(
            checkpoint_id=f"{current.base}/{current.name}", save_id=self._local.save_id,
            modules=list(self._parts or ()))

    def give_up(self) -> None:
        """Give up a save that this thread began and that never came to its end, as where it has
        failed on another rank. Until then it takes the room of later ones. A save that is handed
        over goes on."""
        begun: _Begun | None = self._local.__dict__.pop("begun", None)
        if begun is not None:
            begun.end()

    def _more_to_come(self, current: DcpSave) -> bool:
        """The call writes a part, and not the last one of its save."""
        part = self._part if current.call is None else current.call.part
        return self._parts is not None and part not in (None, self._parts[-1])

    @_carried
    @_comes_to_the_end(lambda *args: None)
    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Which rank this is. A save that stage() has refused is refused here."""
        current = self._current()
        current.rank = kwargs.get("rank", 0)
        current.use_collectives = kwargs.get("use_collectives", True)
        if current.call is not None:
            current.call.coordinates = is_coordinator or not current.use_collectives
        if current.error is not None:
            if not current.use_collectives:
                current.miss()
            raise current.error

    @_carried
    @_comes_to_the_end(lambda plan: plan)
    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """The job is joined here at the latest. The step goes along, to be compared."""
        current = self._current()
        member = self._member(current.base)
        job = member.job
        if not self._overwrite and _exists(job, current.step):
            raise RuntimeError(f"Checkpoint already exists: step {current.step} of {job.base}, "
                               "and overwrite is False")
        if self._call().coordinates and not job.off:
            ids = _jobs.ids_of(current.base)
            ids.check(current.step, current.name, lambda: _recorded_id(job, current))
        member.saves += 1
        return dataclasses.replace(plan, storage_data=_Says(job.rank, current.step, member.saves))

    @_carried
    @_comes_to_the_end(lambda plans: plans)
    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """All ranks name one step. DCP may have kept a plan of an earlier save, with what was said
        then: that is of another number."""
        member = self._member(self._current().base)
        said = [plan.storage_data for plan in plans if isinstance(plan.storage_data, _Says)
                and plan.storage_data.number == member.saves]
        steps: dict[int, list[int]] = {}
        for rank, step, _ in said:
            steps.setdefault(step, []).append(rank)
        if len(steps) > 1:
            raise HearthError(
                "the ranks name different steps in one save: "
                + "; ".join(f"step {step}: {_ranks(steps[step])}" for step in sorted(steps))
                + ". Nothing was written; give all ranks the same checkpoint_id")
        return plans

    @_carried
    @_comes_to_the_end(lambda *args: Waiting(None, "", 0, _parts.Results()))
    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Waiting:
        """Copy, seal. The future's value: where each item lies."""
        current, call = self._current(), self._call()
        whole = call.whole
        member = self._member(current.base)
        if isinstance(plan.storage_data, _Says):  # a rank that has missed a save counts on with all
            member.saves = max(member.saves, plan.storage_data.number)
        if call.last:
            member.wrote = current.step
        current.again = planner.again if type(planner) is _given.SavePlanner else None
        try:
            if not self.plans.is_written(plan):
                refuse_items(plan)
            if current.common is None:
                current.common = self._common_of(member.job)
            with whole.lock:
                whole.check()
                results = _parts.Results(Write(member.job, current, call, plan, planner).run())
                results.says = call.says
                whole.common.update(current.common)
                call.wrote()
                current.staged = None
            if not call.last:
                return Waiting(None, "", 0, results)
            save = whole.save
            save.seal()
            for name, data in whole.common.items():
                save.put_common(name, data)
            if call.coordinates:
                return Waiting(None, "", 0, results)
            level = min(self._level, "COPIED", key=_LEVELS.index)
            return Waiting(whole.taken().commit(), level, self._timeout_s, results)
        except BaseException as error:
            current.miss()
            call.fail(f"{error}")
            raise

    @_carried
    @_comes_to_the_end(lambda *args: None)
    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """`.metadata` to every node, commit, and wait for the level."""
        current, call = self._current(), self._call()
        whole = call.whole
        if any(part is None for part in results):
            raise HearthError(f"step {current.step}: a rank gave no results")
        own: Metadata | None = dataclasses.replace(
            metadata, storage_meta=self._meta(current),
            storage_data={result.index: result.storage_data for part in results
                          for result in part})
        vars(own).update(more_of(metadata))
        name = _metadata_name(current)
        job = self._member(current.base).job
        where = where_of(current)
        try:
            _parts.compare(current.step, results)
            own = call.finish(own)
            if own is None:
                return  # there are parts to come
            data, structure = current.dumped(metadata).of(own, results)
            proved = not job.off and _proof.proof_of(current.base).metadata(
                where, name, own, data, structure)
            whole.save.put_common(name, data)
            handle = whole.taken().commit()
        except BaseException as error:
            call.fail(f"{error}")
            raise
        try:
            with _jobs.ids_of(current.base).noted(current.step, "" if job.off else current.name):
                handle.wait(self._level, self._timeout_s)
                if proved:
                    _proof.proof_of(current.base).after_commit(
                        where, job, current.step, handle, name, data, whole.headers)
        finally:
            handle.close()
            job.log()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        """Hearth is chosen by name, never by the look of an id."""
        return False

    # ---- to another process ----------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        keep = ("_base", "_step", "_step_of", "_part", "_parts", "_level", "_timeout_s",
                "_overwrite", "_ranks", "_overlap")
        member = _jobs.open_member(self._base)
        return {**{name: self.__dict__[name] for name in keep},
                "_opts": _jobs.for_others(self._opts),
                "_common": self._common_to_send(member),
                "_rank": None if member is None else member.rank}

    def _common_to_send(self, member: _jobs.Membership | None) -> Any:
        """common= as it is now, unless the staged state before it has brought it; or the error: one
        that is raised here would hang the other ranks."""
        if self._local.__dict__.pop("packed", False):
            return None
        try:
            return _container.given(self._common) if member is None else self._common_of(member.job)
        except BaseException as error:
            return portable(error)

    def __setstate__(self, state: dict[str, Any]) -> None:
        rank, opts, common = state.pop("_rank"), state.pop("_opts"), state.pop("_common")
        failed = isinstance(common, BaseException)
        self.__init__(state["_base"], step=state["_step"], step_of=state["_step_of"],
                      part=state["_part"], parts=state["_parts"], level=state["_level"],
                      timeout_s=state["_timeout_s"], overwrite=state["_overwrite"],
                      common=None if failed else common, ranks=state["_ranks"],
                      overlap=state["_overlap"], **opts)
        self._rank, self._brought = rank, common if failed else None


class _Says(NamedTuple):
    """What a rank's plan says of its save: number, as Membership.saves."""

    rank: int
    step: int
    number: int


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {names}{more}"


def _exists(job: Job, step: int) -> bool:
    try:
        job.checkpoint(step).close()
        return True
    except FileNotFoundError:
        return False


def _metadata_name(current: DcpSave) -> str:
    return ".metadata" if current.use_collectives else f"__{current.rank}.metadata"


def _recorded_id(job: Job, current: DcpSave) -> str | None:
    """The id of a save of this step that memory has: its `.metadata` says it."""
    try:
        checkpoint = job.checkpoint(current.step)
        try:
            meta = load_metadata(checkpoint.common(_metadata_name(current))).storage_meta
        finally:
            checkpoint.close()
    except HearthError:  # there is none, or none that can be read
        return None
    if meta is None or not str(meta.save_id).startswith(_OURS):
        return None
    return os.path.basename(str(meta.checkpoint_id))
