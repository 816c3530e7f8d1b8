# SPDX-License-Identifier: Apache-2.0
"""The package as a guest in a trainer's process: imports, forks, signals, views, a full pool."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.planner import WriteItemType
from torch.utils.data import DataLoader, Dataset

from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.job import Handle, Job
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs


def save(base: str, step: int, state: dict, **arguments) -> None:
    dcp.save(state, checkpoint_id=f"{base}/{step}", storage_writer=HearthWriter(base, **arguments))


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True,
        timeout=120,
        env={**os.environ, **environment})


def test_import_does_nothing():
    done = run_python("""
        import sys, threading, os
        import hearth_checkpoint, hearth_checkpoint.job
        assert "torch" not in sys.modules and threading.active_count() == 1
        assert "libhearth" not in open("/proc/self/maps").read()
        import hearth_checkpoint.torch
        assert "libhearth" not in open("/proc/self/maps").read()
    """)
    assert done.returncode == 0, done.stderr


WAITS_IN_A_THREAD = """
    import contextlib, sys, time
    from concurrent.futures import ThreadPoolExecutor
    from hearth_checkpoint import _lent, errors

    until = time.monotonic() + float(sys.argv[1])

    def call(name, *arguments):
        time.sleep(0.05)
        if time.monotonic() < until:
            raise errors.HearthTimeout("waiting for node 1")

    class Handle(_lent.Handle):
        __init__ = __del__ = lambda self: None
        _use = lambda self: contextlib.nullcontext()

    def wait():
        Handle().wait("PROTECTED", 600)
        print("protected")

    _lent.call = call
    ThreadPoolExecutor(1).submit(wait)
