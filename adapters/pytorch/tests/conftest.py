# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a folder in memory for each test, and worlds of ranks that several tests share."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]

# A shell without jobs starts what runs beside it with SIGINT ignored, and Python leaves it so.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Tests run a file at a time on several processes: these take longest, and come first.
_LONG = ("test_elastic.py", "test_hot_swap.py", "test_interchange.py", "test_parts.py",
         "test_behaviours_on_ranks.py", "test_lightning.py", "test_hugging.py", "test_megatron.py",
         "test_titan.py")
_TURNS = 12  # of what torch's own tests ask a run asks one part, and each in its turn


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=int, default=0, metavar="N",
                     help=f"which of {_TURNS} parts of test_behaviours*.py; -1: all of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    turn = config.getoption("--turn")
    those = [item for item in items
             if item.path.name.startswith("test_behaviours") and hasattr(item, "callspec")]
    out = {id(item) for i, item in enumerate(those) if turn >= 0 and (i + turn) % _TURNS}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in out])
    items[:] = sorted((item for item in items if id(item) not in out),
                      key=lambda item: item.path.name not in _LONG)


def _folder() -> str:
    return tempfile.mkdtemp(prefix="hearth-torch-", dir="/dev/shm")


@pytest.fixture
def folder() -> Iterator[str]:
    """An empty folder on a tmpfs."""
    path = _folder()
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def base(folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A job's base for this process alone; the job is over when the test is."""
    from hearth_checkpoint.torch import _jobs

    monkeypatch.setenv("HEARTH_ALLOW_DEGRADED", "1")
    monkeypatch.setenv("HEARTH_LINGER_S", "5")
    monkeypatch.setenv("HEARTH_NODE", "node0")
    monkeypatch.setenv("HEARTH_TRANSPORT", "tcp")  # what auto would ask first takes time
    for name in ("RANK", "WORLD_SIZE", "HEARTH_ROOT", "HEARTH_JOB"):
        monkeypatch.delenv(name, raising=False)
    os.makedirs(f"{folder}/root")
    yield f"{folder}/root/job"
    for path in _jobs.open_bases():
        _jobs.forget(path, keep=False)


class _Worlds:
    """Worlds of ranks that tests share, made anew when a test has broken one."""

    def __init__(self) -> None:
        self._worlds: dict[int, tuple[object, str]] = {}

    def get(self, world: int, nodes: int) -> object:
        from ranks import World

        known = self._worlds.get(world)
        if known is None or not known[0].alive:
            path = _folder()
            known = self._worlds[world] = (World(world, nodes, path), path)
        return known[0]

    def close(self) -> None:
        for ranks, path in self._worlds.values():
            ranks.close()
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def worlds() -> Iterator[_Worlds]:
    made = _Worlds()
    yield made
    made.close()


def _lent(ranks: object) -> Iterator[object]:
    import rank_work

    yield ranks
    if ranks.alive:
        ranks.run(rank_work.leave)


@pytest.fixture
def four(worlds: _Worlds) -> Iterator[object]:
    """Four ranks on two nodes, with no job open."""
    yield from _lent(worlds.get(4, 2))


@pytest.fixture
def two(worlds: _Worlds) -> Iterator[object]:
    """Two ranks on two nodes, with no job open."""
    yield from _lent(worlds.get(2, 2))
