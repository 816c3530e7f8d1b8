# SPDX-License-Identifier: Apache-2.0
"""What ranks do in test_mlf.py: containers as ml-flashpoint leaves them, whole and half written,
and saves that ml-flashpoint is to go on from."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import signal
import time
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs

STUB = b'{"sharded_backend": ""}'


# ---- half-written containers ---------------------------------------------------------------------


def change(job: str, changes: list[tuple[Any, ...]]) -> None:
    """(rank or None: all, what, path in the job's directory, more)."""
    base = work.job_base(job)
    for who, what, *rest in changes:
        if who in (None, dist.get_rank()):
            _CHANGES[what](base, *rest)
    dist.barrier()


def _remove(base: str, name: str) -> None:
    if os.path.lexists(f"{base}/{name}"):
        os.unlink(f"{base}/{name}")


def _cut(base: str, name: str, size: int) -> None:
    if os.path.lexists(f"{base}/{name}"):
        os.truncate(f"{base}/{name}", size)


def _fresh(base: str, name: str, size: int) -> None:
    """A buffer that was made and not written to: zeros, sparse."""
    if os.path.lexists(f"{base}/{name}"):
        os.truncate(f"{base}/{name}", 0)
        os.truncate(f"{base}/{name}", size)


def _zero(base: str, name: str, begin: int, end: int | None = None) -> None:
    """Bytes that were made room for and never copied."""
    if os.path.lexists(f"{base}/{name}"):
        with open(f"{base}/{name}", "r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(begin)
            file.write(bytes((size if end is None else end) - begin))


def _rename(base: str, name: str, to: str) -> None:
    if os.path.lexists(f"{base}/{name}"):
        os.rename(f"{base}/{name}", f"{base}/{to}")


def _write(base: str, name: str, data: bytes = b"") -> None:
    os.makedirs(os.path.dirname(f"{base}/{name}"), 0o700, exist_ok=True)
    with open(f"{base}/{name}", "wb") as file:
        file.write(data)


def _pickle(base: str, name: str) -> None:
    _write(base, name, pickle.dumps({"step": 12, "seen": [1, 2]}))


def _pool(base: str, name: str, size: int | None) -> None:
    """The object becomes a link into the writer's buffers. size: the buffer is emptied and made as
    long; None: it is gone; -1: it is well."""
    if not os.path.lexists(f"{base}/{name}"):
        return
    os.makedirs(f"{base}/buffer_pool", 0o700, exist_ok=True)
    buffer = f"{base}/buffer_pool/buffer_{dist.get_rank()}_0.dist"
    os.rename(f"{base}/{name}", buffer)
    os.symlink(buffer, f"{base}/{name}")
    if size is None:
        os.unlink(buffer)
    elif size >= 0:
        os.truncate(buffer, 0)
        os.truncate(buffer, size)


def _replicas(base: str, name: str) -> None:
    """All of the container here, as its replication leaves it."""
    source = f"{work.DATA}/container/{name}"
    for file in os.listdir(source):
        shutil.copy(f"{source}/{file}", f"{base}/{name}/{file}")
        os.chmod(f"{base}/{name}/{file}", 0o600)


_CHANGES: dict[str, Any] = {
    "replicas": _replicas,
    "remove": _remove, "cut": _cut, "fresh": _fresh, "zero": _zero, "rename": _rename, "write": _write,
    "pickle": _pickle, "pool": _pool,
    "mkdir": lambda base, name: os.makedirs(f"{base}/{name}", 0o700),
    "rmdir": lambda base, name: shutil.rmtree(f"{base}/{name}", ignore_errors=True)}


def recover(job: str) -> tuple[int | None, str | None, list[str], list[str]]:
    """Step and path of what is recovered, what lies there, and the warnings on this rank."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hearth_checkpoint").addHandler(handler)
    try:
        found = ht.recover(work.job_base(job))
    finally:
        logging.getLogger("hearth_checkpoint").removeHandler(handler)
    if found is None:
        return None, None, [], lines
    return found.step, found.path, sorted(os.listdir(found.path)), lines


def common_of_recovered(job: str, step: int, name: str) -> tuple[bytes, bytes, bytes]:
    """A common file, as what was recovered, a reader and the folder give it."""
    found = ht.recover(work.job_base(job))
    assert found is not None and found.step == step
    reader = HearthReader()
    reader.reset(found.path)
    with open(f"{found.path}/{name}", "rb") as file:
        return found.common(name), reader.common(name), file.read()


# ---- saves for ml-flashpoint ---------------------------------------------------------------------


def _state(step: int) -> dict[str, Any]:
    me = dist.get_rank()
    return {"rows": work.sharded()["rows"], f"own{me}": torch.full((9,), float(step + me)),
            "empty_of_dims": torch.tensor(2.5), f"group{me}": {"lr": 0.5, "rank": me}}


def _common(step: int) -> dict[str, bytes]:
    import io

    out = io.BytesIO()
    torch.save({"iteration": step, "args": {"tp": 1}}, out)
    return {"common.pt": out.getvalue(), "metadata.json": STUB}


def save(job: str, step: int, how: str) -> str:
    """A save of this state, with ml-flashpoint's files or (how "plain") without. The container."""
    base = work.job_base(job)
    now = [step]
    writer = HearthWriter(base, common=None if how == "plain" else lambda: _common(now[0]))
    path, state = f"{base}/step-{step}_ckpt", _state(step)
    if how in ("plain", "sync"):
        dcp.save(state, checkpoint_id=path, storage_writer=writer)
    else:
        more = {} if how == "thread" else {"async_checkpointer_type": AsyncCheckpointerType.PROCESS}
        future = dcp.async_save(state, checkpoint_id=path, storage_writer=writer,
                                process_group=ht.group() if how == "thread" else None, **more)
        now[0] = -1  # what comes after the copy is not in the save
        future.result(60)
    # rank 0 has waited; this node hears of it a moment later, and names the folder then
    _jobs.membership(base, {}).job.checkpoint(step, wait_s=10.0).close()
    return path


def leave(job: str) -> None:
    """The job's processes end, its memory stays."""
    ht.leave(work.job_base(job))
    dist.barrier()


def _lives(pid: int) -> bool:
    """It is neither gone nor waits to be buried."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def lose_node(job: str, rank: int) -> None:
    """Another machine in its place: its engine and all that it held are gone."""
    base = work.job_base(job)
    if dist.get_rank() == rank:
        with open(f"{base}/.hearth/lock", encoding="ascii") as file:
            engine = int(file.read().split()[0])
        os.kill(engine, signal.SIGKILL)
        until = time.monotonic() + 10
        while _lives(engine) and time.monotonic() < until:
            time.sleep(0.02)
        shutil.rmtree(base)
    dist.barrier()


def read_as_theirs(path: str) -> dict[str, Any]:
    """What ml-flashpoint's rank finds here: its own objects' items, the common state, the stub."""
    import mlf_rules

    items = mlf_rules.read(path, {dist.get_rank()})
    state = torch.load(f"{path}/common.pt", weights_only=False)
    with open(f"{path}/metadata.json", encoding="utf-8") as file:
        return {"items": items, "common": state, "stub": json.load(file)}


def wanted(step: int) -> dict[str, Any]:
    """What rank's items are, of save()."""
    state, me = _state(step), dist.get_rank()
    rows = state["rows"]
    return {"rows": rows.to_local(), f"own{me}": state[f"own{me}"], f"group{me}.lr": 0.5,
            f"group{me}.rank": me}
