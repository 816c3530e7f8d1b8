# SPDX-License-Identifier: Apache-2.0
"""Waits for room of hearth_checkpoint.job, one rank: one attempt each, and Ctrl-C ends them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from hearth_checkpoint.errors import HearthBusy, HearthError
from hearth_checkpoint.job import Job, Save

SIZE = 1 << 20
DEADLINE_S = 60.0


@pytest.fixture
def job(base: str) -> Iterator[Job]:
    opened = Job.open(base, rank=0, world=1)
    opened.recover()
    yield opened
    opened.close(keep=False)


def undecided(job: Job, step: int) -> Save:
    """A save that takes room until it is given up."""
    save = job.begin(step, SIZE)
    save.add_bytes([(b"key", b"value")])
    save.seal()
    return save


def fill(job: Job) -> list[Save]:
    """Undecided saves from step 1 on, until there is no room for another."""
    saves: list[Save] = []
    while len(saves) < 10:
        try:
            saves.append(undecided(job, 1 + len(saves)))
        except HearthBusy:
            return saves
    raise AssertionError("there is room for ever")


def later(work: object) -> threading.Timer:
    timer = threading.Timer(0.5, work)
    timer.start()
    return timer


def attempt_of(save: Save) -> int:
    handle = save.commit()
    handle.wait("PROTECTED", DEADLINE_S)
    attempt = handle.test().attempt
    handle.close()
    return attempt


def test_a_wait_for_room_is_one_attempt(job):
    saves = fill(job)
    refused = len(saves) + 1  # by fill(), once
    timer = later(lambda: [save.abort() for save in saves])
    save = job.begin(refused, SIZE, wait_s=DEADLINE_S)
    timer.join()
    assert attempt_of(save) == 2


def test_set_step_waits_as_begin_was_told(job):
    saves = fill(job)
    staged = job.begin(None, SIZE, wait_s=DEADLINE_S)
    timer = later(lambda: [save.abort() for save in saves])
    staged.set_step(21)
    timer.join()
    assert attempt_of(staged) == 1


def test_what_is_no_step_is_refused_and_never_taken_for_a_constant(job):
    for step in (-1, -2, 2**64 - 1, 2**64 - 2):
        with pytest.raises(ValueError, match="not a step"):
            job.begin(step, 100)
        with pytest.raises(ValueError, match="not a step"):
            job.checkpoint(step)


def test_a_step_that_is_refused_may_be_tried_again(job):
    saves = fill(job)
    staged = job.begin(None, SIZE)
    with pytest.raises(HearthBusy):
        staged.set_step(21)
    for save in saves:
        save.abort()
    step, until = 22, time.monotonic() + DEADLINE_S  # the engine hears of it a moment later
    while True:
        try:
            staged.set_step(step)
            break
        except HearthBusy:  # which uses up an attempt at that step
            assert time.monotonic() < until
            step += 1
            time.sleep(0.01)
    assert attempt_of(staged) == 1


@pytest.mark.parametrize("staged", [False, True])
def test_ctrl_c_ends_a_wait_for_room_and_gives_the_save_up(job, staged):
    saves = fill(job)
    save = job.begin(None, SIZE, wait_s=DEADLINE_S) if staged else None
    timer = later(lambda: os.kill(os.getpid(), signal.SIGINT))
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        if save is None:
            job.begin(30, SIZE, wait_s=DEADLINE_S)
        else:
            save.set_step(30)
    assert time.monotonic() - begun < DEADLINE_S / 2
    timer.join()
    for old in saves:
        old.abort()
    again = job.begin(31, SIZE, wait_s=DEADLINE_S)
    assert attempt_of(again) == 1


def test_what_is_left_open_ends_with_the_job(base):
    """Nothing of the library is used after its job is closed."""
    job = Job.open(base, rank=0, world=1)
    job.recover()
    save = job.begin(1, 1 << 12)
    save.add_bytes([(b"k", b"v")])
    handle = save.commit()
    handle.wait("PROTECTED", 60)
    checkpoint = job.checkpoint(1)
    pending = job.begin(2, 1 << 12)
    job.close(keep=False)
    for use in (lambda: checkpoint.items(), handle.test, lambda: pending.add_bytes([(b"k", b"v")])):
        with pytest.raises(HearthError, match="closed|over"):
            use()
    checkpoint.close()
    handle.close()
    pending.abort()


def test_kept_saves_are_listed_pinned_released_and_gone_back_to(base):
    with_keep = Job.open(base, rank=0, world=1, keep=3)
    with_keep.recover()
    for step in (1, 2, 3):
        save = with_keep.begin(step, SIZE)
        save.add_bytes([(b"key", b"%d" % step)])
        save.commit().wait("PROTECTED", DEADLINE_S)
    assert [kept.step for kept in with_keep.kept()] == [3, 2, 1]
    with_keep.pin(1)
    with_keep.mark_bad(2)
    assert [(kept.pinned, kept.bad) for kept in with_keep.kept()] == [
        (False, False), (False, True), (True, False)]
    with_keep.release(2)
    with pytest.raises(HearthError, match="step 2 is not kept"):
        with_keep.pin(2)
    checkpoint = with_keep.recover(step=1)
    assert checkpoint is not None and checkpoint.step == 1
    checkpoint.close()
    with_keep.close(keep=False)
