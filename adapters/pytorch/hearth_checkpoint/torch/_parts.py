# SPDX-License-Identifier: Apache-2.0
"""Named parts of one save: the model by one call of DCP, the optimizer by another.

    call "model" ──► begin, an object of its own ──┐
    call "optimizer" ──► a further object ─────────┴─► `.metadata` of both, commit, PROTECTED

The save is begun with the first part and committed with the last that is declared. So a step that
lacks a part is not a save, and recovery finds the step before. In `.metadata` a part is what DCP
makes of {"model": state}: its keys begin with "model.", their paths with "model".

If one call fails, the save fails; a part that is written again begins the save anew. Each rank
concludes that by itself. With its results it sends which part of which save it writes, and rank 0
compares.

A save without parts is an OpenSave as well, of one call: alone() makes it, and no other call joins
it.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import Metadata

from .._calls import NotCalled, limited
from ..errors import HearthBusy, HearthError, HearthNotFound, HearthTimeout
from ..job import Job, Save
from . import _copies, _names, _stage

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
_MAX = 16  # of 64 objects a rank may have in a save; a part takes three at most
_ROOM_S = 60.0  # for a further object, while an older save is being freed
_PLAIN = frozenset(field.name for field in dataclasses.fields(Metadata))
_log = logging.getLogger("hearth_checkpoint")
_lock = threading.RLock()
_lines: dict[str, _Line] = {}
_mine = threading.local()


# ---- names ---------------------------------------------------------------------------------------


def declared(part: str | None, parts: Sequence[str] | None) -> tuple[str, ...] | None:
    """The declared parts, checked; None: a save is written by one call. TypeError, ValueError."""
    if parts is None:
        if part is not None:
            raise TypeError(f"part={part!r}: parts= has to name those of a save, such as "
                            "parts=(\"model\", \"optimizer\")")
        return None
    if isinstance(parts, str) or not all(isinstance(name, str) for name in parts):
        raise TypeError(f"parts: a row of names is wanted, not {parts!r}")
    out = tuple(parts)
    if not 0 < len(out) <= _MAX or len(set(out)) < len(out):
        raise ValueError(f"parts: 1 to {_MAX} names, each once, are wanted, not {out!r}")
    for name in out:
        if not _NAME.fullmatch(name) or _names.step_of(name) is not None:
            raise ValueError(f"parts: {name!r} can be no part's name: at most 64 of letters, "
                             "digits, _ and -, and none that names a step")
    if part is not None and part not in out:
        raise ValueError(f"part {part!r} is not declared: the parts are {', '.join(out)}")
    return out


def split(checkpoint_id: Any, base: str | None, parts: Sequence[str] | None,
          step_of: _names.StepOf | None = None, step: int | None = None) -> tuple[Any, str | None]:
    """Of an id such as "<base>/step-10_ckpt/model" that of the save, and the part. Any other id is
    as it was, and None. ValueError for a part that is not declared.

    parts  that are declared; empty: any name may be one; None: none is
    step   that was told: "<base>/model" is a part of it, where that is declared; a folder that
           names another is no step's
    """
    if parts is None or not isinstance(checkpoint_id, (str, os.PathLike)):
        return checkpoint_id, None
    save, name = os.path.split(str(checkpoint_id).rstrip("/"))
    above = os.path.basename(save)
    in_base = bool(base) and os.path.realpath(save) == os.path.realpath(str(base))
    if name not in parts and _names.step_of(name, step_of) is not None:
        return checkpoint_id, None
    at = None if in_base or not above else _names.step_of(above, step_of)
    if at is not None and _NAME.fullmatch(name) and (parts or step in (None, at)):
        if parts and name not in parts:
            raise ValueError(f"checkpoint id {checkpoint_id!s}: part {name!r} is not declared: the "
                             f"parts are {', '.join(parts)}")
        return save, name
    if name in parts and step is not None:
        return os.path.join(save, f"step-{step}_ckpt"), name
    return checkpoint_id, None


def same(told: str | None, named: str | None) -> str | None:
    """The part that part= and the id say. ValueError where they differ."""
    if told is not None and named is not None and told != named:
        raise ValueError(f"part {told!r} is asked for, and the checkpoint id has {named!r}")
    return told if told is not None else named


# ---- `.metadata` ---------------------------------------------------------------------------------


def _prefixed(part: str, metadata: Metadata) -> Metadata:
    """A part's own, as it stands in that of the save."""
    paths = metadata.planner_data
    if paths is not None and not isinstance(paths, dict):
        raise HearthError(f"part {part}: its planner's planner_data is a {type(paths).__name__}, "
                          "and only a dict of paths can be one part's of a save")
    more = sorted(set(vars(metadata)) - _PLAIN)
    if more:
        raise HearthError(f"part {part}: its metadata has {', '.join(more)}, which no part of a "
                          "save can have")
    return dataclasses.replace(
        metadata,
        state_dict_metadata={f"{part}.{key}": entry
                             for key, entry in metadata.state_dict_metadata.items()},
        planner_data=None if paths is None else {
            f"{part}.{key}": (part, *path) for key, path in paths.items()},
        storage_data={dataclasses.replace(index, fqn=f"{part}.{index.fqn}"): info
                      for index, info in (metadata.storage_data or {}).items()})


