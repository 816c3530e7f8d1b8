# SPDX-License-Identifier: Apache-2.0
"""The jobs that this process takes part in, by base, and how its ranks find each other."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .. import _calls
from ..errors import HearthError
from ..job import Checkpoint, Gather, Job, KeptSave, check_options, refuse_in_child
from . import _container, _names, _parts
from ._group import OwnGroup
from ._meeting import StoreGather

_PLACE = ("rank", "world", "gather")  # options that say which rank this is
_IDS = 1000  # that are remembered of a job, the newest


@dataclass
class Membership:
    """A job that was opened, and what it recovered (None: nothing, it started from scratch).

    opts    that it was opened with, and a second process of the rank needs
    gather  that the caller gave
    own     where the ranks meet, if the caller gave nothing and torch's process group stands
    joined  another word for each joining, after which such a process attaches anew
    wrote   the newest step that this process has written
    missed  a step that the others have begun, and this rank has not, since it failed before
    newest  save that was PROTECTED when that was last asked
    saves   how many DCP has planned since the job was joined, as the coordinator counts
    """

    job: Job
    opts: dict[str, Any] = field(default_factory=dict)
    recovered: Checkpoint | None = None
    gather: Gather | None = None
    own: _GroupGather | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    joined: str = field(default_factory=lambda: uuid.uuid4().hex)
    wrote: int = -1
    missed: int | None = None
    newest: KeptSave | None = None
    saves: int = 0

    @property
    def rank(self) -> Rank:
        """For assist() in another process of this rank."""
        return Rank(self.job.base, self.job.rank, self.job.world, self.opts, self.joined)


class Rank(NamedTuple):
    """Which rank of which job another process is to help."""

    base: str
    rank: int
    world: int
    opts: dict[str, Any]
    joined: str


_RANKS_OWN = frozenset({  # of what a job is opened with: nothing for another process
    "gather", "bootstrap", "start", "object_bytes", "object_count", "helper", "log", "log_arg"})
_lock = threading.RLock()
_memberships: dict[str, Membership] = {}


def resolve(checkpoint_id: str | os.PathLike | None, base: str | os.PathLike | None,
            step: int | None, step_of: _names.StepOf | None = None) -> tuple[str, int]:
    """Base and step of a checkpoint id such as "/mnt/hearth/job/step-12_ckpt". ValueError."""
    if checkpoint_id is not None:
        path = os.fspath(checkpoint_id).rstrip("/")
        folder, name = os.path.split(path)
        named = _names.step_of(name, step_of)
        if step is None:
            step = named
        elif named not in (None, step):
            raise ValueError(f"checkpoint id {path!r} is not of step {step}")
        if step is None:
            raise ValueError(f"checkpoint id {path!r} names no step: give {_names.SAID}; or step=, "
                             "or step_of=, a function of the name")
        if folder and base and os.path.realpath(folder) != os.path.realpath(base):
            raise ValueError(f"checkpoint id {path!r} lies in {os.path.abspath(folder)!r}, not in "
                             f"the job's base {os.path.abspath(base)!r}")
        base = base or (folder if folder else None)
    if step is None:
        raise ValueError(f"no step: give a checkpoint_id with {_names.SAID}, or step=")
    return base_of(base), step


def id_of(checkpoint_id: str | os.PathLike | None, step: int) -> str:
    """What a save is called in its base: the last component of its id."""
    if checkpoint_id is None:
        return f"step-{step}_ckpt"
    return os.path.basename(os.fspath(checkpoint_id).rstrip("/"))


class Ids:
    """What the saves of a job are called that were written in this process. A step has one id: two
    that name one step would be two saves, of which the second replaces the first unheard."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._known: dict[int, str] = {}

    def check(self, step: int, name: str,
              recorded: Callable[[], str | None] = lambda: None) -> None:
        """ValueError where the step has another id. recorded: says the one that memory has."""
        known = self._known.get(step) or recorded()
        if known not in (None, name):
            raise ValueError(
                f"step {step} was saved as {self._base}/{known}, and {self._base}/{name} would "
                "replace it: a step has one id in a job. Save it under the same id again, or all "
                "that belongs to a step in one save")

    def until(self, step: int) -> Ids:
        """Those that a job knows which has gone on from this step: the saves behind it are gone."""
        kept = Ids(self._base)
        kept._known = {known: name for known, name in self._known.items() if known <= step}
        return kept

    @contextmanager
    def noted(self, step: int, name: str) -> Iterator[None]:
        """Remember the id of a save that was committed, unless what follows fails. "": nothing."""
        before = self._known.pop(step, None)
        if name:
            self._known[step] = name
            while len(self._known) > _IDS:
                del self._known[next(iter(self._known))]
        try:
            yield
        except BaseException:
            self._known.pop(step, None)
            if before is not None:
                self._known[step] = before
            raise


