# SPDX-License-Identifier: Apache-2.0
"""Lightning: checkpoints in memory every few steps, on storage by Lightning's own rule.

    from hearth_checkpoint.lightning import HearthCheckpoint, HearthCheckpointIO, newest

    base = "/mnt/hearth/my-job"
    trainer = Trainer(plugins=[HearthCheckpointIO(base)], callbacks=[
        HearthCheckpoint(base, every_n_train_steps=10),
        ModelCheckpoint(dirpath="/storage", every_n_train_steps=1000)])
    trainer.fit(model, ckpt_path=newest(base, "/storage"))

With one device, and with DDP, HearthCheckpoint keeps what Lightning's own checkpoint has on each
rank, whole; what Lightning saves itself below the base, as ModelCheckpoint(dirpath=base), is rank
0's, and all ranks load that.

A strategy that cuts the state loads checkpoints itself, so there is one in its place that knows of
memory: Trainer(strategy=HearthFSDPStrategy(...)), HearthModelParallelStrategy(...), with the
arguments of Lightning's. Model and optimizers are parts of the save then, sharded as they are.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from .errors import HearthError
from .torch import _folder, _jobs, _names, _proof, _recover, _several, _whole, recover
from .torch._pickles import decode_item, encode_item

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO
    from lightning.pytorch.strategies import (
        DDPStrategy,
        FSDPStrategy,
        ModelParallelStrategy,
        SingleDeviceStrategy,
        Strategy,
    )
except ImportError:
    from pytorch_lightning import Callback  # type: ignore[no-redef]
    from pytorch_lightning.plugins.io import (  # type: ignore[no-redef]
        CheckpointIO,
        TorchCheckpointIO,
    )
    from pytorch_lightning.strategies import (  # type: ignore[no-redef]
        DDPStrategy,
        FSDPStrategy,
        ModelParallelStrategy,
        SingleDeviceStrategy,
        Strategy,
    )

_log = logging.getLogger("hearth_checkpoint")
_MODEL = "model"  # parts of a sharded save: this one, optimizer_0, ..., and files, which has
_REST = "lightning.ckpt"  # what else Lightning keeps, of each rank
_WRITTEN_LAST = "meta.pt"  # in a folder of a sharded checkpoint on storage


def _is_in(base: str, path: str | os.PathLike) -> bool:
    return os.path.dirname(os.path.abspath(os.fspath(path))) == base


class HearthCheckpointIO(CheckpointIO):
    """Paths below the job's base are memory; all others are the given plugin's, Lightning's own if
    none is.

    base     "<root>/<job>"
    storage  for other paths
    trust    as hearth_checkpoint.torch.HearthReader's
    opts     of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, base: str | os.PathLike, *, storage: CheckpointIO | None = None,
                 trust: bool = False, **opts: Any) -> None:
        super().__init__()
        self.base = _jobs.base_of(base)
        self._storage = storage if storage is not None else TorchCheckpointIO()
        self._trust, self._opts = trust, opts
        self._made: _whole.Saver | None = None

    @property
    def _saver(self) -> _whole.Saver:
        """Lightning saves on one rank, whatever the others are: alone, where there are others."""
        if self._made is None:
            rank, world = _jobs.rank_and_world()
            self._made = _whole.Saver(self.base, on_error="raise",
                                      alone=rank if world > 1 else None, **self._opts)
        return self._made

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike,
                        storage_options: Any = None) -> None:
        """Into memory where the path says so. Under DDP Lightning calls this on rank 0 alone: all
        ranks have called newest() before, and all of them load what rank 0 has saved."""
        if not _is_in(self.base, path):
            self._storage.save_checkpoint(checkpoint, path, storage_options)
            return
        if storage_options is not None:
            raise TypeError("storage_options: there are none for a checkpoint in memory")
        self._save(os.path.basename(os.fspath(path)), checkpoint)

    def _save(self, name: str, checkpoint: dict[str, Any]) -> None:
        self._saver.save(name, lambda: checkpoint)
        self._saver.wait()

    def load_checkpoint(self, path: str | os.PathLike, map_location: Any = None,
                        weights_only: bool | None = None) -> dict[str, Any]:
        """This rank's. weights_only=False is Lightning's word for trust."""
        if not _is_in(self.base, path):
            arguments = {} if weights_only is None else {"weights_only": weights_only}
            if map_location is not None:
                arguments["map_location"] = map_location
            return self._storage.load_checkpoint(path, **arguments)
        return _whole.read(path, trust=self._trust or weights_only is False,
                           map_location=map_location)

    def remove_checkpoint(self, path: str | os.PathLike) -> None:
        """What lies in memory goes by itself, when `keep` newer ones are protected."""
        if not _is_in(self.base, path):
            self._storage.remove_checkpoint(path)

    def teardown(self) -> None:
        """The last save ends."""
        if self._made is not None:
            self._made.close()
        self._storage.teardown()


