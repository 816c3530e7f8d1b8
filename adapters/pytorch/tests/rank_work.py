# SPDX-License-Identifier: Apache-2.0
"""What ranks do in tests: functions that the processes of ranks.World find by name."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.job import Job
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _stage


def base() -> str:
    return f"{os.environ['HEARTH_ROOT']}/{os.environ['HEARTH_JOB']}"


def path(step: int) -> str:
    return f"{base()}/step-{step}_ckpt"


def leave() -> None:
    """The job is over, for the next test to begin anew."""
    for name in _jobs.open_bases():
        _jobs.forget(name, keep=False)
    dist.barrier()


# ---- states --------------------------------------------------------------------------------------


def meshes() -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh

    world = dist.get_world_size()
    out = {"flat": init_device_mesh("cpu", (world,))}
    if world == 4:
        out["square"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    return out


def whole(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def sharded(fill: bool = True) -> dict[str, Any]:
    """DTensors in every way of cutting that 2 and 4 ranks have; fill False: zeros."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = meshes()
    value = whole if fill else (lambda seed, *shape: torch.zeros(shape))
    out = {
        "rows": distribute_tensor(value(1, 10, 6), mesh["flat"], [Shard(0)]),
        "columns": distribute_tensor(value(2, 6, 10), mesh["flat"], [Shard(1)]),
        "copies": distribute_tensor(value(3, 5), mesh["flat"], [Replicate()]),
        "uneven": distribute_tensor(value(4, 3, 4), mesh["flat"], [Shard(0)]),
        "deep": distribute_tensor(value(5, 3, 4, 9), mesh["flat"], [Shard(2)])}
    if "square" in mesh:
        out["both"] = distribute_tensor(value(6, 8, 8), mesh["square"], [Shard(0), Shard(1)])
        out["hsdp"] = distribute_tensor(value(7, 8, 3), mesh["square"], [Replicate(), Shard(0)])
    else:
        out["both"] = distribute_tensor(value(6, 8, 8), mesh["flat"], [Shard(1)])
        out["hsdp"] = distribute_tensor(value(7, 8, 3), mesh["flat"], [Replicate()])
    return out


def wholes(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor() for name, tensor in state.items()}


def save_sharded(step: int, asynchronous: bool) -> dict[str, torch.Tensor]:
    writer = HearthWriter(base())
    state = sharded()
    if asynchronous:
        dcp.async_save(state, checkpoint_id=path(step), storage_writer=writer,
                       process_group=ht.group()).result()
    else:
        dcp.save(state, checkpoint_id=path(step), storage_writer=writer)
    return wholes(state)


def load_sharded(step: int) -> dict[str, torch.Tensor]:
    state = sharded(fill=False)
    dcp.load(state, checkpoint_id=path(step), storage_reader=HearthReader())
    return wholes(state)


def again(step: int) -> dict[str, torch.Tensor]:
    """As after a restart of the ranks: a new epoch, then a load."""
    _jobs.forget(base())
    assert ht.latest(base()) == path(step)
    return load_sharded(step)


# ---- failures ------------------------------------------------------------------------------------


class Unpicklable(Exception):
    """Cannot be carried to another rank."""

    def __reduce__(self) -> Any:
        raise TypeError("stays here")


class Failing(HearthWriter):
    """Fails on one rank, in one hook."""

    at, hook, kind = -1, "", HearthError

    def _fail(self, hook: str) -> None:
        if hook == self.hook and dist.get_rank() == self.at:
            raise self.kind(f"made to fail in {hook}")

    def _common_of(self, job: Any) -> dict[str, bytes]:
        self._fail("write_data")  # before its step is begun
        return super()._common_of(job)


def _failing(hook: str) -> Any:
    from hearth_checkpoint.torch.writer import _carried

    real = getattr(HearthWriter, hook)

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._fail(hook)
        return real(self, *args, **kwargs)

    return _carried(wrapper)


for _hook in ("storage_meta", "set_up_storage_writer", "prepare_local_plan",
              "prepare_global_plan", "finish"):
    setattr(Failing, _hook, _failing(_hook))


class BadId:
    """A checkpoint id that only one rank has."""

    def __str__(self) -> str:
        return "no step"


class BadFuture:
    def wait(self) -> None:
        raise HearthError("made to fail in the future")

    value = wait


