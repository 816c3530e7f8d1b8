# SPDX-License-Identifier: Apache-2.0
"""Megatron-core: dist_checkpointing into memory.

    from hearth_checkpoint.megatron import HearthSaveStrategy, load, newest, save

    base = "/mnt/hearth/my-job"
    memory = HearthSaveStrategy(base)                     # one for the whole job
    path = newest(base, "/storage/run")                   # of memory and iter_<N> folders there
    state = load(sharded_state(), path) if path else None
    for step in ...:
        ...
        queue.schedule_async_request(
            save(sharded_state(), f"{base}/iter_{step:07d}", memory, async_sharded_save=True))

Shards are saved by DCP with Megatron's own planner. The common state is `common.pt`, and that a
folder is a checkpoint of Megatron's is `metadata.json`: files that every node gets.
"""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingConfig
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.strategies import common as _common
from megatron.core.dist_checkpointing.strategies import torch as _theirs
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from .errors import HearthError
from .torch import _folder, _jobs, _recover, _weak
from .torch._pickles import decode_item
from .torch.reader import HEAR_S, HearthReader
from .torch.writer import HearthWriter

BACKEND = "hearth"  # in metadata.json: Megatron's own reader is not to take these for its files
_COMMON = "common.pt"
_CONFIG = "metadata.json"


class HearthSaveStrategy(_theirs.TorchDistSaveShardedStrategy):
    """For dist_checkpointing.save(sharded_strategy=), and for save() here. The last component of
    checkpoint_dir names the step.

    base      "<root>/<job>"
    on_error  "raise": a save that fails raises, asynchronously when it is finalized; "warn": it is
              counted and said, and training goes on (hearth_checkpoint.torch.protection())
    opts      of HearthWriter, and of hearth_checkpoint.job.Job.open()
    """

    def __init__(self, base: str | os.PathLike, *, on_error: str = "raise", **opts: Any) -> None:
        super().__init__(BACKEND, 1)
        if "common" in opts:
            raise TypeError("common: Megatron's common state is what all nodes get")
        _weak.check(on_error)
        self.base, self._on_error = _jobs.base_of(base), on_error
        self._writer = HearthWriter(self.base, common=self._files, **opts)
        self._state: Any = None  # what is no shard's, where Megatron gives it
        self._folder = ""  # else it has written it there

    def _files(self) -> dict[str, bytes]:
        """What all nodes get. Called on rank 0, and where an error reaches all ranks."""
        config = CheckpointingConfig(self.backend, self.version)
        if self._state is None:
            common = Path(self._folder, _COMMON).read_bytes()
        else:
            out = io.BytesIO()
            torch.save(self._state.data, out)
            common = out.getvalue()
        return {_COMMON: common, _CONFIG: json.dumps(asdict(config)).encode()}

    def _begin(self, state: dict[str, Any], folder: str | os.PathLike) -> tuple[str, dict]:
        """The id of the save, and its shards by their key."""
        folder = os.fspath(folder).rstrip("/")
        path = f"{self.base}/{os.path.basename(folder)}"
        _jobs.resolve(path, self.base, None)  # the same on all ranks
        whole = state.get("common_state")
        self._state = whole if isinstance(whole, ShardedObject) else None
        self._folder = folder
        if self._state is not None:  # 0.19: would be an item of each rank's
            state = {key: value for key, value in state.items() if value is not whole}
        return path, _theirs._replace_state_dict_keys_with_sharded_keys(
            state, self.keep_only_main_replica)[0]

    def _write(self, path: str, state: dict[str, Any]) -> None:
        planner = _theirs.MCoreSavePlanner(
            dedup_replicated_tensors=not self.keep_only_main_replica, flatten_state_dict=False)
        dcp.save(state, checkpoint_id=path, storage_writer=self._writer, planner=planner,
                 process_group=_recover.group())

    def save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str | os.PathLike) -> None:
        """Returns when the save has the writer's level. Collective."""
        path, shards = self._begin(sharded_state_dict, checkpoint_dir)
        _recover.saves_ended()  # asynchronous ones, which meet in the same group
        _weak.call(self.base, self._on_error, lambda: self._write(
            path, _theirs.mcore_to_pyt_state_dict(shards)))

    def async_save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str | os.PathLike,
                   async_strategy: str = "mcore") -> AsyncRequest:
        """Returns when the shards are copied; a thread of this process writes them. What Megatron
        runs in another process waits for that thread, so that it finalizes when the save has
        ended. Collective."""
        if async_strategy != "mcore":
            raise ValueError(f"async_strategy {async_strategy!r}: only \"mcore\" is known here")
        path, shards = self._begin(sharded_state_dict, checkpoint_dir)
        _recover.group()  # made here, and not by the thread
        with _weak.patience(self._on_error):
            staged = self._writer.stage({
                key: [shard.data for shard in parts] for key, parts in shards.items()
                if isinstance(parts[0], ShardedTensor)})
        for key, copies in dict.items(staged):  # that of its own is a save's beginning
            shards[key] = [_over(shard, data) for shard, data in zip(shards[key], copies)]
        state = staged.like(_theirs.mcore_to_pyt_state_dict(shards))
        future = _weak.call(self.base, self._on_error, lambda: _recover._in_turn().submit(
            self._write, path, state))
        return _request(future if future is not None else _weak.none_yet())


