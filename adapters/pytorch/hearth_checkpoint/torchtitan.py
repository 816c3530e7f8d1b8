# SPDX-License-Identifier: Apache-2.0
"""torchtitan: the trainer's checkpoint in memory every few steps, on storage by its own rule.

    from hearth_checkpoint.torchtitan import HearthCheckpointer

    trainer = Trainer(config)
    trainer.checkpointer = HearthCheckpointer(
        trainer.checkpointer, "/mnt/hearth/my-job", every_n_steps=10)
    trainer.train()                       # goes on from the newer of memory and checkpoint.folder

torchtitan 0.3 builds its checkpoint manager of a config, and no script has to be changed:

    config.checkpoint = HearthCheckpointManager.Config(
        enable=True, memory_base="/mnt/hearth/my-job", memory_interval=10)

A save has the same as torchtitan's own full checkpoint: model, optimizers, schedulers, dataloader
and the trainer's counters, sharded as they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torchtitan.components.checkpoint import MODEL, CheckpointManager

from .errors import HearthNotFound
from .torch import _recover, _weak
from .torch.reader import HearthReader
from .torch.writer import HearthWriter


class _Memory(_weak.Saves):
    """Saves and loads of a manager's states; the arguments are those of HearthCheckpointer."""

    def __init__(self, manager: Any, base: str | os.PathLike, every_n_steps: int, on_error: str,
                 trust: bool, opts: dict[str, Any]) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps: {every_n_steps} is not positive")
        super().__init__(base, on_error)
        if getattr(manager, "ft_manager", None) is not None:
            raise TypeError("torchft: its replicas do not save together, and a save in memory is "
                            "all ranks'")
        self._manager, self._every, self._trust, self._opts = manager, every_n_steps, trust, opts
        self._writer = HearthWriter(self.base, **opts)

    def save(self, step: int) -> bool:
        """Copy the states, if it is time; they are written beside training. Collective."""
        if step < 1 or step % self._every or self._manager.load_only:
            return False
        self._is_over()
        self._last = _recover.async_save(
            self._manager._flattened_model_states_sd(), storage_writer=self._writer,
            checkpoint_id=f"{self.base}/step-{step}", on_error=self._on_error)
        return True

    def load(self, step: int, from_storage: Callable[[int], bool]) -> bool:
        """Of a step, or of the newer of memory and storage (-1). Collective."""
        found = self._newer() if step == -1 else self._kept(step)
        if found is None:
            return from_storage(step)
        states = self._manager._states_to_load(False)
        _recover.load(states, checkpoint_id=found.path, process_group=_recover.group(),
                      storage_reader=HearthReader(self.base, trust=self._trust))
        self._manager.states[MODEL].load_state_dict(states)  # flat: DCP does not know whose it is
        return True

    def _newer(self) -> _recover.Recovered | None:
        """What memory has, unless storage has something newer, for any rank."""
        found = _recover.recover(self.base, **self._opts)
        stored = max(_recover.gathered(self._manager._find_load_step()))
        return found if found is not None and found.step >= stored else None

    def _kept(self, step: int) -> _recover.Recovered | None:
        """This step, if memory has it. Where memory is further, no save could follow an older step
        of storage's."""
        try:
            return _recover.recover(self.base, step=step, **self._opts)
        except HearthNotFound:
            newest = _recover.recover(self.base, **self._opts)
        if newest is not None and newest.step > step:
            raise ValueError(
                f"load_step {step}: {self.base} is at step {newest.step} and has not kept {step}, "
                "and steps of a job in memory do not go down. Give this run another base, or free "
                "the job's memory first: hearth_checkpoint.torch.leave(base, keep=False) on all "
                "ranks")
        return None

    def close(self) -> None:
        """The last save ends; of a process that ends of an error nobody waits for it."""
        if sys.exc_info()[0] is None and not sys.is_finalizing():
            self.wait()
        self._writer.close()


class HearthCheckpointer:
    """Takes the place of a trainer's checkpoint manager, whose storage goes on by its own rule.

    manager        what the trainer has built, with checkpoint.enable
    every_n_steps  of the trainer's; load_only of the manager's is heeded
    on_error       "warn": a save that fails is counted and said, and training goes on
                   (hearth_checkpoint.torch.protection()); "raise": the next save raises it
    trust          as hearth_checkpoint.torch.HearthReader's
    opts           of hearth_checkpoint.job.Job.open()

    All else of the manager's is there under its name.
    """

    def __init__(self, manager: Any, base: str | os.PathLike, *, every_n_steps: int,
                 on_error: str = "warn", trust: bool = False, **opts: Any) -> None:
        if not manager.enable:
            raise ValueError("checkpoint.enable is False: the manager has no states to save")
        self._manager = manager
        self._memory = _Memory(manager, base, every_n_steps, on_error, trust, opts)

    @torch.no_grad()
    def save(self, curr_step: int, last_step: bool = False) -> Any:
        """Into memory every so many steps, then on storage if it is time there. Collective."""
        saved = self._memory.save(curr_step)
        return self._manager.save(curr_step, last_step) or saved

    @torch.no_grad()
    def load(self, step: int = -1) -> bool:
        """Of a step, or of the newer of memory and storage (-1). Whether there was one."""
        return self._memory.load(step, self._manager.load)

    def wait(self) -> None:
        """Until the last save into memory has ended."""
        self._memory.wait()

    def close(self) -> None:
        """The last save ends, and what the manager does then."""
        try:
            self._memory.close()
        finally:
            self._manager.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also before there is a manager
            raise AttributeError(name)
        return getattr(self._manager, name)


if hasattr(CheckpointManager, "Config"):  # 0.3

    class HearthCheckpointManager(CheckpointManager):
        """The same, built of a config. Options of the job come from the environment (`hearth ls
        --env`)."""

        @dataclass(kw_only=True, slots=True)
        class Config(CheckpointManager.Config):
            """torchtitan's, and memory's."""

            memory_base: str = ""
            """<a tmpfs>/<a name for the job>, the same on all ranks' nodes."""

            memory_interval: int = 10
            """Saves into memory, in steps."""

            memory_on_error: Literal["warn", "raise"] = "warn"
            """Whether training goes on when a save into memory fails, or the next one raises it."""

            memory_trust: bool = False
            """Whether items that are not decoded safely are unpickled when they are loaded."""

        def __init__(self, config: Any, **runtime: Any) -> None:
            super().__init__(config, **runtime)
            if not self.enable:
                return
            if not config.memory_base:
                raise ValueError("checkpoint.memory_base: give <a tmpfs>/<a name for the job>")
            self._memory = _Memory(self, config.memory_base, config.memory_interval,
                                   config.memory_on_error, config.memory_trust, {})

        @torch.no_grad()
        def _save(self, curr_step: int, last_step: bool = False) -> bool:
            saved = self._memory.save(curr_step)
            return super()._save(curr_step, last_step) or saved

        @torch.no_grad()
        def _load(self, step: int = -1) -> bool:
            return self._memory.load(step, super()._load)

        def _close(self) -> None:
            try:
                if hasattr(self, "_memory"):  # not where __init__ has failed
                    self._memory.close()
            finally:
                super()._close()