def _merged(parts: Sequence[Metadata]) -> Metadata:
    """That of the save, of all its parts' (prefixed)."""
    paths = [part.planner_data for part in parts if part.planner_data is not None]
    return dataclasses.replace(
        parts[-1],
        state_dict_metadata={k: v for part in parts for k, v in part.state_dict_metadata.items()},
        planner_data={k: v for path in paths for k, v in path.items()} if paths else None,
        storage_data={k: v for part in parts for k, v in part.storage_data.items()})


def view(metadata: Metadata, part: str, where: str) -> Metadata:
    """A part of a save, as if it were a checkpoint of its own. HearthNotFound: it has none such.

    where  begins the sentence: the container's path
    """
    there = list(getattr(metadata.storage_meta, "modules", None) or ())
    if part not in there:
        raise NoPart(f"{where} has no part {part!r}: " + (
            f"it has {', '.join(there)}" if there else "it was written by one call, without parts"))
    begin = f"{part}."
    cut = len(begin)
    entries = {key[cut:]: entry for key, entry in metadata.state_dict_metadata.items()
               if key.startswith(begin)}
    paths = {key[cut:]: path[1:] or (key[cut:],)
             for key, path in (metadata.planner_data or {}).items() if key.startswith(begin)}
    stored = metadata.storage_data
    return dataclasses.replace(
        metadata, state_dict_metadata=entries, planner_data=paths if paths or not entries else None,
        storage_data=None if stored is None else {
            dataclasses.replace(index, fqn=index.fqn[cut:]): info
            for index, info in stored.items() if index.fqn.startswith(begin)})


# ---- a save, and the calls that write its parts --------------------------------------------------


class NoPart(HearthNotFound):
    """A save has not the part that is asked for."""


class Results(list):
    """A rank's results, and what it thinks that they are of."""

    says: tuple[Any, ...] | None = None


def compare(step: int, results: Sequence[list]) -> None:
    """HearthError where ranks do not write the same part of the same parts."""
    says = [getattr(result, "says", None) for result in results]
    for rank, other in enumerate(says):
        if other != says[0]:
            raise HearthError(f"step {step}: the ranks do not write the same: rank 0 "
                              f"{_say(says[0])}, rank {rank} {_say(other)}; the save was given up")


def _say(says: tuple[Any, ...] | None) -> str:
    if says is None:
        return "a save without parts"
    part, parts, so_far = says
    return f"part {part} of {', '.join(parts)} (so far {', '.join(so_far)})"


