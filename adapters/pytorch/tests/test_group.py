# SPDX-License-Identifier: Apache-2.0
"""Process groups of our own end with the training's, or with the program."""

from __future__ import annotations

import group_work
import pytest
import skip_work
import trained
from lacks import needs
from ranks import World


@needs("thread_names")
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


@needs("thread_names")
def test_a_job_that_is_left_leaves_no_thread_of_gloo(folder: str) -> None:
    with World(2, 2, folder) as world:
        assert world.run(group_work.left_and_joined_again) == [[1, 1, 1]] * 2  # of torch's own


@needs("thread_names")
def test_our_threads_of_gloo_end_before_an_interpreter_does_whose_groups_stand(folder: str) -> None:
    done = trained.train("end_work.py", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        with open(f"{folder}/left.{rank}", encoding="utf-8") as file:
            left = file.read().split()
        assert left == ["gloo_tcp_loop", "pt_gloo_runloop", "pt_gloo_runloop"]  # of torch's own


def test_saves_that_one_rank_skips_are_written_by_none_and_take_no_time(folder: str) -> None:
    last = skip_work.SKIPPED.stop
    with World(2, 2, folder) as world:
        for said in world.run(skip_work.one_skips):
            assert said["wrote"] == ["1", str(last)]
            assert said["done"] == [True] + [False] * len(skip_work.SKIPPED) + [True]
            assert said["failures"] == len(skip_work.SKIPPED)
            assert said["step"] == said["loaded"] == last


@pytest.mark.parametrize("how", ["save", "async_save", "hearth_checkpoint.torch.async_save"])
def test_a_save_that_fails_on_another_rank_takes_no_room(folder: str, how: str) -> None:
    with World(2, 2, folder, HEARTH_KEEP="1") as world:
        assert world.run(skip_work.one_fails_after_its_commit, how) == [[1, 1, 3]] * 2


def test_a_save_whose_step_one_rank_does_not_name_takes_no_room(folder: str) -> None:
    with World(2, 2, folder, HEARTH_KEEP="1") as world:
        assert world.run(skip_work.one_names_no_step) == [[True, False, True, True]] * 2


@needs("use_collectives")
@pytest.mark.parametrize("how", ["whole", "parts", "sync", "planner"])
def test_one_rank_is_refused_without_collectives(two, how):
    for said in two.run(skip_work.one_is_refused_without_collectives, how):
        assert said["done"] == [True, False, True, True], said
        assert said["step"] == 3 and said["longest_s"] < 15, said
