# SPDX-License-Identifier: Apache-2.0
"""Process groups of our own end with the training's."""

from __future__ import annotations

import group_work
from ranks import World


def test_our_threads_of_gloo_end_with_the_process_group_and_a_new_one_serves(folder: str) -> None:
    with World(2, 2, folder) as world:
        for said in world.run(group_work.destroyed_and_again, f"{folder}/again"):
            assert said["found"] is None
            assert said["before"].count("gloo_tcp_loop") == 4  # torch's own, and three of ours
            # torch's own, where torch.distributed.checkpoint was imported while it stood: a default
            # argument there keeps it.
            assert said["after"].count("gloo_tcp_loop") <= 1
            assert "there is none now: leave() the job first" in said["without"]
            assert said["step"] == 2
