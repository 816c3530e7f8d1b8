# SPDX-License-Identifier: Apache-2.0
"""A rank that ends with its process groups as they are, as many trainings do; writes what was left
of gloo when the interpreter was about to end.

    end_work.py FOLDER
"""

from __future__ import annotations

import atexit
import os
import sys

rank, folder = os.environ["RANK"], sys.argv[1]
os.makedirs(f"{folder}/node{rank}")
os.environ.update(HEARTH_NODE=f"node{rank}", HEARTH_MACHINE=f"node{rank}",
                  HEARTH_TRANSPORT="tcp", GLOO_SOCKET_IFNAME="lo")


def left() -> None:
    with open(f"{folder}/left.{rank}", "w", encoding="utf-8") as file:
        file.write("\n".join(group_work.threads()))


atexit.register(left)  # before those of what is imported now: the last to be called

import group_work  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import hearth_checkpoint.torch as ht  # noqa: E402
from hearth_checkpoint.torch._whole import Saver  # noqa: E402

dist.init_process_group("gloo")
base = f"{folder}/node{rank}/job"
assert ht.recover(base) is None
ht.group()
saver = Saver(base, on_error="raise")
saver.save("checkpoint-1", lambda: {"w": torch.ones(8)}).result(60)
assert group_work.threads().count("gloo_tcp_loop") == 4
ht.leave(base, keep=False)
