# SPDX-License-Identifier: Apache-2.0
"""PyTorch checkpoints in peers' memory.

    import torch.distributed.checkpoint as dcp
    from hearth_checkpoint.torch import HearthReader, HearthWriter, latest

    path = latest("/mnt/hearth/job")                      # None: start from storage
    if path: dcp.load(state, checkpoint_id=path, storage_reader=HearthReader())
    writer = HearthWriter("/mnt/hearth/job")
    dcp.async_save(state, checkpoint_id=f"/mnt/hearth/job/step-{n}_ckpt", storage_writer=writer)
"""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import dcp, elastic, experimental
    from ._copies import before_step
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
    from ._stats import stats
    from ._weak import Protection, protection
    from .reader import HearthReader
    from .writer import HearthWriter

if find_spec("torch") is None:
    raise ImportError("hearth_checkpoint.torch needs PyTorch: "
                      "pip install 'hearth-checkpoint[torch]'", name="torch")

_WHERE = {
    "HearthReader": "reader",
    "HearthWriter": "writer",
    "Protection": "_weak",
    "Recovered": "_recover",
    "async_save": "_recover",
    "before_step": "_copies",
    "group": "_recover",
    "latest": "_recover",
    "leave": "_recover",
    "load": "_recover",
    "load_latest": "_recover",
    "protection": "_weak",
    "recover": "_recover",
    "stats": "_stats",
}
_MODULES = ("dcp", "elastic", "experimental")
__all__ = [*_WHERE, "TESTED_TORCH", *_MODULES]

# The oldest torch that will do, and the newest whose releases pass this package's tests.
TESTED_TORCH = ("2.8", "2.15")


def _release(version: str) -> tuple[int, ...]:
    """(2, 15) of "2.15.0+cu132"."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0)
                 for part in version.split("+")[0].split(".")[:2])


def _version() -> str:
    import torch

    return torch.__version__


def _warn() -> None:
    """Once in a process: this torch may have changed what is relied on."""
    oldest, newest = map(_release, TESTED_TORCH)
    if not oldest <= _release(_version()) <= newest:
        logging.getLogger(__name__).warning(
            "hearth_checkpoint.torch was tested with torch %s to %s, and this is %s: what DCP "
            "changed may not be known here; try a save and a load before you rely on it",
            *TESTED_TORCH, _version())


_warn()
if _release(_version()) < (2, 9):
    __all__.remove("experimental")  # its import is an error, which `import *` is not


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module("." + name, __name__)
    if name in _WHERE:
        return getattr(import_module("." + _WHERE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
