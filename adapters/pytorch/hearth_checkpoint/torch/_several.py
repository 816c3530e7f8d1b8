# SPDX-License-Identifier: Apache-2.0
"""A sharded training as its framework holds it, in the background: each model and each optimizer a
part of one save, and what each rank has of its own as files in one more.

    parts    {"pytorch_model_fsdp_0": function that gives its state, ..., "optimizer_0": ...}
    "files"  what write(folder) wrote: rank 0's, and each rank's own
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from . import _folder, _jobs, _recover, _weak
from .reader import HearthReader
from .writer import HearthWriter

FILES = "files"
Make = Callable[[], dict[str, Any]]


class Saver(_weak.Saves):
    """Saves in parts."""

    def __init__(self, base: str | os.PathLike, *, on_error: str = "warn",
                 level: str = "PROTECTED", **opts: Any) -> None:
        super().__init__(base, on_error)
        self._level, self._opts = level, opts
        self._writers: dict[tuple[str, ...], dict[str, HearthWriter]] = {}

    def save(self, step: int, states: Mapping[str, Make],
             write: Callable[[str], Any]) -> Future[Any]:
        """Copy the states and the files and return. Collective. Waits for the save before, with
        "warn" as long as for the engine: then this one is skipped, on all ranks."""
        return self._next(lambda skip: self._submit(
            step, dict.fromkeys(states, skip) if skip else states, write))

    def _submit(self, step: int, states: Mapping[str, Make],
                write: Callable[[str], Any]) -> Future[Any]:
        parts = (*states, FILES)
        with _folder.scratch() as folder:
            made = {name: _made(make) for name, make in states.items()}
            made[FILES] = _made(lambda: _written(write, folder))
            futures = [
                _recover.async_save(
                    made.pop(name), checkpoint_id=f"{self.base}/step-{step}_ckpt/{name}",
                    storage_writer=writer)
                for name, writer in self._writers_of(parts).items()]
        return _first_error(futures)

    def _writers_of(self, parts: tuple[str, ...]) -> dict[str, HearthWriter]:
        known = self._writers.get(parts)
        if known is None:
            known = self._writers[parts] = {
                name: HearthWriter(
                    self.base, part=name, parts=parts, level=self._level, **self._opts)
                for name in parts}
        return known

    def close(self) -> None:
        """The last save ends, and what was never written is given up. It may be used again."""
        try:
            self.wait()
        finally:
            for writers in self._writers.values():
                for writer in writers.values():
                    writer.close()


def _made(make: Make) -> Make:
    """make() now, on all ranks alike, whose answer or error comes later."""
    try:
        state = make()
    except Exception as error:
        raised = error

        def fail() -> dict[str, Any]:
            raise raised

        return fail
    return lambda: state


def _written(write: Callable[[str], Any], folder: str) -> dict[str, Any]:
    write(folder)
    return {_key(): _folder.files(folder)}


def _key(rank: int | None = None) -> str:
    """Of the files of a rank, this one's if none is said."""
    return f"rank{_jobs.rank_and_world()[0] if rank is None else rank}"


def _first_error(futures: list[Future[Any]]) -> Future[Any]:
    """Of all of them: the last one's result, or what the first that failed raised."""
    out: Future[Any] = Future()
    out.set_running_or_notify_cancel()
    left = len(futures)

    def done(_: Future[Any]) -> None:
        nonlocal left
        left -= 1  # in one thread, which writes them one after another
        if left:
            return
        errors = [error for error in (future.exception() for future in futures) if error]
        if errors:
            out.set_exception(errors[0])
        else:
            out.set_result(futures[-1].result())

    for future in futures:
        future.add_done_callback(done)
    return out


def load(path: str, part: str, state: dict[str, Any]) -> None:
    """A part into a state. Collective."""
    _recover.load(state, checkpoint_id=path, storage_reader=HearthReader(part=part),
                  process_group=_recover.group())


def bring(path: str, to: str) -> None:
    """The files of a save into a folder, of rank 0 and of this rank. Collective."""
    state: dict[str, dict[str, torch.Tensor]] = {}
    error: Exception | None = None
    try:
        state = _room_for(path)
    except Exception as raised:  # the others would wait in the load
        error = raised
    _recover.raise_of_any(error)
    load(path, FILES, state)
    for rank in (_key(0), _key()):
        _folder.lay(path, state.get(rank, {}), to)


def _room_for(path: str) -> dict[str, dict[str, torch.Tensor]]:
    """What files there are of rank 0 and of this rank, as their sizes."""
    reader = HearthReader(part=FILES)
    try:
        reader.reset(path)
        metadata = reader.read_metadata()
    finally:
        reader.close()
    out: dict[str, dict[str, torch.Tensor]] = {}
    for key, (rank, name) in (metadata.planner_data or {}).items():
        if rank in (_key(0), _key()):
            size = metadata.state_dict_metadata[key].size[0]
            out.setdefault(rank, {})[name] = torch.empty(
                size, dtype=torch.uint8, device="cpu")
    return out


# ---- models and optimizers ---------------------------------------------------------------------


def model_state(model: Any) -> dict[str, Any]:
    """Sharded as it is in the training."""
    return get_model_state_dict(model)


def optimizer_state(model: Any, optimizer: Any, flat: bool = False) -> dict[str, Any]:
    """The same of an optimizer.

    flat  under names without a nested part, which FSDP1 wants where a rank has no row of a tensor
    """
    return get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flat))


def load_model(path: str, part: str, model: Any, *, under: str | None = None,
               strict: bool = True) -> None:
    """A part into a model. Collective.

    under  the key of the part that the state is behind
    """
    state = model_state(model)
    load(path, part, state if under is None else {under: state})
    set_model_state_dict(model, state, options=StateDictOptions(strict=strict))


def load_optimizer(path: str, part: str, model: Any, optimizer: Any, *, under: str | None = None,
                   flat: bool = False) -> None:
    """A part into an optimizer, whose first step, which torch makes here, draws no random number.
    Collective."""
    cuda = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=cuda):
        state = optimizer_state(model, optimizer, flat)
        load(path, part, state if under is None else {under: state})
        set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(
            flatten_optimizer_state_dict=flat))
