# SPDX-License-Identifier: Apache-2.0
"""Options of a job: unknown ones and those that would be ignored are refused, at every door."""

from __future__ import annotations

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lacks import needs

import hearth_checkpoint.torch as ht
from hearth_checkpoint.job import Job
from hearth_checkpoint.torch import HearthReader, HearthWriter, _jobs, _rank_local

WRONG = [("copys", "copies"), ("timout_s", "timeout_s"), ("struct_size", "open_ms"),
         ("job", "bind"), ("bootstrap", "heartbeat_ms")]


def doors(base: str) -> dict:
    """Every function that takes options of a job."""
    state = {"w": torch.zeros(2)}
    return {
        "HearthWriter": lambda **o: HearthWriter(base, **o),
        "HearthReader": lambda **o: HearthReader(base, **o),
        "recover": lambda **o: ht.recover(base, **o),
        "latest": lambda **o: ht.latest(base, **o),
        "load_latest": lambda **o: ht.load_latest(state, base=base, **o),
        "Job.open": lambda **o: Job.open(base, rank=0, world=1, **o),
        "Writer": lambda **o: ht.experimental.Writer(**o),
        "Reader": lambda **o: ht.experimental.Reader(**o),
        "Stager": lambda **o: ht.experimental.Stager(base=base, **o),
        "make_sync_checkpointer": lambda **o: ht.experimental.make_sync_checkpointer(**o),
        "make_async_checkpointer": lambda **o: ht.experimental.make_async_checkpointer(
            base=base, **o)}


OF_EXPERIMENTAL = ("Writer", "Reader", "Stager", "make_sync_checkpointer",
                   "make_async_checkpointer")
DOORS = [pytest.param(door, marks=needs("experimental")) if door in OF_EXPERIMENTAL else door
         for door in sorted(doors(""))]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("is_open", [False, True])
def test_an_unknown_option_is_refused_with_the_nearest(base, door, is_open):
    """Also where the job is open already, and options would not be looked at any more."""
    if is_open:
        assert ht.latest(base) is None
    with pytest.raises(TypeError, match="'copys'.*'copies'"):
        doors(base)[door](copys=2)
    assert is_open or not _jobs.open_bases(), "it was joined before it was refused"


def test_what_only_the_package_may_say_is_no_option(base):
    for name in ("struct_size", "reserved", "root", "job", "bootstrap", "domain_count",
                 "object_count"):
        with pytest.raises(TypeError, match=repr(name)):
            Job.open(base, rank=0, world=1, **{name: 1})


def test_a_misspelt_argument_is_told_its_name(base):
    with pytest.raises(TypeError, match="'timout_s'.*'timeout_s'"):
        HearthWriter(base, timout_s=3)
    with pytest.raises(TypeError, match="'deadlines'.*'deadline_s'"):
        ht.latest(base, deadlines=3)


@pytest.mark.parametrize("name, value", [("copies", -1), ("copies", "two"), ("start", "now"),
                                         ("copies", 1 << 40), ("bind", 3)])
def test_a_value_that_cannot_be_is_refused_by_the_options_name(base, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        Job.open(base, rank=0, world=1, **{name: value})


@pytest.mark.parametrize("door", ["recover", "latest", "load_latest"])
def test_options_of_an_open_job_may_not_differ(base, door):
    assert ht.latest(base, linger_s=6, object_bytes=1 << 20) is None
    doors(base)[door](linger_s=6, object_bytes=[1 << 20])  # the same again
    with pytest.raises(ValueError, match="linger_s.* 7.* 6"):
        doors(base)[door](linger_s=7)
    with pytest.raises(ValueError, match="copy_threads"):
        doors(base)[door](copy_threads=3)
    assert ht.latest(base) is None


def test_a_writer_or_reader_of_an_open_job_may_not_ask_for_others(base):
    state = {"w": torch.ones(3)}
    dcp.save(state, checkpoint_id=f"{base}/1", storage_writer=HearthWriter(base, keep=2))
    with pytest.raises(dcp.api.CheckpointException, match="copy_threads.*open"):
        dcp.save(state, checkpoint_id=f"{base}/2",
                 storage_writer=HearthWriter(base, copy_threads=3))
    with pytest.raises(dcp.api.CheckpointException, match="keep.*open"):
        dcp.async_save(state, checkpoint_id=f"{base}/2",
                       storage_writer=HearthWriter(base, keep=3)).result(60)
    with pytest.raises(dcp.api.CheckpointException, match="copy_threads.*open"):
        ht.load(state, checkpoint_id=f"{base}/1", storage_reader=HearthReader(copy_threads=3))
    with pytest.raises(ValueError, match="copy_threads.*open"):
        _rank_local.Writer(copy_threads=3).write(f"{base}/4", state)
    dcp.save(state, checkpoint_id=f"{base}/3", storage_writer=HearthWriter(base, keep=2))


def test_what_the_environment_said_may_be_said_again(base, monkeypatch):
    monkeypatch.setenv("HEARTH_LINGER_S", "5")
    assert ht.latest(base) is None
    assert ht.latest(base, linger_s=5, node="node0", rank=0, world=1) is None
    with pytest.raises(ValueError, match="rank"):
        ht.latest(base, rank=1, world=2)


def test_options_beside_a_job_that_is_given_are_refused(base):
    job = Job.open(base, rank=0, world=1)
    try:
        _rank_local.Writer(job=job, linger_s=5)
        for kind in (_rank_local.Writer, _rank_local.Reader, _rank_local.Stager):
            with pytest.raises(ValueError, match="copy_threads"):
                kind(job=job, copy_threads=3)
    finally:
        job.close(keep=False)
