# SPDX-License-Identifier: Apache-2.0
"""The checkpointers of torch.distributed.checkpoint._experimental, kept in peers' memory.

    checkpointer = make_async_checkpointer()
    state = checkpointer.load("/mnt/hearth/job/step-40_ckpt", state)
    _, written = checkpointer.save("/mnt/hearth/job/step-50_ckpt", state)

Rank-local: each rank writes and reads its own state, nothing is resharded. The path is a job's base
and a step; a folder with files checkpoint_<rank>.pt of torch.save is read as well. Each class
derives from torch's and takes its place. Path and state come in either order: older versions had
the state first.

With parts= a save takes several writes, each of a part that part= or the path says, as
step-50_ckpt/model; the last that is declared commits.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from typing import Any

import torch

if find_spec("torch.distributed.checkpoint._experimental") is None:
    raise ImportError(
        "hearth_checkpoint.torch.experimental needs torch.distributed.checkpoint._experimental, "
        "which is in "
        f"torch from 2.9 on, and this is torch {torch.__version__}", name=__name__)

from torch.distributed.checkpoint._experimental import checkpointer as base
from torch.distributed.checkpoint._experimental.barriers import (
    Barrier,
    create_barrier_from_config,
)
from torch.distributed.checkpoint._experimental.checkpoint_reader import CheckpointReader
from torch.distributed.checkpoint._experimental.checkpoint_writer import (
    CheckpointWriter,
    CheckpointWriterConfig,
    WriterHook,
)
from torch.distributed.checkpoint._experimental.config import CheckpointerConfig
from torch.distributed.checkpoint._experimental.staging import CheckpointStager
from torch.distributed.checkpoint._experimental.types import RankInfo
from torch.distributed.checkpoint._experimental.utils import wrap_future

from ..job import Job
from . import _jobs, _rank_local
from ._rank_local import ordered
from ._staged import StagedObject

# ---- in the place of torch's -------------------------------------------------------------------


def _rank_info() -> RankInfo:
    rank, world = _jobs.rank_and_world()
    return RankInfo(global_rank=rank, global_world_size=world)


class Stager(_rank_local.Stager, CheckpointStager):
    """_rank_local.Stager, of whose arguments `more` are: job, base, wait_s, ranks, part, parts,
    and options of a job that is opened here."""

    def __init__(self, rank_info: RankInfo | None = None, **more: Any) -> None:
        super().__init__((rank_info or _rank_info()).global_rank, **more)


class Writer(_rank_local.Writer, CheckpointWriter):
    """_rank_local.Writer, of whose arguments `more` are: job, level, part, parts, and options of a
    job that is opened here. config: its time-out is that of each wait."""

    def __init__(self, config: CheckpointWriterConfig | None = None,
                 rank_info: RankInfo | None = None, barrier: Barrier | None = None,
                 commit_hook: WriterHook | None = None, **more: Any) -> None:
        if config is not None and not isinstance(config, CheckpointWriterConfig):
            raise TypeError(
                f"config: a CheckpointWriterConfig is wanted, not {type(config).__name__}")
        who = rank_info or _rank_info()
        CheckpointWriter.__init__(self, config or CheckpointWriterConfig(), who, barrier,
                                  commit_hook)
        _rank_local.Writer.__init__(self, who.global_rank, barrier, commit_hook, **more)

    @property
    def _timeout(self) -> float:
        return float(self._config.write_barrier_timeout_secs)


class Reader(_rank_local.Reader, CheckpointReader):
    """_rank_local.Reader, of whose arguments `more` are: job, trust, part, and options of a job
    that is opened here."""

    def __init__(self, rank_info: RankInfo | None = None, **more: Any) -> None:
        who = rank_info or _rank_info()
        CheckpointReader.__init__(self, who)
        _rank_local.Reader.__init__(self, who.global_rank, **more)


# ---- checkpointers ----------------------------------------------------------------------------


def _load(reader: Any, path: Any, state_dict: Any, map_location: Any, strict: bool,
          kwargs: dict[str, Any]) -> Any:
    if state_dict is not None:
        path, state_dict = ordered(path, state_dict)
    state, missing = reader.read(
        path=path, state_dict=state_dict, map_location=map_location, **kwargs)
    if strict and missing:
        raise RuntimeError(f"Checkpoint at {path} is missing keys: {missing}")
    return state


class SyncCheckpointer(base.SyncCheckpointer):
    """Saves and loads in the caller's thread."""

    def save(self, path: Any, state_dict: Any, **kwargs: Any) -> None:
        """Write; returns when it is done. Keywords go to the writer."""
        path, state_dict = ordered(path, state_dict)
        self._writer.write(path=path, state_dict=state_dict, **kwargs)

    def load(self, path: Any, state_dict: Any = None, *, default_map_location: Any = None,
             strict: bool = False, **kwargs: Any) -> Any:
        """Fill state_dict, or make everything anew. strict: missing keys are an error, raised when
        the others were filled. Other keywords go to the reader."""
        return _load(self._reader, path, state_dict, default_map_location, strict, kwargs)