def fail_in(hook: str, at: int, asynchronous: bool, kind: str, step: int) -> tuple[float, str]:
    """A save that fails on rank `at`; how long this rank took to hear of it, and the text."""
    writer = Failing(base(), timeout_s=30)
    writer.at, writer.hook = at, hook
    writer.kind = Unpicklable if kind == "unpicklable" else HearthError
    state: dict[str, Any] = {"w": torch.ones(100) * dist.get_rank(), "n": 1}
    me = dist.get_rank()
    checkpoint_id: Any = path(step)
    if hook == "reset" and me == at:
        checkpoint_id = BadId()
    real = _stage.stage
    if hook == "stage" and me == at:
        def broken(*args: Any, **kwargs: Any) -> Any:
            raise writer.kind("made to fail in stage")
        _stage.stage = broken
    if hook == "future" and me == at:
        inner = writer.write_data
        writer.write_data = lambda *args: (inner(*args), BadFuture())[1]
    begin = time.monotonic()
    try:
        if asynchronous:
            dcp.async_save(state, checkpoint_id=checkpoint_id, storage_writer=writer,
                           process_group=ht.group()).result()
        else:
            dcp.save(state, checkpoint_id=checkpoint_id, storage_writer=writer)
        text = "it did not fail"
    except CheckpointException as error:
        text = f"{sorted(error.failures)} {[str(e[0]) for e in error.failures.values()]}"
    finally:
        _stage.stage = real
    return time.monotonic() - begin, text


def save_plain(step: int) -> int:
    """A save that works."""
    state = {f"w{dist.get_rank()}": torch.full((50,), float(step)), "n": step}
    dcp.save(state, checkpoint_id=path(step), storage_writer=HearthWriter(base()))
    target = {f"w{dist.get_rank()}": torch.zeros(50), "n": 0}
    dcp.load(target, checkpoint_id=path(step), storage_reader=HearthReader())
    assert torch.equal(state[f"w{dist.get_rank()}"], target[f"w{dist.get_rank()}"])
    return target["n"]


def go_back(step: int) -> int:
    """Roll back in a running job."""
    found = ht.recover(base(), step=step)
    assert found is not None
    return found.step


def save_cached(first: int) -> list[int]:
    """Three saves with DCP's plan caching, each loaded again."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    out = []
    writer = HearthWriter(base())
    for step in range(first, first + 3):
        state = {"d": sharded()["rows"], "n": step,
                 f"own{dist.get_rank()}": torch.full((9,), float(step))}
        dcp.save(state, checkpoint_id=path(step), storage_writer=writer,
                 planner=DefaultSavePlanner(enable_plan_caching=True))
        target = {"d": sharded(fill=False)["rows"], "n": 0,
                  f"own{dist.get_rank()}": torch.zeros(9)}
        dcp.load(target, checkpoint_id=path(step), storage_reader=HearthReader())
        assert torch.equal(target["d"].full_tensor(), whole(1, 10, 6))
        assert target[f"own{dist.get_rank()}"][0] == step
        out.append(target["n"])
    return out


def without_collectives(step: int) -> bool:
    """use_collectives=False: each rank for itself, its own metadata."""
    me = dist.get_rank()
    state = {"w": torch.full((20,), float(me)), "who": me}
    dcp.save(state, checkpoint_id=path(step), storage_writer=HearthWriter(base()),
             use_collectives=False)
    target = {"w": torch.zeros(20), "who": -1}
    dcp.load(target, checkpoint_id=path(step), storage_reader=HearthReader())
    return target["who"] == me and bool((target["w"] == me).all())


# ---- loading -------------------------------------------------------------------------------------


class Named:
    """Stateful; notes when it is asked."""

    order: list[str] = []

    def __init__(self, name: str) -> None:
        self.name, self.tensor = name, torch.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        dist.barrier()  # every rank must be at the same key
        Named.order.append(self.name)
        return {"t": self.tensor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensor = state["t"]


def key_orders(step: int) -> list[str]:
    """Keys inserted in another order on each rank, whose states take part in collectives."""
    names = ["b", "a", "c"] if dist.get_rank() else ["a", "c", "b"]
    dcp.save({name: Named(name) for name in sorted(names)}, checkpoint_id=path(step),
             storage_writer=HearthWriter(base()))
    Named.order.clear()
    dcp.load({name: Named(name) for name in names}, checkpoint_id=path(step),
             storage_reader=HearthReader())
    return Named.order


def global_plans(step: int) -> int:
    """How many plans prepare_global_plan got here."""
    seen = [0]

    class Counting(HearthReader):
        def prepare_global_plan(self, plans: Any) -> Any:
            seen[0] = len(plans)
            return plans

    save_plain(step)
    dcp.load({"n": 0}, checkpoint_id=path(step), storage_reader=Counting())
    return seen[0]


def load_failing(hook: str, at: int, step: int) -> str:
    """A load in which one rank's reader fails."""
    save_plain(step)
    reader = HearthReader()
    if dist.get_rank() == at:
        def broken(*args: Any, **kwargs: Any) -> Any:
            reader.error = HearthError(f"made to fail in {hook}")
            raise reader.error
        setattr(reader, hook, broken)
    try:
        ht.load({"n": 0}, checkpoint_id=path(step), storage_reader=reader)
    except CheckpointException as error:
        return f"{sorted(error.failures)} {[str(e[0]) for e in error.failures.values()]}"
    return "it did not fail"


