# SPDX-License-Identifier: Apache-2.0
"""examples/hot_swap.py: a job whose nodes are lost, and whose other processes go on."""

from __future__ import annotations

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def test_hot_swap_demo():
    """A node in mid-step, one in mid-save; it looks at processes, bytes, losses, weights itself."""
    said = subprocess.run(
        [sys.executable, f"{HERE}/../examples/hot_swap.py", "--demo", "--rounds", "2",
         "--dead-ms", "5000"],  # other tests keep this machine busy
        timeout=400, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.path.dirname(HERE)})
    assert said.returncode == 0, said.stdout + said.stderr
    for line in ("survivors' processes the same: yes", "bytes pulled by survivors: 0",
                 "losses identical: yes", "weights identical: yes"):
        assert line in said.stdout.splitlines()
