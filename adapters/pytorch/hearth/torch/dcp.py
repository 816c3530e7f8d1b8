# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint for callers that name no writer and no reader.

    import hearth.torch.dcp as dcp            # in the place of torch.distributed.checkpoint

    dcp.async_save(state, checkpoint_id="/mnt/hearth/job/step-10")
    dcp.load(state, checkpoint_id="/mnt/hearth/job/step-10")

The functions have torch's own signatures, and on_error= or trust= beside; whatever else
torch.distributed.checkpoint has is there under its name.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch.distributed.checkpoint as _torch
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from . import _jobs, _recover, _weak
from .writer import HearthWriter

_writers: dict[str | None, HearthWriter] = {}


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


def _writer(checkpoint_id: str | os.PathLike | None) -> HearthWriter:
    """One for each job: it knows the state's structure from one save to the next."""
    base = _jobs.known_base(checkpoint_id, None)
    return _writers.setdefault(base, HearthWriter(base))


@_like(_torch.save, on_error="raise")
def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
         storage_writer: Any = None, on_error: str = "raise", **arguments: Any) -> Any:
    writer = storage_writer if storage_writer is not None else _writer(checkpoint_id)
    return _weak.call(_base(checkpoint_id, writer), on_error, lambda: _torch.save(
        state_dict, checkpoint_id=checkpoint_id, storage_writer=writer, **arguments))


@_like(_torch.async_save, on_error="raise")
def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None,
               storage_writer: Any = None, process_group: Any = None, on_error: str = "raise",
               **arguments: Any) -> Any:
    writer = storage_writer if storage_writer is not None else _writer(checkpoint_id)
    in_process = arguments.get("async_checkpointer_type") is AsyncCheckpointerType.PROCESS
    if process_group is None and not (arguments.get("no_dist") or in_process):
        process_group = _recover.group()
    future = _weak.call(_base(checkpoint_id, writer), on_error, lambda: _torch.async_save(
        state_dict, checkpoint_id=checkpoint_id, storage_writer=writer,
        process_group=process_group, **arguments))
    return _weak.none_yet() if future is None else future


@_like(_torch.load, trust=False)
def load(state_dict: dict[str, Any], *, trust: bool = False, **arguments: Any) -> None:
    _recover.load(state_dict, trust=trust, **arguments)


def _base(checkpoint_id: str | os.PathLike | None, writer: Any) -> str | None:
    """Whose protection a save is to be counted for."""
    return _jobs.known_base(checkpoint_id, getattr(writer, "_base", None))


def __getattr__(name: str) -> Any:
    return getattr(_torch, name)
