# SPDX-License-Identifier: Apache-2.0
"""Copies out of GPU memory, which run beside training.

    hearth_save_add() ─► Copies ─► fence(): the current streams wait for them
                            └────► wait(): they are done, and the tensors are let go

The thread that writes a save calls wait() before it does anything else with it. So nothing reads a
byte that has not come, and a save of which a copy fails is never committed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Sequence

import torch

from .. import errors
from .._ffi import STREAM_LEGACY
from ..errors import HearthError
from ..job import Save
from . import _gpu

_UNSUPPORTED = -106
_lock = threading.Lock()
_under_way: weakref.WeakSet[Copies] = weakref.WeakSet()


def _is_in_rows(tensor: torch.Tensor) -> bool:
    """Whether the library takes its strides, and its rows are not single elements, which a GPU
    copies one by one."""
    if tensor.is_contiguous() or not tensor.numel():
        return True
    dims: list[tuple[int, int]] = []  # (count, step), the innermost first
    for count, step in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if dims and step == dims[-1][0] * dims[-1][1]:
            dims[-1] = dims[-1][0] * count, dims[-1][1]
        elif count > 1:
            dims.append((count, step))
    width, step = dims[0]
    return step == 1 and len(dims) <= 3 and all(step >= width for _, step in dims[1:])


def copyable(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself, or a copy of it that the library can read: conj and neg bits are carried
    out, strides that it does not take are made contiguous on the GPU, and what lies neither on a
    GPU nor on the host comes to the host."""
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if _gpu.is_gpu(tensor):
        return tensor if _is_in_rows(tensor) else _gpu.contiguous(tensor)
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


def on_gpus(tensors: Iterable[torch.Tensor],
            what: str = "a save of GPU memory") -> list[torch.Tensor]:
    """Those in GPU memory. HearthError inside a graph's capture: a copy would be captured."""
    found = [tensor for tensor in tensors if tensor.numel() and _gpu.is_gpu(tensor)]
    if found:
        _refuse_capture(what)
    return found


def _refuse_capture(what: str) -> None:
    if _gpu.is_capturing():
        raise errors.make(_UNSUPPORTED, f"{what} inside the capture of a CUDA graph: call it "
                          "before torch.cuda.graph() begins or after it has ended")


def in_order(tensors: Iterable[torch.Tensor]) -> None:
    """A load into these is next: it is to run after what the current streams of their GPUs have
    now, and the library orders it after the default ones."""
    found = on_gpus(tensors, "a load into GPU memory")
    Source(()).follow(found)


def _gpus(tensors: Iterable[torch.Tensor]) -> list[int]:
    return sorted(set(map(_gpu.index, tensors)))


class Source:
    """The stream that a save's copies run after. Keep it until the save is over."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        """After all that is now in the current streams of their GPUs."""
        streams = [_gpu.current_stream(gpu) for gpu in _gpus(tensors)]
        self._stream = None  # the default stream of each GPU
        if any(stream.cuda_stream for stream in streams):
            self._stream = streams[0]
            if len(streams) > 1:
                self._stream = _gpu.new_stream(_gpus(tensors)[0])
                for stream in streams:
                    self._stream.wait_stream(stream)

    @property
    def handle(self) -> int | None:
        """As begin() takes it."""
        return None if self._stream is None else self._stream.cuda_stream

    def follow(self, tensors: Iterable[torch.Tensor]) -> None:
        """Also after what is there now, where these tensors are added."""
        for gpu in _gpus(tensors):
            current = _gpu.current_stream(gpu)
            ours = _gpu.default_stream(gpu) if self._stream is None else self._stream
            if ours.cuda_stream != current.cuda_stream:
                ours.wait_stream(current)


class Copies:
    """Of tensors that were added to a save. They are held, so that their memory is not given to
    others, until wait() has returned."""

    def __init__(self, save: Save, tensors: list[torch.Tensor]) -> None:
        self._save, self._tensors, self._gpus = save, tensors, _gpus(tensors)
        self._lock = threading.Lock()
        self._fences = True
        self._error: HearthError | None = None
        self.over = False
        with _lock:
            _under_way.add(self)
            save.copies = *save.copies, self

    def fence(self) -> None:
        """Work enqueued in the current streams of their GPUs from here on runs after the
        copies. If that cannot be had the save fails, in wait(). In any thread."""
        with self._lock:  # wait() does not return meanwhile: its thread would commit
            if self.over or not self._fences:
                return
            try:
                for gpu in self._gpus:
                    self._save.fence(_gpu.current_stream(gpu).cuda_stream or STREAM_LEGACY)
            except HearthError as error:
                if error.code == _UNSUPPORTED:
                    raise
                self._fences, self._error = False, error

    def wait(self) -> None:
        """Until they are done. Raises HearthError: they have failed, and with them the save."""
        error = None
        if not self.over:
            try:
                self._save.fence(None)
            except HearthError as raised:
                error = raised
        with self._lock:
            self.over, self._tensors = True, []
            self._error = error or self._error  # the first one names the piece
        with _lock:
            _under_way.discard(self)
            self._save.copies = tuple(each for each in self._save.copies if each is not self)
        if self._error is not None:
            raise self._error


def abort(save: Save) -> None:
    """Give a save up. Does not wait: tensors that are being copied are held by a thread."""
    copies = save.copies
    if not copies:
        save.abort()
        return

    def end() -> None:
        for each in copies:
            with contextlib.suppress(HearthError):
                each.wait()
        save.abort()

    threading.Thread(target=end, name="hearth-abort", daemon=True).start()


def _all() -> list[Copies]:
    with _lock:
        return list(_under_way)


def before_step() -> None:
    """Call it before anything changes tensors of a save that was begun with overlap=True: the
    optimizer's step, mostly. Work enqueued in the current streams from here on runs after the
    copies of all saves on their way, so these have the values from before.

    No thread waits for a GPU, except while copies go through the library's two pinned buffers: in
    the first saves, and with the option pin="no". Then it returns when the last one has left it.

    Threads: any; in the one that enqueues the changes. Raises HearthError inside the capture of a
    CUDA graph. If copies have failed, or do not end within the option save_ms, their save fails,
    which its future says, and training goes on.
    """
    _refuse_capture("before_step()")
    for copies in _all():
        copies.fence()


def _after_fork() -> None:
    """The child has no copies."""
    global _lock
    _lock = threading.Lock()
    _under_way.clear()


os.register_at_fork(after_in_child=_after_fork)
