# SPDX-License-Identifier: Apache-2.0
"""Which save HearthReader takes, how long it keeps it, whose it must be, and load_latest()."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
from typing import Any

import proof_work
import pytest
import reshard_work
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint import errors
from hearth_checkpoint.errors import (
    HearthCorrupt,
    HearthError,
    HearthLost,
    HearthNotFound,
    HearthRefused,
    HearthTimeout,
)
from hearth_checkpoint.job import Checkpoint, Job
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _names


def save(base: str, step: int, value: float, **arguments: Any) -> None:
    dcp.save({"w": torch.full((4,), value)}, checkpoint_id=f"{base}/{step}",
             storage_writer=HearthWriter(base, **arguments))


def load(reader: HearthReader, checkpoint_id: str | None = None) -> float:
    state = {"w": torch.zeros(4)}
    ht.load(state, checkpoint_id=checkpoint_id, storage_reader=reader)
    return float(state["w"][0])


def test_a_step_saved_again_after_a_recovery_is_the_new_one(base):
    save(base, 6, 1, linger_s=30)
    assert ht.latest(base) == f"{base}/step-6_ckpt"
    assert load(HearthReader(), f"{base}/6") == 1
    save(base, 6, 2)
    assert load(HearthReader(), f"{base}/6") == 2


def test_without_a_step_it_is_the_newest(base):
    save(base, 6, 1, linger_s=30, keep=2)  # what was recovered stays beside the next one
    ht.latest(base)
    reader = HearthReader(base)
    assert load(reader) == 1
    for step in (7, 8):
        save(base, step, step)
        assert load(reader) == step and load(HearthReader(base)) == step
    assert load(HearthReader(base, step=8)) == 8


class Failing(dcp.DefaultLoadPlanner):
    """The load fails when all is planned, and the data is not read."""

    def finish_plan(self, central_plan: Any) -> Any:
        raise OSError("told to fail")


@pytest.mark.parametrize("how", ["a load that failed", "read_metadata() alone"])
@pytest.mark.parametrize("step", [None, 1])
def test_what_was_left_open_is_not_the_next_load(base, how, step):
    save(base, 1, 1, keep=3)
    reader = HearthReader(base, step=step)
    if how == "read_metadata() alone":
        reader.read_metadata()
    else:
        with pytest.raises(CheckpointException, match="told to fail"):
            dcp.load({"w": torch.zeros(4)}, storage_reader=reader, planner=Failing())
    save(base, 1 if step else 2, 2)
    assert load(reader) == 2


def test_a_step_that_is_not_there_is_named_with_those_that_are(base):
    save(base, 6, 1)
    reader = HearthReader()
    with pytest.raises(CheckpointException, match="no PROTECTED step 5 .* there is: 6"):
        load(reader, f"{base}/5")
    assert isinstance(reader.error, FileNotFoundError)
    assert load(reader, f"{base}/6") == 1


def test_nothing_is_held_after_a_load(base):
    """What is held cannot be used for the next save."""
    save(base, 1, 1)
    reader = HearthReader()
    load(reader, f"{base}/1")
    assert reader._checkpoint is None
    with pytest.raises(CheckpointException):
        dcp.load({"w": torch.zeros(4), "more": torch.zeros(1)}, storage_reader=reader)
    for step in range(2, 8):
        save(base, step, step)
        assert load(reader, f"{base}/{step}") == step


class Astray(HearthReader):
    """Where one byte item lies is somewhere else."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        metadata = super().read_metadata(*args, **kwargs)
        for index, place in metadata.storage_data.items():
            if index.fqn == "n":
                place.relative_path = "gone.distcp"
        return metadata


def test_what_is_not_there_is_found_out_before_anything_is_written(base):
    dcp.save({"w": torch.ones(4), "n": "text"}, checkpoint_id=f"{base}/1",
             storage_writer=HearthWriter(base))
    state = {"w": torch.zeros(4), "n": ""}
    with pytest.raises(CheckpointException, match="gone.distcp"):
        dcp.load(state, checkpoint_id=f"{base}/1", storage_reader=Astray())
    assert state["n"] == "" and not state["w"].any()


