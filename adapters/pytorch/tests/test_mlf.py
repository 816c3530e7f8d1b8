# SPDX-License-Identifier: Apache-2.0
"""Jobs of ml-flashpoint's that Hearth goes on with, and the reverse: one table of what a job may
have left, whole and half written; and what ml-flashpoint's rules make of what Hearth wrote."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import mlf_rules
import mlf_work
import pytest
import rank_work as work
import torch
from ranks import World

_numbers = itertools.count()
C = "step-12_ckpt"
OBJECT = f"{C}/__1__0_src1.distcp"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two ranks on two nodes, which may have checkpoint processes."""
    path = tempfile.mkdtemp(prefix="hearth-torch-", dir="/dev/shm")
    with World(2, 2, path, parents=True) as ranks:
        yield ranks
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def pair(world: World) -> Iterator[World]:
    yield world
    if world.alive:
        world.run(work.leave)


@pytest.fixture
def job() -> str:
    """A name nobody has used."""
    return f"mlf{next(_numbers)}"


class Case(NamedTuple):
    """Steps 7 and 12 as ml-flashpoint leaves them, each node with its own rank's files, and then

    changes  mlf_work.change() makes them
    taken    step that Hearth recovers
    why      of each step ruled out, what every rank's log says
    theirs   step that ml-flashpoint takes, -1: not compared, since it ends in an exception
    """

    name: str
    changes: list[tuple[Any, ...]]
    taken: int | None = 12
    why: tuple[str, ...] = ()
    theirs: int | None = 12


