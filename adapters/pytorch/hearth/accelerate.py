# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate: what accelerator.save_state() writes, kept in memory.

    from hearth.accelerate import HearthState

    memory = HearthState(accelerator, "/mnt/hearth/my-job")
    first = memory.load("/storage/run") or 0    # the newer of memory and of folders step_<N> there
    for step in range(first + 1, ...):
        ...
        if step % 10 == 0: memory.save(step)
        if step % 1000 == 0: accelerator.save_state(f"/storage/run/step_{step}")
    memory.close()
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from accelerate import Accelerator, DistributedType

from .torch import _folder, _whole

_CUT = {DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM}


class HearthState:
    """Saves and loads of an accelerator's state.

    on_error  "warn": a save that fails is counted and said, and training goes on
              (hearth.torch.protection()); "raise": the next save raises it
    opts      of hearth.job.Job.open()
    """

    def __init__(self, accelerator: Accelerator, base: str | os.PathLike, *,
                 on_error: str = "warn", **opts: Any) -> None:
        kind = accelerator.distributed_type
        if kind in _CUT:
            raise TypeError(f"HearthState is for states that each rank has whole, not for "
                            f"{kind.value}: save sharded states with hearth.torch.async_save()")
        if accelerator.project_configuration.automatic_checkpoint_naming:
            raise ValueError("automatic_checkpoint_naming: save_state() would write elsewhere than "
                             "it is told")
        self._accelerator, self._opts = accelerator, opts
        self._saver = _whole.Saver(base, on_error=on_error, **opts)

    def save(self, step: int) -> None:
        """What save_state() writes, as this step. Returns when it is copied. Collective."""
        _folder.keep(self._saver, step, self._accelerator.save_state)

    def load(self, folder: str | os.PathLike | None = None) -> int | None:
        """load_state() of the newest: the step, or None where there is nothing. Collective.

        folder  with step folders of save_state() on storage, which all ranks see
        """
        found = _folder.newest(self._saver.base, folder, _is_whole, **self._opts)
        if found is None:
            return None
        step, path, in_memory = found
        if not in_memory:
            self._accelerator.load_state(path)
            return step
        with _folder.scratch() as files:
            _folder.bring(path, files)
            self._accelerator.load_state(files)
        return step

    def wait(self) -> None:
        """Until the last save has ended."""
        self._saver.wait()

    def close(self) -> None:
        """The last save ends."""
        self._saver.close()


def _is_whole(folder: Path) -> bool:
    """The file that save_state() writes last."""
    return any(folder.glob("random_states_*.pkl"))