def test_a_reader_outlives_the_job(base):
    save(base, 1, 1)
    reader = HearthReader()
    reader.reset(f"{base}/1")
    reader.read_metadata()
    ht.leave(base, keep=False)
    reader.close()
    reader.close()


def test_ranks_that_would_load_different_saves_hear_of_it(two):
    for text in two.run(reshard_work.load_different_steps, 1, 2):
        assert "rank 0 step 1" in text and "rank 1 step 2" in text, text


class Raw(dcp.DefaultSavePlanner):
    """Byte items that no torch.save wrote."""

    def resolve_data(self, item: Any) -> Any:
        value = super().resolve_data(item)
        return value if isinstance(value, torch.Tensor) else io.BytesIO(b"raw bytes")


class RawLoad(dcp.DefaultLoadPlanner):
    seen: list[bytes] = []

    def load_bytes(self, item: Any, value: io.BytesIO) -> None:
        RawLoad.seen.append(value.read())


def test_another_planners_bytes_reach_it_where_they_are_trusted(base):
    dcp.save({"n": 1}, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base), planner=Raw())
    with pytest.raises(CheckpointException, match="trust=True"):
        dcp.load({"n": 1}, checkpoint_id=f"{base}/1", storage_reader=HearthReader(),
                 planner=RawLoad())
    assert not RawLoad.seen
    dcp.load({"n": 1}, checkpoint_id=f"{base}/1", storage_reader=HearthReader(trust=True),
             planner=RawLoad())
    assert RawLoad.seen == [b"raw bytes"]


class Own:
    """An object of the user's."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Own


def test_objects_of_ones_own_need_trust(base):
    dcp.save({"o": Own()}, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    with pytest.raises(CheckpointException, match="(?s)o: .*trust=True"):
        dcp.load({"o": None}, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    state: dict[str, Any] = {"o": None}
    dcp.load(state, checkpoint_id=f"{base}/1", storage_reader=HearthReader(trust=True))
    assert state["o"] == Own()


def test_async_save_takes_the_base_of_the_id(base):
    state = {"w": torch.ones(3), "n": 5}
    ht.async_save(state, checkpoint_id=f"{base}/3").result(60)
    target = {"w": torch.zeros(3), "n": 0}
    ht.load(target, checkpoint_id=f"{base}/3")
    assert target["n"] == 5 and torch.equal(target["w"], state["w"])


def test_load_says_what_was_found_wrong(base):
    save(base, 6, 1)
    with pytest.raises(CheckpointException) as caught:
        ht.load({"w": torch.zeros(4)}, checkpoint_id=f"{base}/5")
    assert "step 5" in str(caught.value.__cause__)
    with pytest.raises(CheckpointException) as caught:
        ht.load({"w": torch.zeros(5)}, checkpoint_id=f"{base}/6")
    assert "Size mismatch" in str(caught.value)


@pytest.mark.parametrize("marked", [True, False])
def test_a_step_written_by_another_job_is_left_alone(base, marked):
    """Its objects say whose they are: copied here they are neither offered nor deleted, and who
    asks for the step by its name hears that there is none. Without these marks they are anybody's.
    """
    other = os.path.join(os.path.dirname(base), "other")
    dcp.save({"w": torch.ones(4)}, checkpoint_id=f"{other}/9",
             storage_writer=HearthWriter(other))
    container = f"{base}/step-9_ckpt"
    shutil.copytree(f"{other}/step-9_ckpt", container)
    _jobs.forget(other, keep=False)
    if not marked:
        for name in ours(container):
            with open(f"{container}/{name}", "r+b") as file:
                for at, size in ((16, 8), (4092, 4)):  # magic and checksum of the block
                    file.seek(at)
                    file.write(bytes(size))
    kept = contents(container)
    target = {"w": torch.zeros(4)}
    if marked:
        assert ht.latest(base) is None
        with pytest.raises(CheckpointException) as caught:
            ht.load(target, checkpoint_id=container, storage_reader=HearthReader())
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert "step 9" in str(caught.value.__cause__)
    else:
        assert ht.latest(base) == container
        ht.load(target, checkpoint_id=container, storage_reader=HearthReader())
    assert torch.equal(target["w"], torch.zeros(4) if marked else torch.ones(4))
    assert contents(container) == kept


def ours(container: str) -> list[str]:
    """The container's objects, `.metadata` aside."""
    found = [name for name in os.listdir(container) if name.endswith(".distcp")]
    assert found
    return found