MARKER = "step 12 is not considered: node node1 has an unfinished marker of it"
CASES = [
    Case("whole", []),
    # markers: directories of its own, files of older ones; also where their container is not
    Case("marker", [(1, "mkdir", f"{C}__0__unfinished")], 7, (MARKER,), 7),
    Case("marker-is-a-file", [(1, "write", f"{C}__0__unfinished")], 7, (MARKER,), 7),
    Case("marker-and-no-container", [(1, "rmdir", C), (1, "mkdir", f"{C}__0__unfinished")], 7,
         (MARKER,), 7),
    Case("marker-of-both-steps", [(1, "mkdir", f"{C}__0__unfinished"),
                                  (0, "mkdir", "step-7_ckpt__0__unfinished")], None,
         (MARKER, "step 7 is not considered: node node0 has an unfinished marker of it"), None),
    # killed before `.metadata`: container and common.pt come before the marker, objects after it
    Case("container-alone", [(None, "mkdir", "step-13_ckpt")]),
    Case("common-before-the-marker", [(None, "write", "step-13_ckpt/common.pt", b"PK")], 12,
         ("step 13: no node has a whole .metadata",)),
    Case("no-metadata", [(None, "remove", f"{C}/.metadata")], 7,
         ("step 12: no node has a whole .metadata",), 7),
    Case("metadata-not-renamed", [(None, "rename", f"{C}/.metadata", f"{C}/.metadata.tmp")], 7,
         ("step 12: no node has a whole .metadata",), 7),
    Case("metadata-cut-everywhere", [(None, "cut", f"{C}/.metadata", 700)], 7,
         ("step 12: no node has a whole .metadata",), 7),
    Case("metadata-cut-on-one", [(0, "cut", f"{C}/.metadata", 700)], 12, (), 7),
    Case("metadata-on-one", [(0, "remove", f"{C}/.metadata")]),
    # objects: ml-flashpoint looks at names alone, and takes them
    Case("object-nowhere", [(1, "remove", OBJECT)], 7,
         ("step 12: no node has, whole,", "__1__0_src1"), 7),
    Case("object-not-renamed", [(1, "rename", OBJECT, f"{OBJECT}.tmp")], 7, ("__1__0_src1",), 7),
    Case("object-empty", [(1, "cut", OBJECT, 0)], 7, ("__1__0_src1",)),
    Case("object-never-written", [(1, "fresh", OBJECT, 1 << 20)], 7, ("__1__0_src1",)),
    Case("object-cut-in-its-data", [(1, "cut", OBJECT, 5000)], 7, ("__1__0_src1",)),
    Case("object-cut-in-its-block", [(1, "cut", OBJECT, 100)], 7, ("__1__0_src1",)),
    Case("object-length-not-set", [(1, "zero", OBJECT, 0, 8)], 7, ("__1__0_src1",)),
    Case("object-items-never-copied", [(1, "zero", f"{C}/__1__1_src1.distcp", 4096 + 235)], 7,
         ("__1__1_src1",)),
    Case("object-not-cut-at-its-close", [(1, "cut", OBJECT, 1 << 20)]),
    Case("newest-on-one-node", [(1, "rmdir", C)], 7, ("__1__0_src1",), 7),
    Case("object-in-the-pool", [(1, "pool", OBJECT, -1)]),
    Case("pool-gone", [(1, "pool", OBJECT, None)], 7, ("__1__0_src1",)),
    Case("pool-made-anew", [(1, "pool", OBJECT, 4096)], 7, ("__1__0_src1",)),
    # common.pt: no container of its own without one, here the caller needs it or not
    Case("common-on-one", [(0, "remove", f"{C}/common.pt")]),
    Case("common-nowhere", [(None, "remove", f"{C}/common.pt")], 12, (), 7),
    Case("stub-on-one", [(1, "remove", f"{C}/metadata.json")]),
    # leftovers and strangers
    Case("tmp-of-the-replication", [(0, "write", f"{OBJECT}.tmp", b"x" * 9000)]),
    Case("lock-of-a-retrieval", [(0, "write", f"{OBJECT}.lock")]),
    Case("late-put-after-the-delete",
         [(0, "write", "step-3_ckpt/__1__0_src1.distcp", b"x" * 5000)]),
    Case("context", [(None, "write", f"{C}/context/model.yaml", b"a: 1")]),
    Case("old-one-beside", [(None, "mkdir", "step-5_ckpt-old")]),
    Case("bare-pickle-beside", [(None, "pickle", f"{C}/extra.pkl"), (None, "pickle", "last.pkl")]),
    Case("bare-pickle-for-metadata", [(None, "pickle", f"{C}/.metadata")], 12, (), -1),
    # the number may have leading zeros
    Case("leading-zeros", [(None, "rename", C, "step-0012_ckpt")]),
    Case("leading-zeros-on-one", [(1, "rename", C, "step-012_ckpt")], 12, (), 7),
    Case("leading-zeros-and-marker", [(None, "rename", C, "step-0012_ckpt"),
                                      (1, "mkdir", "step-0012_ckpt__0__unfinished")], 7,
         (MARKER,), 7),
    Case("a-node-is-new", [(1, "rmdir", "")], None,
         ("step 12: no node has, whole,", "step 7: no node has, whole,"), None),
    Case("a-node-is-new-and-its-objects-are-not-lost",
         [(1, "rmdir", ""), (0, "replicas", C)]),
]


