# SPDX-License-Identifier: Apache-2.0
"""A rank under torchrun that asks for the newest checkpoint before there is a process group."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import hearth_checkpoint.torch as ht


def main(folder: str) -> None:
    rank = int(os.environ["RANK"])
    os.environ["HEARTH_NODE"] = os.environ["HEARTH_MACHINE"] = f"node{rank}"
    os.makedirs(f"{folder}/node{rank}")
    base = f"{folder}/node{rank}/job"
    assert os.environ["TORCHELASTIC_USE_AGENT_STORE"] == "True" and not dist.is_initialized()
    assert ht.latest(base) is None
    dist.init_process_group("gloo")
    dcp.save({"w": torch.ones(4)}, checkpoint_id=f"{base}/7", storage_writer=ht.HearthWriter(base))
    dist.destroy_process_group()
    ht.leave(base)
    found = ht.latest(base)
    assert found == f"{base}/step-7_ckpt", found
    ht.leave(base, keep=False)
    print(f"rank {rank} is done", flush=True)


main(sys.argv[1])
