# SPDX-License-Identifier: Apache-2.0
"""Containers that ml-flashpoint wrote, found, recovered and read: the checklist ML1 to ML14.

ML5, 7 to 11, 13 and 14 hold as outcomes; how they come about is Hearth's own recovery: one inventory, one plan,
one vote, instead of a round of collectives for each candidate.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import shutil

import pytest
import rank_work as work
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

import hearth_checkpoint.torch as ht
from hearth_checkpoint.errors import HearthCorrupt, HearthError
from hearth_checkpoint.torch import HearthReader
from hearth_checkpoint.torch._pickles import decode_item, load_metadata

DATA = work.DATA
_numbers = itertools.count()


@pytest.fixture
def job() -> str:
    """A name nobody has used."""
    return f"ml{next(_numbers)}"


def expected(container: str) -> dict:
    with open(f"{DATA}/container/{container}.expected.json") as file:
        return json.load(file)


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


RAW = ("raw_bytes", "empty_bytes")  # byte items that no torch.save wrote: DCP cannot load them


def plain(value):
    """A value of the JSON: tuples are {"tuple": [...]} there."""
    return tuple(value["tuple"]) if isinstance(value, dict) and "tuple" in value else value


def check_equal(read: dict, container: str) -> int:
    """Every chunk of every tensor, every byte item; how many."""
    count = 0
    for item in (i for o in expected(container)["objects"] for i in o["items"]):
        if item["key"] in RAW:
            continue
        value = read[item["key"]]
        count += 1
        if item["kind"] == "bytes":
            assert value == plain(item["value"]), item["key"]
            continue
        for dim, (at, size) in enumerate(zip(item["chunk_offsets"], item["shape"])):
            value = value.narrow(dim, at, size)
        assert str(value.dtype) == "torch." + item["dtype"]
        digest = hashlib.sha256(bytes_of(value)).hexdigest()
        assert digest == item.get("c_order_sha256", item["payload_sha256"]), item["key"]
    return count


def install(base: str, container: str, change=None) -> str:
    """A container in this process's own node."""
    shutil.copytree(f"{DATA}/container/{container}", f"{base}/{container}")
    if change:
        change(f"{base}/{container}")
    return f"{base}/{container}"


def test_ML1_metadata_through_the_restricted_reader_and_errors_are_raised(base):
    path = install(base, "step-12_ckpt")
    assert ht.latest(base) == path
    reader = HearthReader()
    reader.reset(path)
    assert "dec.q" in reader.read_metadata().state_dict_metadata
    with pytest.raises(Exception, match="(?i)posix|system"):
        load_metadata(open(f"{DATA}/hostile/a_os_system_p4.pkl", "rb").read())


def test_ML1_a_container_without_metadata_is_no_candidate(base):
    install(base, "step-12_ckpt", lambda path: os.remove(f"{path}/.metadata"))
    assert ht.latest(base) is None


def test_ML2_tensor_headers_are_restricted_too(base):
    """The reference system unpickles them as they come."""
    def poison(path: str) -> None:
        name = f"{path}/__0__0_src0.distcp"
        data = bytearray(open(name, "rb").read())
        data[4096 + 4 + 20:4096 + 4 + 28] = b"os.popen"
        open(name, "wb").write(data)

    path = install(base, "step-12_ckpt", poison)
    with pytest.raises((HearthError, CheckpointException)):
        if ht.latest(base) == path:
            target = {"dec": {"q": torch.zeros(6, 9, dtype=torch.float64)}}
            dcp.load(target, checkpoint_id=path, storage_reader=HearthReader())
        raise HearthCorrupt("the container was not even offered")


@pytest.mark.parametrize("container, least", [("step-12_ckpt", 12), ("step-7_ckpt", 12)])
def test_ML3_both_forms_of_tensors_read_equal(two, job, container, least):
    two.run(work.place, job, container, work.own_only)
    assert [found[0] for found in two.run(work.find, job)] == [container] * 2
    step = int(container[5:-5])
    for read in two.run(work.read_everything, job, step, RAW):
        assert check_equal(read, container) >= least
    for part in expected(container)["objects"]:
        for item in part["items"]:
            if item["key"] in RAW:
                for data in two.run(work.read_raw, job, part["name"], item["offset"],
                                    item["length"]):
                    assert hashlib.sha256(data).hexdigest() == item["sha256"]


