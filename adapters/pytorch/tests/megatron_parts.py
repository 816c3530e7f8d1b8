# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel model of Megatron-core's layers on CPUs, and its sharded state. Functions for
ranks of ranks.World are here, too."""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject
from megatron.core.dist_checkpointing.optimizer import (
    get_param_id_to_sharded_param_map,
    optim_state_to_sharding_state,
)
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncCallsQueue
from megatron.core.model_parallel_config import ModelParallelConfig
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear

import hearth_checkpoint.torch as ht
from hearth_checkpoint import megatron
from hearth_checkpoint.torch import _jobs


def on_cpu() -> None:
    """In a process of a rank's: Megatron asks for the current GPU, and waits for it."""
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]


def queue() -> AsyncCallsQueue:
    """Of asynchronous saves."""
    on_cpu()
    return AsyncCallsQueue()


class Model(torch.nn.Module):
    """Cut over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        config = ModelParallelConfig(
            tensor_model_parallel_size=dist.get_world_size(), use_cpu_initialization=True,
            perform_initialization=True, params_dtype=torch.float32)
        both: dict[str, Any] = {"config": config, "bias": True,
                                "init_method": torch.nn.init.xavier_normal_}
        self.first = ColumnParallelLinear(8, 16, gather_output=False, **both)
        self.second = RowParallelLinear(16, 4, input_is_parallel=True, skip_bias_add=False, **both)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)[0]))[0]


class Trainer:
    """Trains, and says what is to be saved in Megatron's words."""

    def __init__(self) -> None:
        if not parallel_state.is_initialized():
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=dist.get_world_size())
        torch.manual_seed(3)
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.noise = torch.Generator().manual_seed(dist.get_rank())
        self.step = 0

    def train_step(self) -> float:
        self.step += 1
        seed = torch.Generator().manual_seed(self.step)
        x = torch.randn(4, 8, generator=seed)
        torch.rand(1, generator=self.noise)
        loss = (self.model(x) - x[:, :4]).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sharded_state(self) -> dict[str, Any]:
        """Model and optimizer by shards, an object of each rank, and what all ranks share."""
        groups = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
        model: dict[str, Any] = {}
        for name, layer in self.model.named_children():
            model.update(layer.sharded_state_dict(f"{name}.", metadata=groups))
        if not self.optimizer.state:  # to be loaded into
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            rate, self.optimizer.param_groups[0]["lr"] = self.optimizer.param_groups[0]["lr"], 0.0
            self.optimizer.step()
            self.optimizer.param_groups[0]["lr"] = rate
        optimizer = self.optimizer.state_dict()
        optim_state_to_sharding_state(
            optimizer, get_param_id_to_sharded_param_map(model, self.model.parameters()), ("step",))
        noise = ShardedObject("noise", self.noise.get_state(), (dist.get_world_size(),),
                              (dist.get_rank(),))
        return {"model": model, "optimizer": optimizer, "noise": noise, "iteration": self.step,
                "args": argparse.Namespace(lr=0.05, names=["a", "b"])}

    def take(self, state: dict[str, Any]) -> None:
        """Of load()."""
        assert state["args"].names == ["a", "b"]
        self.step = state["iteration"]
        self.model.load_state_dict(
            {name: value for name, value in state["model"].items() if value is not None},
            strict=False)
        for of in state["optimizer"]["state"].values():
            of["step"] = torch.tensor(float(self.step))
        self.optimizer.load_state_dict(state["optimizer"])
        self.noise.set_state(state["noise"])


def digest(trainer: Trainer) -> list[float]:
    """Of everything that is this rank's."""
    moments = [value for of in trainer.optimizer.state.values() for _, value in sorted(of.items())]
    parts = [*trainer.model.parameters(), *moments, trainer.noise.get_state()]
    return [trainer.step, *(float(part.detach().double().sum()) for part in parts)]


# ---- on ranks ------------------------------------------------------------------------------------


def base() -> str:
    return f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"


def _saved(steps: int, **options: Any) -> Trainer:
    trainer = Trainer()
    for _ in range(steps):
        trainer.train_step()
    strategy = megatron.HearthSaveStrategy(base(), **options)
    megatron.save(trainer.sharded_state(), f"{base()}/iter_{steps:07d}", strategy)
    return trainer