def contents(container: str) -> dict[str, bytes]:
    out = {}
    for name in os.listdir(container):
        with open(f"{container}/{name}", "rb") as file:
            out[name] = file.read()
    return out


# ---- load_latest ---------------------------------------------------------------------------------


def disk(folder: str, step: int | str, value: float) -> None:
    dcp.save({"w": torch.full((4,), value)}, checkpoint_id=f"{folder}/disk/{step}")


def latest(base: str, folder: str, name: str = "") -> tuple[int | None, float]:
    state = {"w": torch.zeros(4)}
    step = ht.load_latest(state, base=base,
                          fallback=dcp.FileSystemReader(f"{folder}/disk/{name}"))
    return step, float(state["w"][0])


def test_load_latest_prefers_memory(base, folder):
    save(base, 4, 4)
    disk(folder, 9, 9)
    assert latest(base, folder) == (4, 4)


@pytest.mark.parametrize("names, wanted", [
    (["9", "step-10_ckpt", "8"], (10, 10)), (["step-0_ckpt"], (0, 0)),
    (["notes", "x3"], (None, 0))])
def test_load_latest_takes_the_newest_of_the_folder(base, folder, names, wanted):
    os.makedirs(f"{folder}/disk/77")  # without .metadata: not whole
    for name in names:
        disk(folder, name, _names.step_of(name) or 0)
    assert latest(base, folder) == wanted


def test_load_latest_takes_one_checkpoint(base, folder):
    disk(folder, "step-3_ckpt", 3)
    disk(folder, "final", 5)
    assert latest(base, folder, "step-3_ckpt") == (3, 3)
    assert latest(base, folder, "final") == (0, 5)


class Grumbling(dcp.DefaultLoadPlanner):
    """Fails of its own."""

    def create_local_plan(self) -> Any:
        raise OSError("a planner's own error")


@pytest.mark.parametrize("target, planner, says", [
    ({"w": torch.zeros(9)}, None, "Size mismatch"),
    ({"w": torch.zeros(4), "more": torch.zeros(2)}, None, "more"),
    ({"w": torch.zeros(4), "own": None}, None, "(?s)own: .*trust=True"),
    ({"w": torch.zeros(4)}, Grumbling, "a planner's own error")])
def test_an_error_of_the_caller_is_no_reason_to_load_an_older_step(base, folder, target, planner,
                                                                   says):
    """What is in memory is there: a load that does not fit it must not go back to step 2."""
    dcp.save({"w": torch.ones(4), "own": Own()}, checkpoint_id=f"{base}/500",
             storage_writer=HearthWriter(base))
    disk(folder, 2, 2)
    fallback = dcp.FileSystemReader(f"{folder}/disk")
    for reader in (fallback, None):
        with pytest.raises(CheckpointException, match=says):
            ht.load_latest(target, base=base, fallback=reader, planner=planner and planner())
        assert not target["w"].any(), "it was written before the error"
    mine: dict[str, Any] = {"w": torch.zeros(4), "own": None}
    assert ht.load_latest(mine, base=base, fallback=fallback, trust=True) == 500
    assert mine["own"] == Own() and mine["w"].all()


def test_a_checkpoint_of_another_kind_is_no_reason_to_load_an_older_step(base, folder):
    """It is there, and newer; dcp has no part in it."""
    from hearth_checkpoint.torch import _rank_local

    _rank_local.Writer().write(f"{base}/500", {"w": torch.ones(4)})
    disk(folder, 2, 2)
    with pytest.raises(CheckpointException, match="step-500_ckpt.*experimental"):
        latest(base, folder)


