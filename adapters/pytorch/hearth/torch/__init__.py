# SPDX-License-Identifier: Apache-2.0
"""PyTorch checkpoints in peers' memory.

    import torch.distributed.checkpoint as dcp
    from hearth.torch import HearthReader, HearthWriter, latest

    path = latest("/mnt/hearth/job")                      # None: start from storage
    if path: dcp.load(state, checkpoint_id=path, storage_reader=HearthReader())
    writer = HearthWriter("/mnt/hearth/job")
    dcp.async_save(state, checkpoint_id=f"/mnt/hearth/job/step-{n}_ckpt", storage_writer=writer)
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import experimental
    from ._recover import (
        Recovered,
        async_save,
        group,
        latest,
        leave,
        load,
        load_latest,
        recover,
    )
    from .reader import HearthReader
    from .writer import HearthWriter

_parent = sys.modules[__name__.rpartition(".")[0]]
if not hasattr(_parent, "HearthError"):
    raise ImportError(
        f"{_parent.__file__} is of another project's distribution, hearth, which has overwritten "
        "this package. Run: pip uninstall hearth; pip install --force-reinstall hearth-checkpoint")
if find_spec("torch") is None:
    raise ImportError("hearth.torch needs PyTorch: pip install 'hearth-checkpoint[torch]'",
                      name="torch")

_WHERE = {
    "HearthReader": "reader",
    "HearthWriter": "writer",
    "Recovered": "_recover",
    "async_save": "_recover",
    "group": "_recover",
    "latest": "_recover",
    "leave": "_recover",
    "load": "_recover",
    "load_latest": "_recover",
    "recover": "_recover",
}
__all__ = [*_WHERE, "experimental"]


def __getattr__(name: str) -> Any:
    if name == "experimental":
        return import_module(".experimental", __name__)
    if name in _WHERE:
        return getattr(import_module("." + _WHERE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
