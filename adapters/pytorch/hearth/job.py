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
different threads at once; one by one thread at a time.
"""

from __future__ import annotations

import ctypes as c
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from . import _ffi, errors
from ._ffi import call

_SLICE_MS = 100
_log = logging.getLogger("hearth")
_LOG_LEVELS = {10: logging.ERROR, 20: logging.WARNING, 30: logging.INFO, 40: logging.DEBUG}
_T = TypeVar("_T")

Gather = Callable[[bytes], "list[bytes]"]


class Piece(NamedTuple):
    """A piece of a tensor in host memory. Shapes, strides and offsets count elements."""

    key: bytes
    data: int  # address of the first element
    dtype: str  # "float32"
    shape: Sequence[int]
    strides: Sequence[int] | None = None  # None: C order
    global_shape: Sequence[int] | None = None  # None: as shape
    global_offset: Sequence[int] | None = None  # None: zeros


class Box(NamedTuple):
    """A part of a stored item, and where it is wanted."""

    object: str
    item: int  # offset of the item in its object, bytes from 4096
    dtype: str
    offset: Sequence[int]  # in the item, elements
    shape: Sequence[int]
    dst: int  # address
    strides: Sequence[int] | None = None  # of dst, elements; None: C order


class Item(NamedTuple):
    """An item as its object has it."""

    key: bytes
    object: str
    owner: int
    is_tensor: bool
    dtype: str | None
    shape: tuple[int, ...]
    global_shape: tuple[int, ...]
    global_offset: tuple[int, ...]
    offset: int  # bytes from 4096
    nbytes: int  # of the payload
    local: bool
    raw: _ffi.Item


def _interruptible(work: Callable[[], _T]) -> _T:
    """Run a long C call so that the main thread hears Ctrl-C meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # handed to the caller below
            failure.append(error)

    thread = threading.Thread(target=run, name="hearth-call", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SLICE_MS / 1000)
    if failure:
        raise failure[0]
    return result[0]


class _Gatherer:
    """The caller's all-gather as a struct hearth_bootstrap; keeps what it raised."""

    def __init__(self, gather: Gather, world: int) -> None:
        self._gather, self._world = gather, world
        self.error: BaseException | None = None
        self._function = _ffi.ALLGATHER(self._call)
        self.struct = _ffi.Bootstrap(self._function, None, None)

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


def _encode(value: Any) -> Any:
    return os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value


def _fill(opts: _ffi.Opts, given: dict[str, Any]) -> list:
    """Options by name; returns what must live as long as they do."""
    keep: list = []
    fields = {name for name, _ in _ffi.Opts._fields_}
    for name, value in given.items():
        if name not in fields:
            raise TypeError(f"hearth has no option {name!r}; there are "
                            + ", ".join(sorted(fields - {"struct_size", "reserved"})))
        if name == "start":
            value = _ffi.START[value]
        elif name == "domains":
            array = (c.c_char_p * len(value))(*[_encode(domain) for domain in value])
            keep.append(array)
            opts.domain_count = len(value)
            value = c.cast(array, c.c_void_p)
        elif name == "object_bytes":
            sizes = [value] if isinstance(value, int) else list(value)
            array = (c.c_uint64 * len(sizes))(*sizes)
            keep.append(array)
            opts.object_count = len(sizes)
            value = c.cast(array, c.c_void_p)
        setattr(opts, name, _encode(value))
    return keep


