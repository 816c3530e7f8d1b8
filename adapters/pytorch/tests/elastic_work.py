# SPDX-License-Identifier: Apache-2.0
"""A process of test_elastic.py and test_cuda.py: counts to 30 on two ranks, with saves, and may go
wrong at 20. cuda: on a GPU, over NCCL."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from hearth_checkpoint.torch import HearthReader, HearthWriter, _recover, elastic

told = []
late = []
device = "cuda" if "cuda" in sys.argv else "cpu"


class Slow(HearthWriter):
    def write_data(self, *args: object, **options: object) -> object:
        time.sleep(1)
        return super().write_data(*args, **options)


def die(*args: object, **options: object) -> None:
    os._exit(9)


def train(turn: elastic.Turn) -> float:
    if "group-own" in sys.argv:
        _recover.group()
    if "no-group-own" in sys.argv:
        time.sleep(1)  # until the other waits
        die()
    mine = {f"count{turn.rank}": torch.zeros(100_000, device=device)}
    count = mine[f"count{turn.rank}"]
    if turn.path:
        dcp.load(mine, checkpoint_id=turn.path, storage_reader=HearthReader())
    for step in range(turn.step + 1, 31):
        one = torch.full((1,), 1 / turn.world, device=device)
        if step == 20 and "hang" in sys.argv:
            open(f"{os.environ['HEARTH_ROOT']}/hangs", "w").close()
            time.sleep(600)
        if step == 20 and "pause" in sys.argv:
            open(f"{os.environ['HEARTH_ROOT']}/pauses", "w").close()
            while not os.path.exists(f"{os.environ['HEARTH_ROOT']}/goes on"):
                time.sleep(0.01)
        if step == 20 and "raise" in sys.argv:
            raise KeyError("made to fail")
        dist.all_reduce(one)
        count += one
        if step % 10 == 0:
            dcp.save(mine, checkpoint_id=f"{turn.base}/step-{step}_ckpt",
                     storage_writer=HearthWriter(turn.base, timeout_s=20))
    if "late-save" in sys.argv:
        late.append(_recover.async_save(mine, checkpoint_id=f"{turn.base}/step-31_ckpt",
                                        storage_writer=Slow(turn.base, timeout_s=20)))
    pulled = turn.found.info.pulled_bytes if turn.found else -1
    print(f"done {count[-1].item()} of turn {turn.number} in {os.getpid()}, pulled {pulled}, "
          f"told {bool(told)}", flush=True)
    return count[-1].item()


if __name__ == "__main__":
    if "no-group-default" in sys.argv:
        dist.init_process_group = die
    job = elastic.Elastic(timeout_s=float(os.environ.get("TIMEOUT_S", 8)), keep=False,
                          on_lost=lambda: told.append(1),
                          backend="cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    job.run(train)
    if late:
        print(f"the last save: {late[0].exception(0)}", flush=True)
