# SPDX-License-Identifier: Apache-2.0
"""A training of torchtitan's parts under torchrun, each rank on a node of its own; writes its
losses.

    titan_work.py wrapper|config FOLDER STEPS DIE_AT
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
from titan_parts import Trainer  # noqa: E402

import hearth_checkpoint.torch as ht  # noqa: E402

base = f"{folder}/node{rank}/job"
dist.init_process_group("gloo")
every = {"wrapper": "every_n_steps", "config": "interval"}[kind]
trainer = Trainer(folder, {"base": base, every: 2, "on_error": "raise"}, of_config=kind == "config")
trainer.checkpointer.load()
print(f"rank {rank} goes on from {trainer.step}", flush=True)
while trainer.step < steps:
    loss = trainer.saved_step(steps)
    with open(f"{folder}/losses.{rank}", "a", encoding="utf-8") as file:
        file.write(f"{trainer.step} {loss.hex()}\n")
    if trainer.step == die_at and rank == "1":
        trainer.checkpointer._memory.wait()
        os.kill(os.getpid(), signal.SIGKILL)
trainer.checkpointer.close()
dist.destroy_process_group()
ht.leave(base, keep=False)
