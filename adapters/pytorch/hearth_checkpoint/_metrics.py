# SPDX-License-Identifier: Apache-2.0
"""What this node's engine has counted, as `hearth metrics` prints it. The engine answers every
process of its user, so nothing has to be open here (core/local/local.h: METRICS)."""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import Any

_HEAD = struct.Struct("=IIQQ")  # length, type, request, token
_METRICS = 90
_PACKET = 16384


def ask(base: str, wait_s: float) -> dict[str, Any] | None:
    """The engine's answer; None: it does not answer within wait_s, or none runs."""
    fds: list[int] = []
    try:
        fds.append(os.open(os.path.join(base, ".hearth"), os.O_PATH | os.O_DIRECTORY))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as engine:
            engine.settimeout(wait_s)
            engine.connect(f"/proc/self/fd/{fds[0]}/sock")  # a path of any length
            engine.send(_HEAD.pack(_HEAD.size, _METRICS, 1, 0))
            fds += socket.recv_fds(engine, _PACKET, 1)[1]
        if len(fds) == 1:  # an older engine, which refuses
            return None
        return json.loads(os.pread(fds[1], os.fstat(fds[1]).st_size, 0))
    except (OSError, ValueError):
        return None
    finally:
        for fd in fds:
            os.close(fd)


def flat(answer: dict[str, Any]) -> dict[str, float]:
    """{"saves_total/protected": 3.0}: names without hearth_, behind them the values of the labels.
    Of a histogram the sum and the count; no series whose value says nothing."""
    numbers = {}
    for family in answer["families"]:
        for suffix, labels, value in family["samples"]:
            if suffix != "_bucket" and not family["name"].endswith("_info"):
                name = family["name"].removeprefix("hearth_") + suffix
                numbers["/".join([name, *labels.values()])] = float(value)
    return numbers