def load_resharded(step: int) -> dict[str, torch.Tensor]:
    """The same tensors cut in other ways."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = meshes()
    ways = {"rows": [Shard(1)], "columns": [Shard(0)], "copies": [Shard(0)], "uneven": [Shard(1)],
            "deep": [Shard(0)], "both": [Replicate()], "hsdp": [Shard(1)]}
    shapes = {"rows": (10, 6), "columns": (6, 10), "copies": (5,), "uneven": (3, 4),
              "deep": (3, 4, 9), "both": (8, 8), "hsdp": (8, 3)}
    state = {name: distribute_tensor(torch.zeros(shapes[name]), mesh["flat"], way)
             for name, way in ways.items()}
    dcp.load(state, checkpoint_id=path(step), storage_reader=HearthReader())
    return wholes(state)


# ---- containers of other programs ----------------------------------------------------------------

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "data")


def job_base(job: str) -> str:
    return f"{os.environ['HEARTH_ROOT']}/{job}"


def place(job: str, container: str, mine: Any, as_name: str | None = None) -> None:
    """Files of a container of tests/data on this rank's node: mine(rank, name) says which."""
    import shutil

    there = f"{job_base(job)}/{as_name or container}"
    os.makedirs(there, mode=0o700, exist_ok=True)
    for name in os.listdir(f"{DATA}/container/{container}"):
        if mine(dist.get_rank(), name):
            shutil.copy(f"{DATA}/container/{container}/{name}", f"{there}/{name}")
            os.chmod(f"{there}/{name}", 0o600)
    dist.barrier()


def everything(rank: int, name: str) -> bool:
    return True


def own_only(rank: int, name: str) -> bool:
    """As ml-flashpoint leaves it: each node its own rank's objects and the common ones."""
    return f"src{rank}." in name or not name.startswith("__")


def first_node_only(rank: int, name: str) -> bool:
    return rank == 0


def metadata_on_second(rank: int, name: str) -> bool:
    return own_only(rank, name) and (name != ".metadata" or rank == 1)


def one_object_nowhere(rank: int, name: str) -> bool:
    return name != "__1__0_src1.distcp" and everything(rank, name)


def common_on_first(rank: int, name: str) -> bool:
    return own_only(rank, name) and (name != "common.pt" or rank == 0)


def touch(job: str, name: str, on: int) -> None:
    """A file beside the containers of one rank's node."""
    if dist.get_rank() == on:
        os.makedirs(job_base(job), mode=0o700, exist_ok=True)
        with open(f"{job_base(job)}/{name}", "w"):
            pass
    dist.barrier()


def find(job: str, common: tuple[str, ...] = ("common.pt",)) -> tuple[str | None, int, list[str]]:
    """What recover() finds: its last path component, bytes pulled here, common objects to be had."""
    found = ht.recover(job_base(job), common=common)
    if found is None:
        return None, 0, []
    checkpoint = _jobs.membership(job_base(job), {}).recovered
    assert checkpoint is not None
    here = [name for name in (".metadata", *common) if checkpoint.common(name)]
    return os.path.basename(found.path), found.info.pulled_bytes, here


def find_error(job: str) -> str:
    try:
        return str(find(job))
    except HearthError as error:
        return f"{error.name}: {error}"


