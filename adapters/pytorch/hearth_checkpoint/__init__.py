# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the memory of the machines that train: Python bindings of Hearth.

    hearth_checkpoint.job     the C interface as classes; needs nothing but the library
    hearth_checkpoint.torch   torch.distributed.checkpoint writers and readers, recovery, fallback

Importing this package loads nothing and starts nothing.
"""

from .errors import (
    HearthBusy,
    HearthCorrupt,
    HearthError,
    HearthFailed,
    HearthLibraryMissing,
    HearthLost,
    HearthNoSpace,
    HearthNotFound,
    HearthRefused,
    HearthTimeout,
)

__version__ = "0.1.0"
__all__ = [
    "HearthBusy",
    "HearthCorrupt",
    "HearthError",
    "HearthFailed",
    "HearthLibraryMissing",
    "HearthLost",
    "HearthNoSpace",
    "HearthNotFound",
    "HearthRefused",
    "HearthTimeout",
]
