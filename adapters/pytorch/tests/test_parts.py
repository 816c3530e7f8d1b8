# SPDX-License-Identifier: Apache-2.0
"""Named parts of one save: written by a call of DCP each, committed with the last."""

from __future__ import annotations

import io
import logging
import pickle
from typing import Any

import parts_work as work
import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from test_dcp import empty_like, same
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthError, HearthNotFound
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _parts, dcp
from hearth_checkpoint.torch._pickles import load_metadata

BOTH = ("model", "optimizer")
THREE = ("model", "optimizer", "data")


def model(step: int = 1) -> dict[str, Any]:
    return {"w": torch.full((40, 3), float(step)), "deep": {"b": torch.arange(5.0) + step},
            "name": f"model {step}", "model": [step, {"w": 2}]}


def optimizer(step: int = 1) -> dict[str, Any]:
    """Keys that the model has as well, of other kinds."""
    return {"w": torch.full((7,), -step, dtype=torch.int64), "name": step, "lr": 1e-3,
            "deep": {"b": "text"}, "only": torch.ones(2, dtype=torch.bfloat16)}


STATES = {"model": model, "optimizer": optimizer, "data": lambda step=1: {"at": step}}


def save(base: str, step: int, part: str, parts=BOTH, **arguments: Any) -> Any:
    return dcp.save(STATES[part](step), checkpoint_id=f"{base}/step-{step}_ckpt/{part}", parts=parts,
                    **arguments)


def save_all(base: str, step: int, parts=BOTH) -> None:
    for part in parts:
        save(base, step, part, parts)


def loaded(base: str, step: int, part: str) -> dict[str, Any]:
    target = empty_like(STATES[part](step))
    dcp.load(target, checkpoint_id=f"{base}/{step}/{part}")
    return target


def whole(base: str, step: int, parts=BOTH) -> bool:
    return all(same(STATES[part](step), loaded(base, step, part)) for part in parts)


def steps(base: str) -> list[int]:
    return [kept.step for kept in _jobs.open_member(base).job.kept()]


def refused(call, *words: str) -> BaseException:
    """The error of rank 0, which has these words."""
    with pytest.raises(CheckpointException) as caught:
        call()
    error = caught.value.failures[0][0]
    assert all(word in str(error) for word in words), error
    return error


# ---- what is saved and loaded --------------------------------------------------------------------


def test_two_calls_are_one_save(base):
    save_all(base, 1)
    assert steps(base) == [1] and whole(base, 1)
    save_all(base, 2)
    assert steps(base) == [2] and whole(base, 2)


def test_a_part_alone_is_no_save(base):
    save_all(base, 1)
    save(base, 2, "model")
    assert steps(base) == [1] and ht.protection(base).step == 1
    _jobs.forget(base)
    assert ht.latest(base) == f"{base}/step-1_ckpt" and whole(base, 1)


def test_metadata_is_that_of_one_call_with_both(base):
    save_all(base, 1)
    dcp.save({"model": model(), "optimizer": optimizer()}, checkpoint_id=f"{base}/2")
    with open(f"{base}/step-2_ckpt/.metadata", "rb") as file:
        one = pickle.load(file)
    _jobs.forget(base)
    again = ht.recover(base, step=2)
    assert again.step == 2
    save_all(base, 3)
    with open(f"{base}/step-3_ckpt/.metadata", "rb") as file:
        parts = pickle.load(file)  # as plain torch reads it
    assert parts.planner_data == one.planner_data
    assert parts.state_dict_metadata.keys() == one.state_dict_metadata.keys()
    assert parts.storage_data.keys() == one.storage_data.keys()
    assert {k: v for k, v in parts.state_dict_metadata.items() if "bytes" not in str(type(v)).lower()} \
        == {k: v for k, v in one.state_dict_metadata.items() if "bytes" not in str(type(v)).lower()}
    names = {place.relative_path for place in parts.storage_data.values()}
    assert names == {"__0__0_src0.distcp", "__0__1_src0.distcp"}
    assert parts.storage_meta.modules == list(BOTH) and not one.storage_meta.modules


