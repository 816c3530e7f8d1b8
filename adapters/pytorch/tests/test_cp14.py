# SPDX-License-Identifier: Apache-2.0
"""Writer and Stager: CP14, what torch's own classes do with them, several ranks, staged memory."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from lacks import WHY

if WHY["experimental"]:
    pytest.skip(WHY["experimental"], allow_module_level=True)

from hooks import DEADLINE_S, Gate, Hook, kept, small_state
from torch.distributed.checkpoint import _experimental as upstream
from torch.distributed.checkpoint._experimental import checkpointer as torchs
from torch.distributed.checkpoint._experimental.checkpoint_process import (
    CheckpointProcess,
    CheckpointProcessConfig,
)
from torch.distributed.checkpoint._experimental.checkpoint_writer import CheckpointWriterConfig
from torch.multiprocessing import ProcessExitedException

from hearth_checkpoint.errors import HearthError, HearthRefused
from hearth_checkpoint.torch import _jobs
from hearth_checkpoint.torch._pickles import decode_item, encode_item
from hearth_checkpoint.torch.experimental import (
    Reader,
    StagedObject,
    Stager,
    Writer,
    make_async_checkpointer,
    make_sync_checkpointer,
)

RANK0 = upstream.RankInfo(global_rank=0, global_world_size=1)


def test_CP14_the_hooks_stand_around_the_commit(base):
    hook = Hook(base)
    writer = Writer(None, RANK0, Gate(hook), hook)
    path = f"{base}/step-1_ckpt"
    assert writer.write(path, small_state(), tag="t") is None
    assert hook.calls == [("pre_commit", path, {"tag": "t"}), ("barrier", "", {}),
                          ("post_commit", path, {"tag": "t"})]
    assert hook.kept == [False, True]
    writer.close()


@pytest.mark.parametrize("where", ["pre_commit", "barrier"])
def test_CP14_what_fails_before_the_commit_leaves_nothing(base, where):
    hook, config = Hook(base, fail=where), CheckpointWriterConfig(write_barrier_timeout_secs=10)
    writer = Writer(config, RANK0, Gate(hook, where == "barrier"), hook)
    raised = []  # their tracebacks hold what write() had: nothing is freed by the collector
    for step in range(1, 6):  # more than there are slots
        with pytest.raises((ValueError, TimeoutError), match="says no|did not come") as caught:
            writer.write(f"{base}/step-{step}_ckpt", small_state())
        raised.append(caught.value)
        assert not kept(base, f"step-{step}_ckpt")
    assert "post_commit" not in [c[0] for c in hook.calls]
    Writer(config, RANK0).write(f"{base}/step-9_ckpt", small_state())
    assert kept(base, "step-9_ckpt")


def test_CP14_a_failing_post_commit_is_heard_and_the_step_stays(base):
    hook = Hook(base, fail="post_commit")
    with pytest.raises(ValueError, match="post_commit says no"):
        Writer(None, RANK0, None, hook).write(f"{base}/step-1_ckpt", small_state())
    assert kept(base, "step-1_ckpt")


def test_CP14_the_wait_has_the_configs_deadline(base, monkeypatch):
    from hearth_checkpoint.job import Handle

    waits = []
    monkeypatch.setattr(Handle, "wait", lambda self, level, timeout: waits.append((level, timeout)))
    Writer(CheckpointWriterConfig(write_barrier_timeout_secs=7), RANK0).write(
        f"{base}/step-1_ckpt", small_state())
    assert waits == [("PROTECTED", 7.0)]


def test_CP14_torchs_own_checkpointer_takes_our_writer_and_reader(base):
    path = f"{base}/step-1_ckpt"
    checkpointer = torchs.SyncCheckpointer(Writer(rank_info=RANK0), Reader(RANK0))
    checkpointer.save(path, small_state())
    assert checkpointer.load(path, {"w": None})["w"].tolist() == [0, 1, 2, 3, 4]
    checkpointer.close()


def _make_writer(rank_info: Any) -> Writer:
    return Writer(rank_info=rank_info)


def _nothing() -> None:
    pass


def test_CP14_torchs_own_process_takes_our_writer(base, monkeypatch):
    """CheckpointProcess calls the writer in a process of its own, by keyword; there the job is
    opened by the path."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    process = CheckpointProcess(
        RANK0, CheckpointProcessConfig(subprocess_init_timeout_secs=DEADLINE_S), _nothing, (),
        _make_writer, {})
    path = f"{base}/step-1_ckpt"
    try:
        staged: Future = Future()
        written = process.write(staged, path)
        staged.set_result(small_state())
        assert written.result(DEADLINE_S) is None
    finally:
        # close() ends the thread that is the child's parent, which sends it SIGINT: where that
        # comes late, while the child ends by itself, torch takes it for a failure.
        with contextlib.suppress(ProcessExitedException):
            process.close()
    job = _jobs.membership(base, {}).job
    assert Reader(RANK0, job=job).read(path)[0]["w"].tolist() == [0, 1, 2, 3, 4]