@pytest.mark.parametrize("error", [
    HearthNotFound("made to fail"), HearthCorrupt("made to fail"), HearthLost("made to fail")])
def test_what_memory_cannot_give_comes_from_storage(base, folder, error, monkeypatch):
    """Not there, wrong in every copy, or beyond redundancy: found out while it is read."""
    save(base, 4, 4)
    disk(folder, 2, 2)

    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Checkpoint, "read_boxes", broken)
    assert latest(base, folder) == (2, 2)
    with pytest.raises(CheckpointException, match="made to fail"):
        ht.load_latest({"w": torch.zeros(4)}, base=base)


def test_any_other_error_of_a_load_is_raised(base, folder, monkeypatch):
    save(base, 4, 4)
    disk(folder, 2, 2)

    def broken(*_: Any) -> None:
        raise HearthTimeout("made to fail")

    monkeypatch.setattr(Checkpoint, "read_boxes", broken)
    with pytest.raises(CheckpointException, match="made to fail"):
        latest(base, folder)
    monkeypatch.undo()
    assert latest(base, folder) == (4, 4)


@pytest.mark.parametrize("trust", [False, True])
def test_all_ranks_hear_of_an_item_that_one_of_them_may_not_decode(two, folder, trust):
    """And none of them has written anything of the checkpoint into its state."""
    answers = two.run(proof_work.refused_item, folder, 500, trust)
    if trust:
        assert answers == [(500, 500.0, 0), (500, 500.0, 1)]
        return
    for me, (text, weight, number) in enumerate(answers):
        assert text.startswith("[1]") and "own: " in text and "trust=True" in text, text
        assert weight == 0.0 and number == -1, (me, weight, number)


