# SPDX-License-Identifier: Apache-2.0
"""What ranks do in mlf_live.py: the real ml-flashpoint and Hearth save and load one state."""

from __future__ import annotations

import concurrent.futures
import ctypes
import io
import json
import os
import threading
from types import SimpleNamespace
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import hearth_checkpoint.torch as ht

_NEWNS, _BIND, _REC_PRIVATE = 0x20000, 0x1000, 0x4000 | 0x40000
_theirs: dict[str, Any] = {}


def enter(folder: str) -> None:
    """From here on this rank has its node's folder at the path that all nodes have."""
    libc = ctypes.CDLL(None, use_errno=True)
    node, here = f"{folder}/node{dist.get_rank()}", f"{folder}/here"
    os.makedirs(f"{node}/job", mode=0o700, exist_ok=True)
    os.makedirs(here, exist_ok=True)
    dist.barrier()
    for failed in (libc.unshare(_NEWNS), libc.mount(b"none", b"/", None, _REC_PRIVATE, None),
                   libc.mount(node.encode(), here.encode(), None, _BIND, None)):
        if failed:
            raise OSError(ctypes.get_errno(), "a mount namespace is refused")
    with open(f"{folder}/log", "ab") as log:  # ml-flashpoint writes many lines to stderr
        os.dup2(log.fileno(), 2)


def state(step: int) -> dict[str, Any]:
    """Of this rank; sizes differ from step to step, so that buffers are written again in part."""
    rank = dist.get_rank()
    floats = 20_000 + 7_001 * (step % 5) + 999 * rank
    return {f"w{rank}": torch.arange(float(floats)) + step * 1000 + rank,
            f"h{rank}": torch.full((257,), step % 200, dtype=torch.bfloat16),
            "rows": work.sharded()["rows"] * float(step),
            f"group{rank}": {"lr": step / 8, "rank": rank, "name": f"step {step}"}}


def _zeros(step: int) -> dict[str, Any]:
    rank, full = dist.get_rank(), state(step)
    return {key: {"lr": 0.0, "rank": -1, "name": ""} if key == f"group{rank}"
            else torch.zeros_like(value) for key, value in full.items()}


def _differ(step: int, got: dict[str, Any]) -> tuple[int, int]:
    """Values that were compared, and how many differ."""
    compared = wrong = 0
    for key, value in state(step).items():
        pairs = [(value, got[key])]
        if isinstance(value, dict):
            pairs = [(value[name], got[key][name]) for name in value]
        for wanted, one in pairs:
            if isinstance(wanted, torch.Tensor):
                wanted, one = (each.to_local() if hasattr(each, "to_local") else each
                               for each in (wanted, one))
                compared += wanted.numel()
                wrong += int((wanted != one).sum())
            else:
                compared, wrong = compared + 1, wrong + int(wanted != one)
    return compared, wrong


def _step_of(path: str) -> int:
    return int(os.path.basename(path).split("-")[1].split("_")[0])


# ---- Hearth --------------------------------------------------------------------------------------


def hearth_load(base: str) -> tuple[int, int, int] | None:
    """The newest step, values compared, values that differ."""
    path = ht.latest(base)
    if path is None:
        return None
    step = _step_of(path)
    got = _zeros(step)
    dcp.load(got, checkpoint_id=path, storage_reader=ht.HearthReader())
    return step, *_differ(step, got)


def hearth_save(base: str, step: int) -> None:
    iteration = io.BytesIO()
    torch.save({"iteration": step}, iteration)  # empty files are none that ml-flashpoint brings
    common = {"common.pt": iteration.getvalue(),
              "metadata.json": json.dumps({"sharded_backend": ""}).encode()}
    dcp.save(state(step), checkpoint_id=f"{base}/step-{step}_ckpt",
             storage_writer=ht.HearthWriter(base, common=common))


def hearth_leave(base: str) -> None:
    """The ranks go, and the engines stay for a while."""
    ht.leave(base)
    dist.barrier()


# ---- ml-flashpoint -------------------------------------------------------------------------------


