# SPDX-License-Identifier: Apache-2.0
"""One rank skips saves that the others stage. Functions for ranks.World."""

from __future__ import annotations

import datetime
import threading
import time
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthBusy, HearthError
from hearth_checkpoint.job import Handle, Job, Save
from hearth_checkpoint.torch import HearthWriter, _parts, _recover

SKIPPED = range(2, 10)
DEADLINE_S = 60.0


def one_skips() -> dict[str, Any]:
    """Rank 0's engine lacks room for some saves; on both ranks these wait behind another save."""
    ht.recover(work.base())
    wrote: list[str] = []
    gate, begin, save = threading.Event(), Job.begin, dcp.save
    step = 0

    def refused(self: Job, *arguments: Any, **named: Any) -> Any:
        if step in SKIPPED and dist.get_rank() == 0:
            raise HearthBusy("no room for its copy", -109, "HEARTH_EBUSY")
        return begin(self, *arguments, **named)

    def counted(*arguments: Any, **named: Any) -> Any:
        wrote.append(named["checkpoint_id"].rsplit("-", 1)[1])
        return save(*arguments, **named)

    Job.begin, dcp.save = refused, counted  # type: ignore[method-assign]
    try:
        _recover._in_turn().submit(gate.wait, DEADLINE_S)
        futures = []
        for step in range(1, SKIPPED.stop + 1):
            futures.append(ht.async_save({"w": torch.full((8,), float(step))}, on_error="warn",
                                         checkpoint_id=f"{work.base()}/step-{step}"))
        gate.set()
        done = [future.result(DEADLINE_S) is not None for future in futures]
    finally:
        Job.begin, dcp.save = begin, save  # type: ignore[method-assign]
    held = ht.protection(work.base())
    state = {"w": torch.zeros(8)}
    ht.load(state, checkpoint_id=f"{work.base()}/step-{held.step}")
    work.leave()
    return {"wrote": wrote, "done": done, "failures": held.failures, "step": held.step,
            "loaded": float(state["w"][0])}


def one_fails_after_its_commit(how: str) -> list[int | None]:
    """Rank 1 hands its part of the second save over and then fails, before rank 0 does. A thread of
    its own saves next."""
    import hearth_checkpoint.torch.dcp as hearth_dcp

    ht.recover(work.base())
    save = {"save": hearth_dcp.save, "async_save": hearth_dcp.async_save,
            "hearth_checkpoint.torch.async_save": ht.async_save}[how]
    wait, steps = Handle.wait, []

    def lost(self: Handle, *arguments: Any, **named: Any) -> Any:
        if dist.get_rank() == 1:
            raise HearthError("its engine went away", -205, "HEARTH_EENGINE")
        return wait(self, *arguments, **named)

    def one(step: int) -> None:
        future = save({"w": torch.full((8,), float(step))}, on_error="warn", blocked_ms=20000,
                      checkpoint_id=f"{work.base()}/step-{step}")
        if hasattr(future, "result"):
            future.result(DEADLINE_S)
        steps.append(ht.protection(work.base()).step)

    one(1)
    Handle.wait = lost  # type: ignore[method-assign]
    try:
        one(2)
    finally:
        Handle.wait = wait  # type: ignore[method-assign]
    dist.barrier()
    other = threading.Thread(target=one, args=(3,))
    other.start()
    other.join()
    work.leave()
    return steps


def one_names_no_step() -> list[bool]:
    """Rank 0 cannot name the step of its second save, which rank 1 hands over. Further saves are
    staged by then."""
    ht.recover(work.base())
    gate, set_step = threading.Event(), Save.set_step

    def lost(self: Save, step: int, *arguments: Any, **named: Any) -> Any:
        if step == 2 and dist.get_rank() == 0:
            raise HearthError("its engine went away", -205, "HEARTH_EENGINE")
        return set_step(self, step, *arguments, **named)

    Save.set_step = lost  # type: ignore[method-assign]
    try:
        futures = []
        for step in range(1, 5):
            if step == 2:
                futures[0].result(DEADLINE_S)
                _recover._in_turn().submit(gate.wait, DEADLINE_S)
            futures.append(ht.async_save({"w": torch.full((8,), float(step))}, on_error="warn",
                                         blocked_ms=20000,
                                         checkpoint_id=f"{work.base()}/step-{step}"))
        gate.set()
        done = [future.result(DEADLINE_S) is not None for future in futures]
    finally:
        Save.set_step = set_step  # type: ignore[method-assign]
    work.leave()
    return done


def one_is_refused_without_collectives(how: str) -> dict[str, Any]:
    """DCP's ranks exchange nothing. Rank 1's engine lacks room for the second save, which rank 0
    writes; the third is of the same step, the fourth of another. Rank 0 has written the first part
    of the second save before rank 1's engine refuses it. "planner": rank 1's planner raises."""
    import hearth_checkpoint.torch.dcp as hearth_dcp

    ht.recover(work.base())
    parts = ("model", "ema", "optimizer") if how in ("parts", "sync") else None
    begin, open_object = Job.begin, _parts.OpenSave.open_object
    wrote, store = _parts.PartCall.wrote, dist.distributed_c10d._get_default_store()
    number, took, done = 0, [], []

    def refused(self: Any, *arguments: Any, **named: Any) -> Any:
        real = begin if isinstance(self, Job) else open_object
        is_staged = not isinstance(self, Job) or arguments[0] is None
        if number == 2 and dist.get_rank() == 1 and is_staged and how != "planner":
            if parts:
                store.wait([f"written {how}"], datetime.timedelta(seconds=DEADLINE_S))
            raise HearthBusy("no room for its copy", -109, "HEARTH_EBUSY")
        return real(self, *arguments, **named)

    def written(self: _parts.PartCall) -> None:
        wrote(self)
        if number == 2 and dist.get_rank() == 0:
            store.set(f"written {how}", "")

    class Planner(dcp.DefaultSavePlanner):
        def create_local_plan(self) -> Any:
            if number == 2 and dist.get_rank() == 1 and how == "planner":
                raise ValueError("no plan")
            return super().create_local_plan()

    Job.begin = _parts.OpenSave.open_object = refused  # type: ignore[method-assign]
    _parts.PartCall.wrote = written  # type: ignore[method-assign]
    try:
        for number, step in enumerate((1, 2, 2, 3), 1):
            begun = time.monotonic()
            for part in parts or (None,):
                path = f"{work.base()}/step-{step}" + (f"/{part}" if part else "")
                save = hearth_dcp.save if how == "sync" else hearth_dcp.async_save
                result = save(
                    {"w": torch.full((8,), float(number))}, checkpoint_id=path, on_error="warn",
                    storage_writer=HearthWriter(work.base(), part=part, parts=parts, timeout_s=30),
                    planner=Planner(), use_collectives=False)
                result = result.result(DEADLINE_S) if hasattr(result, "result") else result
            took.append(time.monotonic() - begun)
            done.append(result is not None)
            dist.barrier()
    finally:
        Job.begin, _parts.OpenSave.open_object = begin, open_object  # type: ignore[method-assign]
        _parts.PartCall.wrote = wrote  # type: ignore[method-assign]
    held = ht.protection(work.base())
    work.leave()
    return {"done": done, "longest_s": max(took), "step": held.step}