def read_everything(job: str, step: int, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """All keys of a container of tests/data, through DCP, under their flat names."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    reader = HearthReader()
    reader.reset(f"{job_base(job)}/step-{step}_ckpt")
    target: dict[str, Any] = {}
    for name, entry in reader.read_metadata().state_dict_metadata.items():
        if name in leave_out:
            continue
        tensor = isinstance(entry, TensorStorageMetadata)
        target[name] = torch.zeros(entry.size, dtype=entry.properties.dtype) if tensor else None
    dcp.load(target, storage_reader=reader)
    return target


def read_raw(job: str, name: str, offset: int, length: int) -> bytes:
    """Bytes of an object of what was recovered."""
    checkpoint = _jobs.membership(job_base(job), {}).recovered
    assert checkpoint is not None
    return checkpoint.read_ranges([(name, offset, length)])[0]


def find_with_own_gather(job: str) -> str | None:
    """The ranks meet through a gather of the caller's, and no process group is asked."""
    from hearth_checkpoint.job import Job

    asked = []

    def gather(mine: bytes) -> list[bytes]:
        asked.append(len(mine))
        out: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(out, mine)
        return out

    job_ = Job.open(job_base(job), rank=dist.get_rank(), world=dist.get_world_size(),
                    gather=gather)
    checkpoint = job_.recover()
    name = None if checkpoint is None else os.path.basename(checkpoint.path)
    if checkpoint is not None:
        checkpoint.close()
    job_.close(keep=False)
    assert asked
    return name


def files_after_save(step: int) -> list[str]:
    """What a save leaves on this node."""
    save_plain(step)
    return sorted(os.listdir(path(step)))


# ---- some of the ranks ---------------------------------------------------------------------------


def plain(step: int, fill: bool = True) -> dict[str, Any]:
    """The same on every rank, as under DDP."""
    weight = whole(step, 300, 7)
    return {"weight": weight if fill else torch.zeros_like(weight), "step": step if fill else 0}


def save_alone(step: int, ranks: tuple[int, ...], asynchronous: bool = False) -> bool:
    """Those of `ranks` save what all have, each for itself; the others call nothing."""
    ht.recover(base())
    if dist.get_rank() not in ranks:
        return False
    writer = HearthWriter(base(), ranks=ranks, timeout_s=30.0)
    if asynchronous:
        state = writer.stage(plain(step))
        dcp.save(state, checkpoint_id=path(step), storage_writer=writer, no_dist=True)
    else:
        dcp.save(plain(step), checkpoint_id=path(step), storage_writer=writer, no_dist=True)
    return True


def save_parts_alone(step: int, ranks: tuple[int, ...]) -> str:
    """Two parts by those of `ranks`; the second first as if all ranks took part."""
    ht.recover(base())
    if dist.get_rank() not in ranks:
        return ""
    both = "weight", "step"

    def save(at: int, part: str, who: tuple[int, ...] | None) -> None:
        dcp.save({part: plain(at)[part]}, checkpoint_id=path(at), no_dist=True,
                 storage_writer=HearthWriter(base(), part=part, parts=both, ranks=who,
                                             timeout_s=30.0))

    said = ""
    save(step, "weight", ranks)
    try:
        save(step, "step", None)
    except CheckpointException as error:
        said = str(error)
    for part in both:
        save(step + 1, part, ranks)
    return said


def load_parts_alone(step: int) -> bool:
    """As load_alone(), of what save_parts_alone() has saved."""
    dist.barrier()
    _jobs.forget(base())
    assert ht.latest(base()) == path(step)
    state = {"weight": plain(step, fill=False)["weight"]}
    dcp.load(state, checkpoint_id=path(step), storage_reader=HearthReader(part="weight"),
             no_dist=True)
    return bool(torch.equal(state["weight"], plain(step)["weight"]))


def load_alone(step: int) -> bool:
    """As after a restart of the ranks: every rank reads what one has saved."""
    dist.barrier()
    _jobs.forget(base())
    assert ht.latest(base()) == path(step)
    state = plain(step, fill=False)
    dcp.load(state, checkpoint_id=path(step), storage_reader=HearthReader(), no_dist=True)
    return bool(torch.equal(state["weight"], plain(step)["weight"]) and state["step"] == step)


def calls_in_a_forked_child() -> dict[str, str]:
    """What each call of the package says there, which would wait for other ranks here."""
    import json
    import signal

    import hearth_checkpoint.torch.dcp as ours
    from hearth_checkpoint.torch import async_save, group, latest, load_latest, protection, recover

    path = f"{base()}/step-1_ckpt"
    state = {f"w{dist.get_rank()}": torch.ones(3)}
    writer, reader = HearthWriter(base()), HearthReader(base())
    async_save(state, checkpoint_id=path, storage_writer=writer).result(60)
    dist.barrier()
    calls = {
        "latest": lambda: latest(base()), "recover": lambda: recover(base()), "group": group,
        "leave": lambda: ht.leave(base()), "protection": lambda: protection(base()),
        "load_latest": lambda: load_latest(state, base=base()),
        "async_save": lambda: async_save(
            state, checkpoint_id=path, storage_writer=writer).result(60),
        "dcp.async_save": lambda: dcp.async_save(
            state, checkpoint_id=path, storage_writer=writer).result(60),
        "dcp.save": lambda: dcp.save(state, checkpoint_id=path, storage_writer=writer),
        "dcp.load": lambda: dcp.load(state, checkpoint_id=path, storage_reader=reader),
        "a new reader": lambda: dcp.load(state, checkpoint_id=path, storage_reader=HearthReader()),
        "hearth_checkpoint.torch.dcp.save": lambda: ours.save(state, checkpoint_id=path),
        "hearth_checkpoint.torch.dcp.load": lambda: ours.load(state, checkpoint_id=path),
        "Job.open": lambda: Job.open(base(), rank=0, world=1),
    }
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        said = {}
        for name, call in calls.items():
            signal.alarm(10)
            try:
                call()
                said[name] = "it worked"
            except BaseException as error:
                said[name] = getattr(error, "name", "") or f"{type(error).__name__}: {error}"
            os.write(writing, json.dumps({name: said[name][:200]}).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with open(reading) as lines:
        said = {name: text for line in lines for name, text in json.loads(line).items()}
    os.waitpid(child, 0)
    dist.barrier()
    return {name: said.get(name, "it hangs") for name in calls}


def protected() -> tuple[str | None, int | None, str | None]:
    """How the newest save stands when it was written with all of its copies."""
    dcp.save({f"w{dist.get_rank()}": torch.ones(3)}, checkpoint_id=f"{base()}/step-1_ckpt",
             storage_writer=HearthWriter(base()))
    held = ht.protection(base())
    dist.barrier()
    return held.level, held.copies, held.mend


def different_steps(how: str) -> dict[str, Any]:
    """Rank 1 names another step in a save, and the same one in the next."""
    rank, out = dist.get_rank(), {}
    writer = HearthWriter(base(), timeout_s=30)
    state = {f"w{rank}": torch.full((3,), 1.0)}

    def save(step: int) -> None:
        path = f"{base()}/step-{step}_ckpt"
        if how == "async_save":
            dcp.async_save(state, checkpoint_id=path, storage_writer=writer,
                           process_group=ht.group()).result(60)
        else:
            dcp.save(state, checkpoint_id=path, storage_writer=writer)

    save(1)
    begun = time.monotonic()
    try:
        save(5 + rank)
        out["said"] = "nothing"
    except CheckpointException as error:
        out["said"] = "; ".join(str(raised) for raised, _ in error.failures.values())
    out["s"] = time.monotonic() - begun
    save(7)
    if rank == 0:
        state["more"] = torch.ones(2)
    save(8)
    out["s_all"] = time.monotonic() - begun
    into = {f"w{rank}": torch.zeros(3)}
    dcp.load(into, checkpoint_id=f"{base()}/step-8_ckpt", storage_reader=HearthReader())
    out["loaded"] = float(into[f"w{rank}"].sum())
    return out


def different_steps_without_an_exchange(how: str) -> dict[str, Any]:
    """Like different_steps(), but DCP's ranks do not exchange their plans."""
    rank, out = dist.get_rank(), {}
    ht.latest(base(), dead_ms=1000)
    writer = HearthWriter(base(), timeout_s=60)
    state = {f"w{rank}": torch.full((3,), 1.0)}

    def save(step: int) -> None:
        arguments: dict[str, Any] = (
            {"planner": dcp.DefaultSavePlanner(enable_plan_caching=True)} if how == "kept plans"
            else {"use_collectives": False})
        dcp.save(state, checkpoint_id=f"{base()}/step-{step}_ckpt", storage_writer=writer,
                 **arguments)

    save(1)
    save(2)
    begun = time.monotonic()
    try:
        save(5 + rank)
        out["said"] = "nothing"
    except CheckpointException as error:
        out["said"] = "; ".join(str(raised) for raised, _ in error.failures.values())
    except HearthError as error:
        out["said"] = str(error)
    out["s"] = time.monotonic() - begun
    dist.barrier()
    save(7)
    out["s_all"] = time.monotonic() - begun
    return out


def same_steps_with_kept_plans() -> list[int]:
    """Plans that change on one rank alone."""
    rank, out = dist.get_rank(), []
    writer = HearthWriter(base(), timeout_s=30)
    state = {f"w{rank}": torch.ones(3)}
    for step in (1, 2, 3, 4, 5):
        if rank == step % 2:
            state[f"more{step}"] = torch.ones(2)
        dcp.save(state, checkpoint_id=f"{base()}/step-{step}_ckpt", storage_writer=writer,
                 planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
        out.append(step)
    return out