def _mlf(base: str) -> dict[str, Any]:
    """Its objects, as its own adapters make them, once in a process. Collective the first time."""
    if _theirs:
        return _theirs
    from ml_flashpoint.checkpoint_object_manager.checkpoint_object_manager import (
        CheckpointObjectManager,
    )
    from ml_flashpoint.core.buffer_pool import BufferPoolConfig
    from ml_flashpoint.core.checkpoint_loader import DefaultMLFlashpointCheckpointLoader
    from ml_flashpoint.core.checkpoint_saver import DefaultMLFlashpointCheckpointSaver
    from ml_flashpoint.replication import replication_manager as replication
    from ml_flashpoint.replication.transfer_service import transfer_service_ext

    rank = dist.get_rank()
    objects = CheckpointObjectManager(pool_config=BufferPoolConfig(
        pool_dir_path=f"{base}/buffer_pool", rank=rank, num_buffers=2, buffer_size=1 << 20))
    service = transfer_service_ext.TransferService()
    mine = f"127.0.0.1:{service.initialize(0, global_rank=rank)}"
    addresses: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(addresses, mine)
    manager = replication.ReplicationManager()
    manager.initialize(
        checkpoint_object_manager=objects, replication_transfer_service=service,
        repl_strategy=replication.PairwiseReplicationStrategy(addresses, processes_per_node=1))
    saver = DefaultMLFlashpointCheckpointSaver(
        global_rank_getter=dist.get_rank, local_rank_getter=lambda: 0,
        global_barrier_func=dist.barrier, ckpt_obj_manager=objects, replication_manager=manager,
        initial_buffer_size_bytes=1 << 20)
    loader = DefaultMLFlashpointCheckpointLoader(
        objects, manager, global_rank_getter=dist.get_rank, local_rank_getter=lambda: 0,
        broadcast_object_list_func=dist.broadcast_object_list,
        all_gather_object_func=dist.all_gather_object, world_size_getter=dist.get_world_size)
    _theirs.update(saver=saver, loader=loader)
    return _theirs


def mlf_load(base: str) -> tuple[int, int, int] | None:
    from ml_flashpoint.adapter.pytorch.memory_storage_reader import MemoryStorageReader
    from ml_flashpoint.core.checkpoint_id_types import CheckpointContainerId

    loader = _mlf(base)["loader"]
    found = loader.get_latest_complete_checkpoint(CheckpointContainerId(base))
    if found is None:
        return None
    step = _step_of(found.data)
    got = _zeros(step)
    dcp.load(got, checkpoint_id=found.data, storage_reader=MemoryStorageReader(found.data, loader))
    return step, *_differ(step, got)


def mlf_save(base: str, step: int) -> None:
    """The steps of its Megatron strategy, in one process: plan, stage, write, replicate, finish."""
    from ml_flashpoint.adapter.pytorch import custom_state_dict_saver as steps
    from ml_flashpoint.adapter.pytorch.memory_storage_writer import MemoryStorageWriter
    from ml_flashpoint.core.checkpoint_id_types import CheckpointContainerId
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.utils import _DistWrapper

    saver, path = _mlf(base)["saver"], f"{base}/step-{step}_ckpt"
    container = CheckpointContainerId(path)
    saver.initialize_checkpoint(container)
    torch.save({"iteration": step}, f"{path}/common.pt")
    with open(f"{path}/metadata.json", "w", encoding="ascii") as stub:
        json.dump({"sharded_backend": ""}, stub)
    shared: concurrent.futures.Future[Any] = concurrent.futures.Future()
    shared.set_result(SimpleNamespace(dict=dict, Event=threading.Event))
    writer = MemoryStorageWriter(saver, shared)
    writer.reset(path)
    ranks = _DistWrapper(None, True, 0)
    buckets, metadata, *_ = steps.generate_plan(
        container, state(step), writer, DefaultSavePlanner(), ranks)
    staged = writer.stage_write_data_buckets(container, buckets)
    steps.write_data(container, writer, staged, replicate_after_write=False)
    for copied in writer.replicate_written_objects({bucket.object_id for bucket in staged}):
        assert copied.result(60).success  # it does not wait itself: a loss now would be one of both
    steps.finish_write(container, writer, metadata, ranks)
    older = saver.finalize_checkpoint(container)
    if older is not None:
        older.wait(60)
    dist.barrier()
