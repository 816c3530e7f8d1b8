# SPDX-License-Identifier: Apache-2.0
"""Several ranks on two nodes: sharded states, failures on one rank, and the errors of all ranks."""

from __future__ import annotations

import pytest
import rank_work as work
import torch
from lacks import needs


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sharded_states_come_back(four, asynchronous):
    saved = four.run(work.save_sharded, 1, asynchronous)
    loaded = four.run(work.load_sharded, 1)
    assert all(equal(saved[0], part) for part in loaded)
    assert all(equal(saved[0], part) for part in four.run(work.again, 1))


@pytest.mark.parametrize("hook, at, asynchronous", [
    ("reset", 1, False), ("storage_meta", 2, False), ("set_up_storage_writer", 1, False),
    ("prepare_local_plan", 3, False), ("prepare_global_plan", 0, False), ("write_data", 1, False),
    ("future", 2, False), ("finish", 0, False), ("stage", 1, True), ("stage", 0, True),
    ("write_data", 3, True), ("finish", 0, True)])
def test_one_rank_fails(four, hook, at, asynchronous):
    for part in four.run(work.fail_in, hook, at, asynchronous, "error", 1):
        seconds, text = part
        assert text.startswith(f"[{at}]"), text
        assert seconds < 60
    assert four.run(work.save_plain, 2) == [2] * 4


@pytest.mark.parametrize("hook, asynchronous", [("write_data", False), ("stage", True)])
def test_an_exception_that_cannot_be_pickled(four, hook, asynchronous):
    for _, text in four.run(work.fail_in, hook, 1, asynchronous, "unpicklable", 1):
        assert text.startswith("[1]") and "Unpicklable: made to fail" in text, text
    assert four.run(work.save_plain, 2) == [2] * 4


def test_a_step_that_one_rank_missed_is_saved_after_going_back(two):
    """All count their attempts anew then, that rank as well."""
    two.run(work.save_plain, 1)
    for _, text in two.run(work.fail_in, "write_data", 1, False, "error", 2):
        assert text.startswith("[1]"), text
    assert two.run(work.go_back, 1) == [1] * 2
    assert two.run(work.save_plain, 2) == [2] * 2


def test_plan_caching_over_three_saves(four):
    assert four.run(work.save_cached, 1) == [[1, 2, 3]] * 4


@needs("use_collectives")
def test_without_collectives(four):
    assert four.run(work.without_collectives, 1) == [True] * 4
