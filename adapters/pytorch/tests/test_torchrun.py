# SPDX-License-Identifier: Apache-2.0
"""torchrun's store, where ranks meet before there is a process group."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import kills

HERE = os.path.dirname(os.path.abspath(__file__))


def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HEARTH_LINGER_S": "5", "OMP_NUM_THREADS": "1",
                   "PYTHONPATH": os.path.dirname(HERE), **variables}
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_ranks_meet_before_there_is_a_process_group(folder):
    agent = start("--standalone", "--nproc-per-node", "2", f"{HERE}/early_work.py", folder)
    said, errors = agent.communicate(timeout=180)
    assert agent.returncode == 0, said + errors
    assert said.count("is done") == 2, said


def test_ranks_of_two_agents_meet_again_after_a_restart(folder):
    """Only the agent whose rank has died counts it."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    agents = [start(
        "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "restart", "--local-addr", "127.0.0.1",
        "--rdzv-conf", f"is_host={1 - node}", "--monitor-interval", "0.2",
        f"{HERE}/restart_work.py", folder, HEARTH_NODE=f"node{node}",
        HEARTH_MACHINE=f"node{node}") for node in (0, 1)]
    try:
        outs = [agent.communicate(timeout=120) for agent in agents]
    finally:
        for agent in agents:
            agent.terminate()  # it ends its ranks
            agent.wait(60)
    for agent, (said, errors) in zip(agents, outs):
        assert agent.returncode == 0, said + errors
    said = "".join(said for said, _ in outs)
    assert "rank 0 is done, 1 restarts" in said and "rank 1 is done, 0 restarts" in said, said


def test_a_kill_costs_one_restart(folder):
    """In the order that may cost two if lives share the agent's store; many kills are on demand."""
    restarts, said = kills.run(folder, 1, "latest", shared=False, timeout_s=120)
    assert restarts == 1, said