def _over(shard: ShardedTensor, data: torch.Tensor) -> ShardedTensor:
    """The shard, of a copy of its data."""
    other = copy.copy(shard)
    other.data = data
    return other


def _request(future: Future[Any]) -> AsyncRequest:
    """What Megatron takes for its writing is a wait: while this process has a file open."""
    mark = os.memfd_create("hearth-save")
    there = f"/proc/{os.getpid()}/fd/{mark}"
    inode = os.stat(there).st_ino
    future.add_done_callback(lambda _: os.close(mark))

    def finalize() -> None:
        future.result()

    return AsyncRequest(_until_closed, (there, inode), [finalize])


def _until_closed(there: str, inode: int, timeout_s: float = 3600.0) -> None:
    """In another process: until the trainer has closed the file, or is gone."""
    end = time.monotonic() + timeout_s
    try:
        while os.stat(there).st_ino == inode and time.monotonic() < end:
            time.sleep(0.05)
    except OSError:
        pass


class HearthLoadStrategy(_theirs.TorchDistLoadShardedStrategy):
    """For dist_checkpointing.load(sharded_strategy=), with checkpoint_dir of
    hearth_checkpoint.torch.latest().

    trust  as HearthReader's
    opts   of hearth_checkpoint.job.Job.open()
    """

    stream_ckpt_dequant = False  # 0.19: FP8 targets are made high-precision ones before the load

    def __init__(self, *, trust: bool = False, **opts: Any) -> None:
        super().__init__()
        self.stream_ckpt_dequant = False
        self._reader = HearthReader(trust=trust, **opts)

    def load(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str | os.PathLike,
             async_strategy: str = "mcore") -> dict[str, Any]:
        """async_strategy: whose files Megatron would read; there are none. Collective."""
        shards, paths, names = _theirs._replace_state_dict_keys_with_sharded_keys(
            sharded_state_dict)
        tensors = [shard for shard in nested_values(sharded_state_dict)
                   if isinstance(shard, ShardedTensor)]
        state = _theirs.mcore_to_pyt_state_dict(shards, True)
        planner = _theirs.MCoreLoadPlanner(
            shapes_validation_sharded_tensors=[
                shard for shard in tensors if not shard.allow_shape_mismatch],
            allow_shape_mismatch_sharded_tensors={
                shard.key: shard for shard in tensors if shard.allow_shape_mismatch})
        _recover.load(state, checkpoint_id=os.fspath(checkpoint_dir), storage_reader=self._reader,
                      planner=planner, process_group=_recover.group())
        loaded = _theirs._replace_sharded_keys_with_state_dict_keys(
            {key: _theirs._unwrap_pyt_sharded_tensor(value) for key, value in state.items()},
            paths, names)
        _theirs._restore_dict_types(loaded, sharded_state_dict)
        return loaded

    def _metadata(self, checkpoint_dir: str | os.PathLike) -> Metadata:
        self._reader.reset(checkpoint_dir)
        try:
            return self._reader.read_metadata()
        finally:
            self._reader.close()

    def load_tensors_metadata(self, checkpoint_dir: str | os.PathLike,
                              metadata: Metadata | None = None) -> dict[str, Any]:
        """Shapes and dtypes of what was saved."""
        return super().load_tensors_metadata(
            checkpoint_dir, metadata or self._metadata(checkpoint_dir))

    def load_sharded_metadata(self, checkpoint_dir: str | os.PathLike) -> dict[str, Any]:
        """The same, and objects."""
        metadata = self._metadata(checkpoint_dir)
        objects = [ShardedObject.empty_from_unique_key(key)
                   for key, entry in metadata.state_dict_metadata.items()
                   if isinstance(entry, BytesStorageMetadata)]
        return {**{shard.unique_key: shard for shard in objects},
                **self.load_tensors_metadata(checkpoint_dir, metadata)}

    def remove_sharded_tensors(self, checkpoint_dir: str, key_prefix: str) -> None:
        """What is sealed is not changed."""
        raise TypeError(f"{checkpoint_dir}: a checkpoint in memory is not changed")