def test_without_part_a_load_sees_all(base):
    save_all(base, 1)
    target = {"model": empty_like(model()), "optimizer": empty_like(optimizer())}
    dcp.load(target, checkpoint_id=f"{base}/1")
    assert same(target, {"model": model(), "optimizer": optimizer()})
    out = _load_state_dict_from_keys(None, checkpoint_id=f"{base}/1", storage_reader=HearthReader())
    assert same(out["optimizer"], optimizer()) and out["model"]["w"].shape == (40, 3)


def test_a_part_is_a_checkpoint_of_its_own(base):
    save_all(base, 1)
    for where, told in (("1", "optimizer"), ("step-1_ckpt/optimizer", None),
                        ("1/optimizer", "optimizer")):
        reader = HearthReader(base, part=told)
        reader.reset(f"{base}/{where}")
        view = reader.read_metadata()
        reader.close()
        plain = torch_dcp.DefaultSavePlanner()
        plain.set_up_planner(optimizer(), is_coordinator=True)
        _, wanted = plain.create_global_plan([plain.create_local_plan()])
        assert view.planner_data == wanted.planner_data
        assert view.state_dict_metadata.keys() == wanted.state_dict_metadata.keys()
        assert {i.fqn for i in view.storage_data} == set(wanted.state_dict_metadata)
    out = _load_state_dict_from_keys(
        None, checkpoint_id=f"{base}/1", storage_reader=HearthReader(part="optimizer"))
    assert same(out, optimizer())


def test_planners_that_flatten_nothing(base):
    flat = torch_dcp.DefaultSavePlanner(flatten_state_dict=False)
    state = {"a": torch.ones(3)}
    dcp.save(state, checkpoint_id=f"{base}/1/model", parts=BOTH, planner=flat)
    dcp.save(optimizer(), checkpoint_id=f"{base}/1/optimizer", parts=BOTH)
    target = {"a": torch.zeros(3)}
    dcp.load(target, checkpoint_id=f"{base}/1/model",
             planner=torch_dcp.DefaultLoadPlanner(flatten_state_dict=False))
    assert same(target, state) and same(loaded(base, 1, "optimizer"), optimizer())


@pytest.mark.parametrize("form", ["{}", "step-{}_ckpt", "checkpoint-{}", "global_step{}"])
def test_ids_say_step_and_part(base, form):
    parts = ("pytorch_model_fsdp_0", "optimizer_0")
    for part in parts:
        dcp.save({"w": torch.ones(3)}, checkpoint_id=f"{base}/{form.format(7)}/{part}", parts=parts)
    assert steps(base) == [7]
    with open(f"{base}/step-7_ckpt/.metadata", "rb") as file:
        assert load_metadata(file.read()).storage_meta.checkpoint_id == f"{base}/{form.format(7)}"
    target = {"w": torch.zeros(3)}
    dcp.load(target, checkpoint_id=f"{ht.latest(base)}/optimizer_0")
    assert target["w"].eq(1).all()


def test_step_and_part_are_told(base):
    for part in BOTH:
        writer = HearthWriter(base, step=4, part=part, parts=BOTH)
        torch_dcp.save(STATES[part](4), checkpoint_id=f"{base}/{part}", storage_writer=writer)
    assert whole(base, 4)
    target = empty_like(model())
    torch_dcp.load(target, storage_reader=HearthReader(base, step=4, part="model"))
    assert same(target, model(4))


def test_each_call_may_bring_common_files(base):
    for part in BOTH:
        writer = HearthWriter(base, part=part, parts=BOTH, common={f"{part}.pt": part.encode()})
        torch_dcp.save(STATES[part](), checkpoint_id=f"{base}/1", storage_writer=writer)
    with HearthReader(base, step=1)._closing() as checkpoint:
        assert [checkpoint.common(f"{part}.pt") for part in BOTH] == [b"model", b"optimizer"]


def test_a_step_is_saved_again(base):
    for fill in (1, 5):
        for part in BOTH:
            dcp.save(STATES[part](fill), checkpoint_id=f"{base}/1/{part}", parts=BOTH)
    assert same(loaded(base, 1, "model"), model(5)) and same(loaded(base, 1, "optimizer"), optimizer(5))


