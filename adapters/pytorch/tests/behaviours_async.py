# SPDX-License-Identifier: Apache-2.0
"""Behaviours of dcp.async_save() in one process: stagers, futures, failures."""

from __future__ import annotations

import gc
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from behaviour import Place, behaviour, outcome, plain, zeros
from behaviours_alone import Counter, net, small
from behaviours_planner import SAVE_HOOKS, failing
from torch.distributed.checkpoint import staging
from torch.distributed.checkpoint.staging import BlockingAsyncStager

DEADLINE_S = 60.0


def stager(kind: str) -> Any:
    """As a user makes one; None: DCP chooses."""
    if kind == "chosen by DCP":
        return None
    if kind == "blocking":
        return BlockingAsyncStager()
    return staging.DefaultStager(
        staging.StagingOptions(False, kind == "shared", kind == "in a thread", False))


STAGERS = ("chosen by DCP", "blocking", "default", "shared", "in a thread")


def needed(kind: str) -> str:
    return "" if kind == "chosen by DCP" else "async_stager"


def through(how: Any) -> dict[str, Any]:
    """What says so to async_save()."""
    return {} if how is None else {"async_stager": how}


def finished(answer: Any) -> Any:
    """What an async_save gives, when it is over."""
    if isinstance(answer, Future):
        return answer.result(DEADLINE_S)
    answer.staging_completion.result(DEADLINE_S)
    return answer.upload_completion.result(DEADLINE_S)


@behaviour(cases=STAGERS, needs=needed)
def a_save_beside_training_keeps_the_moment(at: Place, kind: str) -> Any:
    """Three saves with one stager; the state changes as soon as it is staged."""
    state, read = small(), []
    how = stager(kind)
    for step in (1, 2, 3):
        answer = at.start(state, step, **through(how))
        if not isinstance(answer, Future):
            answer.staging_completion.result(DEADLINE_S)
        state["w"].add_(1.0)
        state["step"] += 1
        metadata = finished(answer)
        assert set(metadata.state_dict_metadata) == {"w", "b", "opt.m", "opt.lr", "step"}
        read.append(plain(at.load(zeros(small()), step)))
    if how is not None:
        how.close()
    assert [each["step"] for each in read] == [1, 2, 3]
    return read


@behaviour(cases=STAGERS, needs=needed)
def kinds_of_values_beside_training(at: Place, kind: str) -> Any:
    """What is staged is what is loaded: views, shared memory, objects, a module's own dict."""
    base = torch.arange(24.0).view(4, 6)
    state = {"view": base[1:3, 2:5], "turned": base.t(), "row": base[0], "again": base[0],
             "empty": torch.empty(0, 3), "scalar": torch.tensor(2.0), "tuple": (1, "x"),
             "text": "größe", "none": None, "list": [torch.ones(2), 3],
             "module": net(1).state_dict(), "half": torch.ones(3, dtype=torch.bfloat16),
             "set": {1, 2}}
    how = stager(kind)
    finished(at.start(state, **through(how)))
    if how is not None:
        how.close()
    target = zeros({key: value for key, value in state.items() if key not in ("tuple", "set")})
    target["turned"] = torch.zeros(6, 4)
    return plain(at.load({**target, "tuple": (), "set": set()}))


@behaviour()
def stateful_is_asked_before_it_is_staged(at: Place) -> Any:
    counter = Counter(3)
    answer = at.start({"counter": counter, "n": 1})
    counter.value, counter.tensor = 8, torch.zeros(2)
    finished(answer)
    read = Counter(0)
    at.load({"counter": read, "n": 0})
    return read.value, read.tensor


@behaviour()
def saves_one_after_another_beside_training(at: Place) -> Any:
    """The next one begins when the one before has ended, as DCP wants it."""
    writer, before = at.writer(), None
    for step in range(1, 6):
        if before is not None:
            finished(before)
        before = at.start(small(step), step, storage_writer=writer)
    finished(before)
    return plain(at.load(zeros(small()), 5))


@behaviour(cases=SAVE_HOOKS)
def a_failure_beside_training_is_the_futures(at: Place, hook: str) -> Any:
    """And the next save works."""
    answer = at.start(small(1), 1, storage_writer=failing(at.writer(), hook))
    found = outcome(lambda: finished(answer))
    assert found.kinds[0][0] == "Broken", found
    finished(at.start(small(2), 2))
    return found, plain(at.load(zeros(small()), 2))


@behaviour()
def nobody_need_hold_the_future(at: Place) -> Any:
    at.start(small(1), 1).add_done_callback(lambda _: None)
    gc.collect()
    finished(at.start(small(2), 2))
    return plain(at.load(zeros(small()), 2))


@behaviour()
def plans_remembered_beside_training(at: Place) -> Any:
    read = []
    for step in (1, 2, 3):
        finished(at.start(small(step), step,
                          planner=dcp.DefaultSavePlanner(enable_plan_caching=True)))
        read.append(plain(at.load(zeros(small()), step)))
    assert [each["step"] for each in read] == [1, 2, 3]
    return read


class Late(BlockingAsyncStager):
    """Its own point of synchronisation: DCP must not wait for it."""

    _synchronize_after_execute = False

    def __init__(self) -> None:
        super().__init__()
        self.waited = 0

    def synchronize_staging(self) -> None:
        self.waited += 1


@behaviour(cases=(False, True), needs="async_stager")
def a_stager_says_whether_it_is_waited_for(at: Place, waits: bool) -> Any:
    how = Late()
    how._synchronize_after_execute = waits
    finished(at.start(small(), async_stager=how))
    assert how.waited == int(waits)
    return plain(at.load(zeros(small())))


@behaviour(needs="async_stager")
def a_stager_that_fails_raises_at_once(at: Place) -> Any:
    class Failing(BlockingAsyncStager):
        def stage(self, state_dict: Any) -> Any:
            raise ValueError("made to fail")

    found = outcome(lambda: at.start(small(1), 1, async_stager=Failing()))
    finished(at.start(small(2), 2))
    return found, plain(at.load(zeros(small()), 2))