_ids: dict[str, Ids] = {}


def ids_of(base: str) -> Ids:
    """The ids of a job's saves."""
    with _lock:
        return _ids.setdefault(base, Ids(base))


def base_of(base: str | os.PathLike | None) -> str:
    """The job's memory: as given, of HEARTH_ROOT and HEARTH_JOB, or the one that is open. Each call
    of the package begins with it, and so is refused here in a forked child."""
    refuse_in_child()
    if base:
        return _as_opened(os.path.abspath(os.fspath(base)))
    root, job = os.environ.get("HEARTH_ROOT"), os.environ.get("HEARTH_JOB")
    if root and job:
        return _as_opened(os.path.abspath(os.path.join(root, job)))
    with _lock:
        if len(_memberships) == 1:
            return next(iter(_memberships))
    raise ValueError(
        "no base: give <root>/<job>, a checkpoint_id below it, or set HEARTH_ROOT and HEARTH_JOB")


def _as_opened(base: str) -> str:
    """One base, however it is spelt: as it was when the job was opened."""
    with _lock:
        if not _memberships or base in _memberships:
            return base
        real = os.path.realpath(base)
        return next((known for known in _memberships if os.path.realpath(known) == real), base)


def known_base(checkpoint_id: object, base: str | os.PathLike | None) -> str | None:
    """The base, where it can be told without knowing the step."""
    try:
        if base is None and checkpoint_id is not None:
            folder = os.path.dirname(
                os.fspath(checkpoint_id).rstrip("/"))  # type: ignore[call-overload]
            base = folder or None
        return base_of(base)
    except (TypeError, ValueError):
        return None


class _GroupGather:
    """All-gather over a gloo group of its own: the job's may be busy in another thread."""

    def __init__(self, timeout_s: float) -> None:
        self._own = OwnGroup(timedelta(seconds=timeout_s))
        self._own.make()
        self._place = dist.get_rank(), dist.get_world_size()

    def __call__(self, mine: bytes) -> list[bytes]:
        rank, world = self._place
        if not dist.is_initialized() or self._place != (dist.get_rank(), dist.get_world_size()):
            raise HearthError("the job's ranks meet in torch's process group, and where rank "
                              f"{rank} of {world} was there is none now: leave() the job first")
        group = self._own.make()
        row = torch.frombuffer(bytearray(mine), dtype=torch.uint8).clone()  # torch's memory
        out = [torch.empty_like(row) for _ in range(world)]
        dist.all_gather(out, row, group=group)
        return [_bytes(part) for part in out]

    def end(self) -> None:
        self._own.end()


def _bytes(tensor: torch.Tensor) -> bytes:
    """A uint8 vector's bytes, without numpy."""
    return bytes(tensor.tolist())


def _store_gather(base: str, rank: int, world: int, timeout_s: float) -> Gather:
    """All-gather over torchrun's own store, before there is any process group. By the job's name:
    its root is each node's own."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                          world_size=None, is_master=False, timeout=timedelta(seconds=timeout_s))
    return StoreGather(store, os.path.basename(base), rank, world, timeout_s)


def rank_and_world() -> tuple[int, int]:
    """This process's rank and how many there are, as torch or else its launcher says."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _place(base: str, opts: dict[str, Any]) -> tuple[int, int, Gather | None]:
    """This process's rank, the world, and how the ranks meet."""
    wait_s = opts.get("open_ms", 60000) / 1000
    rank, world = rank_and_world()
    if dist.is_available() and dist.is_initialized():
        needed = world > 1 and "gather" not in opts
        return rank, world, _GroupGather(wait_s) if needed else None
    if world > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return rank, world, _store_gather(base, rank, world, wait_s)
    return rank, world, None


def check(opts: dict[str, Any], also: tuple[str, ...] = ()) -> None:
    """TypeError for what is no option of a job. also: what else the caller takes."""
    check_options(opts, (*_PLACE, *also))


