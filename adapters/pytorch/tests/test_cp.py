# SPDX-License-Identifier: Apache-2.0
"""Checkpointers, CP1 to CP13: over parts that note what is done to them, and over Hearth itself."""

from __future__ import annotations

import inspect
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
import torch
from lacks import WHY

if WHY["experimental"]:
    pytest.skip(WHY["experimental"], allow_module_level=True)

from hooks import DEADLINE_S, Hook, small_state
from torch.distributed.checkpoint import _experimental as upstream
from torch.distributed.checkpoint._experimental.checkpointer import Checkpointer

from hearth_checkpoint.torch import _jobs
from hearth_checkpoint.torch.experimental import (
    AsyncCheckpointer,
    InlineProcess,
    Reader,
    Stager,
    SyncCheckpointer,
    Writer,
    make_async_checkpointer,
    make_sync_checkpointer,
)

RANK0 = upstream.RankInfo(global_rank=0, global_world_size=1)


class Parts:
    """Stager, process, writer and reader in one; notes each call, and fails when told to."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []
        self.fail: dict[str, BaseException] = {}
        self.staged: Any = {"staged": True}
        self.written: Any = None
        self.missing: Any = []

    def _note(self, name: str, *what: Any) -> None:
        self.calls.append((name, *what))
        if name in self.fail:
            raise self.fail[name]

    def stage(self, state_dict: Any, **kwargs: Any) -> Any:
        self._note("stage", state_dict, kwargs)
        return self.staged

    def read(self, path: Any, state_dict: Any = None, *, map_location: Any = None,
             **kwargs: Any) -> Any:
        self._note("read", path, state_dict, map_location, kwargs)
        return {"loaded": True}, self.missing


class Process(Parts):
    def write(self, state_dict: Any, path: Any, **kwargs: Any) -> Any:
        self._note("write", state_dict, path, kwargs)
        return self.written

    def close(self) -> None:
        self._note("close process")


class Stage(Parts):
    def close(self) -> None:
        self._note("close stager")


class Write(Parts):
    def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
        self._note("write", path, state_dict, kwargs)

    def close(self) -> None:
        self._note("close writer")


def _done(error: BaseException | None = None) -> Future:
    future: Future = Future()
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    return future


@pytest.fixture
def parts() -> tuple[AsyncCheckpointer, Stage, Process, Parts, list]:
    """An AsyncCheckpointer over parts that share one list of calls."""
    stager, process, reader = Stage(), Process(), Parts()
    calls: list = []
    stager.calls = process.calls = reader.calls = calls
    process.written = _done()
    return AsyncCheckpointer(stager, process, reader), stager, process, reader, calls


def test_CP1_the_interface_is_torchs():
    for ours, theirs in ((SyncCheckpointer, upstream.checkpointer.SyncCheckpointer),
                         (AsyncCheckpointer, upstream.checkpointer.AsyncCheckpointer)):
        assert issubclass(ours, Checkpointer) and issubclass(ours, theirs)
        for name in ("save", "load", "close"):
            mine = inspect.signature(getattr(ours, name)).parameters
            assert list(mine) == list(inspect.signature(getattr(theirs, name)).parameters)
        defaults = inspect.signature(ours.load).parameters
        assert defaults["strict"].default is False and defaults["state_dict"].default is None
    with pytest.raises(TypeError):
        Checkpointer()
    assert issubclass(Writer, upstream.CheckpointWriter)
    assert issubclass(Reader, upstream.CheckpointReader)


def test_CP2_a_sync_save_is_one_write():
    writer, state = Write(), small_state()
    checkpointer = SyncCheckpointer(writer, Parts())
    assert checkpointer.save("/a/1", state, hint=1) is None
    assert checkpointer.save(state, "/a/2") is None
    assert checkpointer.save(path="/a/3", state_dict=state) is None
    assert [(c[1], c[3]) for c in writer.calls] == [
        ("/a/1", {"hint": 1}), ("/a/2", {}), ("/a/3", {})]
    assert all(c[2] is state for c in writer.calls)
    writer.fail["write"] = OSError("disk")
    with pytest.raises(OSError, match="disk"):
        checkpointer.save("/a/4", state)
    with pytest.raises(TypeError, match="path and a state"):
        checkpointer.save(state, state)


def test_CP2_a_sync_save_is_kept_when_it_returns(base):
    checkpointer = make_sync_checkpointer(RANK0)
    for order, step in (("path first", 1), ("state first", 2)):
        path = f"{base}/step-{step}_ckpt"
        arguments = (path, small_state()) if order == "path first" else (small_state(), path)
        assert checkpointer.save(*arguments) is None
        job = _jobs.membership(base, {}).job
        checkpoint = job.checkpoint()  # the newest that is PROTECTED
        assert checkpoint.step == step
        checkpoint.close()
    assert checkpointer.load(path)["w"].tolist() == [0, 1, 2, 3, 4]


def test_CP3_load_reads_now(parts):
    checkpointer, _, _, reader, calls = parts
    sync = SyncCheckpointer(Write(), reader)
    for each in (checkpointer, sync):
        calls.clear()
        state = {"a": 1}
        assert each.load("/a/1", state, default_map_location="cpu", x=2) == {"loaded": True}
        assert calls == [("read", "/a/1", state, "cpu", {"x": 2})] and calls[0][2] is state
        each.load("/a/1")
        assert calls[1] == ("read", "/a/1", None, None, {})


def test_CP4_strict_raises_after_the_targets_were_filled(base):
    checkpointer = make_sync_checkpointer(RANK0)
    path = f"{base}/step-1_ckpt"
    checkpointer.save(path, small_state())
    w = torch.zeros(5)
    with pytest.raises(RuntimeError, match=r"^Checkpoint at .*step-1_ckpt is missing keys: "
                                           r"\['x', 'n.y'\]$"):
        checkpointer.load(path, {"w": w, "x": 1, "n": {"y": 1}}, strict=True)
    assert w.tolist() == [0, 1, 2, 3, 4]
    assert checkpointer.load(path, {"w": None, "x": 1})["x"] == 1
    assert checkpointer.load(path, {"w": None}, strict=True)


def test_CP4_none_and_nothing_are_not_missing(parts):
    checkpointer, _, _, reader, _ = parts
    for missing in (None, []):
        reader.missing = missing
        assert checkpointer.load("/a/1", strict=True)
    reader.missing = ["k"]
    with pytest.raises(RuntimeError, match="missing keys"):
        checkpointer.load("/a/1", strict=True)


def test_CP5_a_sync_close_closes_the_writer():
    writer, reader = Write(), Parts()
    SyncCheckpointer(writer, reader).close()
    assert writer.calls == [("close writer",)] and reader.calls == []


def test_CP6_the_order_of_an_async_save(parts):
    checkpointer, stager, process, _, calls = parts
    before = Future()
    process.written = before
    checkpointer.save("/a/1", small_state())
    calls.clear()
    process.written = _done()
    timer = threading.Timer(0.3, lambda: (calls.append(("written",)), before.set_result(None)))
    timer.start()
    state = small_state()
    staged, written = checkpointer.save("/a/2", state, hint=1)
    timer.join(DEADLINE_S)
    assert calls == [("written",), ("stage", state, {"hint": 1}),
                     ("write", stager.staged, "/a/2", {"hint": 1})]
    assert calls[1][1] is state and written is process.written
    assert staged.done() and staged.result() is None


def test_CP7_one_save_in_flight(base):
    """The next copy is made when the write before it has ended."""
    gate, started = threading.Event(), threading.Event()

    class Slow(Writer):
        def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
            started.set()
            assert gate.wait(DEADLINE_S)
            super().write(path, state_dict, **kwargs)

    stages = []

    class Noted(Stager):
        def stage(self, state_dict: Any, **kwargs: Any) -> Any:
            stages.append(gate.is_set())
            return super().stage(state_dict, **kwargs)

    checkpointer = AsyncCheckpointer(
        Noted(RANK0, base=base), InlineProcess(Slow(rank_info=RANK0)), Reader(RANK0))
    state = small_state()
    _, first = checkpointer.save(f"{base}/step-1_ckpt", state)
    assert started.wait(DEADLINE_S) and not first.done()
    state["w"] += 100  # the trainer goes on at once
    threading.Timer(0.3, gate.set).start()
    _, second = checkpointer.save(f"{base}/step-2_ckpt", state)
    assert first.done() and stages == [False, True]
    second.result(DEADLINE_S)
    assert checkpointer.load(f"{base}/step-2_ckpt")["w"].tolist() == [100, 101, 102, 103, 104]
    checkpointer.close()


def test_CP7_the_copy_is_of_the_moment_of_save(base):
    checkpointer = make_async_checkpointer(RANK0, base=base)
    state = small_state()
    staged, written = checkpointer.save(f"{base}/step-1_ckpt", state)
    assert staged.done()
    state["w"].fill_(-1)
    state["n"]["step"] = 99
    written.result(DEADLINE_S)
    loaded = checkpointer.load(f"{base}/step-1_ckpt")
    assert loaded["w"].tolist() == [0, 1, 2, 3, 4] and loaded["n"] == {"step": 3}
    checkpointer.close()


def test_CP8_the_staging_result_may_be_a_future(parts):
    checkpointer, stager, process, _, calls = parts
    stager.staged = Future()
    staged, _ = checkpointer.save("/a/1", small_state())
    assert calls[-1][1] is stager.staged and not staged.done()
    stager.staged.set_result({"x": 1})
    assert staged.result(DEADLINE_S) is None
    stager.staged = Future()
    staged, _ = checkpointer.save("/a/2", small_state())
    stager.staged.set_exception(ValueError("no room"))
    with pytest.raises(ValueError, match="no room"):
        staged.result(DEADLINE_S)


def test_CP8_a_failed_staging_fails_the_write():
    writer = Write()
    process = InlineProcess(writer)
    staging: Future = Future()
    written = process.write(staging, "/a/1")
    staging.set_exception(ValueError("no room"))
    with pytest.raises(ValueError, match="no room"):
        written.result(DEADLINE_S)
    good: Future = Future()
    written = process.write(good, "/a/2", hint=1)
    good.set_result({"x": 1})
    assert written.result(DEADLINE_S) is None
    assert writer.calls == [("write", "/a/2", {"x": 1}, {"hint": 1})]
    process.close()


def test_CP9_no_write_future_is_an_error(parts):
    checkpointer, _, process, _, _ = parts
    process.written = None
    with pytest.raises(RuntimeError, match="Write future is unexpectedly None"):
        checkpointer.save("/a/1", small_state())
    process.written = _done()
    checkpointer.save("/a/2", small_state())


def test_CP10_a_failure_is_raised_once_and_the_next_save_works(parts):
    """Upstream never forgets a failed write: every later save raises it."""
    checkpointer, stager, process, _, calls = parts
    process.written = _done(OSError("peer gone"))
    checkpointer.save("/a/1", small_state())
    calls.clear()
    process.written = _done()
    with pytest.raises(OSError, match="peer gone"):
        checkpointer.save("/a/2", small_state())
    assert calls == []  # nothing was saved by the call that raised
    checkpointer.save("/a/3", small_state())
    stager.fail["stage"] = ValueError("no room")
    with pytest.raises(ValueError, match="no room"):
        checkpointer.save("/a/4", small_state())
    del stager.fail["stage"]
    checkpointer.save("/a/5", small_state())
    assert [c[2] for c in calls if c[0] == "write"] == ["/a/3", "/a/5"]


def test_CP10_a_failed_save_leaves_no_memory_behind(base):
    """Each save that fails gives its slot back: the pool does not run dry."""
    fail = [True]

    class Failing(Writer):
        def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
            if fail[0]:
                raise OSError("told to fail")
            super().write(path, state_dict, **kwargs)

    checkpointer = AsyncCheckpointer(
        Stager(RANK0, base=base, wait_s=10), InlineProcess(Failing(rank_info=RANK0)),
        Reader(RANK0))
    for step in range(1, 7):
        _, written = checkpointer.save(f"{base}/step-{step}_ckpt", small_state())
        with pytest.raises(OSError, match="told to fail"):
            written.result(DEADLINE_S)
        with pytest.raises(OSError, match="told to fail"):
            checkpointer.save(f"{base}/step-{step}_ckpt", small_state())
    fail[0] = False
    _, written = checkpointer.save(f"{base}/step-9_ckpt", small_state())
    written.result(DEADLINE_S)
    assert checkpointer.load(f"{base}/step-9_ckpt")["n"] == {"step": 3}
    checkpointer.close()


def test_CP11_keywords_go_to_stager_and_writer(parts, base):
    """Upstream's stager raises TypeError for names that it does not know, and then every later save
    does; ours leaves them to the hook."""
    checkpointer, _, _, _, calls = parts
    checkpointer.save("/a/1", small_state(), a=1, b="x")
    assert calls[0][2] == calls[1][3] == {"a": 1, "b": "x"}
    hook = Hook()
    real = make_async_checkpointer(RANK0, base=base, commit_hook=hook)
    _, written = real.save(f"{base}/step-1_ckpt", small_state(), epoch=4)
    written.result(DEADLINE_S)
    assert [k for _, _, k in hook.calls] == [{"epoch": 4}, {"epoch": 4}]
    real.close()


def test_CP12_load_does_not_wait_for_a_write(base):
    gate, started = threading.Event(), threading.Event()

    class Slow(Writer):
        def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
            if path.endswith("step-2_ckpt"):
                started.set()
                assert gate.wait(DEADLINE_S)
            super().write(path, state_dict, **kwargs)

    checkpointer = AsyncCheckpointer(
        Stager(RANK0, base=base), InlineProcess(Slow(rank_info=RANK0)), Reader(RANK0))
    _, written = checkpointer.save(f"{base}/step-1_ckpt", small_state())
    written.result(DEADLINE_S)
    _, written = checkpointer.save(f"{base}/step-2_ckpt", {"w": torch.zeros(5)})
    assert started.wait(DEADLINE_S)
    assert checkpointer.load(f"{base}/step-1_ckpt")["n"] == {"step": 3}
    assert not written.done()
    gate.set()
    written.result(DEADLINE_S)
    checkpointer.close()


def test_CP13_close_closes_both_in_order_and_twice_is_harmless(parts):
    """Upstream skips the process if the stager's close raises."""
    checkpointer, stager, _, _, calls = parts
    stager.fail["close stager"] = OSError("stuck")
    with pytest.raises(OSError, match="stuck"):
        checkpointer.close()
    assert calls == [("close stager",), ("close process",)]
    checkpointer.close()
    assert len(calls) == 2


def test_CP13_close_of_the_real_parts(base):
    """Close waits for the write in flight, also where its thread has not begun with it."""

    class Late(Writer):
        def write(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
            time.sleep(0.3)
            super().write(path, state_dict, **kwargs)

    checkpointer = AsyncCheckpointer(
        Stager(RANK0, base=base), InlineProcess(Late(rank_info=RANK0)), Reader(RANK0))
    for step in (1, 2):
        _, written = checkpointer.save(f"{base}/step-{step}_ckpt", small_state())
    checkpointer.close()
    checkpointer.close()
    assert written.result(0) is None
    assert checkpointer.load(f"{base}/step-2_ckpt")["n"] == {"step": 3}


def test_CP13_close_after_a_write_that_failed(parts):
    checkpointer, _, process, _, calls = parts
    process.written = _done(OSError("peer gone"))
    checkpointer.save("/a/1", small_state())
    checkpointer.close()
    assert calls[-2:] == [("close stager",), ("close process",)]
