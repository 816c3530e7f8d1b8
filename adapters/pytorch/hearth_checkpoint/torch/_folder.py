# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that a framework writes as a folder of files: written to a tmpfs, kept by its job.

Each rank keeps the files that it wrote. A rank gets back the files of rank 0, which are the model
and all that ranks share, and over them its own files.
"""

from __future__ import annotations

import fcntl
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

from ..errors import HearthError
from . import _names, _recover
from ._whole import Saver, read

_log = logging.getLogger("hearth_checkpoint")


_PREFIX = "hearth-files-"


@contextmanager
def scratch() -> Iterator[str]:
    """An empty folder in memory of this rank's own. Locked while it is in use: what a process left
    behind that ended in the middle of it, the next one removes."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()
    for folder in Path(where).glob(f"{_PREFIX}*"):
        _remove_if_left(folder)
    made, lock = _make(where)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _make(where: str) -> tuple[str, int]:
    for _ in range(100):  # somebody may take a new one for one that was left behind
        made = tempfile.mkdtemp(prefix=_PREFIX, dir=where)
        lock = _locked(made)
        if lock is not None:
            return made, lock
    raise HearthError(f"{where}: no folder in it can be locked")


def _locked(folder: str | Path) -> int | None:
    """A descriptor that holds the lock of a folder. None: another has it, or it is gone."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(folder), os.fstat(lock)):
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _remove_if_left(folder: Path) -> None:
    try:
        if folder.lstat().st_uid != os.getuid():
            return
    except OSError:
        return
    lock = _locked(folder)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def files(folder: str) -> dict[str, torch.Tensor]:
    """The files below a folder, mapped, by their path in it."""
    out = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            out[str(path.relative_to(folder))] = (
                torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8,
                                device="cpu") if size
                else torch.empty(0, dtype=torch.uint8, device="cpu"))
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
    """Step and path of the newer of memory and of the step folders in `folder` that all ranks see,
    and whether it is memory's. Collective."""
    found = _recover.recover(base, **opts)
    stored = _on_storage(Path(folder), whole, found is None) if folder else None
    if found is not None and (stored is None or found.step >= stored[0]):
        return found.step, found.path, True
    return None if stored is None else (*stored, False)


def _on_storage(folder: Path, whole: Callable[[Path], bool], alone: bool) -> tuple[int, str] | None:
    """alone: memory has nothing; what some ranks see and others do not is an error then, as a start
    from scratch beside it would be the loss of it."""
    here = [(step, child.name) for child in _recover.children(folder)
            if (step := _names.step_of(child.name)) is not None and _is_whole(child, whole)]
    seen = [set(each) for each in _recover.gathered(here)]
    common, any_of = set.intersection(*seen), set.union(*seen)
    if any_of and not common and alone:
        raise HearthError(f"{folder}: there is nothing in memory, and no checkpoint here that all "
                          "ranks see: " + "; ".join(
                              f"rank {rank} sees {max(each)[1] if each else 'none'}"
                              for rank, each in enumerate(seen)))
    best = max(common, default=None)
    if any_of and (best is None or max(any_of) > best):
        _log.warning("hearth: %s is not seen by all ranks and is passed over",
                     folder / max(any_of)[1])
    return None if best is None else (best[0], str(folder / best[1]))


def _is_whole(child: Path, whole: Callable[[Path], bool]) -> bool:
    """Raises nothing: other ranks wait."""
    try:
        if not child.is_dir():
            return False
        if whole(child):
            return True
        _log.warning("hearth: %s is not whole and is passed over", child)
    except OSError as error:
        _log.error("hearth: %s", error)
    return False
