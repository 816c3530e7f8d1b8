# SPDX-License-Identifier: Apache-2.0
"""As test_behaviours.py: those behaviours that take four ranks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import behaviour
import pytest
import rank_work
from conftest import _folder
from ranks import World
from test_behaviours import cases, judge


class Worlds:
    """Four ranks on two nodes, which may have checkpoint processes; others when they were lost."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._folder = ""

    def get(self) -> World:
        if self._world is None or not self._world.alive:
            self.close()
            self._folder = _folder()
            self._world = World(4, 2, self._folder, parents=True)
        return self._world

    def close(self) -> None:
        if self._world is not None:
            self._world.close()
            shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="module")
def processes() -> Iterator[Worlds]:
    made = Worlds()
    yield made
    made.close()


@pytest.fixture
def four(processes: Worlds) -> Iterator[World]:
    world = processes.get()
    yield world
    if world.alive:
        world.run(rank_work.leave)


@pytest.mark.parametrize("name, case", list(cases(ranks=True)))
def test_on_four_ranks(name, case, four, folder):
    files = four.run(behaviour.run_on_rank, name, f"{folder}/files", False, case)
    judge(name, files, four.run(behaviour.run_on_rank, name, "", True, case))