class Job:
    """One rank in one job. Make it with open()."""

    def __init__(self, base: str, rank: int, world: int) -> None:
        self.base, self.rank, self.world = base, rank, world
        self._pointer = c.c_void_p()
        self._gatherer: _Gatherer | None = None
        self._c_bootstrap = c.c_void_p()
        self._lock = threading.Lock()
        self._views = 0
        self._closing: int | None = None
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()  # saves, handles, checkpoints
        self._pid = os.getpid()

    @classmethod
    def open(cls, base: str | os.PathLike, *, rank: int | None = None, world: int | None = None,
             gather: Gather | None = None, **opts: Any) -> Job:
        """Join the job whose memory is `base`, "<root>/<job>". Collective; starts this node's
        engine where none runs.

        gather  all-gather of bytes over all ranks, in rank order. None: one rank, or a TCP
                rendezvous as torchrun's variables describe it, on a port of its own
        opts    fields of struct hearth_opts by name; HEARTH_* variables fill what is left out
        """
        base = os.path.abspath(os.fspath(base))
        rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        world = int(os.environ.get("WORLD_SIZE", 1)) if world is None else world
        job = cls(base, rank, world)
        given = {"root": os.path.dirname(base), "job": os.path.basename(base), **opts}
        struct = _ffi.Opts(rank=rank, world=world)
        keep = _fill(struct, given)
        job._bootstrap(struct, gather)
        call("hearth_opts_from_env", c.byref(struct))
        try:
            _interruptible(lambda: call("hearth_open", c.byref(struct), c.byref(job._pointer)))
        except errors.HearthError as error:
            job._raise(error)
        finally:
            del keep
        job.log()
        return job

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

    def _raise(self, error: errors.HearthError) -> None:
        """The error, with what the caller's own gather raised as its cause."""
        cause, self_ = (self._gatherer.error, self._gatherer) if self._gatherer else (None, None)
        if self_ is not None:
            self_.error = None
        raise error from cause

    def _handle(self) -> c.c_void_p:
        if self._closing is not None or not self._pointer:
            raise errors.HearthError(f"the job {self.base} is closed")
        return self._pointer

    def recover(self, *, common: Sequence[str] = (), deadline_s: float | None = None,
                accept_loss: bool = False) -> Checkpoint | None:
        """Agree with all ranks on the newest save that can be had, and bring it here, verified.
        Collective. None: there is nothing, start from scratch. A second call begins a new epoch.

        common       names of objects that every node needs of containers which Hearth has not
                     written
        accept_loss  None instead of HearthLost where more was lost than there were copies; what is
                     left stays until a newer save is PROTECTED. The same on all ranks
        """
        pointer = self._handle()
        names = (c.c_char_p * len(common))(*[_encode(name) for name in common])
        opts = _ffi.RecoverOpts(
            common=c.cast(names, c.c_void_p) if common else None, common_count=len(common),
            accept_loss=int(accept_loss),
            deadline_ms=0 if deadline_s is None else max(1, int(deadline_s * 1000)))
        out = c.c_void_p()
        try:
            _interruptible(lambda: call("hearth_recover", pointer, c.byref(opts), c.byref(out)))
        except errors.HearthError as error:
            self._raise(error)
        finally:
            self.log()
        return Checkpoint(self, out) if out else None

    def checkpoint(self, step: int | None = None, *, wait_s: float = 0.0) -> Checkpoint:
        """A save of this epoch, or the recovered one, without asking other ranks. step None: the
        newest that is PROTECTED. Raises HearthNotFound.

        wait_s  for this node's engine to hear what the coordinator's knows already
        """
        until = time.monotonic() + wait_s
        out = c.c_void_p()
        while True:
            try:
                call("hearth_checkpoint_open", self._handle(),
                     _ffi.STEP_NEWEST if step is None else step, c.byref(out))
                return Checkpoint(self, out)
            except errors.HearthNotFound:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.01)

    def begin(self, step: int | None, nbytes: int, *, name: str | None = None,
              wait_s: float = 0.0, cancel_old: bool = False) -> Save:
        """Begin to write this rank's part of a step. step None: set_step() says it later.

        nbytes  of what is to come; save_bytes() says exactly
        wait_s  for room, while an older save is undecided; set_step() waits as long
        """
        pointer = self._handle()
        wait_ms = min(_ffi.DEADLINE_MAX_MS, max(0, int(wait_s * 1000)))
        opts = _ffi.BeginOpts(name=_encode(name), cancel_old=int(cancel_old), wait_ms=wait_ms)

        def begin() -> Save:
            """One call: a begin that is refused counts as an attempt, and cancels it."""
            out = c.c_void_p()
            call("hearth_save_begin", pointer, _ffi.STEP_LATER if step is None else step, nbytes,
                 c.byref(opts), c.byref(out))
            return Save(self, out)

        return _interruptible(begin) if wait_ms else begin()

    def take(self, ticket: bytes) -> Save:
        """Go on with a save that another process of this rank gave away (Save.give)."""
        struct = _ffi.Ticket.from_buffer_copy(ticket)
        out = c.c_void_p()
        call("hearth_save_take", self._handle(), c.byref(struct), c.byref(out))
        return Save(self, out)

    def log(self) -> None:
        """Hand the library's waiting lines to logging's "hearth"."""
        level, text = c.c_uint32(), c.create_string_buffer(1024)
        while self._pointer and _ffi.library().hearth_log_poll(
                self._pointer, c.byref(level), text, len(text)) == 1:
            _log.log(_LOG_LEVELS.get(level.value, logging.DEBUG),
                     "%s", text.value.decode(errors="replace"))

    def close(self, keep: bool = True) -> None:
        """Leave. keep False: the job is over, its memory is freed once all ranks have said so.
        Saves are aborted, handles and checkpoints closed; no other thread may be in them. Views that
        are still alive stay valid, and the connection with them. Twice is harmless."""
        with self._lock:
            if self._closing is not None or not self._pointer:
                return
            self._closing = _ffi.KEEP if keep else _ffi.DROP
        for part in list(self._open):  # the library wants them closed before the job
            part.close()
        with self._lock:
            last = self._views == 0
        if last:
            self._end()

    def _end(self) -> None:
        pointer = self._pointer
        if os.getpid() != self._pid or not pointer:
            return
        self._pointer = c.c_void_p()
        _ffi.library().hearth_close(pointer, self._closing)
        if self._c_bootstrap:
            _ffi.library().hearth_bootstrap_close(self._c_bootstrap)

    def _view_opened(self) -> None:
        with self._lock:
            self._views += 1

    def _view_closed(self, view: _ffi.View) -> None:
        if os.getpid() != self._pid:
            return  # a forked child: the mapping goes with it
        _ffi.library().hearth_view_close(self._pointer, c.byref(view))
        with self._lock:
            self._views -= 1
            last = self._views == 0 and self._closing is not None
        if last:
            self._end()


