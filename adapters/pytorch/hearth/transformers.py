# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer: its checkpoint in memory every few steps, on storage by its own rule.

    from hearth.transformers import HearthCallback

    trainer = Trainer(..., args=TrainingArguments(output_dir="/storage/run", save_steps=1000))
    memory = HearthCallback(trainer, "/mnt/hearth/my-job", every_n_steps=10)
    trainer.train(resume_from_checkpoint=memory.newest())
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from .torch import _folder, _whole


class HearthCallback(TrainerCallback):
    """Keeps what the trainer's own checkpoint has, on all ranks, and adds itself to the trainer.

    every_n_steps  of state.global_step
    on_error       "warn": a save that fails is counted and said, and training goes on
                   (hearth.torch.protection()); "raise": the next save raises it
    opts           of hearth.job.Job.open()
    """

    def __init__(self, trainer: Trainer, base: str | os.PathLike, *, every_n_steps: int,
                 on_error: str = "warn", **opts: Any) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps: {every_n_steps} is not positive")
        for name in ("is_deepspeed_enabled", "is_fsdp_enabled"):
            if getattr(trainer, name, False):
                raise TypeError(f"HearthCallback is for states that each rank has whole ({name}): "
                                "save sharded states with hearth.torch.async_save()")
        self._trainer, self._every, self._opts = trainer, every_n_steps, opts
        self._saver = _whole.Saver(base, on_error=on_error, **opts)
        self._brought: Any = None
        trainer.add_callback(self)

    def newest(self) -> str | None:
        """For train(resume_from_checkpoint=): the newer of memory, whose files are brought into a
        folder of this rank's own until training begins, and of output_dir. Collective."""
        output = self._trainer.args.output_dir
        found = _folder.newest(self._saver.base, output, _is_whole, **self._opts)
        if found is None:
            return None
        step, path, in_memory = found
        if not in_memory:
            return path
        self._forget()
        self._brought = _folder.scratch()
        to = os.path.join(self._brought.__enter__(), f"checkpoint-{step}")
        _folder.bring(path, to)
        return to

    def _forget(self) -> None:
        """The folder that was brought is not needed any more."""
        brought, self._brought = self._brought, None
        if brought is not None:
            brought.__exit__(None, None, None)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Every so many steps, on all ranks. All was loaded before the first."""
        self._forget()
        if state.global_step % self._every == 0:
            _folder.keep(self._saver, state.global_step, self._write)

    def _write(self, folder: str) -> None:
        """The trainer's own files of this step, into the folder and nowhere else."""
        args = self._trainer.args
        before = {name: getattr(args, name) for name in ("output_dir", "push_to_hub")}
        try:
            args.output_dir, args.push_to_hub = folder, False
            self._trainer._save_checkpoint(self._trainer.model, trial=None)
        finally:
            for name, value in before.items():
                setattr(args, name, value)
        made = os.path.join(folder, f"checkpoint-{self._trainer.state.global_step}")
        for name in os.listdir(made):
            os.rename(os.path.join(made, name), os.path.join(folder, name))
        os.rmdir(made)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last save ends."""
        self._forget()
        self._saver.close()


def _is_whole(folder: Path) -> bool:
    """The file that the trainer writes last."""
    return (folder / "trainer_state.json").exists()