"""


def test_a_process_that_ends_of_an_exception_does_not_wait_for_a_save():
    began = time.monotonic()
    done = run_python(WAITS_IN_A_THREAD + "    raise RuntimeError('a node is gone')\n", "90")
    assert done.returncode == 1 and "a node is gone" in done.stderr, done.stderr
    assert "protected" not in done.stdout and time.monotonic() - began < 60


def test_a_process_that_ends_as_it_should_waits_for_its_last_save():
    done = run_python(WAITS_IN_A_THREAD, "2")
    assert done.returncode == 0 and "protected" in done.stdout, done.stderr


def test_without_the_library_the_error_says_what_to_do():
    done = run_python("""
        import hearth_checkpoint.errors
        from hearth_checkpoint.job import Job
        try:
            Job.open("/dev/shm/nowhere/job", rank=0, world=1)
        except hearth_checkpoint.errors.HearthLibraryMissing as error:
            assert "HEARTH_LIBRARY" in str(error), error
        else:
            raise SystemExit("it opened")
    """, HEARTH_LIBRARY="/nonexistent/libhearth.so.0.1")
    assert done.returncode == 0, done.stderr


def test_an_option_that_does_not_exist_is_named(base):
    with pytest.raises(TypeError, match="no_such_option"):
        Job.open(base, rank=0, world=1, no_such_option=1)


def test_shared_storages_and_two_names_of_one_tensor(base):
    whole = torch.arange(24.0).view(4, 6)
    tied = torch.ones(5)
    state = {"whole": whole, "rows": whole[1:3], "column": whole[:, 2], "a": tied, "b": tied}
    writer = HearthWriter(base)
    dcp.async_save(state, checkpoint_id=f"{base}/1", storage_writer=writer).result(60)
    target = {k: torch.zeros_like(v) for k, v in state.items()}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert all(torch.equal(state[k], target[k]) for k in state)


def test_a_view_outlives_checkpoint_and_job(base):
    save(base, 1, {"w": torch.arange(1000.0)})
    member = _jobs.membership(base, {})
    checkpoint = member.job.checkpoint(1)
    item = next(i for i in checkpoint.items() if i.key == b"w")
    view = checkpoint.view(item)
    assert view.readonly
    checkpoint.close()
    for step in range(2, 7):
        save(base, step, {"w": torch.full((1000,), float(-step))})
    _jobs.forget(base, keep=False)
    assert torch.equal(
        torch.frombuffer(bytearray(view), dtype=torch.float32), torch.arange(1000.0))
    with pytest.raises(HearthError, match="closed"):
        member.job.checkpoint(1)
    del view, item


class Squares(Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor(float(i * i))


def test_fork_with_dataloader_workers(base):
    writer = HearthWriter(base)
    state = {"w": torch.ones(100)}
    future = dcp.async_save(state, checkpoint_id=f"{base}/1", storage_writer=writer)
    rows = list(DataLoader(Squares(), num_workers=2, multiprocessing_context="fork"))
    future.result(60)
    assert sum(float(row.sum()) for row in rows) == sum(i * i for i in range(8))
    child = os.fork()
    if child == 0:
        try:
            _jobs._memberships  # the child is in no job
            code = 1 if _jobs.open_bases() else 0
        except BaseException:
            code = 2
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    save(base, 2, state)


def test_calls_in_a_forked_child_are_refused(base):
    save(base, 1, {"w": torch.ones(3)})
    job = _jobs.membership(base, {}).job
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            job.checkpoint(1)
            os.write(writing, b"it worked")
        except HearthError as error:
            os.write(writing, error.name.encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"HEARTH_EFORK"
    os.close(reading), os.close(writing)


def test_a_child_of_a_process_that_takes_part_in_nothing_opens_jobs(base):
    save(base, 1, {"w": torch.ones(3)})
    _jobs.forget(base, keep=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            job = Job.open(base, rank=0, world=1)
            code = 0 if job.recover().step == 1 else 1
            job.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_in_a_save(base, monkeypatch):
    """The wait hears it within a slice; the next save works."""
    save(base, 1, {"w": torch.ones(3)})
    real = Handle.wait

    def slow(self, level="PROTECTED", timeout_s=600.0):
        real(self, "SEALED", timeout_s)
        until = time.monotonic() + 30
        while time.monotonic() < until:  # as a level that is not reached
            try:
                from hearth_checkpoint._ffi import LEVELS, call

                call("hearth_wait", self._pointer, LEVELS["PROTECTED"], 100)
                time.sleep(0.05)
            except HearthError:
                continue

    monkeypatch.setattr(Handle, "wait", slow)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begin = time.monotonic()
    with pytest.raises((KeyboardInterrupt, CheckpointException)):
        save(base, 2, {"w": torch.ones(3)})
    assert time.monotonic() - begin < 20
    monkeypatch.setattr(Handle, "wait", real)
    save(base, 3, {"w": torch.ones(3)})


def test_pool_full_while_staging(base):
    """A state larger than the store can ever hold: an error on the future; the next save works."""
    writer = HearthWriter(base, timeout_s=5)
    writer.stage({"w": torch.ones(4)})
    writer.close()
    size = os.statvfs(os.path.dirname(base))
    huge = torch.empty(1, dtype=torch.uint8).expand(2 * size.f_blocks * size.f_frsize)
    with pytest.raises(CheckpointException) as caught:
        dcp.async_save({"w": huge}, checkpoint_id=f"{base}/1", storage_writer=writer).result(60)
    assert "ENOSPC" in repr(getattr(caught.value.failures[0][0], "name", "")), caught.value
    save(base, 2, {"w": torch.ones(4)})


def test_a_writer_can_be_pickled(base):
    writer = pickle.loads(pickle.dumps(HearthWriter(base, level="COPIED", linger_s=3)))
    dcp.save({"w": torch.ones(2)}, checkpoint_id=f"{base}/1", storage_writer=writer)
    target = {"w": torch.zeros(2)}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())  # when it is PROTECTED
    assert torch.equal(target["w"], torch.ones(2))


def test_an_existing_step_and_overwrite_false(base):
    save(base, 1, {"w": torch.ones(2)})
    save(base, 1, {"w": torch.zeros(2)})
    with pytest.raises(CheckpointException, match="already exists"):
        save(base, 1, {"w": torch.ones(2)}, overwrite=False)


def test_a_malicious_item_is_not_executed(base, folder):
    """DCP's own load_bytes would run it."""
    class Evil:
        def __reduce__(self):
            return os.mkdir, (f"{folder}/executed",)

    class Planner(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            import io

            if item.index.fqn == "bad":
                return io.BytesIO(pickle.dumps(Evil()))
            return super().resolve_data(item)

    dcp.save({"bad": 1, "good": torch.ones(2)}, checkpoint_id=f"{base}/1",
             storage_writer=HearthWriter(base), planner=Planner())
    with pytest.raises(CheckpointException, match="bad"):
        dcp.load({"bad": 1}, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert not os.path.exists(f"{folder}/executed")
    target = {"good": torch.zeros(2)}
    dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert torch.equal(target["good"], torch.ones(2))


def test_states_staged_together_are_written_each_as_it_is(base):
    """DCP's threads come to the writer in any order, each with a state of its own."""
    writer = HearthWriter(base, keep=3, object_bytes=1 << 20)
    first = writer.stage({"w": torch.full((1000,), 1.0)})
    second = writer.stage({"w": torch.full((1000,), 2.0)})
    dcp.save({"w": torch.full((1000,), 3.0)}, checkpoint_id=f"{base}/1", storage_writer=writer)
    dcp.save(second, checkpoint_id=f"{base}/2", storage_writer=writer)
    dcp.save(first, checkpoint_id=f"{base}/3", storage_writer=writer)
    for step, wanted in ((1, 3.0), (2, 2.0), (3, 1.0)):
        target = {"w": torch.zeros(1000)}
        dcp.load(target, checkpoint_id=f"{base}/{step}", storage_reader=HearthReader())
        assert torch.equal(target["w"], torch.full((1000,), wanted)), (step, target["w"][0])
    writer.close()


class Halves(dcp.DefaultSavePlanner):
    """Writes each vector as two items."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        items = []
        for item in plan.items:
            (size,) = item.tensor_data.size
            for at, count in ((0, size // 2), (size // 2, size - size // 2)):
                chunk = dataclasses.replace(
                    item.tensor_data.chunk, offsets=torch.Size([at]), sizes=torch.Size([count]))
                index = dataclasses.replace(item.index, offset=torch.Size([at]))
                items.append(dataclasses.replace(
                    item, type=WriteItemType.SHARD, index=index,
                    tensor_data=dataclasses.replace(item.tensor_data, chunk=chunk)))
        return dataclasses.replace(plan, items=items)

    def resolve_data(self, item):
        chunk = item.tensor_data.chunk
        return self.state_dict[item.index.fqn].narrow(0, chunk.offsets[0], chunk.sizes[0])


def test_a_planner_may_write_parts_of_what_was_staged(base):
    """They lie in the staged save, which must not be given up before they are copied out."""
    writer = HearthWriter(base, object_bytes=1 << 20)
    for step in (1, 2, 3, 4):
        wanted = {name: torch.arange(1000.0) * step + i for i, name in enumerate("abcdef")}
        dcp.async_save(wanted, checkpoint_id=f"{base}/{step}", storage_writer=writer,
                       planner=Halves()).result(60)
        target = {name: torch.zeros(1000) for name in wanted}
        dcp.load(target, checkpoint_id=f"{base}/{step}", storage_reader=HearthReader())
        for name, tensor in wanted.items():
            assert torch.equal(target[name], tensor), (step, name)


def test_a_view_is_mapped_until_the_process_ends(base):
    """Also for what reads it when the interpreter takes itself apart."""
    done = run_python("""
        import sys
        from hearth_checkpoint.job import Job
        job = Job.open(sys.argv[1], rank=0, world=1)
        job.recover()
        save = job.begin(1, 1 << 20)
        save.add_bytes([(b"k", b"x" * 100000)])
        save.commit().wait()
        found = job.checkpoint(1)

        class Late:
            def __init__(self, view):
                self.view = view

            def __del__(self):
                print("late", bytes(self.view[:4]), sum(self.view), flush=True)

        late = Late(found.view(found.items()[0]))
    """, base)
    assert (done.returncode, done.stdout.strip()) == (0, f"late b'xxxx' {100000 * ord('x')}"), done
