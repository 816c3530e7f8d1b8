# SPDX-License-Identifier: Apache-2.0
"""Objects that a job lends: saves, handles of saves, checkpoints. hearth_checkpoint.job makes them
and is where users import them from.

Each has a pointer of the library. It is given back once: closed, dropped or its job closed, when
the last thread that is in a call with it has come out.
"""

from __future__ import annotations

import ctypes as c
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _ffi, errors
from ._calls import SLICE_S, has_patience, interruptible, limited, patience, patient, spend
from ._ffi import call

if TYPE_CHECKING:
    from .job import Job

_SLICE_MS = int(SLICE_S * 1000)


def _process_dies() -> bool:
    """The interpreter ends of an exception nobody caught, and joins its threads: it would wait for
    whatever these wait for. Where this Python does not say so, they wait to their deadlines."""
    return getattr(threading, "_SHUTTING_DOWN", False) and hasattr(sys, "last_value")


class Piece(NamedTuple):
    """A piece of a tensor. Shapes, strides and offsets count elements."""

    key: bytes
    data: int  # address of the first element
    dtype: str  # "float32"
    shape: Sequence[int]
    strides: Sequence[int] | None = None  # None: C order
    global_shape: Sequence[int] | None = None  # None: as shape
    global_offset: Sequence[int] | None = None  # None: zeros
    gpu: bool = False  # its memory is a GPU's; for saves


class Box(NamedTuple):
    """A part of a stored item, and where it is wanted."""

    object: str
    item: int  # offset of the item in its object, bytes from 4096
    dtype: str
    offset: Sequence[int]  # in the item, elements
    shape: Sequence[int]
    dst: int  # address
    strides: Sequence[int] | None = None  # of dst, elements; None: C order
    gpu: bool = False  # dst is a GPU's memory


class Origin:
    """Which open checkpoint an item is of: each has its own, even of the same step."""

    def __init__(self, path: str) -> None:
        self.path = path


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
    origin: Origin


def encode(value: Any) -> Any:
    """Text and paths as C has them; anything else as it is."""
    return os.fsencode(value) if isinstance(value, (str, os.PathLike)) else value


class Lent:
    """What a job lends: a pointer of the library, given back once, and while no thread uses it."""

    _closed = "it is closed"  # what a use says afterwards

    @property
    def job(self) -> Job:
        """Whose it is."""
        return self._job

    def __init__(self, job: Job, pointer: c.c_void_p) -> None:
        self._job, self._pointer = job, pointer
        self._users = 0  # threads in the library with it. The job's lock guards it and _over
        self._over = False
        job._add(self)

    @contextmanager
    def _use(self) -> Iterator[c.c_void_p]:
        """Around a call of the library with it."""
        if self._job._forked:
            yield self._pointer
            return
        with self._job._lock:
            if self._over:
                raise errors.HearthError(self._closed)
            self._users += 1
            self._job._calls += 1
        try:
            yield self._pointer
        finally:
            with self._job._lock:
                self._users -= 1
            self._give_back_if_last()
            self._job._left()

    @contextmanager
    def _taken(self) -> Iterator[c.c_void_p]:
        """Around the last call with it, which gives it back."""
        with self._use() as pointer:
            if not self._job._forked:
                with self._job._lock:
                    if self._users > 1:
                        raise errors.HearthError("another thread is in it")
                    self._over, self._pointer = True, c.c_void_p()
            yield pointer

    def _give_back_if_last(self) -> None:
        job = self._job
        with job._lock:
            pointer = self._pointer
            if not self._over or self._users or not pointer or not job._pointer:
                return
            self._pointer = c.c_void_p()
            job._calls += 1
        try:
            self._give_back(pointer)
        finally:
            job._left()

    def _give_back(self, pointer: c.c_void_p) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Give it back, when the thread that uses it has ended its call. Twice is harmless."""
        if self._job._forked:
            return
        with self._job._lock:
            self._over = True
        self._give_back_if_last()

    def __del__(self) -> None:
        if "_over" in self.__dict__ and not sys.is_finalizing():
            self.close()


class Pieces:
    """Pieces as the library takes them: packed once for all calls with them."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._held, self.address = _ffi.pack_pieces(pieces)
        self._count = len(pieces)

    def __len__(self) -> int:
        return self._count

    def point_to(self, data: Sequence[int]) -> None:
        """Other addresses of their first elements."""
        if self._count:
            _ffi.point_pieces(self._held, data)


