# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer: its checkpoint in memory every few steps, on storage by its own rule.

    from hearth_checkpoint.transformers import HearthCallback

    trainer = Trainer(..., args=TrainingArguments(output_dir="/storage/run", save_steps=1000))
    memory = HearthCallback(trainer, "/mnt/hearth/my-job", every_n_steps=10)
    trainer.train(resume_from_checkpoint=memory.newest())

With FSDP2 model and optimizer are parts of the save, sharded as they are in the training, under the
names of the folders that Accelerate itself writes; all else stays files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import transformers.trainer as _theirs
from torch.distributed.fsdp import StateDictType
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from .torch import _folder, _several, _whole

_MODEL, _OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"


class HearthCallback(TrainerCallback):
    """Keeps what the trainer's own checkpoint has, on all ranks, and adds itself to the trainer.

    every_n_steps  of state.global_step
    on_error       "warn": a save that fails is counted and said, and training goes on
                   (hearth_checkpoint.torch.protection()); "raise": the next save raises it
    opts           of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, trainer: Trainer, base: str | os.PathLike, *, every_n_steps: int,
                 on_error: str = "warn", **opts: Any) -> None:
        if every_n_steps < 1:
            raise ValueError(f"every_n_steps: {every_n_steps} is not positive")
        for name in ("is_deepspeed_enabled", "is_fsdp_xla_enabled",
                     "is_distributed_loading_by_transformers"):
            if getattr(trainer, name, False):
                raise TypeError(f"HearthCallback is for states that each rank has whole and for "
                                f"FSDP2 ({name}): save sharded states with "
                                "hearth_checkpoint.torch.async_save()")
        sharded = getattr(trainer, "is_fsdp_enabled", False)
        if sharded and not trainer.accelerator.is_fsdp2:
            raise TypeError("HearthCallback: of FSDP it takes version 2 alone, "
                            "fsdp_config={\"version\": 2}")
        self._trainer, self._every, self._opts = trainer, every_n_steps, opts
        self._saver: _several.Saver | _whole.Saver = (
            _several.Saver if sharded else _whole.Saver)(base, on_error=on_error, **opts)
        self._brought = ExitStack()
        self._due, self._due_later = False, False
        self._save_behind(trainer)
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
        self._brought.close()
        scratch = self._brought.enter_context(_folder.scratch())
        to = os.path.join(scratch, f"checkpoint-{step}")
        if isinstance(self._saver, _whole.Saver):
            _folder.bring(path, to)
            return to
        _several.bring(path, to)
        for name in (_MODEL, _OPTIMIZER):  # the trainer looks for them, and has them loaded
            os.mkdir(os.path.join(to, name))
        self._brought.enter_context(_from_memory(path, to))
        return to

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Every so many steps, on all ranks. All was loaded before the first, and is loaded again
        only where a batch turns out to be too large."""
        if not args.auto_find_batch_size:
            self._brought.close()
        due = state.global_step % self._every == 0
        self._due_later = due and _ends_epoch(state)
        self._due = due and not self._due_later

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The trainer may evaluate once more after the last step of an epoch."""
        self._due, self._due_later = self._due_later, False

    def _save_behind(self, trainer: Trainer) -> None:
        """Where the trainer itself saves: behind the step's evaluation, which schedulers, the best
        metric and other callbacks' states hang on, and behind these."""
        theirs = trainer._maybe_log_save_evaluate

        def log_save_evaluate(*arguments: Any, **named: Any) -> None:
            theirs(*arguments, **named)
            if self._due:
                self._due = False
                self._save(trainer.state.global_step)

        trainer._maybe_log_save_evaluate = log_save_evaluate  # type: ignore[method-assign]

    def _save(self, step: int) -> None:
        if isinstance(self._saver, _whole.Saver):
            _folder.keep(self._saver, step, self._write)
            return
        with _without_shards(self._trainer.accelerator.state.fsdp_plugin):
            self._saver.save(step, {
                _MODEL: self._model_state, _OPTIMIZER: self._optimizer_state}, self._write)

    def _model_state(self) -> dict[str, Any]:
        """As Accelerate saves it."""
        return {"model": _several.model_state(self._trainer.model)}

    def _optimizer_state(self) -> dict[str, Any]:
        return {"optimizer": _several.optimizer_state(
            self._trainer.model, self._trainer.optimizer)}

    def _write(self, folder: str) -> None:
        """The trainer's own files of this step, all of them, into the folder and nowhere else."""
        args = self._trainer.args
        ours = {"output_dir": folder, "push_to_hub": False, "save_only_model": False,
                "save_strategy": SaveStrategy.NO}  # else ranks meet to look for the best one
        before = {name: getattr(args, name) for name in ours}
        made = os.path.join(folder, f"checkpoint-{self._trainer.state.global_step}")
        os.mkdir(made)  # a rank may have nothing to write
        try:
            vars(args).update(ours)
            self._trainer._save_checkpoint(self._trainer.model, trial=None)
        finally:
            vars(args).update(before)
        for name in os.listdir(made):
            os.rename(os.path.join(made, name), os.path.join(folder, name))
        os.rmdir(made)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last save ends."""
        self._brought.close()
        self._saver.close()


def _ends_epoch(state: Any) -> bool:
    """Of the step that was made. Where the data has no length, no step is known to."""
    return float(state.epoch).is_integer()


# The trainer has Accelerate write and read what FSDP cuts, by four functions.


@contextmanager
def _in_place(**ours: Any) -> Iterator[None]:
    """Of the functions of these names."""
    theirs = {name: getattr(_theirs, name) for name in ours}
    vars(_theirs).update(ours)
    try:
        yield
    finally:
        vars(_theirs).update(theirs)


@contextmanager
def _without_shards(plugin: Any) -> Iterator[None]:
    """The trainer writes all else: it would also gather the model where it is told to save it
    whole."""
    before, plugin.state_dict_type = plugin.state_dict_type, StateDictType.SHARDED_STATE_DICT
    try:
        with _in_place(save_fsdp_model=_nothing, save_fsdp_optimizer=_nothing):
            yield
    finally:
        plugin.state_dict_type = before


def _nothing(*_: Any, **__: Any) -> None:
    pass


@contextmanager
def _from_memory(path: str, folder: str) -> Iterator[None]:
    """What the trainer has loaded from this folder is the save's; from others it is theirs."""
    load_model, load_optimizer = _theirs.load_fsdp_model, _theirs.load_fsdp_optimizer

    def model(plugin: Any, accelerator: Any, into: Any, where: str, *more: Any,
              **named: Any) -> Any:
        if where != folder:
            return load_model(plugin, accelerator, into, where, *more, **named)
        return _several.load_model(path, _MODEL, into, under="model")

    def optimizer(plugin: Any, accelerator: Any, into: Any, of: Any, where: str, *more: Any,
                  **named: Any) -> Any:
        if where != folder:
            return load_optimizer(plugin, accelerator, into, of, where, *more, **named)
        return _several.load_optimizer(path, _OPTIMIZER, of, into, under="optimizer")

    with _in_place(load_fsdp_model=model, load_fsdp_optimizer=optimizer):
        yield


def _is_whole(folder: Path) -> bool:
    """The file that the trainer writes last."""
    return (folder / "trainer_state.json").exists()