def saved(steps: int) -> list[str]:
    """The container of a save, on this node."""
    _saved(steps)
    return sorted(os.listdir(f"{base()}/step-{steps}_ckpt"))


def back(steps: int) -> tuple[list[float], list[float]]:
    """What was saved, and what another trainer loads."""
    trainer, other = _saved(steps), Trainer()
    other.take(megatron.load(other.sharded_state(), megatron.newest(base())))
    return digest(trainer), digest(other)


def beside_training(steps: int) -> tuple[bool, list[int], list[float], list[float]]:
    """An asynchronous save of Megatron's queue, with a step before it has ended: whether it waited
    for the save, which calls were finalized, what was saved and what is loaded."""
    trainer, other = Trainer(), Trainer()
    for _ in range(steps):
        trainer.train_step()
    before = digest(trainer)
    strategy, calls = megatron.HearthSaveStrategy(base()), queue()
    strategy._write = _slow(strategy._write)  # type: ignore[method-assign]
    calls.schedule_async_request(megatron.save(
        trainer.sharded_state(), f"{base()}/iter_{steps:07d}", strategy, async_sharded_save=True))
    trainer.train_step()
    time.sleep(0.5)
    early = calls.maybe_finalize_async_calls()
    ended = calls.maybe_finalize_async_calls(blocking=True)
    other.take(megatron.load(other.sharded_state(), f"{base()}/step-{steps}_ckpt"))
    return early == [], ended, before, digest(other)


def at_once_behind_another(steps: int) -> tuple[list[int], list[float], list[float]]:
    """A synchronous save while an asynchronous one is under way: the calls that are finalized, what
    was saved as the last and what is loaded."""
    trainer, other = Trainer(), Trainer()
    for _ in range(steps):
        trainer.train_step()
    strategy, calls = megatron.HearthSaveStrategy(base()), queue()
    strategy._write = _slow(strategy._write)  # type: ignore[method-assign]
    calls.schedule_async_request(megatron.save(
        trainer.sharded_state(), f"{base()}/iter_{steps:07d}", strategy, async_sharded_save=True))
    trainer.train_step()
    megatron.save(trainer.sharded_state(), f"{base()}/iter_{steps + 1:07d}",
                  megatron.HearthSaveStrategy(base()))
    ended = calls.maybe_finalize_async_calls(blocking=True)
    other.take(megatron.load(other.sharded_state(), megatron.newest(base())))
    return ended, digest(trainer), digest(other)


def _slow(write: Any) -> Any:
    def slowly(*arguments: Any) -> None:
        time.sleep(2.0)
        write(*arguments)

    return slowly


