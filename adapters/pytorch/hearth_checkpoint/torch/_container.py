# SPDX-License-Identifier: Apache-2.0
"""Small files that every node has beside the objects of a checkpoint, and the folder they lie in.

A save of Hearth's has its folder on every node, with all of these files in it. Of a container that
another program wrote, a node may have no file at all: the files that it needs are brought into its
engine's memory. Code that looks into the folder, as ml-flashpoint's loaders do, finds them there
after lay().
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import HearthNotFound
from ..job import Checkpoint

# Of ml-flashpoint: Megatron's common state, and what its checkpoints are known by. Its recovery
# takes no container that lacks the first on some node.
COMMON = ("common.pt", "metadata.json")
Files = Mapping[str, Any]  # name -> bytes
_DCP = re.compile(r"(__\d+)?\.metadata")
_log = logging.getLogger("hearth_checkpoint")


def check(files: Files | Callable[[], Files] | None) -> None:
    """TypeError or ValueError for what a save cannot give to all nodes under these names."""
    if files is None or callable(files):
        return
    if not isinstance(files, Mapping):
        raise TypeError("common: a mapping of names to bytes is wanted, or a function that gives "
                        f"one, not {type(files).__name__}")
    for name, data in files.items():
        if not isinstance(name, str) or _DCP.fullmatch(name):
            raise ValueError(f"common: {name!r} cannot be given: the save has its own")
        try:
            memoryview(data)
        except TypeError:
            raise TypeError(f"common: {name!r} is {type(data).__name__}, and not bytes") from None


def given(files: Files | Callable[[], Files] | None) -> dict[str, bytes]:
    """As they are now."""
    now = files() if callable(files) else files
    check(now)
    return {name: bytes(data) for name, data in (now or {}).items()}


def folder(path: str) -> str:
    """Where a container lies: at its path, or under a name with leading zeros, which ml-flashpoint
    takes for the same step."""
    base, name = os.path.split(path)
    if os.path.isdir(path):
        return path
    zeros = re.compile(name.replace("step-", "step-0+", 1))
    try:
        others = sorted(other for other in os.listdir(base) if zeros.fullmatch(other))
    except OSError:
        others = []
    return os.path.join(base, others[0]) if others else path


def lay(checkpoint: Checkpoint, names: Sequence[str]) -> str:
    """The container of what was recovered, which has `.metadata` and of `names` what there is."""
    if checkpoint.info.epoch:  # Hearth's own: the engine has named it
        return checkpoint.path
    path = folder(checkpoint.path)
    try:
        os.makedirs(path, 0o700, exist_ok=True)
        for name in dict.fromkeys((".metadata", *names)):
            if not os.path.lexists(os.path.join(path, name)):
                _write(checkpoint, path, name)
    except OSError as error:
        _log.warning("hearth: the container of step %d cannot be laid in its place on this node, "
                     "%s: it can be loaded, and looked into it cannot be", checkpoint.step, error)
    return path


def _write(checkpoint: Checkpoint, path: str, name: str) -> None:
    """Whole or not at all; another rank of this node does the same."""
    try:
        data = checkpoint.common(name)
    except HearthNotFound:
        return
    mine = os.path.join(path, f"{name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(mine, "xb", opener=lambda p, flags: os.open(p, flags, 0o600)) as file:
            file.write(data)
        os.link(mine, os.path.join(path, name))
    except FileExistsError:
        pass
    finally:
        if os.path.lexists(mine):
            os.unlink(mine)