@pytest.mark.parametrize("garbage", [b"", b"PK\x03\x04 and no zip", b"\x80\x02garbage", b"abc"])
def test_ML4_garbage_is_an_exception(garbage):
    with pytest.raises(Exception):
        decode_item(garbage)
    with pytest.raises(Exception):
        torch.load(io.BytesIO(garbage), weights_only=True)


def test_ML5_what_is_missing_here_comes_from_a_peer(two, job):
    two.run(work.place, job, "step-12_ckpt", work.first_node_only)
    names, pulled, files = zip(*two.run(work.find, job))
    assert set(names) == {"step-12_ckpt"} and pulled[0] == 0 and pulled[1] > 0, pulled
    assert ".metadata" in files[1]
    assert all(check_equal(read, "step-12_ckpt") for read in two.run(work.read_everything, job, 12))


def test_ML6_an_object_that_nobody_has_is_an_error_naming_it(two, job):
    two.run(work.place, job, "step-12_ckpt", work.one_object_nowhere)
    found = two.run(work.find_error, job)
    assert all(text.startswith("(None") or "__1__0_src1.distcp" in text for text in found), found


def test_ML7_candidates_by_number_and_markers_are_a_veto_everywhere(two, job):
    for name in ("step-12_ckpt", "step-7_ckpt"):
        two.run(work.place, job, name, work.own_only)
    two.run(work.place, job, "step-7_ckpt", work.own_only, "step-0_ckpt")
    two.run(work.touch, job, "step-12_ckpt__1__unfinished", 1)
    assert [found[0] for found in two.run(work.find, job)] == ["step-7_ckpt"] * 2


def test_ML7_step_0_is_a_step(two, job):
    """The reference system sorts it as -1."""
    two.run(work.place, job, "step-7_ckpt", work.own_only, "step-0_ckpt")
    assert [found[0] for found in two.run(work.find, job)] == ["step-0_ckpt"] * 2


def test_ML8_files_that_are_no_objects_do_not_count(two, job):
    two.run(work.place, job, "step-12_ckpt", work.own_only)
    two.run(work.touch, job, "step-12_ckpt/__1__0_src1.distcp.lock", 0)
    two.run(work.touch, job, "step-12_ckpt/__1__1_src1.distcp.tmp", 0)
    assert [found[0] for found in two.run(work.find, job)] == ["step-12_ckpt"] * 2


def test_ML9_the_newest_that_is_complete(two, job):
    two.run(work.place, job, "step-7_ckpt", work.own_only)
    two.run(work.place, job, "step-12_ckpt", work.one_object_nowhere)
    assert [found[0] for found in two.run(work.find, job)] == ["step-7_ckpt"] * 2


def test_ML9_none_is_none_everywhere(two, job):
    assert [found[0] for found in two.run(work.find, job)] == [None] * 2


def test_ML10_the_plan_is_made_where_the_metadata_is(two, job):
    two.run(work.place, job, "step-12_ckpt", work.metadata_on_second)
    for name, _, files in two.run(work.find, job):
        assert name == "step-12_ckpt" and ".metadata" in files, files


def test_ML11_all_ranks_hear_the_same(two, job):
    two.run(work.place, job, "step-12_ckpt", work.first_node_only)
    assert len({found[0] for found in two.run(work.find, job)}) == 1
    reads = two.run(work.read_everything, job, 12)
    assert all(check_equal(read, "step-12_ckpt") for read in reads)


def test_ML12_further_common_objects_by_name(two, job):
    """The reference system demands `common.pt` of every container; here the caller says."""
    two.run(work.place, job, "step-12_ckpt", work.common_on_first)
    for name, _, files in two.run(work.find, job, ("common.pt",)):
        assert name == "step-12_ckpt" and "common.pt" in files, files


def test_ML13_the_ranks_may_meet_as_the_caller_likes(two, job):
    two.run(work.place, job, "step-12_ckpt", work.own_only)
    assert two.run(work.find_with_own_gather, job) == ["step-12_ckpt"] * 2


def test_ML14_metadata_on_every_node_and_nothing_unfinished_is_left(two):
    for files in two.run(work.files_after_save, 3):
        assert ".metadata" in files and any(name.endswith("_src0.distcp") for name in files) \
            or any(name.endswith("_src1.distcp") for name in files)
        assert not any(name.endswith((".tmp", ".lock", "unfinished")) for name in files)
