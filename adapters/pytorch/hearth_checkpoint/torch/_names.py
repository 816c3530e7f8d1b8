# SPDX-License-Identifier: Apache-2.0
"""Which step an id names: the last component of a checkpoint's path, in the forms that trainers
write. There is one list of them; for an id of another form, the user gives step= or step_of=."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

StepOf = Callable[[str], Any]

_N = r"(\d{1,19})"
FORMS = {
    "step-<N>_ckpt": rf"step-{_N}_ckpt",  # Hearth's own containers, and ml-flashpoint's
    "<N>": _N,
    "step-<N>": rf"step-{_N}",  # torchtitan
    "step_<N>": rf"step_{_N}",  # Accelerate scripts
    "checkpoint-<N>": rf"checkpoint-{_N}",  # Hugging Face's Trainer
    "global_step<N>": rf"global_step{_N}",  # DeepSpeed
    "epoch=<E>-step=<N>.ckpt": rf"epoch=\d{{1,19}}-step={_N}\.ckpt",  # Lightning
    "iter_<N>": rf"iter_{_N}",  # Megatron-LM
}
SAID = ", ".join(FORMS) + " as the last component of the path"
_STEP = re.compile("|".join(f"(?:{form})" for form in FORMS.values()))


def step_of(name: str, told: StepOf | None = None) -> int | None:
    """12 of "step-12_ckpt", of "12" and of "iter_0000012"; None of what names none.

    told  the caller's own function of a name, asked first
    """
    if told is not None:
        step = told(name)
        if step is not None:
            if isinstance(step, bool) or not isinstance(step, int):
                raise TypeError(f"step_of({name!r}) gave {step!r}, and a step is an int, or None")
            return step
    match = _STEP.fullmatch(name)
    return int(next(filter(None, match.groups()))) if match else None
