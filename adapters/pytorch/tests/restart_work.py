# SPDX-License-Identifier: Apache-2.0
"""A rank under torchrun that is started again when rank 0 has died, and goes on from its save."""

import os
import signal
import sys
import time

import torch

import hearth_checkpoint.torch as ht
from hearth_checkpoint.torch import _rank_local


def main(folder: str) -> None:
    rank, base = int(os.environ["RANK"]), f"{folder}/{os.environ['HEARTH_NODE']}/job"
    os.makedirs(os.path.dirname(base), exist_ok=True)
    found = ht.recover(base, open_ms=20000)
    if found is None:
        _rank_local.Writer().write(f"{base}/1", {"w": torch.full((4,), float(rank))})
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # until the agent ends it
    assert found.step == 1
    ht.leave(base, keep=False)
    print(f"rank {rank} is done, {os.environ['TORCHELASTIC_RESTART_COUNT']} restarts", flush=True)


main(sys.argv[1])