# ---- stager -------------------------------------------------------------------------------------


def test_a_staged_state_reads_like_the_state(base):
    module = torch.nn.BatchNorm1d(2).state_dict()
    state = {**small_state(), "m": module, "l": [torch.ones(2).t(), (torch.zeros(0), None)],
             "d": torch.float16}
    stager = Stager(RANK0, base=base)
    staged = stager.stage(state)
    assert isinstance(staged, dict) and list(staged) == list(state)
    assert torch.equal(staged["w"], state["w"]) and staged["w"].data_ptr() != state["w"].data_ptr()
    assert staged["l"][1][1] is None and staged["d"] is torch.float16
    assert staged["m"]._metadata == module._metadata
    stager.close()
    assert not staged  # its memory went back
    with pytest.raises(HearthError, match="given up"):
        Writer(rank_info=RANK0).write(f"{base}/step-1_ckpt", staged)


def test_a_staged_state_is_written_once(base):
    stager, writer = Stager(RANK0, base=base), Writer(rank_info=RANK0)
    staged = stager.stage(small_state())
    assert type(staged) is StagedObject
    writer.write(f"{base}/step-1_ckpt", staged)
    with pytest.raises(HearthError, match="written already"):
        writer.write(f"{base}/step-2_ckpt", staged)
    stager.close()
    stager.close()


def test_staging_again_frees_what_was_not_written(base):
    stager = Stager(RANK0, base=base, wait_s=5)
    staged = [stager.stage(small_state()) for _ in range(8)]  # all alive: no collector helps
    assert [bool(each) for each in staged] == [False] * 7 + [True]
    Writer(rank_info=RANK0).write(f"{base}/step-1_ckpt", staged[-1])
    assert kept(base, "step-1_ckpt")


@pytest.mark.parametrize("state,text", [
    ({"a": {"m": torch.empty(2, device="meta")}}, "a.m: a meta tensor"),
    ({"s": torch.eye(2).to_sparse()}, "s: torch.sparse_coo"), ({(1, 2): 3}, "keys must be")])
def test_what_cannot_be_kept_is_named_before_anything_is_written(base, state, text):
    with pytest.raises(HearthError, match=text):
        Writer(rank_info=RANK0).write(f"{base}/step-1_ckpt", state)
    assert not kept(base, "step-1_ckpt")


def test_a_path_without_a_step_is_refused(base):
    with pytest.raises(ValueError, match="names no step"):
        Writer(rank_info=RANK0).write(f"{base}/latest", small_state())


