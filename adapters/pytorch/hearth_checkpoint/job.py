# SPDX-License-Identifier: Apache-2.0
"""A rank's membership in a job: open, recover, save, read. Needs the library and nothing else.

    job = Job.open("/mnt/hearth/llama", rank=0, world=1)
    checkpoint = job.recover()                       # None: start from scratch
    save = job.begin(step=10, nbytes=1 << 20)
    save.add_bytes([(b"key", b"value")])
    save.commit().wait("PROTECTED")
    job.close()

Ctrl-C works in every wait: of a level, which is cut into slices of 100 ms, and of what the library
does in one call, which another thread makes then. Different saves and checkpoints may be used by
different threads at once; one by one thread at a time. Whatever a thread is in may be closed by
another: what the library lent is given back when the call has ended, and the next one is refused.
"""

from __future__ import annotations

import ctypes as c
import difflib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

from . import _ffi, errors
from ._calls import interruptible, patient
from ._ffi import call
from ._lent import (
    Box,
    Checkpoint,
    Handle,
    Item,
    Lent,
    Piece,
    Pieces,
    Save,
    encode,
    items_by_key,
    save_bytes,
)

__all__ = ["Box", "Checkpoint", "Gather", "Handle", "Item", "Job", "KeptSave", "Piece", "Pieces",
           "Save", "items_by_key", "save_bytes"]

_LEAVE_S = 10.0  # that close() waits for calls of other threads; the last of them leaves then
_log = logging.getLogger("hearth_checkpoint")
_LOG_LEVELS = {10: logging.ERROR, 20: logging.WARNING, 30: logging.INFO, 40: logging.DEBUG}

Gather = Callable[[bytes], "list[bytes]"]
_KEPT_MAX = 16


_members: weakref.WeakSet[Job] = weakref.WeakSet()  # jobs that were opened here
# Whose fork this process is, and a job that it takes part in.
_parent: tuple[int, str] | None = None


def refuse_in_child() -> None:
    """HEARTH_EFORK in a forked child of a process that takes part in a job."""
    if _parent is not None:
        raise errors.make(
            -110, f"this process was forked from process {_parent[0]}, which takes part in the job "
            f"{_parent[1]}: a forked child takes part in nothing. Call it in that process, or "
            "start this one by spawn or forkserver", 0)


def _after_fork() -> None:
    global _parent
    members = [job for job in _members if job._closing is None and not job.off]
    if members:
        _parent = os.getppid(), members[0].base


os.register_at_fork(after_in_child=_after_fork)


class KeptSave(NamedTuple):
    """A save that is kept."""

    step: int
    attempt: int
    epoch: int
    since: float  # when it was PROTECTED first, as time.time() counts
    degraded: bool  # some object has fewer copies than asked, and is being repaired
    confirmed: bool  # False: as an earlier epoch left it, or the coordinator is out of reach
    copies: int  # of each object, beside the owner's own, that the job asks for
    pinned: bool
    bad: bool


class _Gatherer:
    """The caller's all-gather as a struct hearth_bootstrap; keeps what it raised."""

    def __init__(self, gather: Gather, world: int) -> None:
        self._gather, self._world = gather, world
        self.error: BaseException | None = None
        self._function = _ffi.ALLGATHER(self._call)
        self.struct = _ffi.Bootstrap(allgather=self._function)

    def _call(self, _self, mine, length, out, error) -> int:
        try:
            parts = self._gather(c.string_at(mine, length))
            if len(parts) != self._world or any(len(part) != length for part in parts):
                raise ValueError(f"the gather gave {len(parts)} parts, not {self._world} of "
                                 f"{length} bytes")
            c.memmove(out, b"".join(parts), length * self._world)
            return 0
        except BaseException as raised:  # ctypes would print and swallow it
            self.error = raised
            if error:
                error[0].code = -201
                error[0].text = f"the all-gather failed: {raised!r}".encode()[:500]
            return -201


# What open() itself says of a job.
_NO_OPTIONS = {"struct_size", "reserved", "root", "job", "rank", "world", "bootstrap",
               "domain_count", "object_count"}
