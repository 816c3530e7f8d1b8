# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests of AsyncCheckpointerType.PROCESS, and the writer that tells of it."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections import OrderedDict
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _async_process_executor as executor
from torch.distributed.checkpoint import staging
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _release, _stage
from hearth_checkpoint.torch.writer import _carried

DEADLINE_S = 60.0

# torch 2.8: DCP's checkpoint process ends with the first save that fails, and torch starts no other.
ENDS = _release(torch.__version__) < (2, 9)


def folder() -> str:
    """Where a rank and its checkpoint process leave word for each other."""
    return os.environ["HEARTH_ROOT"]


def note_path() -> str:
    return f"{folder()}/written.{os.environ['RANK']}"


class Watched(HearthWriter):
    """Notes which process wrote and how many elements it copied. Fails in `hook` on rank `at`;
    waits in write_data() until the file `gate` is there."""

    hook, at, gate = "", -1, ""

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "own": (self.hook, self.at, self.gate)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.hook, self.at, self.gate = state.pop("own")
        super().__setstate__(state)

    def _fail(self, hook: str) -> None:
        if hook == self.hook and dist.get_rank() == self.at:
            raise HearthError(f"made to fail in {hook}")

    def storage_meta(self) -> Any:
        meta = super().storage_meta()
        self._fail("storage_meta")
        return meta

    def prepare_local_plan(self, plan: Any) -> Any:
        self._fail("prepare_local_plan")
        return super().prepare_local_plan(plan)

    @_carried
    def write_data(self, plan: Any, planner: Any) -> Any:
        self._fail("write_data")
        copied: list[int] = []
        real = _stage.pieces_of

        def pieces_of(*args: Any, **more: Any) -> Any:
            pieces = real(*args, **more)
            copied.extend(math.prod(piece.shape) for piece in pieces)
            return pieces

        _stage.pieces_of = pieces_of
        try:
            future = super().write_data(plan, planner)
        finally:
            _stage.pieces_of = real
        with open(note_path() + ".new", "w") as file:
            json.dump({"pid": os.getpid(), "copied": sum(copied)}, file)
        os.rename(note_path() + ".new", note_path())
        until = time.monotonic() + DEADLINE_S
        while self.gate and not os.path.exists(self.gate) and time.monotonic() < until:
            time.sleep(0.02)
        self._fail("after write_data")
        return future

    def finish(self, metadata: Any, results: Any) -> None:
        self._fail("finish")
        super().finish(metadata, results)


def state(step: int) -> dict[str, Any]:
    """Every way in which tensors lie in a state, and things beside them."""
    shared = torch.full((33,), float(step))
    me = dist.get_rank()
    return {
        "sharded": {name: tensor.add(step) for name, tensor in work.sharded().items()},
        "module": OrderedDict(weight=torch.arange(12.0).view(3, 4).t() + step, bias=shared),
        f"own{me}": [torch.full((1000,), step * 10 + me, dtype=torch.bfloat16),
                     {"again": shared, "empty": torch.empty(0, 3), "scalar": torch.tensor(step)}],
        "conj": torch.full((5,), 1j * step).conj(), "step": step, "name": "größe", "none": None,
        "many": {f"k{i}": torch.full((3,), i + step) for i in range(50)}}


def zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value.resolve_conj())
    if isinstance(value, dict):
        return type(value)((key, zeroed(child)) for key, child in value.items())
    if isinstance(value, list):
        return [zeroed(child) for child in value]
    return None


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        a, b = getattr(a, "_local_tensor", a), getattr(b, "_local_tensor", b)
        return a.dtype == b.dtype and torch.equal(a.resolve_conj(), b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def save(value: dict[str, Any], step: int, **how: Any) -> Any:
    """The future of a save in the checkpoint process."""
    opts = {"object_bytes": 1 << 20, **how.pop("opts", {})}  # slots for keep + 1 saves, no more
    writer = Watched(work.base(), timeout_s=30, **opts)
    writer.__dict__.update({name: how.pop(name) for name in ("hook", "at", "gate") if name in how})
    return dcp.async_save(value, checkpoint_id=work.path(step), storage_writer=writer,
                          async_checkpointer_type=AsyncCheckpointerType.PROCESS, **how)


def load(value: dict[str, Any], step: int) -> bool:
    target = zeroed(value)
    dcp.load(target, checkpoint_id=work.path(step), storage_reader=HearthReader())
    return same(value, target)


def error_of(future: Any) -> str:
    """What all ranks hear; "" where it went well."""
    try:
        future.result(DEADLINE_S)
        return ""
    except CheckpointException as error:
        return f"{sorted(error.failures)} {[str(e[0]) for e in error.failures.values()]}"
    except (RuntimeError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def failed(future: Any) -> str:
    """error_of() a save that is to fail; there is a checkpoint process for the next one."""
    said = error_of(future)
    if ENDS:
        new_process()
    return said


def child_pid() -> int:
    return executor._CHECKPOINT_PROCESS._save_process.pid


def notes() -> dict[str, int]:
    """Who wrote last, told by the process that wrote."""
    with open(note_path()) as file:
        out = json.load(file)
    return {"elsewhere": out["pid"] == child_pid() != os.getpid(), "copied": out["copied"]}


def three_saves(first: int) -> list[dict[str, int]]:
    """Trained on while they are written; each loaded back."""
    out = []
    for step in range(first, first + 3):
        value = state(step)
        wanted = state(step)
        future = save(value, step)
        value["module"]["bias"].zero_()
        value["sharded"]["rows"].to_local().zero_()
        assert error_of(future) == ""
        assert load(wanted, step)
        out.append(notes())
    return out


def pickled_by_torch() -> dict[str, int]:
    """Staged by torch's own stager: nothing is in the pool, the other process begins itself."""
    value = state(1)
    del value["conj"]  # torch's stager loses the conj bit
    _jobs.membership(work.base(), {})
    stager = staging.DefaultStager(staging.StagingOptions(False, False, False, False))
    beside = {"opts": {"common": lambda: {"common.pt": b"of all"}}}  # no function that can cross
    assert error_of(save(value, 1, async_stager=stager, **beside)) == ""
    assert load(value, 1)
    assert HearthReader(work.base(), step=1).common("common.pt") == b"of all"
    return notes()


def common_that_fails(staged_by_torch: bool) -> str:
    """Rank 0's, in the trainer."""
    _jobs.membership(work.base(), {"object_bytes": 1 << 20})
    how: dict[str, Any] = {}
    if staged_by_torch:
        how["async_stager"] = staging.DefaultStager(
            staging.StagingOptions(False, False, False, False))

    def fails() -> dict[str, bytes]:
        raise work.Unpicklable("made to fail in common")

    said = failed(save({"w": torch.ones(3)}, 1, opts={"common": fails}, **how))
    assert error_of(save(state(2), 2)) == ""
    return said


def failures(hook: str, at: int) -> list[str]:
    """More of them than there are slots, then a save that works."""
    first = state(1)
    assert error_of(save(first, 1)) == ""
    before = child_pid()
    out = [failed(save(state(2), 2, hook=hook, at=at)) for _ in range(4)]
    value = state(3)
    assert error_of(save(value, 3)) == ""
    assert load(value, 3) and (ENDS or child_pid() == before)
    return out


class Foreign:
    """Cannot be made again in another process."""

    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(),)


def _only_in(pid: int) -> Foreign:
    if pid != os.getpid():
        raise ImportError("there is no such class here")
    return Foreign()


class Stubborn:
    """Cannot be pickled, but copied."""

    def __deepcopy__(self, memo: Any) -> Stubborn:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("stays here")


def bad_state(kind: str, at: int) -> list[str]:
    """A state of one rank that cannot be staged, sent, or made again over there."""
    assert error_of(save(state(1), 1)) == ""
    before = child_pid()
    bad: Any = {"meta": torch.empty(3, device="meta"), "foreign": Foreign(), "stubborn": Stubborn()}
    out = []
    for _ in range(4):
        value = state(2)
        if dist.get_rank() == at:
            value["bad"] = bad[kind]
        out.append(failed(save(value, 2)))
    value = state(3)
    assert error_of(save(value, 3)) == ""
    assert load(value, 3) and (ENDS or child_pid() == before)
    return out


def wait_for(path: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while not os.path.exists(path):
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.02)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [getattr(value, "_local_tensor", value)]
    if isinstance(value, dict):
        return [t for child in value.values() for t in tensors(child)]
    return [t for child in value for t in tensors(child)] if isinstance(value, list) else []


def overlapping() -> list[str]:
    """Saves that nobody waits for before the next: torch has one pipe and one thread for each."""
    opts = {"keep": 4}
    first = error_of(save(state(1), 1, opts=opts))
    assert first == "", first
    before = child_pid()
    values = {step: state(step) for step in (2, 3, 4)}
    futures = {step: save(value, step, opts=opts) for step, value in values.items()}
    out = []
    for step, future in futures.items():
        out.append(error_of(future))
        assert out[-1] or load(values[step], step)
    assert child_pid() == before
    return out


def stage_meanwhile() -> bool:
    """A state staged while the checkpoint process is busy lies elsewhere, and harms nothing."""
    gate = f"{folder()}/gate"
    places: list[int] = []
    real = _stage.stage

    def noted(*args: Any, **kwargs: Any) -> Any:
        staged = real(*args, **kwargs)
        places.append(staged.save.data()[0])
        return staged

    _stage.stage = noted
    try:
        value = state(1)
        future = save(value, 1, gate=gate)
        wait_for(note_path())
        other = HearthWriter(work.base(), timeout_s=30)
        staged = other.stage(state(2))
        apart = len(set(places)) == 2 and same(state(2), staged) and not future.done()
    finally:
        _stage.stage = real
        open(gate, "w").close()
    assert error_of(future) == ""
    assert load(value, 1) and same(state(2), staged)
    other.close()
    os.unlink(gate)
    os.unlink(note_path())
    return apart


def fork_meanwhile() -> bool:
    """As a DataLoader does: a forked child takes nothing away from the save under way."""
    gate = f"{folder()}/gate"
    if os.path.exists(note_path()):
        os.unlink(note_path())
    value = state(1)
    future = save(value, 1, gate=gate)
    wait_for(note_path())
    pid = os.fork()
    if not pid:
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    time.sleep(0.2)  # for a wrong word to arrive
    open(gate, "w").close()
    assert error_of(future) == ""
    os.unlink(gate)
    return load(value, 1)


def killed(at: int) -> list[str]:
    """The other process of one rank dies in the middle of a save; later ones cannot be sent."""
    if os.path.exists(note_path()):
        os.unlink(note_path())
    assert error_of(save(state(1), 1)) == ""
    os.unlink(note_path())
    value = state(2)
    future = save(value, 2, gate=f"{folder()}/never" if dist.get_rank() == at else "")
    if dist.get_rank() == at:
        wait_for(note_path())
        os.kill(child_pid(), signal.SIGKILL)
    out = [error_of(future)]
    dist.barrier()
    out += [error_of(save(value, 2)) for _ in range(3)]
    dist.barrier()
    return out


def save_without_process(step: int) -> bool:
    """In a thread, after all that."""
    value = state(step)
    dcp.async_save(value, checkpoint_id=work.path(step),
                   storage_writer=HearthWriter(work.base(), timeout_s=30)).result(DEADLINE_S)
    return load(value, step)


def new_process() -> None:
    """DCP keeps a dead one for good."""
    executor._CHECKPOINT_PROCESS._save_process.join(DEADLINE_S)
    executor._CHECKPOINT_PROCESS = None


def switched_off() -> dict[str, int]:
    """Under the kill switch nothing is kept and all succeeds."""
    assert error_of(save(state(1), 1, opts={"off": 1})) == ""
    assert not os.path.exists(work.path(1))
    return notes()
