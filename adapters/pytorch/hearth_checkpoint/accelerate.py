# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate: what accelerator.save_state() writes, kept in memory.

    from hearth_checkpoint.accelerate import HearthState

    memory = HearthState(accelerator, "/mnt/hearth/my-job")
    first = memory.load("/storage/run") or 0    # the newer of memory and of folders step_<N> there
    for step in range(first + 1, ...):
        ...
        if step % 10 == 0: memory.save(step)
        if step % 1000 == 0: accelerator.save_state(f"/storage/run/step_{step}")
    memory.close()

With FSDP2 each model and each optimizer is a part of the save, sharded as it is in the training,
under the names of the folders that Accelerate itself writes; all else stays files.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator, DistributedType

from .torch import _folder, _several, _whole

_CUT = {DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM}


class HearthState:
    """Saves and loads of an accelerator's state.

    on_error  "warn": a save that fails is counted and said, and training goes on
              (hearth_checkpoint.torch.protection()); "raise": the next save raises it
    opts      of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, accelerator: Accelerator, base: str | os.PathLike, *,
                 on_error: str = "warn", **opts: Any) -> None:
        kind = accelerator.distributed_type
        if kind in _CUT:
            raise TypeError(f"HearthState is for states that each rank has whole and for FSDP2, "
                            f"not for {kind.value}: save sharded states with "
                            "hearth_checkpoint.torch.async_save()")
        self._sharded = kind is DistributedType.FSDP
        if self._sharded and not accelerator.is_fsdp2:
            raise TypeError("HearthState: of FSDP it takes version 2 alone, "
                            "FullyShardedDataParallelPlugin(fsdp_version=2)")
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise ValueError("automatic_checkpoint_naming: save_state() would not write to the "
                             "folder that it is given")
        self._accelerator, self._opts = accelerator, opts
        self._saver: _several.Saver | _whole.Saver = (
            _several.Saver if self._sharded else _whole.Saver)(base, on_error=on_error, **opts)

    def save(self, step: int) -> None:
        """What save_state() writes, as this step. Returns when it is copied. Collective."""
        if isinstance(self._saver, _whole.Saver):
            _folder.keep(self._saver, step, self._accelerator.save_state)
            return
        states: dict[str, _several.Make] = {
            name: partial(_model_state, model) for name, model in self._models()}
        for name, model, optimizer in self._optimizers():
            states[name] = partial(_optimizer_state, model, optimizer)
        with self._without_shards():
            self._saver.save(step, states, self._accelerator.save_state)

    def load(self, folder: str | os.PathLike | None = None) -> int | None:
        """load_state() of the newest: the step, or None where there is nothing. Collective.

        folder  with step folders of save_state() on storage, which all ranks see
        """
        self._saver.ended()
        found = _folder.newest(self._saver.base, folder, self._is_whole, **self._opts)
        if found is None:
            return None
        step, path, in_memory = found
        if not in_memory:
            self._accelerator.load_state(path)
            return step
        with _folder.scratch() as files:
            if self._sharded:
                self._load_shards(path, files)
            else:
                _folder.bring(path, files)
                self._accelerator.load_state(files)
        return step

    def _is_whole(self, folder: Path) -> bool:
        """The file that save_state() writes last where the model is written: others' random states
        are there before it."""
        custom = len(self._accelerator._custom_objects)
        last = f"custom_checkpoint_{custom - 1}.pkl" if custom else "random_states_0.pkl"
        return zipfile.is_zipfile(folder / last)

    def _load_shards(self, path: str, files: str) -> None:
        """In Accelerate's order, but for the optimizers: of what it loads as files they need the
        scaler, and their first step, which torch makes here, must draw no random number."""
        for name, model in self._models():
            _several.load_model(path, name, model, under="model")
        _several.bring(path, files)
        with self._without_shards():
            self._accelerator.load_state(files)
        for name, model, optimizer in self._optimizers():
            _several.load_optimizer(path, name, model, optimizer, under="optimizer")

    def _models(self) -> list[tuple[str, Any]]:
        """With the name of the folder that Accelerate writes."""
        return [(f"pytorch_model_fsdp_{i}", model)
                for i, model in enumerate(self._accelerator._models)]

    def _optimizers(self) -> list[tuple[str, Any, Any]]:
        """Each with its model: as Accelerate has them, in the order of prepare()."""
        models = self._accelerator._models
        return [(f"optimizer_{i}", models[i], optimizer)
                for i, optimizer in enumerate(self._accelerator._optimizers)]

    @contextmanager
    def _without_shards(self) -> Iterator[None]:
        """save_state() and load_state() have all else to do."""
        mine = self._accelerator
        models, optimizers = mine._models, mine._optimizers
        mine._models, mine._optimizers = [], []
        try:
            yield
        finally:
            mine._models, mine._optimizers = models, optimizers

    def wait(self) -> None:
        """Until the last save has ended."""
        self._saver.wait()

    def close(self) -> None:
        """The last save ends."""
        self._saver.close()


def _model_state(model: Any) -> dict[str, Any]:
    """As Accelerate saves it."""
    return {"model": _several.model_state(model)}


def _optimizer_state(model: Any, optimizer: Any) -> dict[str, Any]:
    return {"optimizer": _several.optimizer_state(model, optimizer)}