OPTIONS = frozenset(name for name, _ in _ffi.Opts._fields_) - _NO_OPTIONS


def check_options(given: Iterable[str], also: Iterable[str] = ()) -> None:
    """TypeError for a name that is no option of a job, with the nearest that is.

    also  arguments that the caller takes beside them
    """
    for name in given:
        if name not in OPTIONS and name not in also:
            known = sorted({*OPTIONS, *also})
            (nearest,) = difflib.get_close_matches(name, known, 1, 0.0)
            raise TypeError(f"hearth has no option {name!r}, the nearest is {nearest!r}; there are "
                            + ", ".join(known))


def _array(kind: Any, values: Sequence[Any]) -> Any:
    return (kind * len(values))(*values)


def _set_field(opts: _ffi.Opts, name: str, value: Any) -> None:
    """One field, exactly: ctypes would cut a number, and take one for a pointer to text."""
    value = encode(value)
    if dict(_ffi.Opts._fields_)[name] is _ffi.STR and not isinstance(value, (bytes, type(None))):
        raise TypeError(f"a text is wanted, not {value!r}")
    setattr(opts, name, value)
    if isinstance(value, int) and getattr(opts, name) != value:
        raise ValueError(f"{value} is out of range")


def _fill(opts: _ffi.Opts, given: dict[str, Any]) -> list:
    """Options by name; returns what must live as long as they do."""
    keep: list = []
    for name, value in given.items():
        try:
            if name in _ffi.WORDS:
                value = _ffi.WORDS[name][value]
            elif name == "domains":
                array = _array(c.c_char_p, [encode(domain) for domain in value])
                keep.append(array)
                opts.domain_count = len(value)
                value = c.cast(array, c.c_void_p)
            elif name == "object_bytes":
                array = _array(c.c_uint64, _sizes(value))
                keep.append(array)
                opts.object_count = len(array)
                value = c.cast(array, c.c_void_p)
            _set_field(opts, name, value)
        except KeyError:
            raise ValueError(
                f"option {name}: {value!r} is none of {', '.join(_ffi.WORDS[name])}") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"option {name}: {error}") from None
    return keep


