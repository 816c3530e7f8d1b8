# SPDX-License-Identifier: Apache-2.0
"""Saves of some of the ranks: HearthWriter(ranks=...) and Job.begin(ranks=...)."""

from __future__ import annotations

from typing import Any

import pytest
import rank_work as work

from hearth_checkpoint import _ffi
from hearth_checkpoint.torch import HearthWriter


@pytest.mark.parametrize("rank", [0, 3])
def test_what_one_rank_saves_alone_all_ranks_recover(four: Any, rank: int) -> None:
    assert four.run(work.save_alone, 10, (rank,)) == [r == rank for r in range(4)]
    assert four.run(work.load_alone, 10) == [True] * 4


def test_what_was_staged_is_saved_by_one_rank_alone(four: Any) -> None:
    assert four.run(work.save_alone, 11, (0,), True) == [True, False, False, False]
    assert four.run(work.load_alone, 11) == [True] * 4


def test_one_rank_alone_saves_parts_and_all_of_them_are_of_that_rank(four: Any) -> None:
    said = four.run(work.save_parts_alone, 12, (0,))
    assert "the parts before are of ranks 0, and part step is of all ranks" in said[0]
    assert four.run(work.load_parts_alone, 13) == [True] * 4


def test_a_list_of_ranks_is_put_in_order() -> None:
    assert list(_ffi.rank_list([3, 0, 3])) == [0, 3]
    with pytest.raises(ValueError, match="at least"):
        _ffi.rank_list([])
    with pytest.raises(ValueError, match="from 0"):
        _ffi.rank_list([-1])


def test_ranks_is_the_writers_own_argument() -> None:
    assert HearthWriter("/tmp/a/b", ranks=(2, 0))._ranks == (0, 2)