def _packed(pieces: Sequence[Piece] | Pieces) -> Pieces:
    return pieces if isinstance(pieces, Pieces) else Pieces(pieces)


def save_bytes(pieces: Sequence[Piece] | Pieces,
               items: Sequence[tuple[bytes, bytes]] = ()) -> int:
    """Exactly the bytes that begin() needs for these."""
    packed = _packed(pieces)
    also, there = _ffi.pack_bytes(items)
    size = _ffi.library().hearth_save_bytes(packed.address, len(packed), there, len(items))
    del also
    return size


class Save(Lent):
    """A save being written, by one thread at a time.

    copies  out of GPU memory, each until its wait() has returned: it holds the tensors, and so the
            collector frees none of them before
    """

    _closed = "the save is over: it was committed, given away or aborted"
    copies: tuple[Any, ...] = ()

    def stage(self, pieces: Sequence[Piece] | Pieces) -> list[int]:
        """Copy tensors of the host in; the addresses where they lie now, readable and writable
        until seal, commit or abort."""
        packed = _packed(pieces)
        places = (c.c_uint64 * len(packed))()
        with self._use() as pointer:
            call("hearth_save_stage", pointer, packed.address, len(packed), places)
        return list(places)

    def add(self, pieces: Sequence[Piece] | Pieces) -> None:
        """Copy tensors in: those of the host are the caller's again when this returns. Those in GPU
        memory are copied later, behind the stream of begin(): they stay allocated, and are not
        changed, until fence()."""
        packed = _packed(pieces)
        with self._use() as pointer:
            call("hearth_save_add", pointer, packed.address, len(packed))

    def fence(self, stream: int | None) -> None:
        """What is enqueued in `stream` from here on runs after all copies out of GPU memory so far;
        stream None: wait for them. A second thread may call it while the thread of the save is in
        another call, except commit(), give() and abort(). Ctrl-C interrupts the wait.

        stream  handle of a stream (torch.cuda.Stream.cuda_stream); the default one has 1
        Raises HearthError where a copy has failed or does not end in the option save_ms, and with
        it the save; HEARTH_EUNSUPPORTED for a stream that is being captured.
        """

        def fence() -> None:
            with self._use() as pointer:
                call("hearth_save_fence", pointer, stream)

        with patience(None):  # a wait for the GPU, and not for the engine
            interruptible(fence)

    def add_bytes(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        """Copy (key, data) in, behind all tensors."""
        held, at = _ffi.pack_bytes(items)
        with self._use() as pointer:
            call("hearth_save_add_bytes", pointer, at, len(items))
        del held

    def places(self) -> list[tuple[int, int]]:
        """(offset, length) of the items of the object, in the order they were added; header
        included, offset from byte 4096 of its file."""
        count = c.c_size_t()
        with self._use() as pointer:
            call("hearth_save_places", pointer, None, 0, c.byref(count))
        out = (_ffi.Place * count.value)()
        with self._use() as pointer:
            call("hearth_save_places", pointer, out, count.value, c.byref(count))
        flat = memoryview(out).cast("B").cast("Q").tolist()
        return list(zip(flat[::2], flat[1::2]))

    def set_step(self, step: int) -> None:
        """The step of a save that was begun without. Waits for room as begin() was told to; Ctrl-C
        gives the save up."""

        def attempt() -> None:
            with self._use() as pointer:
                call("hearth_save_set_step", pointer, _ffi.step_number(step, _ffi.STEP_LATER))

        try:
            interruptible(attempt, self._job)
        except errors.HearthError:
            raise
        except BaseException:  # aborted where the call ends
            self.abort()
            raise

    def data(self) -> tuple[int, int]:
        """Where the object being written is mapped in this process: the address of its byte 4096,
        and how many bytes begin() asked for."""
        base, size = c.c_void_p(), c.c_uint64()
        with self._use() as pointer:
            call("hearth_save_data", pointer, c.byref(base), c.byref(size))
        return base.value or 0, size.value

    def put_common(self, name: str, data: bytes) -> None:
        """A small object that every node gets; one rank of the job gives it."""
        with self._use() as pointer:
            call("hearth_save_put_common", pointer, encode(name), data, len(data))

    def next_object(self, name: str | None, nbytes: int) -> None:
        """One more object of this rank; what is added from here on goes there."""

        def next_object() -> None:
            with self._use() as pointer:
                call("hearth_save_next_object", pointer, encode(name), nbytes)

        interruptible(next_object, self._job)

    def seal(self) -> None:
        """No more data: replication begins. put_common() and commit() may follow."""
        with self._use() as pointer:
            call("hearth_save_seal", pointer)

    def commit(self) -> Handle:
        """Hand over; returns at once. The save is gone afterwards, also on error."""
        out = c.c_void_p()
        with self._taken() as pointer:
            call("hearth_save_commit", pointer, c.byref(out))
            return Handle(self._job, out)

    def give(self) -> bytes:
        """A ticket with which another process of this rank goes on. The save is gone here."""
        ticket = _ffi.Ticket()
        with self._taken() as pointer:
            call("hearth_save_give", pointer, c.byref(ticket))
        return bytes(ticket)

    def abort(self) -> None:
        """Give the save up on all ranks. Twice is harmless."""
        self.close()

    def _give_back(self, pointer: c.c_void_p) -> None:
        _ffi.library().hearth_save_abort(pointer)


class _Moves:
    """A wait of a thread with patience: what is spent is the time in which nothing of the save has
    moved, so that a large copy may take its time."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self._seen, self._since = handle, (0, 0), time.monotonic()
        self._stood_s = 0.0

    def look(self, error: errors.HearthTimeout) -> None:
        """HearthTimeout where the patience is over."""
        status, now = self._handle.test(), time.monotonic()
        there = status.level, status.copied
        moved, self._seen = there != self._seen, there
        if moved:
            spend(-self._stood_s)
            self._stood_s = 0.0
        else:
            spend(now - self._since)
            self._stood_s += now - self._since
        self._since = now
        if limited(1.0) <= 0:
            raise errors.HearthTimeout(
                f"{error}; nothing of it has moved for {self._stood_s:.1f} s (blocked_ms). It goes "
                "on beside training, and is kept where it becomes PROTECTED",
                error.code, error.name)


class Handle(Lent):
    """A save handed over. Closing it, or dropping it, does not cancel."""

    _closed = "the handle is closed"

    def wait(self, level: str = "PROTECTED", timeout_s: float = 600.0) -> None:
        """Wait for a level on this rank's account. Raises HearthFailed, HearthTimeout,
        HearthNoSpace where a node has no room for its part or its copy, and within a tenth of a
        second HearthError where another thread has closed the handle or the job, or
        where the process ends of an exception: a trainer that failed is not kept from its
        restart."""
        if level not in _ffi.LEVELS:
            raise ValueError(f"level {level!r} is none of {', '.join(_ffi.LEVELS)}")
        until = time.monotonic() + timeout_s
        moves = _Moves(self) if has_patience() else None
        while True:
            left = max(1, int((until - time.monotonic()) * 1000))
            try:
                with self._use() as pointer:
                    call("hearth_wait", pointer, _ffi.LEVELS[level], min(_SLICE_MS, left))
                return
            except errors.HearthTimeout as error:
                if _process_dies():
                    raise errors.HearthError(f"the process ends: {error}") from None
                if moves is not None:
                    moves.look(error)
                if left > _SLICE_MS:
                    continue
                text = str(error).replace(f" after {left} ms", f" after {timeout_s:g} s")
                raise errors.HearthTimeout(text, error.code, error.name) from None

    def test(self) -> _ffi.Status:
        """Where it stands now; never blocks."""
        out = _ffi.Status()
        with self._use() as pointer:
            call("hearth_test", pointer, c.byref(out))
        return out

    def cancel(self) -> None:
        """Ask for the save to be cancelled on all ranks."""
        with self._use() as pointer:
            call("hearth_cancel", pointer)

    def _give_back(self, pointer: c.c_void_p) -> None:
        _ffi.library().hearth_handle_close(pointer)


class Checkpoint(Lent):
    """A recovered or protected save, to be read by one thread at a time. Views of it stay when it
    is closed."""

    _closed = "the checkpoint is closed"

    def __init__(self, job: Job, pointer: c.c_void_p) -> None:
        super().__init__(job, pointer)
        info = _ffi.Recovery()
        with self._use() as pointer:
            call("hearth_checkpoint_info", pointer, c.byref(info))
        self.info: _ffi.Recovery = info
        self.step: int = info.step
        self._origin = Origin(self.path)

    @property
    def path(self) -> str:
        """Where its container lies."""
        return f"{self._job.base}/step-{self.step}_ckpt"

    def common(self, name: str) -> bytes:
        """An object that every node has, such as ".metadata". Raises HearthNotFound."""

        def read() -> bytes:
            out, length = c.c_void_p(), c.c_size_t()
            with self._use() as pointer:
                call("hearth_read_common", pointer, encode(name), c.byref(out), c.byref(length))
            try:
                return c.string_at(out, length.value)
            finally:
                _ffi.library().hearth_free(out)

        return patient(read, self._job)

    def items(self, everywhere: bool = True) -> list[Item]:
        """All items of every object, or of this rank's own."""
        out: list[Item] = []
        while True:
            raw = _ffi.Item()
            try:
                with self._use() as pointer:
                    call("hearth_item_at", pointer, int(everywhere), len(out), c.byref(raw))
            except errors.HearthNotFound:
                return out
            out.append(_item(raw, self._origin))

    def item_in(self, name: str, offset: int) -> Item:
        """The item that begins at `offset` of the object `name`."""

        def find() -> _ffi.Item:
            raw = _ffi.Item()
            with self._use() as pointer:
                call("hearth_item_in", pointer, encode(name), offset, c.byref(raw))
            return raw

        return _item(patient(find, self._job), self._origin)

    def read_boxes(self, boxes: Sequence[Box]) -> None:
        """Copy parts of items to where they are wanted, all in one call. Into GPU memory after what
        is in the default stream of each GPU; it returns when all bytes have arrived."""
        held, at = _ffi.pack_boxes(boxes)
        with self._use() as pointer:
            call("hearth_read_boxes", pointer, at, len(boxes))
        del held

    def prefetch(self, boxes: Sequence[Box]) -> None:
        """Begin to bring near what read_boxes() will want."""
        held, at = _ffi.pack_boxes(boxes)
        with self._use() as pointer:
            call("hearth_prefetch_boxes", pointer, at, len(boxes))
        del held

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Bytes of objects, (object, offset, length) each."""
        starts = list(accumulate((length for _, _, length in ranges), initial=0))
        whole = bytearray(starts[-1] or 1)  # of all: an object each would keep the collector busy
        view = (c.c_char * len(whole)).from_buffer(whole)
        first = c.addressof(view)
        held, at = _ffi.pack_ranges(ranges, [first + start for start in starts[:-1]])
        with self._use() as pointer:
            call("hearth_read_ranges", pointer, at, len(ranges))
        del held, view
        with memoryview(whole) as parts:
            return [bytes(parts[start:end]) for start, end in pairwise(starts)]

    def view(self, item: Item) -> memoryview:
        """A local item's payload without a copy: to read, unchanged whatever is saved meanwhile,
        alive until the last reference to it is gone (also after close). Copy it to change it:
        torch.frombuffer(bytearray(view), ...)."""
        if item.origin is not self._origin:
            raise errors.HearthError(
                f"{item.key.decode(errors='replace')}: the item is of another checkpoint, opened "
                f"as {item.origin.path}; take it from the items() of this one, {self.path}")
        struct = _ffi.View()
        with self._use() as pointer:
            call("hearth_view_open", pointer, c.byref(item.raw), c.byref(struct))
            self._job._view_opened()
            if not struct.bytes:
                self._job._view_closed(struct)
                return memoryview(b"")
            array = (c.c_char * struct.bytes).from_address(struct.data)
            end = weakref.finalize(array, self._job._view_closed, struct)
            end.atexit = False  # what reads it last may be a __del__ of the interpreter's end
            return memoryview(array).cast("B").toreadonly()

    def _give_back(self, pointer: c.c_void_p) -> None:
        _ffi.library().hearth_checkpoint_close(pointer)


def _item(raw: _ffi.Item, origin: Origin) -> Item:
    def dims(pointer: Any) -> tuple[int, ...]:
        return tuple(pointer[i] for i in range(raw.ndim)) if raw.ndim and pointer else ()

    return Item(
        c.string_at(raw.key, raw.key_len), raw.object.decode(), raw.owner,
        raw.kind == _ffi.TENSOR, _ffi.DTYPE_NAMES.get(raw.dtype), dims(raw.shape),
        dims(raw.global_shape), dims(raw.global_offset), raw.offset, raw.bytes, bool(raw.local),
        raw, origin)


def items_by_key(items: Iterable[Item]) -> dict[bytes, list[Item]]:
    """The pieces of each key."""
    out: dict[bytes, list[Item]] = {}
    for item in items:
        out.setdefault(item.key, []).append(item)
    return out