def save_bytes(pieces: Sequence[Piece], items: Sequence[tuple[bytes, bytes]] = ()) -> int:
    """Exactly the bytes that begin() needs for these."""
    held, at = _ffi.pack_pieces(pieces)
    also, there = _ffi.pack_bytes(items)
    size = _ffi.library().hearth_save_bytes(at, len(pieces), there, len(items))
    del held, also
    return size


class Save:
    """A save being written, by one thread at a time."""

    def __init__(self, job: Job, pointer: c.c_void_p) -> None:
        self._job, self._pointer = job, pointer
        job._open.add(self)

    def _use(self) -> c.c_void_p:
        if not self._pointer:
            raise errors.HearthError("the save is over: it was committed, given away or aborted")
        return self._pointer

    def stage(self, pieces: Sequence[Piece]) -> list[int]:
        """Copy tensors in; the addresses where they lie now, readable and writable until seal,
        commit or abort."""
        held, at = _ffi.pack_pieces(pieces)
        places = (c.c_void_p * len(pieces))()
        call("hearth_save_stage", self._use(), at, len(pieces), places)
        del held
        return [place or 0 for place in places]

    def add(self, pieces: Sequence[Piece]) -> None:
        """Copy tensors in: they are the caller's again when this returns."""
        held, at = _ffi.pack_pieces(pieces)
        call("hearth_save_add", self._use(), at, len(pieces))
        del held

    def add_bytes(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Copy (key, data) in, behind all tensors."""
        held, at = _ffi.pack_bytes(items)
        call("hearth_save_add_bytes", self._use(), at, len(items))
        del held

    def places(self) -> list[tuple[int, int]]:
        """(offset, length) of the items of the object, in the order they were added; header
        included, offset from byte 4096 of its file."""
        count = c.c_size_t()
        call("hearth_save_places", self._use(), None, 0, c.byref(count))
        out = (_ffi.Place * count.value)()
        call("hearth_save_places", self._use(), out, count.value, c.byref(count))
        flat = memoryview(out).cast("B").cast("Q").tolist()
        return list(zip(flat[::2], flat[1::2]))

    def set_step(self, step: int) -> None:
        """The step of a save that was begun without. Waits for room as begin() was told to; Ctrl-C
        gives the save up."""
        held, self._pointer = Save(self._job, self._use()), c.c_void_p()

        def attempt() -> errors.HearthError | None:
            try:
                call("hearth_save_set_step", held._pointer, step)
            except errors.HearthError as error:
                return error
            return None

        error = _interruptible(attempt)  # interrupted, it is aborted where the call ends
        self._pointer, held._pointer = held._pointer, c.c_void_p()
        if error is not None:
            raise error

    def data(self) -> tuple[int, int]:
        """Where the object being written is mapped in this process: the address of its byte 4096,
        and how many bytes begin() asked for."""
        base, size = c.c_void_p(), c.c_uint64()
        call("hearth_save_data", self._use(), c.byref(base), c.byref(size))
        return base.value or 0, size.value

    def put_common(self, name: str, data: bytes) -> None:
        """A small object that every node gets; one rank of the job gives it."""
        call("hearth_save_put_common", self._use(), _encode(name), data, len(data))

    def next_object(self, name: str | None, nbytes: int) -> None:
        """One more object of this rank; what is added from here on goes there."""
        call("hearth_save_next_object", self._use(), _encode(name), nbytes)

    def seal(self) -> None:
        """No more data: replication begins. put_common() and commit() may follow."""
        call("hearth_save_seal", self._use())

    def commit(self) -> Handle:
        """Hand over; returns at once. The save is gone afterwards, also on error."""
        pointer, self._pointer = self._use(), c.c_void_p()
        out = c.c_void_p()
        call("hearth_save_commit", pointer, c.byref(out))
        return Handle(self._job, out)

    def give(self) -> bytes:
        """A ticket with which another process of this rank goes on. The save is gone here."""
        pointer, self._pointer = self._use(), c.c_void_p()
        ticket = _ffi.Ticket()
        call("hearth_save_give", pointer, c.byref(ticket))
        return bytes(ticket)

    def close(self) -> None:
        """As abort()."""
        self.abort()

    def abort(self) -> None:
        """Give the save up on all ranks. Twice is harmless."""
        pointer, self._pointer = self._pointer, c.c_void_p()
        if pointer and os.getpid() == self._job._pid and self._job._pointer:
            _ffi.library().hearth_save_abort(pointer)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.abort()


class Handle:
    """A save handed over."""

    def __init__(self, job: Job, pointer: c.c_void_p) -> None:
        self._job, self._pointer = job, pointer
        job._open.add(self)

    def _use(self) -> c.c_void_p:
        if not self._pointer:
            raise errors.HearthError("the handle is closed")
        return self._pointer

    def wait(self, level: str = "PROTECTED", timeout_s: float = 600.0) -> None:
        """Wait for a level on this rank's account. Raises HearthFailed, HearthTimeout."""
        until = time.monotonic() + timeout_s
        while True:
            left = max(1, int((until - time.monotonic()) * 1000))
            try:
                call("hearth_wait", self._use(), _ffi.LEVELS[level], min(_SLICE_MS, left))
                return
            except errors.HearthTimeout as error:
                if left > _SLICE_MS:
                    continue
                text = str(error).replace(f" after {left} ms", f" after {timeout_s:g} s")
                raise errors.HearthTimeout(text, error.code, error.name) from None

    def test(self) -> _ffi.Status:
        """Where it stands now; never blocks."""
        out = _ffi.Status()
        call("hearth_test", self._use(), c.byref(out))
        return out

    def cancel(self) -> None:
        """Ask for the save to be cancelled on all ranks."""
        call("hearth_cancel", self._use())

    def close(self) -> None:
        """Forget it; this does not cancel. Twice is harmless."""
        pointer, self._pointer = self._pointer, c.c_void_p()
        if pointer:
            _ffi.library().hearth_handle_close(pointer)


class Checkpoint:
    """A recovered or protected save, to be read by one thread at a time."""

    def __init__(self, job: Job, pointer: c.c_void_p) -> None:
        self._job, self._pointer = job, pointer
        job._open.add(self)
        info = _ffi.Recovery()
        call("hearth_checkpoint_info", pointer, c.byref(info))
        self.info: _ffi.Recovery = info
        self.step: int = info.step

    @property
    def path(self) -> str:
        """Where its container lies."""
        return f"{self._job.base}/step-{self.step}_ckpt"

    def _use(self) -> c.c_void_p:
        if not self._pointer:
            raise errors.HearthError("the checkpoint is closed")
        return self._pointer

    def common(self, name: str) -> bytes:
        """An object that every node has, such as ".metadata". Raises HearthNotFound."""
        out, length = c.c_void_p(), c.c_size_t()
        call("hearth_read_common", self._use(), _encode(name), c.byref(out), c.byref(length))
        try:
            return c.string_at(out, length.value)
        finally:
            _ffi.library().hearth_free(out)

    def items(self, everywhere: bool = True) -> list[Item]:
        """All items of every object, or of this rank's own."""
        out: list[Item] = []
        while True:
            raw = _ffi.Item()
            try:
                call("hearth_item_at", self._use(), int(everywhere), len(out), c.byref(raw))
            except errors.HearthNotFound:
                return out
            out.append(_item(raw))

    def item_in(self, name: str, offset: int) -> Item:
        """The item that begins at `offset` of the object `name`."""
        raw = _ffi.Item()
        call("hearth_item_in", self._use(), _encode(name), offset, c.byref(raw))
        return _item(raw)

    def read_boxes(self, boxes: Sequence[Box]) -> None:
        """Copy parts of items to where they are wanted, all in one call."""
        held, at = _ffi.pack_boxes(boxes)
        call("hearth_read_boxes", self._use(), at, len(boxes))
        del held

    def prefetch(self, boxes: Sequence[Box]) -> None:
        """Begin to bring near what read_boxes() will want."""
        held, at = _ffi.pack_boxes(boxes)
        call("hearth_prefetch_boxes", self._use(), at, len(boxes))
        del held

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytearray]:
        """Bytes of objects, (object, offset, length) each."""
        out = [bytearray(length or 1) for _, _, length in ranges]
        views = [(c.c_char * len(part)).from_buffer(part) for part in out]
        held, at = _ffi.pack_ranges(ranges, [c.addressof(view) for view in views])
        call("hearth_read_ranges", self._use(), at, len(ranges))
        del held, views
        for part, (_, _, length) in zip(out, ranges):
            if not length:
                part.clear()
        return out

    def view(self, item: Item) -> memoryview:
        """A local item's payload without a copy: private and writable, unchanged whatever is saved
        meanwhile, alive until the last reference to it is gone (also after close)."""
        struct = _ffi.View()
        call("hearth_view_open", self._use(), c.byref(item.raw), c.byref(struct))
        if not struct.bytes:
            _ffi.library().hearth_view_close(self._job._pointer, c.byref(struct))
            return memoryview(bytearray())
        array = (c.c_char * struct.bytes).from_address(struct.data)
        self._job._view_opened()
        weakref.finalize(array, self._job._view_closed, struct)
        return memoryview(array).cast("B")

    def close(self) -> None:
        """Done with it; views stay. Twice is harmless."""
        pointer, self._pointer = self._pointer, c.c_void_p()
        if pointer and os.getpid() == self._job._pid:
            _ffi.library().hearth_checkpoint_close(pointer)


def _item(raw: _ffi.Item) -> Item:
    def dims(pointer: Any) -> tuple[int, ...]:
        return tuple(pointer[i] for i in range(raw.ndim)) if raw.ndim and pointer else ()

    return Item(
        c.string_at(raw.key, raw.key_len), raw.object.decode(), raw.owner,
        raw.kind == _ffi.TENSOR, _ffi.DTYPE_NAMES.get(raw.dtype), dims(raw.shape),
        dims(raw.global_shape), dims(raw.global_offset), raw.offset, raw.bytes, bool(raw.local),
        raw)


def items_by_key(items: Iterable[Item]) -> dict[bytes, list[Item]]:
    """The pieces of each key."""
    out: dict[bytes, list[Item]] = {}
    for item in items:
        out.setdefault(item.key, []).append(item)
    return out