class HearthAsyncCheckpointIO(HearthCheckpointIO):
    """The same, and a save in memory goes on beside training once the state is copied. One that
    failed is raised by the next, or by teardown()."""

    def _save(self, name: str, checkpoint: dict[str, Any]) -> None:
        self._saver.save(name, lambda: checkpoint)


# ---- strategies that cut the state ---------------------------------------------------------------


class _Cut(Strategy):
    """In front of a strategy that loads checkpoints itself: those below the base of the trainer's
    HearthCheckpointIO are in memory, whatever form the others have."""

    flat = False  # the optimizers' states have flat names
    _into_memory = False

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Sharded, for memory; else as the strategy was told."""
        if not self._into_memory:
            return super().lightning_module_state_dict()
        return _several.model_state(self.model)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """The same."""
        if not self._into_memory:
            return super().optimizer_state(optimizer)
        return _several.optimizer_state(
            self.model, getattr(optimizer, "optimizer", optimizer), self.flat)

    def dump(self) -> dict[str, Any]:
        """Lightning's checkpoint, with sharded states in it. Collective."""
        self._into_memory = True
        try:
            return _dump(self.lightning_module.trainer)
        finally:
            self._into_memory = False

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: str | os.PathLike,
                        storage_options: Any = None) -> None:
        """To storage: the form that memory has is not known yet where this checkpoint is made."""
        if self._memory_of(filepath) is not None:
            raise TypeError(f"{filepath}: with {type(self).__name__} Lightning itself saves to "
                            "storage alone; what saves into memory is the callback "
                            "HearthCheckpoint")
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: str | os.PathLike, *arguments: Any,
                        **named: Any) -> dict[str, Any]:
        """The states into model and optimizers; what is left is Lightning's to restore. A path in
        memory is this rank's own. Collective."""
        memory = self._memory_of(checkpoint_path)
        if memory is None:
            return super().load_checkpoint(checkpoint_path, *arguments, **named)
        weights_only = named.get("weights_only", arguments[0] if arguments else None)
        return self._load(os.fspath(checkpoint_path), memory._trust or weights_only is False)

    def _memory_of(self, path: str | os.PathLike) -> HearthCheckpointIO | None:
        plugin = self.checkpoint_io
        if isinstance(plugin, HearthCheckpointIO) and _is_in(plugin.base, path):
            return plugin
        return None

    def _load(self, path: str, trust: bool) -> dict[str, Any]:
        rest = _read_rest(path, trust)  # first: what is refused leaves all as it was
        trainer = self.lightning_module.trainer
        _several.load_model(path, _MODEL, self.model,
                            strict=self.lightning_module.strict_loading)
        for i, optimizer in enumerate(self.optimizers if trainer.state.fn == "fit" else ()):
            _several.load_optimizer(path, _optimizer(i), self.model, optimizer, flat=self.flat)
        return rest


class HearthFSDPStrategy(_Cut, FSDPStrategy):
    """FSDPStrategy, with its arguments. Lightning makes FSDP of version 1 of it."""

    flat = True


class HearthModelParallelStrategy(_Cut, ModelParallelStrategy):
    """ModelParallelStrategy, with its arguments: FSDP2, tensor parallelism, both."""


def _optimizer(index: int) -> str:
    return f"optimizer_{index}"


def _dump(trainer: Any) -> dict[str, Any]:
    return trainer._checkpoint_connector.dump_checkpoint(weights_only=False)


def _read_rest(path: str, trust: bool) -> dict[str, Any]:
    """What this rank has kept beside the states, or rank 0 where it was not there. Collective."""
    rest, error = None, None
    with _folder.scratch() as files:
        _several.bring(path, files)
        try:
            rest = decode_item(Path(files, _REST).read_bytes(), trust=trust, map_location="cpu")
        except Exception as raised:  # for all ranks to hear of
            error = raised
    _recover.raise_of_any(error)
    assert isinstance(rest, dict)
    return rest


class _Dumped:
    """A trainer's checkpoint taken apart, for hearth_checkpoint.torch._several."""

    def __init__(self, trainer: Any, base: str, step: int) -> None:
        self._strategy, self._base, self._step = trainer.strategy, base, step
        self._rest: dict[str, Any] = {}
        self._optimizers: list[dict[str, Any]] = []
        self.states: dict[str, _several.Make] = {_MODEL: self._model}
        for i in range(len(trainer.optimizers)):
            self.states[_optimizer(i)] = lambda i=i: self._optimizers[i]  # type: ignore[misc]

    def _model(self) -> dict[str, Any]:
        """The first that is asked for."""
        self._rest = self._strategy.dump()
        self._optimizers = self._rest.pop("optimizer_states", [])
        return self._rest.pop("state_dict")

    def write(self, folder: str) -> None:
        """All else, as the last."""
        data = encode_item(self._rest)
        _proof.proof_of(self._base).items(f"step {self._step}", [_proof.Blob(_REST, data, dict)])
        Path(folder, _REST).write_bytes(data)


# ---- the callback --------------------------------------------------------------------------------