def test_load_latest_needs_a_group_where_there_are_ranks(base, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(HearthError, match="init_process_group"):
        ht.load_latest({"w": torch.zeros(4)}, base=base)


def test_load_latest_needs_a_path(base):
    with pytest.raises(TypeError, match="no path"):
        ht.load_latest({"w": torch.zeros(4)}, base=base, fallback=HearthReader(base))


@pytest.mark.parametrize("error", [HearthLost("made to fail"), HearthNotFound("made to fail")])
def test_all_ranks_step_down_together(two, folder, error):
    """One rank cannot have what is in memory; both load from storage."""
    assert two.run(reshard_work.one_cannot_recover, folder, 5, error,
                   deadline_s=60) == [(5, 5.0)] * 2


@pytest.mark.parametrize("error", [HearthTimeout("made to fail"), OSError("made to fail"),
                                   HearthError("made to fail")])
def test_all_ranks_raise_together(two, folder, error):
    """One rank's recovery fails of something else; none goes back to an older step."""
    mine, other = two.run(reshard_work.one_cannot_recover, folder, 5, error, deadline_s=60)[::-1]
    assert mine == (f"{type(error).__name__}: made to fail", 0.0), mine
    assert other[1] == 0.0 and "rank 1" in other[0] and "made to fail" in other[0], other


# ---- nothing is written before all of it was looked at -------------------------------------------


class Blind(dcp.DefaultLoadPlanner):
    """Asks for what it was told of, not for what `.metadata` has."""

    def create_local_plan(self) -> Any:
        plan = super().create_local_plan()
        index = [dataclasses.replace(
            item.storage_index, fqn="nowhere" if item.dest_index.fqn == self.lost else
            item.storage_index.fqn) for item in plan.items]
        return dataclasses.replace(plan, items=[
            dataclasses.replace(item, storage_index=at) for item, at in zip(plan.items, index)])

    lost = ""


@pytest.mark.parametrize("lost", ["a", "z", "n"])
def test_what_is_missing_is_found_before_the_first_byte_is_written(base, lost):
    state = {"a": torch.ones(4), "w": torch.ones(4), "z": torch.ones(4), "n": 3}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    planner = Blind()
    planner.lost = lost
    target = {**{name: torch.zeros(4) for name in "awz"}, "n": 0}
    with pytest.raises(CheckpointException) as caught:
        dcp.load(target, checkpoint_id=f"{base}/1", storage_reader=HearthReader(), planner=planner)
    assert isinstance(caught.value.failures[0][0], HearthNotFound)
    assert "nowhere" in str(caught.value)
    assert not any(target[name].any() for name in "awz") and target["n"] == 0


def test_an_item_that_is_refused_is_found_before_the_first_byte_is_written(base):
    state = {"a": torch.ones(4), "own": Own(), "z": torch.ones(4), "n": 3}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    target: dict[str, Any] = {"a": torch.zeros(4), "own": None, "z": torch.zeros(4), "n": 0}
    with pytest.raises(CheckpointException, match="(?s)own: .*trust=True") as caught:
        ht.load(target, checkpoint_id=f"{base}/1")
    assert isinstance(caught.value.failures[0][0], HearthRefused)
    assert not target["a"].any() and not target["z"].any() and target["n"] == 0
    ht.load(target, checkpoint_id=f"{base}/1", trust=True)
    assert target["own"] == Own() and target["n"] == 3


def test_trust_goes_to_the_reader_that_is_given(base):
    with pytest.raises(TypeError, match="trust"):
        ht.load({}, checkpoint_id=f"{base}/1", storage_reader=HearthReader(), trust=True)
    assert ht.latest(base, trust=True) is None
    assert ht.recover(base, trust=True) is None


def test_a_base_is_one_however_it_is_spelt(base):
    """By a link to its root or to itself, before the job is opened or after."""
    root = os.path.dirname(base)
    os.symlink(root, f"{root}-link")
    os.symlink(base, f"{root}-job")
    state = {"w": torch.ones(3)}
    early = HearthWriter(f"{root}-link/job")
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    for spelt in (f"{root}-link/job", f"{root}/../root/job", f"{root}-job"):
        assert ht.latest(spelt) == f"{base}/step-1_ckpt"
        assert ht.protection(spelt).step == 1
    dcp.save(state, checkpoint_id=f"{root}-link/job/2", storage_writer=early)
    into = {"w": torch.zeros(3)}
    dcp.load(into, checkpoint_id=f"{root}-job/2", storage_reader=HearthReader())
    assert into["w"].sum() == 3
    ht.leave(f"{root}-job", keep=False)
    assert not _jobs.open_bases()


def test_what_an_error_of_a_loss_advises_can_be_done(base, monkeypatch):
    real, told = Job.recover, []

    def lost(self, **arguments):
        told.append(arguments.get("accept_loss", False))
        if not told[-1]:
            raise errors.make(-302, "beyond redundancy: step 5; load from storage after "
                              "`hearth rm`, or recover with accept_loss")
        return real(self, **arguments)

    monkeypatch.setattr(Job, "recover", lost)
    with pytest.raises(HearthLost, match=r"recover\(accept_loss=True\)"):
        ht.recover(base, accept_loss=False)
    assert ht.recover(base, accept_loss=True) is None and told == [False, False, True]
    assert Job.recover(_jobs.membership(base, {}).job, accept_loss=True) is None


def test_nothing_is_read_between_what_is_asked_for_ahead_and_its_use(base, monkeypatch):
    """To read elsewhere in an object on another node ends what is on its way, which would travel
    twice."""
    calls: list[str] = []
    for name in ("prefetch", "read_ranges", "read_boxes"):
        real = getattr(Checkpoint, name)
        monkeypatch.setattr(Checkpoint, name, lambda self, items, *args, _real=real, _name=name: (
            calls.append(_name) if len(items) else None, _real(self, items, *args))[1])
    state = {"w": torch.arange(4.0), "n": 1, "group": {"lr": 0.5}}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base))
    calls.clear()
    target = {"w": torch.zeros(4), "n": 0, "group": {"lr": 0.0}}
    ht.load(target, checkpoint_id=f"{base}/1")
    assert target["n"] == 1 and torch.equal(target["w"], state["w"])
    assert calls == ["read_ranges", "prefetch", "read_boxes"]