def test_overwrite_false(base):
    def once(step: int) -> None:
        for part in BOTH:
            torch_dcp.save(STATES[part](step), checkpoint_id=f"{base}/{step}", storage_writer=HearthWriter(
                base, part=part, parts=BOTH, overwrite=False))

    once(1)
    refused(lambda: once(1), "already exists")
    once(2)
    assert steps(base) == [2]


def test_the_kill_switch(base, monkeypatch):
    monkeypatch.setenv("HEARTH_OFF", "1")
    save_all(base, 1)
    assert ht.latest(base) is None


def test_one_rank_without_collectives(base):
    for part in BOTH:
        torch_dcp.save(STATES[part](), checkpoint_id=f"{base}/1/{part}", no_dist=True,
                       storage_writer=HearthWriter(base, parts=BOTH))
    assert whole(base, 1)


# ---- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("part, parts, error", [
    ("model", None, TypeError), (None, "model", TypeError), (None, (1, 2), TypeError),
    ("x", BOTH, ValueError), (None, (), ValueError), (None, ("a", "a"), ValueError),
    (None, ("a.b",), ValueError), (None, ("step-1",), ValueError), (None, ("12",), ValueError),
    (None, ("a/b",), ValueError), (None, ("",), ValueError),
    (None, tuple(f"p{i}" for i in range(17)), ValueError)])
def test_parts_that_cannot_be_declared(base, part, parts, error):
    with pytest.raises(error, match="part"):
        HearthWriter(base, part=part, parts=parts)
    with pytest.raises(error, match="part"):
        dcp.save({}, checkpoint_id=f"{base}/1", part=part, parts=parts)


def test_an_undeclared_part_is_refused(base):
    with pytest.raises(ValueError, match="part 'data' is not declared: the parts are model, optim"):
        save(base, 1, "data")
    writer = HearthWriter(base, parts=BOTH)
    error = refused(lambda: torch_dcp.save({}, checkpoint_id=f"{base}/1/data", storage_writer=writer),
                    "'data' is not declared")
    assert isinstance(error, ValueError)
    refused(lambda: torch_dcp.save({}, checkpoint_id=f"{base}/1", storage_writer=writer),
            "part= is not given, nor does the checkpoint id name one of model, optimizer")
    save_all(base, 1)


def test_part_and_id_differ(base):
    writer = HearthWriter(base, part="model", parts=BOTH)
    refused(lambda: torch_dcp.save({}, checkpoint_id=f"{base}/1/optimizer", storage_writer=writer),
            "part 'model' is asked for, and the checkpoint id has 'optimizer'")
    with pytest.raises(TypeError, match="parts= go to the storage_writer"):
        dcp.save({}, checkpoint_id=f"{base}/1", storage_writer=writer, part="model", parts=BOTH)
    with pytest.raises(TypeError, match="part= goes to the storage_reader"):
        dcp.load({}, checkpoint_id=f"{base}/1", storage_reader=HearthReader(), part="model")


def test_the_last_part_without_the_others(base):
    refused(lambda: save(base, 1, "optimizer"), "step 1", "optimizer is the last part", "model was not")
    save(base, 2, "optimizer", THREE)
    refused(lambda: save(base, 2, "data", THREE), "model was not written before it")
    save_all(base, 3, THREE)
    assert steps(base) == [3] and whole(base, 3, THREE)


def test_parts_declared_differently_by_calls(base):
    save_all(base, 1)
    save(base, 2, "model")
    refused(lambda: save(base, 2, "optimizer", THREE), "declared as model, optimizer, and with part "
            "optimizer as model, optimizer, data")
    refused(lambda: save(base, 2, "optimizer"), "model was not written before it")
    assert steps(base) == [1]
    save_all(base, 2)
    assert whole(base, 2)


def test_a_part_written_again_begins_anew(base):
    save(base, 1, "model", THREE)
    save(base, 1, "optimizer", THREE)
    dcp.save(model(9), checkpoint_id=f"{base}/step-1_ckpt/model", parts=THREE)
    refused(lambda: save(base, 1, "data", THREE), "optimizer was not written before it")
    save(base, 1, "model")
    dcp.save(model(9), checkpoint_id=f"{base}/step-1_ckpt/model", parts=BOTH)
    save(base, 1, "optimizer")
    assert same(loaded(base, 1, "model"), model(9)) and same(loaded(base, 1, "optimizer"), optimizer())


