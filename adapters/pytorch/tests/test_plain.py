# SPDX-License-Identifier: Apache-2.0
"""hearth_checkpoint.torch.dcp, which names no writer; on_error="warn";
rolling back in a running job."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as theirs
from lacks import WHY, needs
from torch.distributed.checkpoint import staging
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
import hearth_checkpoint.torch.dcp as dcp
from hearth_checkpoint.errors import HearthError, HearthNotFound
from hearth_checkpoint.job import Save
from hearth_checkpoint.torch import _weak


def state(value: float) -> dict[str, Any]:
    return {"w": torch.full((4,), float(value)), "n": int(value)}


def loaded(checkpoint_id: str, **arguments: Any) -> float:
    out = state(-1)
    dcp.load(out, checkpoint_id=checkpoint_id, **arguments)
    assert out["n"] == out["w"][0]
    return out["n"]


# ---- torch's own signatures ----------------------------------------------------------------------


@pytest.mark.parametrize("name, more", [("save", ["on_error", "part", "parts", "blocked_ms"]),
                                        ("async_save", ["on_error", "part", "parts", "blocked_ms"]),
                                        ("load", ["trust", "part"])])
def test_the_signatures_are_torchs(name, more):
    ours = inspect.signature(getattr(dcp, name)).parameters
    assert list(ours) == [*inspect.signature(getattr(theirs, name)).parameters, *more]


def test_what_it_does_not_have_is_torchs():
    assert dcp.FileSystemReader is theirs.FileSystemReader
    assert dcp.DefaultSavePlanner is theirs.DefaultSavePlanner


def test_no_writer_and_no_reader_is_named(base):
    dcp.save(state(1), checkpoint_id=f"{base}/step-1")
    dcp.async_save(state(2), checkpoint_id=f"{base}/step-2").result(60)
    assert ht.latest(base) == f"{base}/step-2_ckpt"
    assert loaded(f"{base}/step-2") == 2
    dcp.save(state(3), checkpoint_id=f"{base}/step-3",
             planner=theirs.DefaultSavePlanner(), no_dist=True)
    assert loaded(f"{base}/step-3", no_dist=True) == 3


def test_a_function_may_give_the_state(base):
    def fails() -> dict[str, Any]:
        raise ValueError("there is no state")

    ht.async_save(lambda: state(1), checkpoint_id=f"{base}/1").result(60)
    assert loaded(f"{base}/1") == 1
    with pytest.raises(CheckpointException, match="there is no state"):
        ht.async_save(fails, checkpoint_id=f"{base}/2").result(60)
    ht.async_save(lambda: state(3), checkpoint_id=f"{base}/3").result(60)
    assert loaded(f"{base}/3") == 3


def test_a_writer_that_is_named_is_taken(base, folder):
    dcp.save(state(4), checkpoint_id=f"{folder}/files/4",
             storage_writer=theirs.FileSystemWriter(f"{folder}/files/4"))
    assert loaded(f"{folder}/files/4",
                  storage_reader=theirs.FileSystemReader(f"{folder}/files/4")) == 4
    with pytest.raises(TypeError, match="HearthWriter is wanted, not FileSystemWriter"):
        ht.async_save(state(4), checkpoint_id=f"{base}/4",
                      storage_writer=theirs.FileSystemWriter(f"{folder}/files/4"))


# ---- training goes on ----------------------------------------------------------------------------


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Saves fail while it is on."""
    class Switch:
        on = True

    switch, put = Switch(), Save.put_common

    def fails(self: Any, *arguments: Any) -> None:
        if switch.on:
            raise HearthError("made to fail")
        put(self, *arguments)

    monkeypatch.setattr(Save, "put_common", fails)
    monkeypatch.setattr(_weak, "_watches", {})
    return switch


SAVES = {"save": lambda *a, **k: dcp.save(*a, **k),
         "async_save": lambda *a, **k: dcp.async_save(*a, **k).result(60),
         "hearth_checkpoint.torch.async_save": lambda *a, **k: ht.async_save(*a, **k).result(60)}


def staged_in_a_thread(*arguments: Any, **named: Any) -> Any:
    """What async_save() gives where the stager stages in a thread as well."""
    stager = staging.DefaultStager(staging.StagingOptions(False, False, True, False))
    try:
        answer = dcp.async_save(*arguments, async_stager=stager, **named)
        assert answer.staging_completion.result(60) is None
        return answer.upload_completion.result(60)
    finally:
        stager.close()


if not WHY["async_stager"]:
    SAVES["staged in a thread"] = staged_in_a_thread