def _bases(ranks: World, job: str) -> list[str]:
    return [f"{ranks.folder}/node{node}/{job}" for node in range(2)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_job_of_ml_flashpoint_has_left(pair, job, case):
    for name in ("step-7_ckpt", C):
        pair.run(work.place, job, name, work.own_only)
    pair.run(mlf_work.change, job, case.changes)
    if case.theirs != -1:
        taken = mlf_rules.latest(_bases(pair, job), 2)
        assert (taken and taken.step) == case.theirs, taken
    found = pair.run(mlf_work.recover, job)
    for step, path, there, lines in found:
        assert step == case.taken, lines
        for reason in case.why:
            assert any(reason in line for line in lines), (reason, lines)
        if not case.why:
            assert not any("ruled-out" in line for line in lines), lines
        if path is not None:
            assert os.path.isdir(path) and ".metadata" in there, (path, there)


@pytest.mark.parametrize("name", ["common.pt", "metadata.json"])
def test_what_one_node_has_is_brought_to_all_read_and_where_it_is_looked_for(pair, job, name):
    pair.run(work.place, job, C, work.own_only)
    pair.run(mlf_work.change, job, [(1, "rmdir", C)])
    pair.run(mlf_work.change, job, [(0, "replicas", C)])
    pair.run(mlf_work.change, job, [(0, "write", f"{C}/{name}", b"the only one")])
    for three in pair.run(mlf_work.common_of_recovered, job, 12, name):
        assert three == (b"the only one",) * 3


def test_what_was_laid_is_laid_once_and_an_engine_that_comes_back_takes_it(pair, job):
    pair.run(work.place, job, C, work.first_node_only)
    first = pair.run(mlf_work.recover, job)
    pair.run(mlf_work.leave, job)
    assert all(step == 12 and {".metadata", "common.pt", "metadata.json"} <= set(there)
               for step, _, there, _ in first), first
    again = pair.run(mlf_work.recover, job)
    assert [found[:3] for found in again] == [found[:3] for found in first]


# ---- the reverse ---------------------------------------------------------------------------------


def check_items(read: dict[str, Any], wanted: dict[str, Any], step: int) -> None:
    assert read["common"] == {"iteration": step, "args": {"tp": 1}}
    assert read["stub"] == {"sharded_backend": ""}
    items = {name: value for (name, _), value in read["items"].items()}
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(items[name], value), name
        else:
            assert items[name] == value, name


@pytest.mark.parametrize("how", ["sync", "thread", "process"])
def test_ml_flashpoint_goes_on_from_a_save(pair, job, how):
    paths = pair.run(mlf_work.save, job, 31, how)
    bases = _bases(pair, job)
    taken = mlf_rules.latest(bases, 2)
    assert taken == (31, "step-31_ckpt", [[], []])
    for path, base in zip(paths, bases):
        assert path == f"{base}/{taken.name}"
    reads = [pair.run(mlf_work.read_as_theirs, path)[rank] for rank, path in enumerate(paths)]
    for read, wanted in zip(reads, pair.run(mlf_work.wanted, 31)):
        check_items(read, wanted, 31)


def test_ml_flashpoint_goes_on_from_the_copies_where_a_node_is_new(pair, job, folder):
    pair.run(mlf_work.save, job, 31, "sync")
    taken = mlf_rules.latest([_bases(pair, job)[0], f"{folder}/new"], 2)
    assert taken is not None and taken.step == 31 and taken.fetched[0] == []
    assert {".metadata", "common.pt", "__1__0_src1.distcp"} == set(taken.fetched[1])


def test_on_a_node_that_is_new_a_save_and_its_files_are_where_they_are_looked_for(pair, job):
    pair.run(mlf_work.save, job, 31, "sync")
    pair.run(mlf_work.leave, job)
    pair.run(mlf_work.lose_node, job, 1)
    for step, path, there, _ in pair.run(mlf_work.recover, job):
        assert step == 31 and {".metadata", "common.pt", "metadata.json"} <= set(there), path
    assert mlf_rules.latest(_bases(pair, job), 2) == (31, "step-31_ckpt", [[], []])


def test_without_its_files_ml_flashpoint_takes_no_save(pair, job):
    """What common= is for."""
    pair.run(mlf_work.save, job, 31, "plain")
    assert mlf_rules.latest(_bases(pair, job), 2) is None


def test_there_and_back(pair, job):
    """Its container, then saves of Hearth's, which its rules take; then Hearth again."""
    pair.run(work.place, job, C, work.own_only)
    assert [found[0] for found in pair.run(mlf_work.recover, job)] == [12] * 2
    pair.run(mlf_work.save, job, 31, "sync")
    pair.run(mlf_work.leave, job)
    assert mlf_rules.latest(_bases(pair, job), 2).step == 31
    for step, path, there, _ in pair.run(mlf_work.recover, job):
        assert step == 31 and {".metadata", "common.pt", "metadata.json"} <= set(there), path


@pytest.mark.parametrize("files, error, text", [
    ({".metadata": b""}, ValueError, "the save has its own"),
    ({"__3.metadata": b""}, ValueError, "the save has its own"),
    ({1: b""}, ValueError, "cannot be given"),
    ({"common.pt": "text"}, TypeError, "and not bytes"),
    ([("common.pt", b"")], TypeError, "a mapping of names to bytes")])
def test_what_cannot_be_given_to_all_nodes_is_refused_at_once(files, error, text):
    from hearth_checkpoint.torch import HearthWriter

    with pytest.raises(error, match=text):
        HearthWriter("/nowhere/job", common=files)
