# SPDX-License-Identifier: Apache-2.0
"""A tensor-parallel training of Megatron-core's layers under torchrun, each rank on a node of its
own; writes its losses.

    megatron_work.py sync|async FOLDER STEPS DIE_AT
"""

from __future__ import annotations

import os
import signal
import sys

rank = os.environ["RANK"]
kind, folder, steps, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.makedirs(f"{folder}/node{rank}", exist_ok=True)
os.environ.update(HEARTH_NODE=f"node{rank}", HEARTH_MACHINE=f"node{rank}",
                  HEARTH_TRANSPORT="tcp", GLOO_SOCKET_IFNAME="lo",
                  HEARTH_HEARTBEAT_MS="300", HEARTH_DEAD_MS="5000")

import torch.distributed as dist  # noqa: E402
from megatron_parts import Trainer, queue  # noqa: E402

import hearth_checkpoint.torch as ht  # noqa: E402
from hearth_checkpoint.megatron import HearthSaveStrategy, load, newest, save  # noqa: E402

base = f"{folder}/node{rank}/job"
dist.init_process_group("gloo")
trainer, calls, memory = Trainer(), queue(), HearthSaveStrategy(base)
path = newest(base)
if path is not None:
    trainer.take(load(trainer.sharded_state(), path))
print(f"rank {rank} goes on from {trainer.step}", flush=True)
while trainer.step < steps:
    loss = trainer.train_step()
    with open(f"{folder}/losses.{rank}", "a", encoding="utf-8") as file:
        file.write(f"{trainer.step} {loss.hex()}\n")
    calls.maybe_finalize_async_calls()
    if trainer.step % 2 == 0:
        request = save(trainer.sharded_state(), f"{base}/iter_{trainer.step:07d}", memory,
                       async_sharded_save=kind == "async")
        if request is not None:
            calls.schedule_async_request(request)
    if trainer.step == die_at:
        calls.maybe_finalize_async_calls(blocking=True)
        if rank == "1":
            os.kill(os.getpid(), signal.SIGKILL)
calls.close()
dist.destroy_process_group()
ht.leave(base, keep=False)