class OpenSave:
    """One save, of several parts or of one call (parts is empty). Its lock is held by the thread
    that writes into it.

    common   files for all nodes
    headers  of the tensors written here one of each (dtype, dimensions): object and offset
    object   that is open: the last one begun
    counted  the engine has heard of this rank's attempt at the step, or is to hear of it
    """

    def __init__(self, base: str, parts: tuple[str, ...]) -> None:
        self.base, self.parts = base, parts
        self.lock = threading.RLock()
        self.step: int | None = None
        self.name = ""
        self.error: str | None = None
        self.came: set[str] = set()
        self.ranks: tuple[int, ...] | None = None  # that take part, where not all do
        self.headers: dict[Any, tuple[str, int]] = {}
        self.common: dict[str, bytes] = {}
        self.object = ""
        self.counted = False
        self._save: Save | None = None
        self._has_step = False
        self._objects = 0
        self._source = _copies.Source(())  # what copies out of GPU memory run after
        self._metadata: dict[str, Metadata | None] = {}  # where this rank finishes saves

    def where(self) -> str:
        return f"step {self.step}" if self.step is not None else "a save that was staged"

    def check(self) -> None:
        """HearthError where it was given up."""
        if self.error is not None:
            of = f", of parts {', '.join(self.parts)}," if self.parts else ""
            first = "with the first of them" if self.parts else "it"
            raise HearthError(f"{self.where()}{of} was given up: {self.error}; begin {first} again")

    @property
    def save(self) -> Save:
        """The save, begun. HearthError where it was given up."""
        with _lock:
            self.check()
            assert self._save is not None
            return self._save

    def fail(self, why: str) -> None:
        """Give the save up, on all ranks. The first reason stays."""
        with _lock:
            self.error = self.error or why
            save, self._save = self._save, None
            self._metadata.clear()
        if save is not None:
            _copies.abort(save)

    def taken(self) -> Save:
        """The save, for the last time."""
        save = self.save
        with _lock:
            self._save = None
        return save

    def open_object(self, job: Job, nbytes: int, wait_s: float, name: str | None = None,
                    gpu: Sequence[torch.Tensor] = ()) -> str:
        """Room for nbytes in one more object, whose name this is; the first begins the save. gpu:
        tensors in GPU memory that will be added there."""
        self.check()
        with self.lock:
            name = name or _stage.object_name(job.rank, self._objects)
            if not self._objects:
                self._begin(job, nbytes, name, wait_s, gpu)
            else:
                _next_object(self.save, name, nbytes)
                self.follow(gpu)
            self._objects += 1
            self.object = name
            return name

    def follow(self, gpu: Sequence[torch.Tensor]) -> None:
        """These are added next: after what the current streams of their GPUs have by now."""
        if gpu:
            self._source.follow(gpu)

    def adopt(self, save: Save, name: str) -> None:
        """The save was begun in another process, with this object."""
        self._save, self.object, self._objects = save, name, 1

    def restart(self) -> None:
        """Give up what the save has, and begin it anew with the next object."""
        save, self._save, self.object, self._objects = self.save, None, "", 0
        save.abort()

    def has_step(self) -> Save:
        """The save, which the engine is told the step of by now."""
        with self.lock:
            save = self.save
            if not self._has_step:
                assert self.step is not None
                self.counted = True
                try:
                    save.set_step(self.step)
                except NotCalled:
                    self.counted = False
                    raise
                self._has_step = True
            return save

    def _begin(self, job: Job, nbytes: int, name: str, wait_s: float,
               gpu: Sequence[torch.Tensor]) -> None:
        self._source = _copies.Source(gpu)
        # Where the step is known it is said at once: a begin that is refused is to be heard of.
        self.counted = self.step is not None
        try:
            save = job.begin(self.step, nbytes, name=name, wait_s=wait_s, ranks=self.ranks,
                             stream=self._source.handle)
        except NotCalled:
            self.counted = False
            raise
        self._has_step = self.step is not None
        with _lock:
            if self.error is None:
                self._save = save
                return
        save.abort()
        raise HearthError(f"the save was given up: {self.error}")

    def unfinished(self) -> list[str]:
        """Parts that nobody has begun, where this rank knows that all others went well."""
        with _lock:
            known = self.error is None and set(self._metadata) == self.came
            return [name for name in self.parts if name not in self.came] if known else []