def own_options(job: Job | None, opts: dict[str, Any]) -> dict[str, Any]:
    """Options that were given where a job may be given as well: with one, the same as its own."""
    check(opts)
    if job is not None:
        job.check_same(opts)
    return opts


def _check_same(member: Membership, opts: dict[str, Any]) -> None:
    """An open job looks at no options: ValueError if these are not those that it has."""
    job = member.job
    for name, mine in zip(_PLACE, (job.rank, job.world, member.gather)):
        if name in opts and opts[name] != mine:
            raise ValueError(f"option {name}: {opts[name]!r} is asked for, but the job {job.base} "
                             f"is open in this process already, with {mine!r}")
    job.check_same({name: value for name, value in opts.items() if name not in _PLACE})


def membership(base: str, opts: dict[str, Any], *, recover: bool = True) -> Membership:
    """The job of `base`, opened and recovered once per process. Collective the first time. Options
    that are not those it is open with are an error."""
    refuse_in_child()
    check(opts)
    with _lock:
        base = _as_opened(base)
        member = _memberships.get(base)
        if member is not None:
            _check_same(member, opts)
            return member
        rank, world, gather = _place(base, opts)
        rank, world = opts.get("rank", rank), opts.get("world", world)
        rest = {k: v for k, v in opts.items() if k not in _PLACE}
        with _calls.patience(None):  # all ranks wait for each other
            job = Job.open(base, rank=rank, world=world, gather=opts.get("gather", gather), **rest)
            member = Membership(job, for_others(rest), gather=opts.get("gather"),
                                own=gather if isinstance(gather, _GroupGather) else None)
            if recover:
                try:
                    member.recovered = job.recover(common=_container.COMMON)
                except BaseException:
                    job.close()
                    raise
        _memberships[base] = member
        return member


def for_others(opts: dict[str, Any]) -> dict[str, Any]:
    """Of what a job is opened with, that which goes to other processes as well."""
    return {name: value for name, value in opts.items() if name not in _RANKS_OWN}


def open_member(base: str | os.PathLike | None) -> Membership | None:
    """The job of `base`, if it is open here."""
    try:
        base = base_of(base)
    except ValueError:
        return None
    with _lock:
        return _memberships.get(base)


def assist(rank: Rank) -> Membership:
    """A job that the rank has open in another process, on this node. Not collective."""
    with _lock:
        member = _memberships.get(rank.base)
        if member is not None and member.joined != rank.joined:
            forget(rank.base)  # of a joining that is over, perhaps of an engine that is gone
            member = None
        if member is None:
            job = Job.open(rank.base, rank=rank.rank, world=rank.world, helper=1, start="never",
                           **rank.opts)
            member = _memberships[rank.base] = Membership(
                job, rank.opts, joined=rank.joined)
        return member


def recover_again(base: str, opts: dict[str, Any], **arguments: Any) -> Membership:
    """The job of `base` with what its ranks agree on now. Collective each time."""
    refuse_in_child()
    check(opts)
    with _lock:
        base = _as_opened(base)
        member = _memberships.get(base)
    if member is None:
        member = membership(base, opts, recover=False)
        try:
            member.recovered = member.job.recover(**arguments)
        except BaseException:
            forget(base)
            raise
        return member
    _check_same(member, opts)
    _parts.forget(base)
    with member.lock:
        if member.recovered is not None:
            member.recovered.close()
            member.recovered = None
        member.joined, member.wrote = uuid.uuid4().hex, -1
        found = member.recovered = member.job.recover(**arguments)
        member.newest, member.saves = None, 0
        member.missed = None  # not before: only in the new epoch all count their attempts anew
    with _lock:
        if base in _ids:
            _ids[base] = _ids[base].until(found.step if found is not None else -1)
    return member


def forget(base: str, *, keep: bool = True) -> None:
    """Close the job of `base`, if this process has it open."""
    with _lock:
        member = _memberships.pop(base, None)
        _ids.pop(base, None)
    _parts.forget(base)
    if member is None:
        return
    if member.recovered is not None:
        member.recovered.close()
    member.job.close(keep)
    if member.own is not None:
        member.own.end()


def open_bases() -> list[str]:
    """Bases of the jobs that are open here."""
    with _lock:
        return list(_memberships)


def _after_fork() -> None:
    """A forked child (a DataLoader's worker) takes part in nothing."""
    global _lock
    _lock = threading.RLock()
    _memberships.clear()
    _ids.clear()


os.register_at_fork(after_in_child=_after_fork)
