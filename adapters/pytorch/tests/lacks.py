# SPDX-License-Identifier: Apache-2.0
"""What tests ask of torch that an older one lacks: they are skipped there, and say so.

    @needs("use_collectives")               a test
    pytest.param(..., marks=needs(...))     a case
    if WHY["experimental"]: pytest.skip(WHY["experimental"], allow_module_level=True)
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec

import pytest
import torch
import torch.distributed.checkpoint as dcp


def _why(there: bool, what: str) -> str:
    """The reason; empty: it is there."""
    return "" if there else f"torch {torch.__version__.split('+')[0]} has no {what}"


WHY = {
    "experimental": _why(find_spec("torch.distributed.checkpoint._experimental") is not None,
                         "torch.distributed.checkpoint._experimental"),
    "async_stager": _why("async_stager" in inspect.signature(dcp.async_save).parameters,
                         "async_save(async_stager=)"),
    "use_collectives": _why("use_collectives" in inspect.signature(dcp.save).parameters,
                            "save(use_collectives=)"),
    "thread_names": _why(tuple(map(int, torch.__version__.split(".")[:2])) > (2, 8),
                         "names for gloo's threads"),
}


def needs(what: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(WHY[what]), reason=WHY[what])