def _of(ranks: tuple[int, ...] | None) -> str:
    return "all ranks" if ranks is None else f"ranks {', '.join(map(str, ranks))}"


def _next_object(save: Save, name: str, nbytes: int) -> None:
    until = time.monotonic() + limited(_ROOM_S)
    while True:
        try:
            return save.next_object(name, nbytes)
        except HearthBusy:
            if time.monotonic() >= until:
                raise
            time.sleep(0.01)


class PartCall:
    """One part's writing, from the call that brings it to the end of that call.

    whole   the save that the part is of
    part    None: the save has no parts
    staged  the call stages, and another thread writes
    object  the name of what is staged; span: where it lies, address and bytes
    over    that thread has ended
    """

    def __init__(self, whole: OpenSave, part: str | None, staged: bool,
                 before: PartCall | None) -> None:
        self.whole, self.part, self.staged = whole, part, staged
        self.path = () if part is None else (part,)  # in front of all names in it
        self.last = part is None or part == whole.parts[-1]
        self.object, self.span = "", (0, 0)
        self.over = threading.Event()
        self.coordinates = False  # finish(), which commits, is this rank's
        self.written = self.finished = False
        self._so_far: tuple[str, ...] = ()  # parts that have come, with this one
        self._before = before if before is not None and before.staged else None

    def join(self, parts: tuple[str, ...], step: int | None,
             ranks: tuple[int, ...] | None) -> None:
        """It is one of the save that is open. HearthError where it cannot be."""
        whole = self.whole
        whole.check()
        if whole.step is None:
            whole.step = step
        if not whole.came:
            whole.ranks = ranks
        elif ranks != whole.ranks:
            whole.fail(f"the parts before are of {_of(whole.ranks)}, and part {self.part} is of "
                       f"{_of(ranks)}")
        if self.part is None:
            return
        if parts != whole.parts:
            whole.fail(f"its parts were declared as {', '.join(whole.parts)}, and with part "
                       f"{self.part} as {', '.join(parts)}")
        missing = [name for name in whole.parts if name not in whole.came and name != self.part]
        if self.last and missing:
            whole.fail(f"{self.part} is the last part that is declared, and "
                       f"{' and '.join(missing)} was not written before it")
        whole.check()
        whole.came.add(self.part)
        self._so_far = tuple(sorted(whole.came))

    def enter(self, timeout_s: float) -> None:
        """This thread is in the call: after the one before, whose thread may be in collectives of
        the same process group."""
        if self.part is None:
            return
        _mine.token = _Token(self)
        before, self._before = self._before, None
        if before is not None and not before.over.wait(timeout_s):
            raise HearthTimeout(f"part {before.part} of {before.whole.where()} is still being "
                                f"written after {timeout_s:g} s; part {self.part} waits for it")

    def named(self, step: int, name: str) -> None:
        """What its id says. HearthError where it is another than that of the parts before."""
        whole = self.whole
        with _lock:
            if whole.step not in (None, step):
                raise HearthError(f"part {self.part} is of step {step}, and the save that it was "
                                  f"staged for is of step {whole.step}: all parts of a step come "
                                  "before the first of the next")
            if whole.name not in ("", name):
                raise HearthError(f"step {step}: part {self.part} is saved as {name}, and the "
                                  f"parts before as {whole.name}: a step has one id")
            whole.step, whole.name = step, name
        whole.check()

    @property
    def says(self) -> tuple[Any, ...] | None:
        """For compare(). Parts that have come since, while this one is being written, may be
        further on one rank than on another."""
        return None if self.part is None else (self.part, self.whole.parts, self._so_far)

    def wrote(self) -> None:
        """The part's bytes are in the save."""
        self.whole.check()
        self.written = True

    def finish(self, metadata: Metadata | None) -> Metadata | None:
        """The metadata of the save, of its last part; None: there are more to come, or each rank's
        parts need none."""
        whole = self.whole
        if self.part is None:
            whole.check()
            self.finished = True
            return metadata
        own = None if metadata is None else _prefixed(self.part, metadata)
        with _lock:
            whole.check()
            whole._metadata[self.part] = own
            self.finished = True
            if not self.last:
                return None
            parts = [whole._metadata[name] for name in whole.parts]
            whole._metadata.clear()
        known = [part for part in parts if part is not None]
        return _merged(known) if known else None

    def fail(self, why: str) -> None:
        """The part, and with it the save, has failed."""
        self.whole.fail(why if self.part is None else f"part {self.part}: {why}")

    def is_over(self) -> bool:
        """Whether the part is written, and finished where that is this rank's."""
        return self.written and (self.finished or not self.coordinates)

    def drop(self) -> None:
        """The call is over, for better or worse. Twice is harmless."""
        if not self.is_over():
            self.fail("it was not written, on this rank or another")