def test_a_job_that_was_given_keeps_its_own_paths_only(base, folder):
    """Another run's folder on disk must never be answered from this job's memory."""
    job = _jobs.membership(base, {}).job
    writer, reader = Writer(rank_info=RANK0, job=job), Reader(RANK0, job=job)
    writer.write(f"{base}/step-1_ckpt", small_state())
    assert reader.read(f"{base}/1/")[0]["n"] == {"step": 3}
    writer.write("step-2_ckpt", small_state())
    assert reader.read("2")[0]["n"] == {"step": 3}
    with pytest.raises(ValueError, match="does not lie in the job's base"):
        writer.write(f"{folder}/elsewhere/step-3_ckpt", small_state())
    with pytest.raises(FileNotFoundError):
        reader.read(f"{folder}/elsewhere/step-2_ckpt")


def test_a_numbers_name_is_a_step_too(base):
    Writer(rank_info=RANK0).write(f"{base}/17", small_state())
    assert Reader(RANK0).read(f"{base}/step-17_ckpt")[0]["n"] == {"step": 3}
    assert Reader(RANK0).read(f"{base}/17/")[0]["n"] == {"step": 3}


def test_waits_end(base):
    """No wait of these classes is without a deadline of its own."""
    begin = time.monotonic()
    checkpointer = make_async_checkpointer(RANK0, base=base)
    _, written = checkpointer.save(f"{base}/step-1_ckpt", small_state())
    written.result(DEADLINE_S)
    checkpointer.close()
    assert time.monotonic() - begin < DEADLINE_S


def test_the_path_says_which_job(base):
    """No job, no base, no variable: the path alone."""
    checkpointer = make_async_checkpointer(RANK0)
    _, written = checkpointer.save(f"{base}/step-1_ckpt", small_state())
    written.result(DEADLINE_S)
    assert _jobs.open_bases() == [base]
    checkpointer.close()


@pytest.mark.parametrize("told", [False, True])
def test_a_save_goes_into_the_job_that_its_path_names(base, told):
    """One checkpointer, paths of two jobs: each has its own, or it is an error."""
    other = f"{os.path.dirname(base)}/other"
    checkpointer = make_async_checkpointer(RANK0, base=base if told else None)
    checkpointer.save(f"{base}/step-10_ckpt", small_state())[1].result(DEADLINE_S)
    written = checkpointer.save(f"{other}/step-11_ckpt", {"w": torch.ones(5)})[1]
    if told:
        with pytest.raises(ValueError, match="does not lie in"):
            written.result(DEADLINE_S)
        assert not kept(base, "step-11_ckpt")
    else:
        written.result(DEADLINE_S)
        assert [k.step for k in _jobs.membership(other, {}).job.kept()] == [11]
    assert [k.step for k in _jobs.membership(base, {}).job.kept()] == [10]
    assert checkpointer.load(f"{base}/step-10_ckpt")["w"].tolist() == [0, 1, 2, 3, 4]


def test_what_was_staged_in_another_job_is_given_up(base):
    stager = Stager(RANK0, base=base)
    staged = stager.stage(small_state())
    with pytest.raises(ValueError, match="does not lie in"):
        Writer(rank_info=RANK0).write(f"{os.path.dirname(base)}/other/1", staged)
    assert not staged  # its memory went back
    Writer(rank_info=RANK0).write(f"{base}/1", stager.stage(small_state()))
    _jobs.membership(f"{os.path.dirname(base)}/other", {})
    Writer(rank_info=RANK0).write("2", stager.stage(small_state()))  # a name alone: of that job
    assert kept(base, "2")


def test_a_later_process_finds_the_step(base):
    """As after a restart: nothing is open, the folder is one of Hearth's."""
    make_sync_checkpointer(RANK0).save(f"{base}/step-4_ckpt", small_state())
    _jobs.forget(base, keep=True)
    assert _jobs.open_bases() == []
    state = make_sync_checkpointer(RANK0).load(f"{base}/step-4_ckpt", {"w": None})
    assert state["w"].tolist() == [0, 1, 2, 3, 4] and _jobs.open_bases() == [base]


class _Own(argparse.Namespace):
    """A class of the user's."""


