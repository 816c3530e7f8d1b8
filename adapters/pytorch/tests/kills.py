# SPDX-License-Identifier: Apache-2.0
"""The cost of a killed rank under a real torchrun: one restart, and no hang.

    python kills.py --kills 12 --order latest

Two ranks join the job, save, and end. In each life but the last one rank is killed, in turn, at one
of three points (kills_work.py). Every life counts. torchrun gets
TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, as on the page; with --shared it does not, and then gloo may
read addresses of an earlier life.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2


def run(folder: str, kills: int, order: str, shared: bool, timeout_s: float) -> tuple[int, str]:
    """Restarts, and what torchrun said. RuntimeError where the job did not come to its end."""
    for name in ("lives", "killed"):
        os.makedirs(f"{folder}/{name}")
    environment = {**os.environ, "HEARTH_LINGER_S": "5", "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.dirname(HERE),
                   "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": str(int(not shared))}
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        environment.pop(name, None)
    agent = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(RANKS), "--max-restarts", str(3 * kills), "--monitor-interval", "0.1",
         f"{HERE}/kills_work.py", folder, str(kills), order],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        said, _ = agent.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        agent.terminate()  # it ends its ranks
        said, _ = agent.communicate(timeout=60)
        raise RuntimeError(f"not over in {timeout_s:g} s:\n{said}") from None
    if agent.returncode or said.count("is done") != RANKS:
        raise RuntimeError(said)
    lives = []
    for rank in range(RANKS):
        with open(f"{folder}/lives/{rank}", encoding="ascii") as each:
            lives.append(len(each.readlines()))
    return max(lives) - 1, said


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=12)
    arguments.add_argument("--order", choices=("group", "latest"), default="latest",
                           help="what the ranks call first: init_process_group() or latest()")
    arguments.add_argument("--shared", action="store_true")
    arguments.add_argument("--folder")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as made:
        begun = time.monotonic()
        restarts, said = run(given.folder or made, given.kills, given.order, given.shared,
                             60.0 + 60.0 * given.kills)
        print(f"{given.kills} kills, {given.order} first: {restarts} restarts, "
              f"{time.monotonic() - begun:.0f} s")
    if restarts != given.kills:
        print(said)
    return int(restarts != given.kills)


if __name__ == "__main__":
    sys.exit(main())
