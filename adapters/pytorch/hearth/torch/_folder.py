# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that a framework writes as a folder of files: written to a tmpfs, kept by its job.

Each rank keeps the files that it wrote. What is brought back to a rank is what rank 0 wrote, which
is the model and all that ranks share, and its own files over that.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from . import _names, _recover
from ._whole import Saver, read

_log = logging.getLogger("hearth")


@contextmanager
def scratch() -> Iterator[str]:
    """An empty folder in memory of this rank's own."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="hearth-files-", dir=where)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def files(folder: str) -> dict[str, torch.Tensor]:
    """The files below a folder, mapped, by their path in it."""
    out = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            out[str(path.relative_to(folder))] = (
                torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8) if size
                else torch.empty(0, dtype=torch.uint8))
    return out


def keep(saver: Saver, step: int, write: Callable[[str], Any]) -> Future[Any]:
    """Save what write(folder) writes as this step. Returns when it is copied. Collective."""
    with ExitStack() as until_copied:
        def made() -> dict[str, Any]:
            folder = until_copied.enter_context(scratch())
            write(folder)
            return {"files": files(folder)}

        return saver.save(f"step-{step}_ckpt", made)


def bring(path: str, to: str) -> None:
    """The files of a save into a folder, of rank 0 and of this rank."""
    for state in (read(path, rank=0), read(path)):
        lay(path, state["files"], to)


def lay(path: str, these: Mapping[str, torch.Tensor], to: str) -> None:
    """Files of a save into a folder, over those that are there, and nowhere else."""
    for name, data in these.items():
        file = Path(to, name)
        if not file.resolve().is_relative_to(Path(to).resolve()):
            raise ValueError(f"{path}: a file of it is called {name!r}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(memoryview(data.numpy()))


def newest(base: str | os.PathLike, folder: str | os.PathLike | None,
           whole: Callable[[Path], bool], **opts: Any) -> tuple[int, str, bool] | None:
    """Step and path of the newer of memory and of the step folders in `folder`, and whether it is
    memory's. Collective."""
    found = _recover.recover(base, **opts)
    best: tuple[int, str, bool] | None = None
    for child in sorted(Path(folder).iterdir()) if folder and Path(folder).is_dir() else ():
        step = _names.step_of(child.name)
        if step is None or not child.is_dir():
            continue
        if not whole(child):
            _log.warning("hearth: %s is not whole and is passed over", child)
        elif best is None or step > best[0]:
            best = step, str(child), False
    if found is not None and (best is None or found.step >= best[0]):
        return found.step, found.path, True
    return best