def test_objects_beyond_plain_ones_need_trust(base):
    path = f"{base}/step-1_ckpt"
    state = {"w": torch.ones(2), "args": _Own(lr=0.5), "plain": argparse.Namespace(lr=0.5)}
    Writer(rank_info=RANK0).write(path, state)
    with pytest.raises(HearthRefused, match=r"args: .*test_cp14\._Own.*trust=True"):
        Reader(RANK0).read(path, {"w": None})
    got, _ = Reader(RANK0, trust=True).read(path)
    assert got["args"] == state["args"] and got["w"].tolist() == [1, 1]


@pytest.mark.parametrize("change", [
    {"tree": ("t", 5)}, {"tree": ("d", 3)}, {"tree": ("x", 1)}, {"tree": (1, 2, 3)},
    {"tensors": [9]}, {"tensors": 3}, {"kinds": []}, {"kinds": [("float33", (5,), "cpu", None)]},
    {"kinds": [("float32", "5", "cpu", None)]}, {"version": 2}, {"objects": None, "tree": ("o", 0)},
    {"kinds": [("float32", (500,), "cpu", None)]}, {"kinds": [("int8", (5,), "cpu", None)]},
    {"kinds": [("float32", (-5,), "cpu", None)]}, {"kinds": [("float32", (5,), "nowhere", None)]},
    {"kinds": [("float32", (5, 1), "cpu", None)]}], ids=str)
def test_a_damaged_skeleton_is_an_error(base, monkeypatch, change):
    from hearth_checkpoint.torch import _skeleton

    honest = _skeleton.Skeleton.items

    def damaged(self: Any) -> list[tuple[bytes, bytes]]:
        (key, data), places = honest(self)
        return [(key, encode_item({**decode_item(data), **change})), places]

    monkeypatch.setattr(_skeleton.Skeleton, "items", damaged)
    path = f"{base}/step-1_ckpt"
    Writer(rank_info=RANK0).write(path, {"w": torch.arange(5.0)})
    with pytest.raises((HearthError, RuntimeError)):
        Reader(RANK0).read(path)


# ---- ranks --------------------------------------------------------------------------------------


def _save_on_a_rank(step: int, asynchronous: bool) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    base = f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    d = distribute_tensor(torch.arange(10.0) + step, mesh, [Shard(0)])
    state = {"mine": torch.full((4,), float(dist.get_rank() + step)), "local": d.to_local(), "d": d,
             "again": d}
    path = f"{base}/step-{step}_ckpt"
    if asynchronous:
        checkpointer = make_async_checkpointer()
        checkpointer.save(path, state)[1].result(DEADLINE_S)
    else:
        checkpointer = make_sync_checkpointer()
        checkpointer.save(path, state)
    checkpointer.close()


def _load_on_a_rank(step: int) -> tuple[list, list, str]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    base = f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"mine": None, "d": distribute_tensor(torch.zeros(10), mesh, [Shard(0)])}
    checkpointer = make_sync_checkpointer()
    new = checkpointer.load(f"{base}/step-{step}_ckpt")
    assert new["again"] is new["d"] and torch.equal(new["local"], new["d"])
    local = state["d"]._local_tensor
    checkpointer.load(f"{base}/step-{step}_ckpt", state)
    assert state["d"]._local_tensor is local
    whole = state["d"].full_tensor().tolist()
    text = ""
    try:
        checkpointer.load(f"{base}/step-{step}_ckpt", {
            "d": distribute_tensor(torch.zeros(11), mesh, [Shard(0)])})
    except RuntimeError as error:
        text = str(error)
    return state["mine"].tolist(), whole, text


@pytest.mark.parametrize("asynchronous", [False, True])
def test_CP14_each_rank_has_its_own_state(two, asynchronous):
    step = 31 + asynchronous
    two.run(_save_on_a_rank, step, asynchronous)
    for rank, (mine, whole, text) in enumerate(two.run(_load_on_a_rank, step)):
        assert mine == [rank + step] * 4
        assert whole == [i + step for i in range(10)]
        assert "for key d" in text and "11" in text
