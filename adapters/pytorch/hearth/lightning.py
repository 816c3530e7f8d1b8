# SPDX-License-Identifier: Apache-2.0
"""Lightning: checkpoints in memory every few steps, on storage by Lightning's own rule.

    from hearth.lightning import HearthCheckpoint, HearthCheckpointIO, newest

    base = "/mnt/hearth/my-job"
    trainer = Trainer(plugins=[HearthCheckpointIO(base)], callbacks=[
        HearthCheckpoint(base, every_n_train_steps=10),
        ModelCheckpoint(dirpath="/storage", every_n_train_steps=1000)])
    trainer.fit(model, ckpt_path=newest(base, "/storage"))

HearthCheckpoint keeps what Lightning's own checkpoint has on each rank, whole; what Lightning saves
itself below the base, as ModelCheckpoint(dirpath=base), is rank 0's, and all ranks load that. For
one device, and for DDP.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import torch

from .torch import _jobs, _names, _whole, recover

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins.io import CheckpointIO, TorchCheckpointIO
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
except ImportError:
    from pytorch_lightning import Callback  # type: ignore[no-redef]
    from pytorch_lightning.plugins.io import (  # type: ignore[no-redef]
        CheckpointIO,
        TorchCheckpointIO,
    )
    from pytorch_lightning.strategies import (  # type: ignore[no-redef]
        DDPStrategy,
        SingleDeviceStrategy,
    )

_log = logging.getLogger("hearth")


def _is_in(base: str, path: str | os.PathLike) -> bool:
    return os.path.dirname(os.path.abspath(os.fspath(path))) == base


class HearthCheckpointIO(CheckpointIO):
    """Paths below the job's base are memory; all others are the given plugin's, Lightning's own if
    none is.

    base     "<root>/<job>"
    storage  for other paths
    trust    as hearth.torch.HearthReader's
    opts     of hearth.job.Job.open()
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
            self._made = _whole.Saver(self.base, on_error="raise",
                                      alone=_rank() if _world() > 1 else None, **self._opts)
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


def _world() -> int:
    dist = torch.distributed
    started = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if started else int(os.environ.get("WORLD_SIZE", "1"))


def _rank() -> int:
    dist = torch.distributed
    started = dist.is_available() and dist.is_initialized()
    return dist.get_rank() if started else int(os.environ.get("RANK", "0"))


class HearthCheckpoint(Callback):
    """Saves into memory on all ranks, beside training.

    every_n_train_steps  of trainer.global_step
    on_error             "warn": a save that fails is counted and said, and training goes on
                         (hearth.torch.protection()); "raise": the next save raises it
    opts                 of hearth.job.Job.open()
    """

    def __init__(self, base: str | os.PathLike, *, every_n_train_steps: int,
                 on_error: str = "warn", **opts: Any) -> None:
        if every_n_train_steps < 1:
            raise ValueError(f"every_n_train_steps: {every_n_train_steps} is not positive")
        self._every = every_n_train_steps
        self._saver = _whole.Saver(base, on_error=on_error, **opts)
        self._saved: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Strategies that cut the state are refused: each rank would have a part alone."""
        kind = type(trainer.strategy)
        if not isinstance(trainer.strategy, (DDPStrategy, SingleDeviceStrategy)):
            raise TypeError(f"HearthCheckpoint is for a single device and for DDP, not for "
                            f"{kind.__name__}: save sharded states with hearth.torch.async_save()")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """What was loaded is in memory already."""
        self._saved = trainer.global_step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        """Every so many steps; with accumulated gradients several batches are one step."""
        step = trainer.global_step
        if step % self._every or step == self._saved:
            return
        self._saved = step
        self._saver.save(f"step-{step}_ckpt", lambda: (
            trainer._checkpoint_connector.dump_checkpoint(weights_only=False)))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The last save ends."""
        self._saver.close()


def _on_storage(folder: str | os.PathLike) -> tuple[int, str] | None:
    """The newest of Lightning's files in a folder: of its name, or what it says itself."""
    best: tuple[int, str] | None = None
    path = Path(folder)
    for file in sorted(path.glob("*.ckpt")) if path.is_dir() else ():
        step = _names.step_of(file.name)
        try:
            if step is None:
                step = torch.load(file, map_location="cpu", mmap=True,
                                  weights_only=True)["global_step"]
        except Exception as error:
            _log.warning("hearth: %s is not looked at, it says no step: %s", file, error)
            continue
        if best is None or step > best[0]:
            best = step, str(file)
    return best


def newest(base: str | os.PathLike, folder: str | os.PathLike | None = None,
           **opts: Any) -> str | None:
    """What to go on from, for fit(ckpt_path=): the newer of memory and of a folder that all ranks
    see. None: start from scratch. Collective: several ranks are started by torchrun, whose store
    they meet at, or have a process group."""
    found = recover(base, **opts)
    stored = _on_storage(folder) if folder is not None else None
    if found is not None and (stored is None or found.step >= stored[0]):
        return found.path
    return stored[1] if stored is not None else None
