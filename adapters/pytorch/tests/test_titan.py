# SPDX-License-Identifier: Apache-2.0
"""torchtitan's checkpoint manager with hearth_checkpoint.torchtitan.
Wants the package: run_tests --callers
installs it. Its trainer takes no CPU: titan_parts.Trainer stands for it, and all else is
torchtitan's own."""

from __future__ import annotations

import importlib.util
import os

import pytest
import trained

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchtitan") is None,
                                reason="torchtitan is not installed: run_tests --callers does")


@pytest.mark.parametrize("kind", ["wrapper", "config"])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind):
    from titan_parts import OLD

    if OLD and kind == "config":
        pytest.skip("this torchtitan builds no checkpoint manager of a config")
    said = trained.killed_and_again(folder, "titan_work.py", kind)
    for rank in range(2):
        assert f"rank {rank} goes on from 8" in said, said
    assert sorted(os.listdir(f"{folder}/killed/checkpoint")) == ["step-10", "step-12", "step-5"]


def test_the_newer_of_memory_and_storage(two, folder):
    import titan_parts

    assert two.run(titan_parts.train, folder, 6) == [(0, 6)] * 2
    assert two.run(titan_parts.train, folder, 0) == [(6, 6)] * 2  # storage has 5
    two.run(titan_parts.leave)
    assert two.run(titan_parts.train, folder, 0) == [(5, 5)] * 2


def test_a_step_that_is_asked_for(two, folder):
    import titan_parts

    assert two.run(titan_parts.train, folder, 6) == [(0, 6)] * 2
    for said in two.run(titan_parts.train, folder, 0, 5):  # of storage, and memory is further
        assert "is at step 6" in said and "another base" in said
    assert two.run(titan_parts.train, folder, 2, 6) == [(6, 8)] * 2
    two.run(titan_parts.leave)
    assert two.run(titan_parts.train, folder, 1, 5) == [(5, 6)] * 2
    for said in two.run(titan_parts.train, folder, 0, 77):
        assert "77" in said and "not found" in said


def test_with_load_only_nothing_is_saved(two, folder):
    import titan_parts

    assert two.run(titan_parts.train, folder, 6, -1, True) == [(0, 6)] * 2
    assert not os.path.exists(f"{folder}/checkpoint")
    assert two.run(titan_parts.train, folder, 0) == [(0, 0)] * 2


def test_what_is_refused(two, folder):
    import titan_parts

    for said in two.run(titan_parts.refused, folder):
        assert ["every_n_steps" in said[0], "ignore" in said[1], "copeis" in said[2],
                "checkpoint.enable" in said[3]] == [True] * 4, said


def test_all_else_is_the_managers(two, folder):
    import titan_parts

    assert two.run(titan_parts.delegated, folder) == [f"{folder}/checkpoint"] * 2


def test_a_failed_save_ends_training_or_not_as_told(two, folder):
    import titan_parts

    for step, failures, said in two.run(titan_parts.failing, folder, "warn"):
        assert (step, failures, said) == (4, 2, "")
    for step, failures, said in two.run(titan_parts.failing, folder, "raise"):
        assert (step, failures) == (4, 2) and "/nowhere/job" in said  # the counts of before