class AsyncCheckpointer(base.AsyncCheckpointer):
    """Saves in the background, one save at a time; loads in the caller's thread."""

    _closed = False

    def save(self, path: Any, state_dict: Any, **kwargs: Any) -> tuple[Future, Future]:
        """Stage, hand over, return (staged, written). Waits for the save before; if that failed,
        its error is raised here, once, and nothing is saved: the next call works."""
        path, state_dict = ordered(path, state_dict)
        before, self._write_future = self._write_future, None
        if before is not None:
            before.result()
        if isinstance(self._checkpoint_stager, Stager):
            self._checkpoint_stager.for_path(path)
        staged = self._checkpoint_stager.stage(state_dict=state_dict, **kwargs)
        try:
            written = self._checkpoint_process.write(staged, path, **kwargs)
            if written is None:
                raise RuntimeError("Write future is unexpectedly None")
        except BaseException:
            if isinstance(staged, StagedObject):
                staged.give_up()
            raise
        self._write_future = written
        return wrap_future(staged), written

    def load(self, path: Any, state_dict: Any = None, *, default_map_location: Any = None,
             strict: bool = False, **kwargs: Any) -> Any:
        """As SyncCheckpointer.load(); does not wait for a save in flight."""
        return _load(self._reader, path, state_dict, default_map_location, strict, kwargs)

    def close(self) -> None:
        """Wait for the save in flight, whose error is its future's; close stager and process, both
        even if one raises. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._write_future is not None:
            wait([self._write_future])  # the stager gives up what was not written
        try:
            self._checkpoint_stager.close()
        finally:
            self._checkpoint_process.close()


class InlineProcess:
    """What AsyncCheckpointer hands staged states to: a thread of this process. There is nothing
    left that would hold the interpreter for long, so no process of its own is needed."""

    def __init__(self, writer: CheckpointWriter) -> None:
        self._writer = writer
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hearth-write")

    def write(self, state_dict: Any, path: str, **kwargs: Any) -> Future:
        """Write in the background. state_dict: a state, or a future of one."""
        return self._thread.submit(self._write, state_dict, path, kwargs)

    def _write(self, state_dict: Any, path: str, kwargs: dict[str, Any]) -> None:
        state = state_dict.result() if isinstance(state_dict, Future) else state_dict
        self._writer.write(path=path, state_dict=state, **kwargs)

    def close(self) -> None:
        """End the write in flight, drop what waits, close the writer. Twice is harmless."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._writer.close()


_STAGER_DOES = {"use_pinned_memory": False, "use_async_staging": False,
                "use_non_blocking_copy": False}  # it is done when stage() returns


def _refuse_unmet(part: str, given: Any, does: dict[str, Any]) -> None:
    """ValueError for settings that nothing here can honour."""
    default = type(given)()
    for name, value in vars(given).items():
        if value != getattr(default, name) and (name not in does or value != does[name]):
            raise ValueError(f"config.{part}.{name}={value!r} cannot be honoured: a state is "
                             "staged in pool memory, in the caller's thread, and no process is "
                             "started")


def _settings(config: Any, rank_info: Any, barrier: Barrier | None
              ) -> tuple[CheckpointWriterConfig | None, Any, Barrier | None]:
    """Of torch's CheckpointerConfig, or a writer's own: writer's settings, rank, barrier. The two
    arguments come in either order."""
    if isinstance(config, RankInfo) or isinstance(
            rank_info, (CheckpointerConfig, CheckpointWriterConfig)):
        config, rank_info = rank_info, config
    if rank_info is not None and not isinstance(rank_info, RankInfo):
        raise TypeError(f"rank_info: a RankInfo is wanted, not {type(rank_info).__name__}")
    if isinstance(config, CheckpointerConfig):
        _refuse_unmet("staging_config", config.staging_config, _STAGER_DOES)
        _refuse_unmet("process_config", config.process_config, {})
        theirs = create_barrier_from_config(config.barrier_config)
        if barrier is not None and theirs is not None:
            raise ValueError("barrier= and config.barrier_config: give one of the two")
        return config.writer_config, rank_info, barrier or theirs
    if config is not None and not isinstance(config, CheckpointWriterConfig):
        raise TypeError("config: a CheckpointerConfig or a CheckpointWriterConfig is wanted, not "
                        f"{type(config).__name__}")
    return config, rank_info, barrier


def make_sync_checkpointer(config: CheckpointerConfig | CheckpointWriterConfig | None = None,
                           rank_info: RankInfo | None = None,
                           commit_hook: WriterHook | None = None, *, job: Job | None = None,
                           barrier: Barrier | None = None, level: str = "PROTECTED",
                           trust: bool = False, part: str | None = None,
                           parts: Sequence[str] | None = None, **opts: Any) -> SyncCheckpointer:
    """A SyncCheckpointer over Writer and Reader. opts: of a job that is opened by its path.

    config       torch's: what of it cannot be honoured is refused
    part, parts  Writer's, and part Reader's
    """
    own, rank_info, barrier = _settings(config, rank_info, barrier)
    return SyncCheckpointer(
        Writer(own, rank_info, barrier, commit_hook, job=job, level=level, part=part, parts=parts,
               **opts),
        Reader(rank_info, job=job, trust=trust, part=part, **opts))


def make_async_checkpointer(config: CheckpointerConfig | CheckpointWriterConfig | None = None,
                            rank_info: RankInfo | None = None, *, job: Job | None = None,
                            base: str | os.PathLike | None = None,
                            barrier: Barrier | None = None,
                            commit_hook: WriterHook | None = None, level: str = "PROTECTED",
                            trust: bool = False, part: str | None = None,
                            parts: Sequence[str] | None = None, **opts: Any) -> AsyncCheckpointer:
    """An AsyncCheckpointer over Stager, Writer and Reader. base: of the job, where none is open.
    part, parts: theirs; with several parts each may have a checkpointer of its own."""
    own, rank_info, barrier = _settings(config, rank_info, barrier)
    writer = Writer(own, rank_info, barrier, commit_hook, job=job, level=level, part=part,
                    parts=parts, **opts)
    return AsyncCheckpointer(
        Stager(rank_info, job=job, base=base, part=part, parts=parts, **opts),
        InlineProcess(writer), Reader(rank_info, job=job, trust=trust, part=part, **opts))