class HearthCheckpoint(Callback):
    """Saves into memory on all ranks, beside training.

    every_n_train_steps  of trainer.global_step
    on_error             "warn": a save that fails is counted and said, and training goes on
                         (hearth_checkpoint.torch.protection()); "raise": the next save raises it
    opts                 of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, base: str | os.PathLike, *, every_n_train_steps: int,
                 on_error: str = "warn", **opts: Any) -> None:
        if every_n_train_steps < 1:
            raise ValueError(f"every_n_train_steps: {every_n_train_steps} is not positive")
        self._every = every_n_train_steps
        self._saver: _whole.Saver | _several.Saver = _whole.Saver(base, on_error=on_error, **opts)
        self._more = {"on_error": on_error, **opts}
        self._saved: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Strategies that cut the state and could not load it from memory are refused. Called as
        the last of the callbacks from here on: what is saved has the step in the states of all."""
        trainer.callbacks = [each for each in trainer.callbacks if each is not self] + [self]
        strategy = trainer.strategy
        if isinstance(strategy, _Cut):
            plugin, base = strategy.checkpoint_io, self._saver.base
            if not isinstance(plugin, HearthCheckpointIO) or plugin.base != base:
                raise TypeError(f"{type(strategy).__name__} loads from memory where the trainer "
                                f"has plugins=[HearthCheckpointIO({base!r})], the base of "
                                "HearthCheckpoint")
            if not isinstance(self._saver, _several.Saver):
                self._saver = _several.Saver(base, **self._more)
        elif (not isinstance(strategy, (DDPStrategy, SingleDeviceStrategy))
              or strategy.restore_checkpoint_after_setup):  # DeepSpeed's is derived from DDP's
            raise TypeError(_instead_of(strategy))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What was loaded is in memory already."""
        self._saved = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Every so many steps; with accumulated gradients several batches are one step."""
        step = trainer.global_step
        if step % self._every or step == self._saved or trainer.fast_dev_run:
            return
        self._saved = step
        if isinstance(self._saver, _whole.Saver):
            self._saver.save(f"step-{step}_ckpt", lambda: _dump(trainer))
            return
        parts = _Dumped(trainer, self._saver.base, step)
        self._saver.save(step, parts.states, parts.write)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The last save ends."""
        self._saver.close()


def _instead_of(strategy: Any) -> str:
    """Why a strategy is refused, and what there is for it."""
    name = type(strategy).__name__
    for ours in (HearthFSDPStrategy, HearthModelParallelStrategy):
        theirs = ours.__mro__[2]
        if isinstance(strategy, theirs):
            return (f"HearthCheckpoint: {name} loads checkpoints itself, from storage alone: use "
                    f"hearth_checkpoint.lightning.{ours.__name__} in its place, with the same "
                    "arguments")
    return (f"HearthCheckpoint is for a single device, DDP, FSDP and model parallelism, not for "
            f"{name}: save sharded states with hearth_checkpoint.torch.async_save()")


def _on_storage(folder: str | os.PathLike, trust: bool) -> list[tuple[int | None, str]]:
    """Lightning's checkpoints in a folder with their steps, where they can be told."""
    path = Path(folder)
    return [(_step_of(file, trust), str(file))
            for file in (sorted(path.glob("*.ckpt")) if path.is_dir() else ())]


def _step_of(file: Path, trust: bool) -> int | None:
    """By its name, or what it says itself, or by what its name says among else."""
    step = _names.step_of(file.name)
    try:
        whole = file / _WRITTEN_LAST if file.is_dir() else file
        if step is None or not whole.exists():
            step = torch.load(whole, map_location="cpu", mmap=True,
                              weights_only=not trust)["global_step"]
        return step
    except pickle.UnpicklingError as error:  # it is whole, and has what torch does not know
        among = re.search(r"(?<![a-z_])step=(\d{1,19})", file.name)
        if among is not None:
            return int(among[1])
        why: Exception = error
    except Exception as error:
        why = error
    _log.warning("hearth: %s is left out, because it has no step: %s", file, why)
    return None


def newest(base: str | os.PathLike, folder: str | os.PathLike | None = None,
           **opts: Any) -> str | None:
    """What to go on from, for fit(ckpt_path=): the newer of memory and of a folder that all ranks
    see. None: start from scratch, which is an error where the folder has checkpoints of which none
    says its step. Collective: several ranks are started by torchrun, whose store they meet at, or
    have a process group.

    opts  of hearth_checkpoint.torch.recover(); trust: of the folder's files, too
    """
    found = recover(base, **opts)
    files = _on_storage(folder, opts.get("trust", False)) if folder is not None else []
    stored = max(((step, file) for step, file in files if step is not None), default=None,
                 key=lambda each: each[0])
    if found is not None and (stored is None or found.step >= stored[0]):
        return found.path
    if stored is None and files:
        raise HearthError(f"{folder}: there is nothing in memory, and none of the checkpoints here "
                          f"has its step: {', '.join(file for _, file in files)}")
    return stored[1] if stored is not None else None
