# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own parts, as its trainer builds them, of a model for a CPU: its trainer wants a
GPU. Functions for ranks of ranks.World are here, too."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import IterableDataset
from torchtitan.components.checkpoint import CheckpointManager
from torchtitan.components.dataloader import ParallelAwareDataloader

import hearth_checkpoint.torch as ht
from hearth_checkpoint import torchtitan

OLD = not hasattr(CheckpointManager, "Config")  # torchtitan 0.2


class Rows(IterableDataset):
    """A stream with a place in it, as torchtitan's datasets are."""

    def __init__(self, rank: int) -> None:
        self._rank, self._at = rank, 0

    def __iter__(self) -> Any:
        while True:
            seed = torch.Generator().manual_seed(1000 * self._at + self._rank)
            self._at += 1
            yield torch.randn(8, generator=seed)

    def state_dict(self) -> dict[str, Any]:
        return {"at": self._at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._at = state["at"]


def _optimizers(model: torch.nn.Module) -> Any:
    if OLD:
        from torchtitan.components.optimizer import OptimizersContainer

        return OptimizersContainer([model], torch.optim.AdamW, {"lr": 0.05})
    from torchtitan.components.optimizer import default_adamw

    config = default_adamw(lr=0.05)
    config.implementation = "for-loop"
    return config.build(model_parts=[model])


def _schedulers(optimizers: Any) -> Any:
    if OLD:
        from torchtitan.components.lr_scheduler import LRSchedulersContainer
    else:
        from torchtitan.components.optimizer import LRSchedulersContainer
    return LRSchedulersContainer(optimizers, _factor)


def _factor(step: int) -> float:
    return 1.0 / (1 + step)


class Trainer(torch.distributed.checkpoint.stateful.Stateful):
    """What torchtitan's has of checkpoints: it builds its parts, and calls load(), save() and
    close()."""

    def __init__(self, dump_folder: str, memory: dict[str, Any], *, of_config: bool = False,
                 **storage: Any) -> None:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.model = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizers = _optimizers(self.model)
        self.lr_schedulers = _schedulers(self.optimizers)
        self.dataloader = ParallelAwareDataloader(
            Rows(dist.get_rank()), dist.get_rank(), dist.get_world_size(), batch_size=4)
        self.batches = None
        self.step = self.ntokens_seen = 0
        parts = {"dataloader": self.dataloader, "model_parts": [self.model],
                 "optimizers": self.optimizers, "lr_schedulers": self.lr_schedulers,
                 "states": {"train_state": self}, "sd_adapter": None, "base_folder": dump_folder}
        storage = {"enable": True, "interval": 5, "last_save_model_only": False, **storage}
        if of_config:
            self.checkpointer: Any = torchtitan.HearthCheckpointManager.Config(
                **storage, **{f"memory_{name}": value for name, value in memory.items()}
            ).build(**parts)
            return
        if OLD:
            from torchtitan.config.job_config import Checkpoint

            manager = CheckpointManager(checkpoint_config=Checkpoint(**storage), **parts)
        else:
            manager = CheckpointManager.Config(**storage).build(**parts)
        self.checkpointer = torchtitan.HearthCheckpointer(manager, **memory)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.step, "ntokens_seen": self.ntokens_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.ntokens_seen = state["step"], state["ntokens_seen"]

    def train_step(self) -> float:
        """One step, and what is saved of it."""
        self.step += 1
        if self.batches is None:
            self.batches = iter(self.dataloader)
        x = next(self.batches)
        loss = (self.model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        self.optimizers.step()
        self.lr_schedulers.step()
        self.optimizers.zero_grad()
        self.ntokens_seen += x.numel()
        return loss.item()

    def saved_step(self, last: int = 1 << 30) -> float:
        loss = self.train_step()
        self.checkpointer.save(self.step, last_step=self.step == last)
        return loss


# ---- on ranks ------------------------------------------------------------------------------------


def base() -> str:
    return f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"


def memory(**options: Any) -> dict[str, Any]:
    return {"base": base(), "every_n_steps": 2, "on_error": "raise", **options}


def train(dump_folder: str, steps: int, load_step: int = -1, load_only: bool = False) -> Any:
    """From the newest on: where it began, and where it ended; or what was refused."""
    trainer = Trainer(dump_folder, memory(), load_only=load_only)
    try:
        trainer.checkpointer.load(load_step)
    except (ValueError, FileNotFoundError) as error:
        return f"{error}"
    began = trainer.step
    for _ in range(steps):
        trainer.saved_step()
    trainer.checkpointer.close()
    return began, trainer.step


def refused(dump_folder: str) -> list[str]:
    """What each wrong use says."""
    said = []
    for of_memory, storage in (({"every_n_steps": 0}, {}), ({"on_error": "ignore"}, {}),
                               ({"copeis": 1}, {}), ({}, {"enable": False})):
        try:
            Trainer(dump_folder, memory(**of_memory), **storage)
            said.append("nothing")
        except (TypeError, ValueError) as error:
            said.append(f"{error}")
    return said


def delegated(dump_folder: str) -> Any:
    """What the trainer asks of a manager beside load(), save() and close()."""
    trainer = Trainer(dump_folder, memory())
    trainer.checkpointer.maybe_wait_for_staging()
    folder = trainer.checkpointer.folder
    trainer.checkpointer.close()
    return folder


def failing(dump_folder: str, on_error: str) -> Any:
    """Saves of which every one fails: how far training came, how many are counted, what was
    said."""
    trainer = Trainer(dump_folder, memory(on_error=on_error))
    trainer.checkpointer._memory.base = "/nowhere/job"  # where its writer does not save
    said = ""
    try:
        for _ in range(4):
            trainer.saved_step()
        trainer.checkpointer.close()
    except BaseException as error:
        said = f"{error}"
    return trainer.step, ht.protection(base()).failures, said


def leave() -> None:
    ht.leave(base(), keep=False)
