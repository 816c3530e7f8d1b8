# SPDX-License-Identifier: Apache-2.0
"""Ranks whose process group is destroyed and made again; functions for ranks.World."""

from __future__ import annotations

import glob
from typing import Any

import rank_work as work
import torch
import torch.distributed as dist

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch._whole import Saver


def threads() -> list[str]:
    """Of gloo, in this process."""
    names = []
    for path in glob.glob("/proc/self/task/*/comm"):
        with open(path, encoding="utf-8") as file:
            names.append(file.read().strip())
    return sorted(name for name in names if "gloo" in name)


def destroyed_and_again(store: str) -> dict[str, Any]:
    """What there is of gloo before and after, and what a save and a recovery say then."""
    rank, world = dist.get_rank(), dist.get_world_size()
    said: dict[str, Any] = {"found": ht.recover(work.base())}
    saver = Saver(work.base(), on_error="raise")
    ht.group()
    saver.save("checkpoint-1", lambda: {"w": torch.full((8,), float(rank))}).result(60)
    said["before"] = threads()
    dist.barrier()
    dist.destroy_process_group()
    said["after"] = threads()
    try:
        ht.recover(work.base())
    except HearthError as error:
        said["without"] = str(error)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    saver.save("checkpoint-2", lambda: {"w": torch.full((8,), float(rank))}).result(60)
    found = ht.recover(work.base())
    said["step"] = found.step if found is not None else None
    saver.close()
    work.leave()
    return said


def left_and_joined_again() -> list[int]:
    """Threads of gloo after a job was joined, saved to and left; and again; and once more."""
    counts = []
    for step in (1, 2, 3):
        ht.recover(work.base())
        saver = Saver(work.base(), on_error="raise")
        saver.save(f"checkpoint-{step}", lambda: {"w": torch.ones(8)}).result(60)
        saver.close()
        work.leave()
        counts.append(threads().count("gloo_tcp_loop"))
    return counts