@pytest.mark.parametrize("how", SAVES)
def test_a_failed_save_ends_training_or_is_a_warning(base, broken, caplog, how):
    caplog.set_level(logging.WARNING, "hearth_checkpoint")
    broken.on = False
    SAVES[how](state(1), checkpoint_id=f"{base}/1")  # it waits for the job's first memory
    broken.on = True
    with pytest.raises(CheckpointException):
        SAVES[how](state(2), checkpoint_id=f"{base}/2")
    for step in (2, 3, 4):
        assert SAVES[how](state(step), checkpoint_id=f"{base}/{step}", on_error="warn") is None
    held = ht.protection(base)
    assert (held.step, held.failures, held.in_a_row) == (1, 3, 3)
    assert held.age_s is not None and 0 <= held.age_s < 60
    assert held.error is not None and "made to fail" in held.error
    said = [r.getMessage() for r in caplog.records if "training goes on" in r.getMessage()]
    assert len(said) == 1 and "step 1" in said[0] and "made to fail" in said[0], said
    broken.on = False
    assert SAVES[how](state(5), checkpoint_id=f"{base}/5", on_error="warn") is not None
    held = ht.protection(base)
    assert (held.step, held.failures, held.in_a_row, held.error) == (5, 3, 0, None)
    assert loaded(f"{base}/5") == 5


@pytest.mark.parametrize("keep", [False, True])
def test_of_a_job_that_was_left_the_failures_alone_are_known(base, broken, keep):
    broken.on = False
    SAVES["save"](state(1), checkpoint_id=f"{base}/1")
    broken.on = True
    assert SAVES["save"](state(2), checkpoint_id=f"{base}/2", on_error="warn") is None
    assert ht.protection(base).step == 1
    ht.leave(base, keep=keep)
    held = ht.protection(base)
    assert (held.step, held.age_s, held.failures, held.in_a_row) == (None, None, 1, 1)
    assert held.error is not None and "made to fail" in held.error
    found = ht.recover(base)
    assert (found is not None, ht.protection(base).step) == (keep, 1 if keep else None)


@needs("async_stager")
def test_a_copy_that_fails_beside_training_is_one_failure(base, broken):
    class Fails(staging.DefaultStager):
        def _stage(self, *arguments: Any, **named: Any) -> Any:
            time.sleep(0.2)
            raise MemoryError("no room for the copy")

    stager = Fails(staging.StagingOptions(False, False, True, False))
    answer = dcp.async_save(state(1), checkpoint_id=f"{base}/1", async_stager=stager,
                            on_error="warn")
    assert answer.staging_completion.result(60) is answer.upload_completion.result(60) is None
    stager.close()
    held = ht.protection(base)
    assert held.failures == 1 and held.error is not None and "no room" in held.error


def test_it_is_said_once_a_minute_with_how_many(base, broken, caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "hearth_checkpoint")
    clock = [1000.0]
    monkeypatch.setattr(_weak.time, "monotonic", lambda: clock[0])
    for _ in range(5):
        _weak._failed(base, HearthError("no room"))
        clock[0] += 25
    said = [r.getMessage() for r in caplog.records if "training goes on" in r.getMessage()]
    assert len(said) == 2 and "a save failed" in said[0] and "3 saves failed" in said[1], said


def test_ctrl_c_is_no_failure_of_a_save(base):
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _weak.call(base, "warn", interrupted)
    with pytest.raises(ValueError, match="on_error 'ignore' is none of raise, warn"):
        dcp.save(state(1), checkpoint_id=f"{base}/1", on_error="ignore")


# ---- going back ----------------------------------------------------------------------------------


def test_rolling_back_in_a_running_job(base):
    for step in (1, 2, 3):
        dcp.save(state(step), checkpoint_id=f"{base}/{step}",
                 storage_writer=ht.HearthWriter(base, keep=3))
    with pytest.raises(CheckpointException, match=r"hearth_checkpoint\.torch\.recover\(\)"):
        dcp.save(state(2.5), checkpoint_id=f"{base}/2")
    with pytest.raises(HearthNotFound):
        ht.recover(base, step=7)
    found = ht.recover(base, step=2)
    assert found is not None and found.step == 2
    assert loaded(found.path) == 2
    dcp.save(state(30), checkpoint_id=f"{base}/3")
    assert loaded(ht.latest(base)) == 30


def test_a_miss_is_said_at_once(base):
    dcp.save(state(1), checkpoint_id=f"{base}/1")
    begun = time.monotonic()
    with pytest.raises(CheckpointException) as caught:
        loaded(f"{base}/9")
    assert time.monotonic() - begun < 3 and "step 9" in str(caught.value.__cause__)


# ---- settings of torch's private family ----------------------------------------------------------


@needs("experimental")
def test_a_checkpointer_config_works_as_it_does_with_torch(base):
    from torch.distributed.checkpoint._experimental.checkpoint_writer import CheckpointWriterConfig
    from torch.distributed.checkpoint._experimental.config import CheckpointerConfig
    from torch.distributed.checkpoint._experimental.types import RankInfo

    config = CheckpointerConfig(writer_config=CheckpointWriterConfig(77))
    one = RankInfo(global_rank=0, global_world_size=1)
    for arguments in ((config, one), (one, config), (config,)):
        checkpointer = ht.experimental.make_sync_checkpointer(*arguments)
        assert checkpointer._writer._timeout == 77
    checkpointer.save(f"{base}/1", state(1))
    assert checkpointer.load(f"{base}/1")["n"] == 1