def test_a_next_step_while_a_part_is_missing(base, caplog):
    save_all(base, 1)
    save(base, 2, "model")
    with caplog.at_level(logging.ERROR, "hearth_checkpoint"):
        save_all(base, 3)
    assert "step 2 is not saved: its part optimizer was not written before part model of step 3" \
        in caplog.text
    assert steps(base) == [3] and whole(base, 3)
    refused(lambda: save(base, 2, "optimizer"), "model was not written before it")


def test_a_save_without_parts_while_one_is_missing(base, caplog):
    save(base, 2, "model")
    with caplog.at_level(logging.ERROR, "hearth_checkpoint"):
        dcp.save(model(3), checkpoint_id=f"{base}/3")
    assert "step 2 is not saved: its part optimizer was not written before a save of step 3" \
        in caplog.text
    assert steps(base) == [3]
    with pytest.raises(CheckpointException) as caught:
        dcp.load({"w": torch.zeros(40, 3)}, checkpoint_id=f"{base}/3/model")
    assert "has no part 'model': it was written by one call, without parts" in str(
        caught.value.__cause__)


def test_a_part_that_is_not_there(base):
    save_all(base, 1)
    with pytest.raises(CheckpointException) as caught:
        dcp.load({}, checkpoint_id=f"{base}/1", part="data")
    assert isinstance(caught.value.__cause__, HearthNotFound)
    assert "has no part 'data': it has model, optimizer" in str(caught.value.__cause__)


@pytest.mark.parametrize("part", BOTH)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_in_a_part_fails_the_save(base, part, asynchronous, caplog):
    save_all(base, 1)

    def write(name: str, state: dict[str, Any]) -> None:
        arguments = {"checkpoint_id": f"{base}/2/{name}", "parts": BOTH}
        if asynchronous:
            dcp.async_save(state, **arguments).result(60)
        else:
            dcp.save(state, **arguments)

    broken = {"bad": torch.eye(3).to_sparse()}
    if part == "optimizer":
        write("model", model(2))
    refused(lambda: write(part, broken), "bad", "sparse")
    with caplog.at_level(logging.ERROR, "hearth_checkpoint"):
        refused(lambda: write("optimizer", optimizer(2)), *(
            ["given up: part model: ", "sparse", "begin with the first of them"] if part == "model"
            else ["model was not written before it"]))
    assert steps(base) == [1] and "not saved" not in caplog.text
    for name in BOTH:
        write(name, STATES[name](2))
    assert steps(base) == [2] and whole(base, 2)


def test_warn_counts_saves_and_not_parts(base, caplog):
    caplog.set_level(logging.WARNING, "hearth_checkpoint")
    broken = {"bad": torch.eye(3).to_sparse()}
    for step in (1, 2, 3):
        save(base, step, "model", on_error="warn")
        dcp.save(broken, checkpoint_id=f"{base}/{step}/optimizer", parts=BOTH, on_error="warn")
    held = ht.protection(base)
    assert (held.step, held.failures, held.in_a_row) == (None, 3, 3)
    assert "works again" not in caplog.text
    save_all(base, 4)
    assert ht.protection(base).in_a_row == 3
    for part in BOTH:
        save(base, 5, part, on_error="warn")
    assert ht.protection(base).in_a_row == 0 and ht.protection(base).step == 5


def test_ids_of_a_step_stay_one(base):
    dcp.save(model(), checkpoint_id=f"{base}/1/model", parts=BOTH)
    refused(lambda: save(base, 1, "optimizer"), "step 1", "saved as step-1_ckpt", "before as 1")
    save_all(base, 1)
    refused(lambda: dcp.save(model(), checkpoint_id=f"{base}/1/model", parts=BOTH),
            "a step has one id")


def test_metadata_that_no_part_can_have():
    metadata = torch_dcp.Metadata({}, None, {})
    metadata.own = 1
    with pytest.raises(HearthError, match="part model: its metadata has own"):
        _parts._prefixed("model", metadata)
    with pytest.raises(HearthError, match="part model: .* planner_data is a list"):
        _parts._prefixed("model", torch_dcp.Metadata({}, [1], {}))


