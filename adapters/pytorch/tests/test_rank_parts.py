# SPDX-License-Identifier: Apache-2.0
"""The experimental checkpointers with part= and parts=: each part by a call of its own, committed with
the last."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from lacks import WHY

if WHY["experimental"]:
    pytest.skip(WHY["experimental"], allow_module_level=True)

import rank_parts_work as work
from hooks import DEADLINE_S, Gate, Hook

from hearth_checkpoint.errors import HearthError, HearthNotFound
from hearth_checkpoint.torch import _jobs
from hearth_checkpoint.torch.experimental import (
    Reader,
    Stager,
    Writer,
    make_async_checkpointer,
    make_sync_checkpointer,
)

BOTH = ("model", "optimizer")


def state(part: str, value: float = 1) -> dict[str, Any]:
    """With the same names in each."""
    return {"w": torch.full((4,), float(value if part == "model" else -value)), "n": (part, value)}


def same(found: Any, part: str, value: float = 1) -> bool:
    wanted = state(part, value)
    return torch.equal(found["w"], wanted["w"]) and found["n"] == wanted["n"]


def steps(base: str) -> list[int]:
    return [kept.step for kept in _jobs.open_member(base).job.kept()]


def save(base: str, step: int, part: str, **arguments: Any) -> None:
    Writer(parts=BOTH, **arguments).write(f"{base}/step-{step}_ckpt/{part}", state(part, step))


def test_two_writes_are_one_save(base):
    hook = Hook()
    writer = Writer(None, None, Gate(hook), hook, parts=BOTH)
    writer.write(f"{base}/step-3_ckpt/model", state("model"))
    assert steps(base) == [] and hook.calls == []
    writer.write(f"{base}/step-3_ckpt/optimizer", state("optimizer"), tag="t")
    assert steps(base) == [3]
    path = f"{base}/step-3_ckpt/optimizer"
    assert hook.calls == [("pre_commit", path, {"tag": "t"}), ("barrier", "", {}),
                          ("post_commit", path, {"tag": "t"})]


def test_a_part_is_told_or_named_by_the_path(base):
    for part in BOTH:
        Writer(part=part, parts=BOTH).write(f"{base}/7", state(part))
    for part in BOTH:
        assert same(Reader(part=part).read(f"{base}/7")[0], part)
        assert same(Reader().read(f"{base}/step-7_ckpt/{part}")[0], part)
        into = {"w": torch.zeros(4), "n": None, "more": torch.zeros(1)}
        kept = into["w"]
        found, missing = Reader(part=part).read(f"{base}/7/{part}", into)
        assert found is into and found["w"] is kept and same(found, part) and missing == ["more"]
    with pytest.raises(ValueError, match="'model' is asked for"):
        Reader(part="model").read(f"{base}/7/optimizer")
    with pytest.raises(ValueError, match="'model' is asked for"):
        Writer(part="model", parts=BOTH).write(f"{base}/8/optimizer", state("model"))


def test_without_part_a_reader_sees_all(base):
    for part in BOTH:
        save(base, 2, part)
    found, _ = Reader().read(f"{base}/2")
    assert set(found) == set(BOTH) and all(same(found[part], part, 2) for part in BOTH)
    into = {"optimizer": {"w": torch.zeros(4)}}
    assert Reader().read(f"{base}/2", into) == (into, []) and into["optimizer"]["w"].eq(-2).all()


def test_a_part_that_a_save_has_not(base):
    for part in BOTH:
        save(base, 2, part)
    with pytest.raises(HearthNotFound, match="no part 'data' of rank 0: it has model, optimizer"):
        Reader(part="data").read(f"{base}/2")
    Writer().write(f"{base}/3", state("model"))
    with pytest.raises(HearthNotFound, match="no part 'model' of rank 0$"):
        Reader(part="model").read(f"{base}/3")


@pytest.mark.parametrize("own", [True, False])
def test_beside_training(base, own):
    """A checkpointer of each part, or one, which hears of the part by the path."""
    if own:
        each = {part: make_async_checkpointer(base=base, part=part, parts=BOTH) for part in BOTH}
    else:
        each = dict.fromkeys(BOTH, make_async_checkpointer(base=base, parts=BOTH))
    for step in (1, 2):
        states = {part: state(part, step) for part in BOTH}
        written = [each[part].save(f"{base}/step-{step}_ckpt/{part}", states[part])[1]
                   for part in BOTH]
        for of in states.values():
            of["w"].zero_()
        for future in written:
            future.result(DEADLINE_S)
        assert steps(base) == [step]
        for part in BOTH:
            assert same(each[part].load(f"{base}/step-{step}_ckpt/{part}"), part, step)
    for checkpointer in each.values():
        checkpointer.close()


def test_a_later_step_gives_an_older_one_up_of_which_a_part_is_missing(base, caplog):
    for part in BOTH:
        save(base, 1, part)
    with caplog.at_level(logging.ERROR, "hearth_checkpoint"):
        save(base, 2, "model")
        for part in BOTH:
            save(base, 3, part)
        save(base, 4, "model")
        make_sync_checkpointer().save(f"{base}/5", state("model", 5))
    assert steps(base) == [5]
    for step, by in ((2, "part model of step 3"), (4, "a save of step 5")):
        assert f"step {step} is not saved: its part optimizer was not written before {by}" in caplog.text


def test_the_last_part_alone_is_no_save(base):
    with pytest.raises(HearthError, match="model was not written before it"):
        save(base, 2, "optimizer")
    with pytest.raises(HearthError, match="its parts were declared as model, optimizer"):
        save(base, 3, "model")
        Writer(parts=("model", "data", "optimizer")).write(f"{base}/3/data", state("model"))
    for part in BOTH:
        save(base, 4, part)
    assert steps(base) == [4]


@pytest.mark.parametrize("where", ["pre_commit", "barrier", "state"])
def test_what_fails_in_one_part_fails_the_save(base, where):
    hook = Hook(fail=where)
    for step in range(1, 6):  # more than there are slots
        writer = Writer(None, None, Gate(hook, where == "barrier"), hook, parts=BOTH)
        writer.write(f"{base}/{step}/model", state("model"))
        wrong = {"w": torch.zeros(3).to_sparse()} if where == "state" else state("optimizer")
        with pytest.raises((HearthError, ValueError, TypeError, TimeoutError)):
            writer.write(f"{base}/{step}/optimizer", wrong)
        assert steps(base) == []
    for part in BOTH:
        save(base, 9, part)
    assert steps(base) == [9]


def test_a_part_that_was_staged_and_not_written_fails_the_save(base):
    stager = Stager(base=base, part="model", parts=BOTH)
    staged = stager.stage(state("model"))
    assert same(staged, "model")
    stager.close()
    assert not staged
    with pytest.raises(HearthError, match="given up"):
        save(base, 2, "optimizer")
    stager = Stager(base=base, part="model", parts=BOTH)
    Writer(parts=BOTH).write(f"{base}/step-3_ckpt", stager.stage(state("model", 3)))
    save(base, 3, "optimizer")
    assert steps(base) == [3] and same(Reader(part="model").read(f"{base}/3")[0], "model", 3)


def test_what_is_asked_for_is_checked(base):
    with pytest.raises(ValueError, match="a stager is not told the path"):
        Stager(base=base, parts=BOTH).stage(state("model"))
    with pytest.raises(TypeError, match="parts= has to name"):
        make_sync_checkpointer(part="model")
    with pytest.raises(ValueError, match="nor does the path name one of model, optimizer"):
        Writer(parts=BOTH).write(f"{base}/3", state("model"))
    staged = Stager(base=base, part="model", parts=BOTH).stage(state("model"))
    with pytest.raises(ValueError, match="was staged as part model"):
        Writer().write(f"{base}/3", staged)
    staged.give_up()
    with pytest.raises(ValueError, match="a save without parts"):
        Writer(parts=BOTH).write(f"{base}/3/model", Stager(base=base).stage(state("model")))
    staged = Stager(base=base, part="model", parts=BOTH).stage(state("model"))
    with pytest.raises(ValueError, match=f"does not lie in {base}, the base"):
        Writer(parts=BOTH).write(f"{base}-other/3/model", staged)
    with pytest.raises(HearthError, match="given up"):
        save(base, 3, "optimizer")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_parts_of_ranks(two, asynchronous):
    assert two.run(work.saved, 3, asynchronous) == [[3]] * 2
    assert two.run(work.again, 3) == [[True] * 4] * 2


def test_a_rank_that_fails_in_a_part_fails_the_save_on_all(two):
    for rank, (said, kept) in enumerate(two.run(work.one_fails, 4)):
        assert said != "nothing" and kept == [5], said
        assert rank == 0 or "sparse" in said
