# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of parts."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import process_work
import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_dcp
from ranks import RankFailed, World
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _recover, _stage, dcp

BOTH = ("model", "optimizer")
DEADLINE_S = 20.0


def kept(wanted: int = 0) -> list[int]:
    """The steps that this node knows as kept; after the one that it is to hear of."""
    until = time.monotonic() + DEADLINE_S
    while True:
        steps = [save.step for save in _jobs.open_member(work.base()).job.kept()]
        if not wanted or wanted in steps or time.monotonic() > until:
            return steps
        time.sleep(0.01)


def _states(step: int, fill: bool = True) -> dict[str, dict[str, Any]]:
    """Both with the same keys."""
    model = work.sharded(fill)
    second = {name: tensor * 2 for name, tensor in work.sharded(fill).items()}
    me = dist.get_rank()
    return {"model": {**model, f"own{me}": torch.full((5,), float(step if fill else 0))},
            "optimizer": {**second, "step": step if fill else 0}}


def _wholes(states: dict[str, dict[str, Any]]) -> dict[str, torch.Tensor]:
    return {f"{part}.{name}": value.full_tensor() if hasattr(value, "full_tensor")
            else torch.as_tensor(value) for part, state in states.items()
            for name, value in state.items()}


def save_parts(step: int, asynchronous: bool) -> dict[str, torch.Tensor]:
    states = _states(step)
    futures = []
    for part in BOTH:
        arguments = {"checkpoint_id": f"{work.path(step)}/{part}", "parts": BOTH}
        if asynchronous:
            futures.append(dcp.async_save(states[part], **arguments))
        else:
            dcp.save(states[part], **arguments)
    for future in futures:
        future.result(60)
    dist.barrier()
    assert kept(step) == [step]
    return _wholes(states)


def load_parts(step: int) -> dict[str, torch.Tensor]:
    states = _states(step, fill=False)
    for part in BOTH:
        torch_dcp.load(states[part], checkpoint_id=work.path(step),
                       storage_reader=HearthReader(part=part))
    return _wholes(states)


def again(step: int) -> dict[str, torch.Tensor]:
    """As after a restart of the ranks."""
    _jobs.forget(work.base())
    assert ht.latest(work.base()) == work.path(step)
    return load_parts(step)


def one_rank_ahead(step: int) -> list[int]:
    """Rank 0 has staged both when the first is written, rank 1 stages the second after that."""
    gate, futures = threading.Event(), []
    if dist.get_rank() == 0:
        _recover._in_turn().submit(gate.wait, DEADLINE_S)
    for part in BOTH:
        futures.append(ht.async_save(
            {"n": step, "w": torch.ones(10)}, checkpoint_id=work.path(step),
            storage_writer=HearthWriter(work.base(), part=part, parts=BOTH, timeout_s=30)))
        if dist.get_rank() == 1:
            futures[-1].result(60)
    gate.set()
    futures[-1].result(60)
    dist.barrier()
    return kept(step)


# ---- failures ------------------------------------------------------------------------------------


def _error(call: Any) -> str:
    try:
        call()
    except CheckpointException as error:
        return f"{sorted(error.failures)} {[str(e[0]) for e in error.failures.values()]}"
    return "it did not fail"


def _write(step: int, part: str, asynchronous: bool = False, writer: Any = None) -> None:
    state = {"w": torch.full((100,), float(step)) * dist.get_rank(), "n": step}
    if writer is None:
        writer = HearthWriter(work.base(), part=part, parts=BOTH, timeout_s=30)
    arguments = {"checkpoint_id": work.path(step), "storage_writer": writer}
    if asynchronous:
        dcp.async_save(state, **arguments).result(60)
    else:
        torch_dcp.save(state, **arguments)


def _both(step: int, asynchronous: bool = False) -> list[int]:
    for part in BOTH:
        _write(step, part, asynchronous)
    dist.barrier()
    return kept(step)


def failing(hook: str, at: int, part: str, asynchronous: bool) -> dict[str, Any]:
    """A part that fails on one rank; the part after it, or that again; the same step, and the
    next."""
    _both(1)
    me = dist.get_rank()
    writer = work.Failing(work.base(), part=part, parts=BOTH, timeout_s=30)
    writer.at, writer.hook, writer.kind = at, hook, HearthError
    if part == "optimizer":
        _write(2, "model", asynchronous)
    real = _stage.stage
    if hook == "stage" and me == at:
        def broken(*args: Any, **kwargs: Any) -> Any:
            raise HearthError("made to fail in stage")
        _stage.stage = broken
    if hook == "future" and me == at:
        inner = writer.write_data
        writer.write_data = lambda *args: (inner(*args), work.BadFuture())[1]
    if hook == "reset" and me == at:
        writer._step = 77  # not what the id says
    try:
        first = _error(lambda: _write(2, part, asynchronous, writer))
    finally:
        _stage.stage = real
    second = _error(lambda: _write(2, "optimizer", asynchronous))
    dist.barrier()
    before = kept()
    return {"first": first, "second": second, "kept": before,
            "after": [_both(2, asynchronous), _both(4, asynchronous)]}


def declared_differently() -> dict[str, Any]:
    me = dist.get_rank()
    rows = [  # what rank 0 declares and writes, and rank 1
        [(BOTH, "model"), (("model", "data"), "model")],
        [(BOTH, "model"), (("model",), "model")],
        [(("model",), "model"), (BOTH, "model")],
        [(BOTH, "model"), (("data", *BOTH), "data")],
        [(BOTH, "model"), (None, None)],
        [(None, None), (BOTH, "model")]]
    errors = []
    for step, row in enumerate(rows, 1):
        parts, part = row[me]
        writer = HearthWriter(work.base(), part=part, parts=parts, timeout_s=30)
        errors.append(_error(lambda: _write(step, "", False, writer)))
    _both(9)
    return {"errors": errors, "kept": kept()}


def _die_between() -> None:
    _both(1)
    _write(2, "model")
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    _write(2, "optimizer")


def _restarted() -> tuple[int, bool]:
    found = ht.recover(work.base())
    assert found is not None
    target = {"w": torch.zeros(100), "n": 0}
    dcp.load(target, checkpoint_id=found.path, part="optimizer")
    after = _both(2)
    _jobs.forget(work.base(), keep=False)
    return found.step, target["n"] == 1 and after == [2]


def dies_between(folder: str) -> list[tuple[int, bool]]:
    """Rank 1 is killed when the model is written and the optimizer is not; what the ranks find that
    are started after it, on the same nodes."""
    with World(2, 2, folder) as world:
        try:
            world.run(_die_between)
        except RankFailed:
            pass
        else:
            raise AssertionError("nobody died")
    with World(2, 2, folder) as world:
        return world.run(_restarted)


def in_process() -> dict[str, Any]:
    """DCP's checkpoint process: refused, and the next save works."""
    out: dict[str, Any] = {}
    for part in BOTH:
        out[part] = _error(lambda part=part: dcp.async_save(
            {"w": torch.ones(10)}, checkpoint_id=work.path(1), part=part, parts=BOTH,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS).result(60))
        if process_work.ENDS:
            process_work.new_process()
    out["after"] = _both(2)
    return out