def test_a_proof_for_each_part(base, monkeypatch):
    from hearth_checkpoint.torch import _proof, _write

    save_all(base, 1)
    with monkeypatch.context() as patched:
        real = _write.encode_item
        patched.setattr(_write, "encode_item", lambda value: real(value)[:-1])
        state = {**optimizer(2), "name": (2, 3)}  # another kind of thing, so it is looked at again
        save(base, 2, "model")  # the same kinds as before
        refused(lambda: dcp.save(state, checkpoint_id=f"{base}/step-2_ckpt/optimizer", parts=BOTH),
                "part optimizer", "optimizer.name", "not even with trust=True")
    judged = []
    judge, load = _proof.judge_item, _proof.load_metadata
    monkeypatch.setattr(_proof, "judge_item", lambda data: judged.append(data) or judge(data))
    monkeypatch.setattr(_proof, "load_metadata", lambda data: judged.append(data) or load(data))
    save_all(base, 3)
    assert not judged and whole(base, 3), "keys of two parts were taken for each other"


def test_a_new_joining_forgets_what_was_open(base):
    save_all(base, 1)
    save(base, 2, "model")
    assert ht.recover(base).step == 1
    refused(lambda: save(base, 2, "optimizer"), "model was not written before it")
    save_all(base, 2)
    assert whole(base, 2)


def test_an_open_save_keeps_no_room(base):
    """Those that are given up give it back."""
    state = {"w": torch.ones(1 << 20)}
    for step in range(1, 8):
        dcp.save(state, checkpoint_id=f"{base}/{step}/model", parts=BOTH)
        if step % 3 == 0:
            dcp.save(state, checkpoint_id=f"{base}/{step}/optimizer", parts=BOTH)
    assert steps(base) == [6]


# ---- beside training -----------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_parts_in_threads(base, own):
    """Not waited for in between: they are written one after another."""
    writers = {part: HearthWriter(base, part=part, parts=BOTH) for part in BOTH}
    for step in (1, 2, 3):
        futures = []
        for part in BOTH:
            state = STATES[part](step)
            if own:
                futures.append(ht.async_save(
                    state, checkpoint_id=f"{base}/{step}/{part}", storage_writer=writers[part]))
            else:
                futures.append(dcp.async_save(
                    state, checkpoint_id=f"{base}/{step}/{part}", parts=BOTH))
            state["w"].zero_()  # it is ours again
        for future in futures:
            future.result(60)
        assert whole(base, step) and steps(base) == [step]


def test_steps_overlap(base):
    futures = [dcp.async_save(STATES[part](step), checkpoint_id=f"{base}/{step}/{part}", parts=BOTH)
               for step in (1, 2) for part in BOTH]
    for future in futures:
        future.result(60)
    assert steps(base) == [2] and whole(base, 2)


def test_threads_and_calls_mixed(base):
    for first in BOTH:
        step = 1 + BOTH.index(first)
        for part in BOTH:
            arguments = {"checkpoint_id": f"{base}/{step}/{part}", "parts": BOTH}
            if part == first:
                future = dcp.async_save(STATES[part](step), **arguments)
            else:
                dcp.save(STATES[part](step), **arguments)
        future.result(60)
        assert whole(base, step)


def test_a_part_staged_for_another_step(base):
    save_all(base, 1)
    dcp.async_save(model(2), checkpoint_id=f"{base}/2/model", parts=BOTH).result(60)
    future = dcp.async_save(optimizer(3), checkpoint_id=f"{base}/3/optimizer", parts=BOTH)
    refused(lambda: future.result(60), "part optimizer is of step 3", "of step 2")
    save_all(base, 3)
    assert steps(base) == [3] and whole(base, 3)


def test_a_stager_wants_the_part(base):
    writer = HearthWriter(base, parts=BOTH)
    refused(lambda: torch_dcp.async_save(model(), checkpoint_id=f"{base}/1/model",
                                         storage_writer=writer).result(60),
            "a stager is not told the checkpoint_id", "part=")