class _Token:
    """Lives as long as the thread is in the call, or until it comes to the next one."""

    def __init__(self, call: PartCall) -> None:
        self._call, self._pid = call, os.getpid()

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._pid:
            return
        self._call.drop()
        self._call.over.set()


def leave() -> None:
    """This thread is in no call any more."""
    _mine.__dict__.pop("token", None)


class _Line:
    """The saves of one base: the one that parts may still come to, and the last call."""

    def __init__(self) -> None:
        self.open: OpenSave | None = None
        self.last: PartCall | None = None


def take(base: str, part: str, parts: tuple[str, ...], step: int | None) -> PartCall:
    """The call of a part that comes now, to join() the save that is open, or a new one.

    step  None: it is staged, and named later
    """
    leave()
    with _lock:
        line = _lines.setdefault(base, _Line())
        whole, gone = line.open, None
        if whole is not None and (part in whole.came or (
                step is not None and whole.step not in (None, step))):
            whole, gone = None, whole
        if whole is None:
            whole = OpenSave(base, parts)
        call = line.last = PartCall(whole, part, step is None, line.last)
        line.open = None if call.last else whole
    if gone is not None:
        _give_up(gone, f"part {part} of {'another save' if step is None else f'step {step}'}")
    return call


def alone(base: str) -> PartCall:
    """The call of a save without parts."""
    return PartCall(OpenSave(base, ()), None, False, None)


def pass_by(base: str, step: int) -> None:
    """A save without parts begins: of an older step no part will come any more."""
    with _lock:
        line = _lines.get(base)
        whole = line.open if line is not None else None
        if line is None or whole is None or whole.step is None or whole.step > step:
            return
        line.open = None
    _give_up(whole, f"a save of step {step}")


def _give_up(whole: OpenSave, because: str) -> None:
    missing = whole.unfinished()
    whole.fail(f"{because} came before all of its parts were written")
    if missing:
        _log.error("hearth: %s: %s is not saved: its part %s was not written before %s", whole.base,
                   whole.where(), " and part ".join(missing), because)


def forget(base: str) -> None:
    """The job joins anew, or is over: what was open of its saves is given up."""
    with _lock:
        line = _lines.pop(base, None)
    if line is not None and line.open is not None:
        line.open.fail("the job was left, or joined anew")


def _after_fork() -> None:
    """A forked child takes part in nothing."""
    global _lock
    _lock = threading.RLock()
    _lines.clear()
    _mine.__dict__.clear()


os.register_at_fork(after_in_child=_after_fork)