@needs("experimental")
def test_settings_that_cannot_be_honoured_are_refused_at_once():
    from torch.distributed.checkpoint._experimental.checkpoint_process import (
        CheckpointProcessConfig,
    )
    from torch.distributed.checkpoint._experimental.config import CheckpointerConfig
    from torch.distributed.checkpoint._experimental.staging import CheckpointStagerConfig

    make = ht.experimental.make_async_checkpointer
    with pytest.raises(ValueError, match="staging_config.use_shared_memory"):
        make(CheckpointerConfig(staging_config=CheckpointStagerConfig(use_shared_memory=False)))
    with pytest.raises(ValueError, match="process_config.subprocess_init_timeout_secs"):
        make(CheckpointerConfig(process_config=CheckpointProcessConfig(3)))
    make(CheckpointerConfig(  # what torch needs on a machine without a GPU
        staging_config=CheckpointStagerConfig(False, True, True, False)))
    for wrong in ({"config": 3}, {"rank_info": 3}):
        with pytest.raises(TypeError, match="wanted, not int"):
            ht.experimental.make_sync_checkpointer(**wrong)
    with pytest.raises(TypeError, match="CheckpointWriterConfig is wanted"):
        ht.experimental.Writer(CheckpointerConfig())


def test_fewer_copies_than_asked_are_said_with_what_mends_it(base, caplog, monkeypatch):
    """A node alone, with allow_degraded: there is no other failure domain for a copy."""
    caplog.set_level(logging.WARNING, "hearth_checkpoint")
    clock = [1000.0]
    dcp.save(state(1), checkpoint_id=f"{base}/1", on_error="warn")
    held = ht.protection(base)
    assert (held.step, held.level, held.copies) == (1, "DEGRADED", 1)
    assert "another failure domain" in held.mend
    assert "copies=" not in held.mend, "one copy is the fewest"

    def said() -> list[str]:
        return [r.getMessage() for r in caplog.records if "DEGRADED" in r.getMessage()]

    assert len(said()) == 1 and "step 1" in said()[0] and held.mend in said()[0]
    dcp.save(state(2), checkpoint_id=f"{base}/2", on_error="warn")
    assert len(said()) == 1
    monkeypatch.setattr(_weak.time, "monotonic", lambda: clock[0])
    clock[0] += 1e9
    dcp.save(state(3), checkpoint_id=f"{base}/3", on_error="warn")
    assert len(said()) == 2 and "step 3" in said()[1]


# ---- an engine that stands still -----------------------------------------------------------------


@pytest.fixture
def stopped(base):
    """stop() and go_on() with this node's engine, which goes on at the test's end, or before a test
    waits for it in vain."""
    pid = 0
    late = threading.Timer(20, lambda: go_on())

    def stop() -> None:
        nonlocal pid
        with open(f"{base}/.hearth/lock") as file:
            pid = int(file.read().split()[0])
        os.kill(pid, signal.SIGSTOP)
        late.start()

    def go_on() -> None:
        if pid:
            os.kill(pid, signal.SIGCONT)

    yield SimpleNamespace(stop=stop, go_on=go_on)
    late.cancel()
    go_on()


@pytest.mark.parametrize("how", ["save", "async_save", "hearth_checkpoint.torch.async_save"])
def test_training_goes_on_while_the_engine_stands_still(base, stopped, how):
    """Each call of the trainer's thread returns within blocked_ms, however many there are."""
    calls = {"save": dcp.save, "async_save": dcp.async_save,
             "hearth_checkpoint.torch.async_save": ht.async_save}
    SAVES[how](state(1), checkpoint_id=f"{base}/1", on_error="warn")
    stopped.stop()
    longest, futures = 0.0, []
    for step in range(2, 8):
        begun = time.monotonic()
        futures.append(calls[how](state(step), checkpoint_id=f"{base}/{step}", on_error="warn",
                                  blocked_ms=300))
        longest = max(longest, time.monotonic() - begun)
    begun = time.monotonic()
    assert ht.protection(base).step == 1
    assert time.monotonic() - begun < 4 and longest < 1.5, longest
    stopped.go_on()
    for future in futures:
        if future is not None:
            future.result(60)
    until = time.monotonic() + 30
    while SAVES[how](state(9), checkpoint_id=f"{base}/9", on_error="warn") is None:
        assert time.monotonic() < until
    held = ht.protection(base)
    assert held.step == 9 and 1 <= held.failures, held
    assert loaded(f"{base}/9") == 9


def test_a_time_that_is_none_is_refused(base):
    for wrong in (0, -1, 1 << 40):
        with pytest.raises(ValueError, match="blocked_ms"):
            dcp.save(state(1), checkpoint_id=f"{base}/1", on_error="warn", blocked_ms=wrong)
