# SPDX-License-Identifier: Apache-2.0
"""Numbers of the job for a training loop's own logger."""

from __future__ import annotations

import os

from .. import _metrics
from . import _jobs
from ._weak import BLOCKED_MS


def stats(base: str | os.PathLike | None = None, prefix: str = "hearth/") -> dict[str, float]:
    """What this node's engine has counted for the job of `base`: flat, numbers alone.

        wandb.log(stats(), step=step)

    `hearth/up` is 1.0, and the others are the series of `hearth metrics` (docs/operate/metrics.md),
    as hearth/protected_age_seconds, hearth/saves_total/protected, hearth/save_seconds_sum/sealed.
    Where the engine does not answer within two seconds, or none runs, {"hearth/up": 0.0}. Not
    collective; it never raises for the engine's sake."""
    answer = _metrics.ask(_jobs.base_of(base), BLOCKED_MS / 1000)
    numbers = {"up": 0.0} if answer is None else {"up": 1.0, **_metrics.flat(answer)}
    return {prefix + name: value for name, value in numbers.items()}
