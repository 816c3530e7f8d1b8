# SPDX-License-Identifier: Apache-2.0
"""A framework's checkpoint, whole on each rank: hearth_checkpoint.torch._whole."""

from __future__ import annotations

import pytest
import whole_work


@pytest.mark.parametrize("where", ["make", "stage", "proof"])
def test_what_fails_on_one_rank_fails_on_all_at_once_and_the_next_works(two, where):
    for took, failures, step in two.run(whole_work.fail_on_one_rank, where):
        assert took < 30, "the other rank waited for what will never come"
        assert (failures, step) == (1, 3)


def test_what_one_rank_saves_alone_all_read(two):
    for rank, read in enumerate(two.run(whole_work.alone)):
        assert read == [1.0, 20.0 + rank, 3.0, 4.0]


def test_a_rank_that_saves_alone_does_not_join_alone(two):
    for text in two.run(whole_work.alone_before_all_have_joined):
        assert "recover() or newest() before" in text
