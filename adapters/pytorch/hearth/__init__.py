# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in the memory of the machines that train: Python bindings of Hearth.

    hearth.job     the C interface as classes; needs nothing but the library
    hearth.torch   torch.distributed.checkpoint writers and readers, recovery, fallback

Importing this package loads nothing and starts nothing.
"""

import os as _os
import warnings as _warnings

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


def _warn_of_others() -> None:
    """Another project has a package of this name: installed into one folder, each overwrites files
    of the other."""
    folder = _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__)))
    try:
        names = _os.listdir(folder)
    except OSError:  # of a zip
        return
    for name in names:
        if name.startswith("hearth-") and name.endswith((".dist-info", ".egg-info")):
            _warnings.warn(
                f"{folder} also has the distribution {name.rpartition('.')[0].replace('-', ' ')}, "
                "of another project with a package of this name: parts of the two have overwritten "
                "each other. Run: pip uninstall hearth; pip install --force-reinstall "
                "hearth-checkpoint", RuntimeWarning, stacklevel=3)


_warn_of_others()
