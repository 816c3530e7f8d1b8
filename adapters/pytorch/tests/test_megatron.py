# SPDX-License-Identifier: Apache-2.0
"""Megatron-core's dist_checkpointing with hearth_checkpoint.megatron.
Wants the package: run_tests --callers
installs it."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import fields

import mlf_rules
import pytest
import trained
from ranks import World

pytestmark = pytest.mark.skipif(importlib.util.find_spec("megatron") is None,
                                reason="megatron-core is not installed: run_tests --callers does")
COMMON = (".metadata", "common.pt", "metadata.json")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    path = tempfile.mkdtemp(prefix="hearth-torch-", dir="/dev/shm")
    with World(2, 2, path, parents=True) as ranks:
        yield ranks
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def two(world: World) -> Iterator[World]:
    """Two ranks on two nodes, which Megatron starts processes of, and no job open."""
    import megatron_parts

    yield world
    if world.alive:
        world.run(megatron_parts.leave)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_killed_rank_goes_on_from_memory_with_the_controls_losses(folder, kind):
    said = trained.killed_and_again(folder, "megatron_work.py", kind)
    for rank in range(2):
        assert f"rank {rank} goes on from 8" in said, said


def test_a_save_is_what_a_load_gives_shards_objects_and_common_state(two):
    import megatron_parts

    states = two.run(megatron_parts.back, 3)
    for saved, loaded in states:
        assert saved == loaded and saved[0] == 3
    assert states[0][0] != states[1][0]  # cut, and each rank its object


def test_a_container_has_what_ml_flashpoint_looks_for(two):
    import megatron_parts
    from megatron.core.dist_checkpointing.core import CheckpointingConfig

    for there in two.run(megatron_parts.saved, 4):
        assert set(COMMON) <= set(there) <= {*COMMON, "__0__0_src0.distcp", "__1__0_src1.distcp"}
    bases = two.run(megatron_parts.base)
    assert mlf_rules.latest(bases, 2) == (4, "step-4_ckpt", [[], []])
    for rank, (config, iteration, names) in enumerate(two.run(megatron_parts.theirs, 4)):
        assert config["sharded_backend"] == "hearth" and iteration == 4
        assert set(config) == {field.name for field in fields(CheckpointingConfig)}
        assert "first.weight" in names and "optimizer.state.exp_avg.first.weight" in names
        assert f"noise/shard_{rank}_2" in names


def test_megatrons_queue_finalizes_when_the_save_has_ended(two):
    import megatron_parts

    for waited, calls, saved, loaded in two.run(megatron_parts.beside_training, 3):
        assert waited and calls == [0] and saved == loaded


def test_a_save_at_once_waits_for_one_that_is_under_way(two):
    import megatron_parts

    for calls, saved, loaded in two.run(megatron_parts.at_once_behind_another, 3):
        assert calls == [0] and saved == loaded and saved[0] == 4


def test_with_megatrons_own_save_and_load(two, folder):
    import megatron_parts

    for rank, found in enumerate(two.run(megatron_parts.with_megatrons_own, folder)):
        base = two.run(megatron_parts.base)[rank]
        third, fourth = f"{folder}/iter_0000003", f"{base}/step-4_ckpt"
        assert found["newest"] == [third, fourth, third]
        assert found["loaded"] == found["fourth"] and found["stored"] == found["third"]
        assert "__0_0.distcp" not in found["left"] and "metadata.json" in found["left"]
        assert found["shape"] == (16, 8)


def test_a_class_of_the_users_in_the_common_state_wants_trust(two):
    import megatron_parts

    for said, trusted in two.run(megatron_parts.of_a_class, 5):
        assert "Own" in said and trusted


def test_what_is_refused(two):
    import megatron_parts

    for said in two.run(megatron_parts.refused):
        wanted = ("common", "ignore", "copeis", "/elsewhere", "names no step",
                  "verify_integrity", "nvrx", "is not changed", "iter_0000009", "lacks")
        assert len(said) == len(wanted)
        for text, one in zip(wanted, said):
            assert text in one, one


def test_a_load_waits_until_its_node_has_heard_of_the_save(two):
    import megatron_parts

    assert two.run(megatron_parts.heard_late, 6) == [["checkpoint 6", "load"]] * 2


def test_a_failed_save_is_raised_or_counted_as_told(two):
    import megatron_parts

    for said, failures in two.run(megatron_parts.failing, "raise"):
        assert ["no common state today" in one for one in said] == [True] * 2 and failures == 0
    for said, failures in two.run(megatron_parts.failing, "warn"):
        assert said == ["nothing"] * 2 and failures == 2
