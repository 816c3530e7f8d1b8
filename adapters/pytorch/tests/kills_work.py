# SPDX-License-Identifier: Apache-2.0
"""A rank under torchrun in a job whose ranks are killed, one in each life of the job, at different
points; each life notes what it was. It first calls init_process_group(), as the page recommends, or
latest()."""

import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import hearth_checkpoint.torch as ht

POINTS = ("met", "recovered", "saved")


def main(folder: str, kills: int, group_first: bool) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ["HEARTH_NODE"] = os.environ["HEARTH_MACHINE"] = f"node{rank}"
    base = f"{folder}/node{rank}/job"
    os.makedirs(os.path.dirname(base), exist_ok=True)
    killed = len(os.listdir(f"{folder}/killed"))
    with open(f"{folder}/lives/{rank}", "a", encoding="ascii") as lives:
        lives.write(f"{killed}\n")

    def come_to(point: str) -> None:
        """The rank whose turn it is ends here by SIGKILL. The others go on until torchrun ends
        them."""
        if killed < kills and killed % world == rank and POINTS[killed % len(POINTS)] == point:
            with open(f"{folder}/killed/{killed}", "w", encoding="ascii"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    if group_first:
        dist.init_process_group("gloo")
        come_to("met")
    found = ht.latest(base)
    come_to("recovered")
    if not group_first:
        dist.init_process_group("gloo")
        come_to("met")
    step, state = 0, {"w": torch.zeros(4)}
    if found is not None:
        dcp.load(state, checkpoint_id=found, storage_reader=ht.HearthReader())
        step = int(state["w"][0])
    dcp.save({"w": torch.full((4,), step + 1.0)}, checkpoint_id=f"{base}/{step + 1}",
             storage_writer=ht.HearthWriter(base))
    come_to("saved")
    dist.barrier()
    dist.destroy_process_group()
    ht.leave(base, keep=False)
    print(f"rank {rank} is done at step {step + 1}", flush=True)


main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "group")
