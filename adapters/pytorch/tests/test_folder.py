# SPDX-License-Identifier: Apache-2.0
"""Folders of files: those that a process left behind, and those on storage that not all ranks see."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hearth_checkpoint.errors import HearthError
from hearth_checkpoint.torch import _folder, _recover

HOLDS = """
import sys, time
sys.path[:0] = [{path!r}]
from hearth_checkpoint.torch import _folder
with _folder.scratch() as made:
    print(made, flush=True)
    time.sleep(60)
"""


def holder() -> tuple[subprocess.Popen[str], str]:
    """A process with a folder of its own, with a file in it."""
    path = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    process = subprocess.Popen([sys.executable, "-c", HOLDS.format(path=path)],
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    made = process.stdout.readline().strip()
    Path(made, "model").write_bytes(b"bytes")
    return process, made


def test_what_a_process_leaves_behind_the_next_one_removes():
    left, lives = holder(), holder()
    left[0].send_signal(signal.SIGTERM)  # as torchrun does when another rank has failed
    assert left[0].wait(30) == -signal.SIGTERM and os.path.exists(left[1])
    with _folder.scratch() as own:
        assert not os.path.exists(left[1])
        with _folder.scratch() as second:
            assert {own, second, lives[1]} <= set(map(str, Path(own).parent.iterdir()))
        assert not os.path.exists(second) and os.path.exists(own)
    assert os.path.exists(f"{lives[1]}/model")
    lives[0].terminate()
    lives[0].wait(30)
    with _folder.scratch():
        assert not os.path.exists(lives[1])


def test_ranks_go_on_from_what_all_of_them_see(base, folder, monkeypatch, caplog):
    others: list[tuple[int, str]] = [(3, "checkpoint-3"), (9, "checkpoint-9")]
    monkeypatch.setattr(_recover, "gathered", lambda mine: [mine, others])
    for step in (3, 7):
        os.makedirs(f"{folder}/storage/checkpoint-{step}")
    with caplog.at_level(logging.WARNING, "hearth_checkpoint"):
        assert _folder.newest(base, f"{folder}/storage", Path.exists) == (
            3, f"{folder}/storage/checkpoint-3", False)
    assert "checkpoint-9 is not seen by all ranks" in caplog.text
    others[:] = others[1:]
    with pytest.raises(HearthError, match="rank 0 sees checkpoint-7; rank 1 sees checkpoint-9"):
        _folder.newest(base, f"{folder}/storage", Path.exists)
    others.clear()
    with pytest.raises(HearthError, match="rank 1 sees none"):
        _folder.newest(base, f"{folder}/storage", Path.exists)
    assert _folder.newest(base, f"{folder}/nowhere", Path.exists) is None
