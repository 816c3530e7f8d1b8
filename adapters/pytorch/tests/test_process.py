# SPDX-License-Identifier: Apache-2.0
"""dcp.async_save() with AsyncCheckpointerType.PROCESS: staged in the trainer, written by DCP's own
checkpoint process out of the same memory."""

from __future__ import annotations

import copy
import pickle
import shutil
import threading
import time
from collections.abc import Iterator

import process_work as work
import pytest
import rank_work
import torch
from conftest import _folder
from lacks import needs
from ranks import World

from hearth_checkpoint.errors import HearthError, HearthTimeout
from hearth_checkpoint.torch import HearthWriter, _jobs, _process

WRITTEN = {"elsewhere": True, "copied": 0}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    folder = _folder()
    with World(2, 2, folder, parents=True) as ranks:
        yield ranks
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def two(world: World) -> Iterator[World]:
    """Two ranks on two nodes, each with a checkpoint process, and no job open."""
    yield world
    if world.alive:
        world.run(rank_work.leave)


def test_three_saves_come_back_and_nothing_is_copied(two):
    assert two.run(work.three_saves, 1) == [[WRITTEN] * 3] * 2


@needs("async_stager")
def test_a_state_staged_by_others_is_written_too(two):
    (first, second) = two.run(work.pickled_by_torch)
    assert first["elsewhere"] and second["elsewhere"] and first["copied"] > 50


@pytest.mark.parametrize("by_torch", [False, pytest.param(True, marks=needs("async_stager"))])
def test_what_fails_for_the_common_files_is_heard_by_all_ranks(two, by_torch):
    for text in two.run(work.common_that_fails, by_torch):
        assert text.startswith("[0]") and "made to fail in common" in text, text


@pytest.mark.parametrize("hook, at", [
    ("storage_meta", 1), ("prepare_local_plan", 0), ("write_data", 1), ("after write_data", 1),
    ("finish", 0)])
def test_a_failure_reaches_all_ranks_and_keeps_no_slot(two, hook, at):
    for heard in two.run(work.failures, hook, at):
        assert len(heard) == 4
        assert all(text.startswith(f"[{at}]") and hook in text for text in heard), heard


@pytest.mark.parametrize("kind, says", [
    ("meta", "a meta tensor has no bytes"), ("foreign", "no such class"), ("stubborn", "stays")])
def test_a_state_that_cannot_cross_is_an_error_on_all_ranks(two, kind, says):
    for heard in two.run(work.bad_state, kind, 1):
        assert len(heard) == 4
        assert all(text.startswith("[1]") and says in text for text in heard), heard


def test_what_is_staged_meanwhile_lies_elsewhere(two):
    assert two.run(work.stage_meanwhile) == [True, True]


def test_saves_that_overlap_are_written_one_after_another(two):
    assert two.run(work.overlapping) == [["", "", ""]] * 2


def test_of_saves_that_wait_the_one_staged_first_is_sent_first():
    pipe, order = _process._Pipe(), []

    def send(number: int) -> None:
        assert pipe.acquire(number, 20.0)
        order.append(number)
        pipe.release()

    assert pipe.acquire(0, 0.0) and not pipe.acquire(1, 0.01)
    threads = []
    for number in (4, 2, 3, 1):
        threads.append(threading.Thread(target=send, args=(number,)))
        threads[-1].start()
        until = time.monotonic() + 20
        while len(pipe._waiting) < len(threads) and time.monotonic() < until:
            time.sleep(0.001)
    pipe.release()
    for thread in threads:
        thread.join()
    assert order == [1, 2, 3, 4]


def test_a_fork_of_the_trainer_changes_nothing(two):
    assert two.run(work.fork_meanwhile) == [True, True]


def test_a_killed_process_is_an_error_on_all_ranks(two):
    for heard in two.run(work.killed, 1):
        assert len(heard) == 4 and all(heard), heard
    assert two.run(work.save_without_process, 3) == [True, True]
    two.run(work.new_process)
    assert two.run(work.three_saves, 4) == [[WRITTEN] * 3] * 2


def test_the_kill_switch(two):
    assert two.run(work.switched_off) == [WRITTEN] * 2


def test_a_staged_state_that_is_not_sent_is_plain(base):
    writer = HearthWriter(base)
    staged = writer.stage({"w": torch.ones(3), "n": {"k": 1}})
    for other in (copy.copy(staged), copy.deepcopy(staged), pickle.loads(pickle.dumps(staged))):
        assert type(other) is dict and torch.equal(other["w"], torch.ones(3))
    assert type(staged["w"]) is torch.Tensor
    writer.close()


def test_a_save_that_cannot_be_sent_in_time_is_given_up(base):
    """Another thread's save is in DCP's process; nothing is sent between its request and answer."""
    writer = HearthWriter(base)
    staged = writer.stage({"w": torch.ones(3)})
    current, save = staged.current, staged.current.staged.save
    assert _process._pipe.acquire(0, 0.0)
    try:
        with pytest.raises(HearthTimeout, match="the save before"):
            _process.pack(_jobs.open_member(base), current, {}, 0.1)
    finally:
        _process._pipe.release()
    with pytest.raises(HearthError, match="aborted"):
        save.data()
    assert current.staged is None
    writer.close()


def test_each_call_in_a_forked_child_is_refused_at_once(two):
    """Also those that would wait for other ranks, or for a thread that the child does not have."""
    for said in two.run(rank_work.calls_in_a_forked_child):
        assert said == dict.fromkeys(said, "HEARTH_EFORK")


def test_as_many_copies_as_asked_are_no_degradation(two):
    assert two.run(rank_work.protected) == [("PROTECTED", 1, None)] * 2


@pytest.mark.parametrize("how", ["save", "async_save"])
def test_ranks_that_name_different_steps_hear_of_it_at_once(two, how):
    for said in two.run(rank_work.different_steps, how):
        assert "step 5: rank 0; step 6: rank 1" in said["said"], said
        assert said["s"] < 15 and said["s_all"] < 28 and said["loaded"] == 3, said


@pytest.mark.parametrize("how", ["kept plans", "no collectives"])
def test_ranks_that_name_different_steps_hear_of_it_without_an_exchange_of_plans(two, how):
    for said in two.run(rank_work.different_steps_without_an_exchange, how):
        assert "name different steps: rank" in said["said"], said
        assert "step 5" in said["said"] and "step 6" in said["said"], said
        assert said["s"] < 15 and said["s_all"] < 28, said


def test_plans_that_dcp_keeps_are_not_taken_for_other_steps(two):
    """Where each rank's plan is as before, nothing is known of the steps that the others name."""
    assert two.run(rank_work.same_steps_with_kept_plans) == [[1, 2, 3, 4, 5]] * 2