def test_a_planner_that_changes_staged_tensors(base):
    class Doubling(torch_dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            value = super().resolve_data(item)
            return value * 2 if item.index.fqn == "w" else value

    for part in BOTH:
        dcp.async_save(STATES[part](1), checkpoint_id=f"{base}/1/{part}", parts=BOTH,
                       planner=Doubling()).result(60)
    for part in BOTH:
        wanted = STATES[part](1)
        wanted["w"] *= 2
        assert same(loaded(base, 1, part), wanted)


def test_what_was_staged_and_never_written(base):
    writer = HearthWriter(base, part="model", parts=BOTH)
    writer.stage(model())
    writer.close()
    save_all(base, 1)
    assert whole(base, 1)


# ---- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_sharded_parts_of_ranks(four, asynchronous):
    values = four.run(work.save_parts, 3, asynchronous)
    for value in (four.run(work.load_parts, 3), four.run(work.again, 3)):
        for mine, theirs in zip(values, value):
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_a_rank_that_has_staged_more_parts_than_another_writes_the_same(two):
    assert two.run(work.one_rank_ahead, 5) == [[5], [5]]


@pytest.mark.parametrize("hook, at", [
    ("stage", 1), ("reset", 1), ("storage_meta", 1), ("prepare_local_plan", 0), ("write_data", 1),
    ("write_data", 0), ("future", 1), ("finish", 0)])
@pytest.mark.parametrize("part", BOTH)
def test_a_rank_that_fails_in_a_part_fails_the_save_on_all(two, hook, at, part):
    asynchronous = hook == "stage"
    for heard in two.run(work.failing, hook, at, part, asynchronous):
        failed = heard["first"].partition("]")[0]
        if hook == "write_data" and part == "optimizer":  # begun with the part before: given up at once
            assert str(at) in failed and "made to fail" in heard["first"], heard
        else:
            assert failed == f"[{at}", heard
        assert heard["second"] != "it did not fail", heard
        assert heard["kept"] == [1], heard
        assert heard["after"] == [[2], [4]], heard


def test_ranks_that_declare_other_parts(two):
    for heard in two.run(work.declared_differently):
        for text in heard["errors"]:
            assert "the ranks do not write the same" in text and "rank 1" in text, heard
        assert heard["kept"] == [9], heard


def test_a_rank_that_dies_between_parts(folder):
    assert work.dies_between(folder) == [(1, True)] * 2


def test_another_process_is_refused_in_words(folder):
    from ranks import World

    with World(2, 2, folder, parents=True) as world:
        for heard in world.run(work.in_process):
            assert "cannot be written in DCP's checkpoint process" in heard["model"], heard
            assert heard["after"] == [2], heard
        import rank_work

        world.run(rank_work.leave)


def test_names_and_views_without_a_job():
    split = _parts.split
    assert split("/m/job/step-1_ckpt/model", None, BOTH) == ("/m/job/step-1_ckpt", "model")
    assert split("/m/job/step-1_ckpt", None, BOTH) == ("/m/job/step-1_ckpt", None)
    assert split("/m/job/model", None, BOTH, None, 3) == ("/m/job/step-3_ckpt", "model")
    assert split("/m/job/step-1_ckpt/model", None, None) == ("/m/job/step-1_ckpt/model", None)
    assert split("/m/7/step-1_ckpt", "/m/7", ()) == ("/m/7/step-1_ckpt", None)
    assert split("/m/7/other", "/m/7", ()) == ("/m/7/other", None)
    assert split("/m/job/7/other", None, ()) == ("/m/job/7", "other")
    assert split("/m/7/other", None, (), None, 3) == ("/m/7/other", None)
    assert split(None, None, BOTH) == (None, None)
    assert split(io.BytesIO, None, BOTH) == (io.BytesIO, None)
    with pytest.raises(HearthError, match="rank 1 part b of a, b"):
        one, other = _parts.Results(), _parts.Results()
        one.says, other.says = ("a", ("a", "b"), ("a",)), ("b", ("a", "b"), ("b",))
        _parts.compare(4, [one, other])
    assert AsyncCheckpointerType.PROCESS