def _sizes(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _comparable(name: str, value: Any) -> Any:
    """An option as it was given, so that equal ones are equal."""
    if name == "object_bytes":
        return _sizes(value)
    if name == "domains":
        return [encode(domain) for domain in value]
    return _ffi.WORDS[name].get(value, value) if name in _ffi.WORDS else encode(value)


def _effective(opts: _ffi.Opts, given: dict[str, Any]) -> dict[str, Any]:
    """The options that are in force, the environment's included; without those at their default."""
    out = {name: getattr(opts, name) for name in OPTIONS - {"domains", "object_bytes", "log"}}
    out.update({name: _comparable(name, value) for name, value in given.items()})
    return {name: value for name, value in out.items() if value}


class Job:
    """One rank in one job. Make it with open()."""

    def __init__(self, base: str, rank: int, world: int) -> None:
        self.base, self.rank, self.world = base, rank, world
        self._options: dict[str, Any] = {}  # in force, where they are not at their default
        self._pointer = c.c_void_p()
        self._gatherer: _Gatherer | None = None
        self._c_bootstrap = c.c_void_p()
        # Guards what follows. Never held in a call of the library; taken again by finalizers, which
        # the collector runs in any thread at any time.
        self._lock = threading.Condition(threading.RLock())
        self._calls = 0  # that are in the library now
        self._views = 0  # alive
        self._closing: int | None = None
        self._open: weakref.WeakSet[Lent] = weakref.WeakSet()  # saves, handles, checkpoints
        self._pid = os.getpid()
        self.unanswered: threading.Thread | None = None  # in a call that its caller has given up
        _members.add(self)

    @classmethod
    def open(cls, base: str | os.PathLike, *, rank: int | None = None, world: int | None = None,
             gather: Gather | None = None, **opts: Any) -> Job:
        """Join the job whose memory is `base`, "<root>/<job>". Collective; starts this node's
        engine where none runs.

        gather  all-gather of bytes over all ranks, in rank order. None: one rank, or a TCP
                rendezvous as torchrun's variables describe it, on a port of its own
        opts    fields of struct hearth_opts by name; HEARTH_* variables fill what is left out
        """
        refuse_in_child()
        check_options(opts, ("rank", "world", "gather"))
        base = os.path.abspath(os.fspath(base))
        rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        world = int(os.environ.get("WORLD_SIZE", 1)) if world is None else world
        job = cls(base, rank, world)
        struct = _ffi.Opts(rank=rank, world=world, root=encode(os.path.dirname(base)),
                           job=encode(os.path.basename(base)))
        keep = _fill(struct, opts)
        call("hearth_opts_from_env", c.byref(struct))
        job._options = _effective(struct, opts)
        job._bootstrap(struct, gather)

        def join() -> None:
            """Holds on to all that the library reads, also when nobody waits for it any more."""
            with job._entered():
                call("hearth_open", c.byref(struct), c.byref(job._pointer))
            keep.clear()

        try:
            interruptible(join)
        except BaseException as error:  # after Ctrl-C it is left where it is joined
            job._give_up()
            if isinstance(error, errors.HearthError):
                job._raise(error)
            raise
        job.log()
        return job

    @property
    def off(self) -> bool:
        """The kill switch is on: nothing is kept."""
        return bool(self._options.get("off"))

    def check_same(self, opts: Mapping[str, Any]) -> None:
        """ValueError where these are not the options that the job was opened with: they would not
        be looked at any more. TypeError for what is no option."""
        check_options(opts)
        for name, value in opts.items():
            if value and _comparable(name, value) != self._options.get(name):
                was = self._options.get(name, "its default")
                raise ValueError(
                    f"option {name}: {value!r} is asked for, but the job {self.base} is open in "
                    f"this process already, with {os.fsdecode(was) if type(was) is bytes else was}"
                    ": give options where it is first used, or leave() it before")

    def _bootstrap(self, opts: _ffi.Opts, gather: Gather | None) -> None:
        if self.world == 1 or opts.helper:
            return
        if gather is not None:
            self._gatherer = _Gatherer(gather, self.world)
            opts.bootstrap = c.addressof(self._gatherer.struct)
            return
        call("hearth_bootstrap_tcp_from_env", opts.open_ms or 60000, c.byref(self._c_bootstrap),
             None, None)
        opts.bootstrap = self._c_bootstrap

    def _raise(self, error: errors.HearthError) -> NoReturn:
        """The error, with what the caller's own gather raised as its cause."""
        cause, self_ = (self._gatherer.error, self._gatherer) if self._gatherer else (None, None)
        if self_ is not None:
            self_.error = None
        raise error from cause

    @property
    def _forked(self) -> bool:
        """In a forked child: the library refuses its calls, and nobody may ever free its locks."""
        return os.getpid() != self._pid

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Around a call of the library: until it ends the job stays."""
        if self._forked:
            yield
            return
        with self._lock:
            if self._closing is not None:
                raise errors.HearthError(f"the job {self.base} is closed")
            self._calls += 1
        try:
            yield
        finally:
            self._left()

    @contextmanager
    def _used(self) -> Iterator[c.c_void_p]:
        """Around a call of the library that takes the job."""
        with self._entered():
            if not self._pointer:
                raise errors.HearthError(f"the job {self.base} is closed")
            yield self._pointer

    def recover(self, *, common: Sequence[str] = (), deadline_s: float | None = None,
                accept_loss: bool = False, step: int | None = None) -> Checkpoint | None:
        """Agree with all ranks on the newest save that can be had, and bring it here, verified.
        Collective. None: there is nothing, start from scratch. A second call begins a new epoch.

        step         go back to the newest save of this step and no other; what is newer is given
                     up. Raises HearthNotFound. The same on all ranks
        common       names of objects that every node needs of containers which Hearth has not
                     written
        accept_loss  None instead of HearthLost where more was lost than there were copies; what is
                     left stays until a newer save is PROTECTED. The same on all ranks
        """
        names = (c.c_char_p * len(common))(*[encode(name) for name in common])
        opts = _ffi.RecoverOpts(
            common=c.cast(names, c.c_void_p) if common else None, common_count=len(common),
            accept_loss=int(accept_loss),
            deadline_ms=0 if deadline_s is None else max(1, int(deadline_s * 1000)))
        wanted = None if step is None else _ffi.SaveId(step=_ffi.step_number(step, 0))
        opts.save = c.addressof(wanted) if wanted is not None else None

        def recover() -> Checkpoint | None:
            out = c.c_void_p()
            with self._used() as pointer:
                _ = wanted, names  # what opts points to
                call("hearth_recover", pointer, c.byref(opts), c.byref(out))
                return Checkpoint(self, out) if out else None

        try:
            return interruptible(recover)
        except errors.HearthError as error:
            self._raise(error)
        finally:
            self.log()

    def checkpoint(self, step: int | None = None, *, wait_s: float = 0.0) -> Checkpoint:
        """A save of this epoch, or the recovered one, without asking other ranks. step None: the
        newest that is PROTECTED. Raises HearthNotFound.

        What this node has handed over of a step and nobody has decided yet is waited for, as long
        as opening the job may take (HearthTimeout).

        wait_s  for this node's engine to hear of the step; of None: for what it has handed over
        """
        until = time.monotonic() + wait_s
        opts = _ffi.FindOpts(wait_ms=0 if step is not None else
                             min(_ffi.DEADLINE_MAX_MS, max(0, int(wait_s * 1000))))

        def find() -> Checkpoint:
            out = c.c_void_p()
            with self._used() as pointer:
                call("hearth_checkpoint_find", pointer,
                     _ffi.step_number(step, _ffi.STEP_NEWEST), c.byref(opts), c.byref(out))
                return Checkpoint(self, out)

        while True:
            try:
                return interruptible(find, self)
            except errors.HearthNotFound:
                if step is None or time.monotonic() >= until:
                    raise
                time.sleep(0.01)

    def kept(self) -> list[KeptSave]:
        """The saves that are kept, newest first, as this node knows them."""
        rows = (_ffi.Kept * _KEPT_MAX)()
        rows[0].struct_size = c.sizeof(_ffi.Kept)
        count = c.c_size_t()

        def ask() -> None:
            with self._used() as pointer:
                call("hearth_keep_list", pointer, rows, len(rows), c.byref(count))

        patient(ask, self)
        return [KeptSave(row.id.step, row.id.attempt, row.id.epoch, row.since_ms / 1000,
                     bool(row.degraded), bool(row.confirmed), row.copies, bool(row.pinned),
                     bool(row.bad)) for row in rows[:count.value]]

    def pin(self, step: int, pinned: bool = True) -> None:
        """It stays, however many newer saves come, until it is unpinned (pinned False) or released.
        Pins use up `keep`, of which the last place is for new saves."""
        self._wish("hearth_keep_pin" if pinned else "hearth_keep_unpin", step)

    def release(self, step: int) -> None:
        """Give a save up: it is freed on every node. Never the newest that is PROTECTED."""
        self._wish("hearth_keep_release", step)

    def mark_bad(self, step: int, bad: bool = True) -> None:
        """A recovery passes over it as long as an older save is whole."""
        self._wish("hearth_keep_mark_bad" if bad else "hearth_keep_unmark_bad", step)

    def _wish(self, call_name: str, step: int) -> None:
        """Of the newest kept save of this step; decided for the whole job."""
        save = _ffi.SaveId(step=_ffi.step_number(step, 0))

        def wish() -> None:
            with self._used() as pointer:
                call(call_name, pointer, c.byref(save))

        interruptible(wish)

    def begin(self, step: int | None, nbytes: int, *, name: str | None = None,
              wait_s: float = 0.0, cancel_old: bool = False,
              ranks: Iterable[int] | None = None, stream: int | None = None) -> Save:
        """Begin to write this rank's part of a step. step None: set_step() says it later.

        nbytes  of what is to come; save_bytes() says exactly
        wait_s  for room, while an older save is undecided; set_step() waits as long
        ranks   that take part, this one among them: each begins with the same, the others call
                nothing. None: all ranks
        stream  handle of a stream, alive until the save is over: tensors in GPU memory are copied
                after what is in it at add(). None: the default stream of each GPU
        """
        wait_ms = min(_ffi.DEADLINE_MAX_MS, max(0, int(wait_s * 1000)))
        opts = _ffi.BeginOpts(name=encode(name), cancel_old=int(cancel_old), wait_ms=wait_ms,
                              stream=stream)
        part = None
        if ranks is not None:
            part = _ffi.rank_list(ranks)
            opts.ranks, opts.rank_count = c.cast(part, c.c_void_p), len(part)

        def begin() -> Save:
            """One call: a begin that is refused counts as an attempt, and cancels it."""
            out = c.c_void_p()
            with self._used() as pointer:
                _ = part  # what opts points to
                call("hearth_save_begin", pointer, _ffi.step_number(step, _ffi.STEP_LATER),
                     nbytes, c.byref(opts), c.byref(out))
                return Save(self, out)

        return interruptible(begin, self)

    def take(self, ticket: bytes) -> Save:
        """Go on with a save that another process of this rank gave away (Save.give)."""
        struct = _ffi.Ticket.from_buffer_copy(ticket)
        out = c.c_void_p()
        with self._used() as pointer:
            call("hearth_save_take", pointer, c.byref(struct), c.byref(out))
            return Save(self, out)

    def log(self) -> None:
        """Hand the library's waiting lines to logging's "hearth_checkpoint"."""
        level, text = c.c_uint32(), c.create_string_buffer(1024)
        try:
            with self._used() as pointer:
                while _ffi.library().hearth_log_poll(
                        pointer, c.byref(level), text, len(text)) == 1:
                    _log.log(_LOG_LEVELS.get(level.value, logging.DEBUG),
                             "%s", text.value.decode(errors="replace"))
        except errors.HearthError:
            pass  # closed

    def close(self, keep: bool = True, wait_s: float = _LEAVE_S) -> None:
        """Leave. keep False: the job is over, its memory is freed once all ranks have said so.
        Saves are aborted, handles and checkpoints closed; another thread that waits in one of them
        gets a HearthError. A call that takes longer than wait_s leaves the job when it ends.
        Views that are still alive stay valid, and the connection with them. Twice is harmless."""
        self._leave(_ffi.KEEP if keep else _ffi.DROP, wait_s)

    def _leave(self, how: int, wait_s: float) -> None:
        if self._forked:
            return
        with self._lock:
            if self._closing is not None or not (self._pointer or self._calls):
                self._lock.wait_for(lambda: not self._calls, wait_s)
                return
            self._closing = how
            self._calls += 1  # our own: nobody else ends it before what is lent is closed
            lent = list(self._open)
        try:
            for each in lent:  # the library wants them closed before the job
                each.close()
            with self._lock:
                self._lock.wait_for(lambda: self._calls == 1, wait_s)
        finally:
            self._left()

    def _give_up(self) -> None:
        """Of a job that open() does not hand out."""
        with self._lock:
            self._closing = _ffi.KEEP
        self._end_if_last()

    def _left(self) -> None:
        """A call has ended."""
        with self._lock:
            self._calls -= 1
            self._lock.notify_all()
        self._end_if_last()

    def _end_if_last(self) -> None:
        with self._lock:
            if self._closing is None or self._calls or self._views:
                return
            pointer, self._pointer = self._pointer, c.c_void_p()
            bootstrap, self._c_bootstrap = self._c_bootstrap, c.c_void_p()
        if pointer:
            _ffi.library().hearth_close(pointer, self._closing)
        if bootstrap:
            _ffi.library().hearth_bootstrap_close(bootstrap)

    def _add(self, lent: Lent) -> None:
        """Of what was lent by a call that has not ended. Closed at once where the job is."""
        with self._lock:
            self._open.add(lent)
            late = self._closing is not None
        if late:
            lent.close()

    def _view_opened(self) -> None:
        with self._lock:
            self._views += 1

    def _view_closed(self, view: _ffi.View) -> None:
        if self._forked:
            return  # the mapping goes with the process
        _ffi.library().hearth_view_close(self._pointer, c.byref(view))
        with self._lock:
            self._views -= 1
        self._end_if_last()
