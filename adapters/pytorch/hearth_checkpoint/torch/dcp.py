# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint for callers that name no writer and no reader.

    import hearth_checkpoint.torch.dcp as dcp    # in the place of torch.distributed.checkpoint

    dcp.async_save(state, checkpoint_id="/mnt/hearth/job/step-10")
    dcp.load(state, checkpoint_id="/mnt/hearth/job/step-10")

    both = ("model", "optimizer")    # two parts of one save, which is committed with the last
    dcp.save(model, checkpoint_id="/mnt/hearth/job/step-10/model", parts=both)
    dcp.save(optim, checkpoint_id="/mnt/hearth/job/step-10/optimizer", parts=both)
    dcp.load(model, checkpoint_id="/mnt/hearth/job/step-10/model")

The functions have torch's own signatures, and on_error=, blocked_ms=, part= and parts=
(HearthWriter's), or trust= and part= (HearthReader's) beside; whatever else
torch.distributed.checkpoint has is there under its name.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch.distributed.checkpoint as _torch
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from . import _jobs, _parts, _recover, _weak
from .writer import HearthWriter

_writers: dict[tuple[Any, ...], HearthWriter] = {}


def _like(theirs: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    """The signature and documentation of torch's function, and further keywords."""

    def decorate(ours: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(theirs)
        own = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
               for name, default in more.items()]
        wrapped = functools.wraps(theirs)(ours)
        wrapped.__module__ = __name__
        wrapped.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), *own])
        return wrapped

    return decorate


def _writer(checkpoint_id: str | os.PathLike | None, given: Any, part: str | None,
            parts: Sequence[str] | None) -> tuple[Any, str | None, bool]:
    """The writer, whose base a save is to be counted for, and whether the call ends a save. One
    writer for each job and part: it knows the state's structure from one save to the next."""
    if given is not None:
        if part is not None or parts is not None:
            raise TypeError("part= and parts= go to the storage_writer that is given: "
                            "HearthWriter(part=..., parts=...)")
        parts, part = getattr(given, "_parts", None), getattr(given, "_part", None)
    parts = _parts.declared(part, parts)
    base = getattr(given, "_base", None)
    whole, named = _parts.split(checkpoint_id, base, parts, getattr(given, "_step_of", None),
                                getattr(given, "_step", None))
    part = _parts.same(part, named)
    base = _jobs.known_base(whole, base)
    if given is None:
        key = base, part, parts
        given = _writers.get(key)
        if given is None:
            given = _writers[key] = HearthWriter(base, part=part, parts=parts)
    return given, base, parts is None or part == parts[-1]


def _over(writer: Any) -> None:
    """DCP tells a writer nothing of a save that has failed on another rank."""
    if isinstance(writer, HearthWriter):
        writer.give_up()
        _parts.leave()


@_like(_torch.save, on_error="raise", part=None, parts=None,
       blocked_ms=_weak.BLOCKED_MS)
def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
         storage_writer: Any = None, on_error: str = "raise", part: str | None = None,
         parts: Sequence[str] | None = None, blocked_ms: int = _weak.BLOCKED_MS,
         **arguments: Any) -> Any:
    writer, base, ends = _writer(checkpoint_id, storage_writer, part, parts)

    def call() -> Any:
        try:
            return _recover.save(
                state_dict, checkpoint_id=checkpoint_id, storage_writer=writer, **arguments)
        finally:
            _over(writer)

    return _weak.call(base, on_error, call, ends, blocked_ms)


@_like(_torch.async_save, on_error="raise", part=None, parts=None,
       blocked_ms=_weak.BLOCKED_MS)
def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
               storage_writer: Any = None, process_group: Any = None, on_error: str = "raise",
               part: str | None = None, parts: Sequence[str] | None = None,
               blocked_ms: int = _weak.BLOCKED_MS, **arguments: Any) -> Any:
    writer, base, ends = _writer(checkpoint_id, storage_writer, part, parts)
    in_process = arguments.get("async_checkpointer_type") is AsyncCheckpointerType.PROCESS
    if process_group is None and not (arguments.get("no_dist") or in_process):
        process_group = _recover.group()

    def call() -> Any:
        result = _torch.async_save(
            state_dict, checkpoint_id=checkpoint_id, storage_writer=writer,
            process_group=process_group, **arguments)
        upload = getattr(result, "upload_completion", result)  # an AsyncSaveResponse
        upload.add_done_callback(lambda _: _over(writer))  # in the thread that has written it
        return result

    future = _weak.call(base, on_error, call, ends, blocked_ms)
    return _weak.none_yet() if future is None else future


@_like(_torch.load, trust=False, part=None)
def load(state_dict: dict[str, Any], *, trust: bool = False, part: str | None = None,
         **arguments: Any) -> None:
    _recover.load(state_dict, trust=trust, part=part, **arguments)


def __getattr__(name: str) -> Any:
    return getattr(_torch, name)
