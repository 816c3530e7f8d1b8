# SPDX-License-Identifier: Apache-2.0
"""hearth_checkpoint.torch.stats(): numbers of the engine for a training loop's logger."""

from __future__ import annotations

import os
import socket
from typing import Any

import torch

import hearth_checkpoint.torch as ht
import hearth_checkpoint.torch.dcp as dcp


def state(value: float) -> dict[str, Any]:
    return {"w": torch.full((1000,), float(value)), "n": int(value)}


def test_they_are_what_the_engine_has_counted(base):
    dcp.save(state(1), checkpoint_id=f"{base}/1")
    one = ht.stats(base)
    dcp.save(state(2), checkpoint_id=f"{base}/2")
    two = ht.stats(base)
    assert all(type(value) is float for value in two.values()), two
    assert one.keys() <= two.keys() and two["hearth/up"] == 1
    for name in "hearth/save_seconds_count/protected", "hearth/save_seconds_count/sealed":
        assert (one[name], two[name]) == (1, 2), name
    assert two["hearth/protected_step"] == 2 and two["hearth/protected_age_seconds"] < 60
    assert two["hearth/sealed_bytes_total"] > one["hearth/sealed_bytes_total"] >= 4000
    assert two["hearth/check/node_lost"] == 0
    saves = [two[f"hearth/saves_total/{level}"] for level in ("protected", "degraded")]
    assert sum(saves) == 2
    assert ht.stats(base, prefix="").keys() == {name.removeprefix("hearth/") for name in two}


def test_without_an_engine_they_say_so_and_training_goes_on(base):
    assert ht.stats(base) == {"hearth/up": 0}


def test_an_engine_that_does_not_answer_is_not_waited_for_long(base, monkeypatch):
    monkeypatch.setattr("hearth_checkpoint.torch._stats.BLOCKED_MS", 100)
    os.makedirs(f"{base}/.hearth")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as mute:
        mute.bind(f"{base}/.hearth/sock")
        mute.listen(1)
        assert ht.stats(base) == {"hearth/up": 0}