def with_megatrons_own(folder: str) -> dict[str, Any]:
    """dist_checkpointing alone: our strategies handed to it, folders of its own beside them."""
    on_cpu()
    trainer, other = _saved(2), Trainer()
    trainer.train_step()
    on_storage, beside = f"{folder}/iter_0000003", f"{folder}/iter_0000004"
    for path in (on_storage, beside):
        os.makedirs(path, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(trainer.sharded_state(), on_storage)
    third = digest(trainer)
    newest = [megatron.newest(base(), folder)]
    trainer.train_step()
    dist_checkpointing.save(
        trainer.sharded_state(), beside, megatron.HearthSaveStrategy(base()))
    newest.append(megatron.newest(base(), folder))
    path = newest[1]
    strategies = {"sharded_strategy": megatron.HearthLoadStrategy()}
    if hasattr(megatron, "HearthLoadCommonStrategy"):
        strategies["common_strategy"] = megatron.HearthLoadCommonStrategy()
    other.take(dist_checkpointing.load(other.sharded_state(), path, strict="raise_all",
                                       **strategies))
    again = digest(other)
    tensors = strategies["sharded_strategy"].load_tensors_metadata(path)
    leave()
    newest.append(megatron.newest(base(), folder))  # and not what lacks its shards now
    other.take(megatron.load(other.sharded_state(), newest[2]))
    return {"newest": newest, "third": third, "fourth": digest(trainer), "loaded": again,
            "stored": digest(other), "left": sorted(os.listdir(beside)),
            "shape": tuple(tensors["first.weight"].global_shape)}


class Own:
    """What a safe reader does not make."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Own


def of_a_class(steps: int) -> tuple[str, bool]:
    """A common state with a class of the user's: what is said, and whether trust loads it."""
    trainer, other = Trainer(), Trainer()
    trainer.step = steps
    state = {**trainer.sharded_state(), "own": Own()}
    megatron.save(state, f"{base()}/{steps}", megatron.HearthSaveStrategy(base()))
    path, said = f"{base()}/step-{steps}_ckpt", "nothing"
    try:
        megatron.load(other.sharded_state(), path)
    except Exception as error:
        said = f"{error}"
    return said, megatron.load(other.sharded_state(), path, trust=True)["own"] == Own()


def heard_late(steps: int) -> list[str]:
    """In which order a load asks the node for the save, and Megatron for its folder."""
    trainer, said = Trainer(), []
    trainer.step = steps
    megatron.save(trainer.sharded_state(), f"{base()}/{steps}",
                  megatron.HearthSaveStrategy(base()))
    job = _jobs.open_member(base()).job
    ask, load = job.checkpoint, dist_checkpointing.load

    def asked(step: int, **rest: Any) -> Any:
        said.append(f"checkpoint {step}")
        return ask(step, **rest)

    def loaded(*rest: Any, **named: Any) -> Any:
        said.append("load")
        return load(*rest, **named)

    with (mock.patch.object(job, "checkpoint", asked),
          mock.patch.object(dist_checkpointing, "load", loaded)):
        megatron.load(trainer.sharded_state(), f"{base()}/step-{steps}_ckpt")
    return said[:2]


def refused() -> list[str]:
    """What each wrong use says."""
    trainer = _saved(1)
    strategy = megatron.HearthSaveStrategy(base())
    state, here = trainer.sharded_state(), f"{base()}/step-1_ckpt"
    tries = (
        lambda: megatron.HearthSaveStrategy(base(), common={}),
        lambda: megatron.HearthSaveStrategy(base(), on_error="ignore"),
        lambda: megatron.HearthSaveStrategy(base(), copeis=1),
        lambda: megatron.save(state, "/elsewhere/iter_0000002", strategy),
        lambda: megatron.save(state, f"{base()}/second", strategy),
        lambda: megatron.save(state, f"{base()}/iter_0000002", strategy, verify_integrity=True),
        lambda: strategy.async_save(state, here, "nvrx"),
        lambda: megatron.HearthLoadStrategy().remove_sharded_tensors(here, "first"),
        lambda: dist_checkpointing.load(trainer.sharded_state(), f"{base()}/iter_0000009"),
        lambda: megatron.load({"x": ShardedObject("lacks", None, (1,), (0,), dist.get_rank())},
                              here),
    )
    said = []
    for one in tries:
        try:
            one()
            said.append("nothing")
        except BaseException as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def failing(on_error: str) -> tuple[list[str], int]:
    """A save that fails, for both kinds: what it raises, and the failures that are counted."""
    trainer, said = Trainer(), []
    strategy = megatron.HearthSaveStrategy(base(), on_error=on_error)
    strategy._files = strategy._writer._common = _cannot  # type: ignore[method-assign]
    for is_async in (False, True):
        try:
            request = megatron.save(trainer.sharded_state(), f"{base()}/iter_0000001", strategy,
                                    async_sharded_save=is_async)
            if is_async:
                request.execute_sync()
            said.append("nothing")
        except BaseException as error:
            said.append(f"{error}")
    return said, ht.protection(base()).failures


def _cannot() -> Any:
    raise OSError("no common state today")


def leave() -> None:
    ht.leave(base(), keep=False)


def theirs(steps: int) -> Any:
    """The container as ml-flashpoint would read it: the common state, and names of its items."""
    import mlf_rules

    path = f"{base()}/step-{steps}_ckpt"
    with open(f"{path}/metadata.json", encoding="utf-8") as file:
        config = json.load(file)
    common = torch.load(f"{path}/common.pt", weights_only=False)
    items = mlf_rules.read(path, {dist.get_rank()})
    return config, common["iteration"], sorted({name for name, _ in items})