if hasattr(_common, "TorchCommonLoadStrategy"):  # before 0.17

    class HearthLoadCommonStrategy(_common.TorchCommonLoadStrategy):
        """For dist_checkpointing.load(common_strategy=); arguments as HearthLoadStrategy's."""

        def __init__(self, *, trust: bool = False, **opts: Any) -> None:
            super().__init__()
            self._trust, self._reader = trust, HearthReader(trust=trust, **opts)

        def load_common(self, checkpoint_dir: str | os.PathLike) -> dict[str, Any]:
            """Of `common.pt`, whose pickle is not run unless it is trusted."""
            self._reader.reset(checkpoint_dir)
            return decode_item(
                self._reader.common(_COMMON), trust=self._trust, map_location="cpu")


def save(sharded_state_dict: dict[str, Any], checkpoint_dir: str | os.PathLike,
         sharded_strategy: HearthSaveStrategy, **arguments: Any) -> AsyncRequest | None:
    """dist_checkpointing.save() that leaves nothing on storage: what Megatron writes itself goes
    to a folder in memory that is removed. Collective.

    checkpoint_dir  <base>/iter_<N>, or another name with a step in it
    arguments       of dist_checkpointing.save()
    """
    _jobs.resolve(checkpoint_dir, sharded_strategy.base, None)
    if arguments.get("verify_integrity"):
        raise ValueError("verify_integrity: there are no files to hash; what is in memory is "
                         "verified by Hearth, whenever it is read")
    if "async_strategy" in inspect.signature(dist_checkpointing.save).parameters:  # 0.19
        arguments.setdefault("async_strategy", "mcore")
    with _folder.scratch() as files:
        folder = os.path.join(files, os.path.basename(os.fspath(checkpoint_dir).rstrip("/")))
        os.mkdir(folder)
        request = dist_checkpointing.save(
            sharded_state_dict, folder, sharded_strategy, **arguments)
    if request is None:
        return None
    # the others would write metadata.json, which all nodes have with the save
    return request._replace(finalize_fns=request.finalize_fns[:1])


def load(sharded_state_dict: dict[str, Any], checkpoint_dir: str | os.PathLike, *,
         trust: bool = False, **arguments: Any) -> Any:
    """dist_checkpointing.load() of what newest() gives: of memory, or of a folder. Collective.

    trust      of memory: as HearthReader's
    arguments  of dist_checkpointing.load()
    """
    path = os.path.abspath(os.fspath(checkpoint_dir))
    classes: list[Any] = []
    member = _jobs.open_member(os.path.dirname(path))
    if member is not None:
        _hear_of(member, path)
        arguments["sharded_strategy"] = HearthLoadStrategy(trust=trust)
        if hasattr(_common, "TorchCommonLoadStrategy"):
            arguments["common_strategy"] = HearthLoadCommonStrategy(trust=trust)
        elif trust:
            classes = _named_in(f"{path}/{_COMMON}")
    with torch.serialization.safe_globals(classes):
        return dist_checkpointing.load(sharded_state_dict, path, **arguments)


def _hear_of(member: _jobs.Membership, path: str) -> None:
    """Rank 0 may have returned of a save that this node is about to hear of, and before all else
    Megatron looks whether the folder is there."""
    with suppress(HearthError, ValueError):  # Megatron says what is not there
        if _jobs.resolve(path, None, None)[1] == member.wrote:
            member.job.checkpoint(member.wrote, wait_s=HEAR_S).close()


def _named_in(path: str) -> list[Any]:
    """What a file of torch.save names and torch does not know: Megatron reads it by torch.load,
    which takes no other."""
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    return [getattr(import_module(module), name) for module, _, name in (
        name.rpartition(".") for name in names)]


def newest(base: str | os.PathLike, folder: str | os.PathLike | None = None,
           **opts: Any) -> str | None:
    """What to go on from: the newer of memory and of iter_<N> folders that all ranks see. None:
    start from scratch. Collective.

    opts  of hearth_checkpoint.torch.recover()
    """
    found = _folder.newest(base, folder, _is_whole, **opts)
    return None if found is None else found[1]


def _is_whole(folder: Path) -> bool:
    """Megatron writes metadata.json last; where the shards are in memory it says so."""
    try:
        config = json.loads((folder / _CONFIG).read_bytes())
        return config["sharded_backend"] != BACKEND
    except (OSError, ValueError, KeyError, TypeError):
        return False
