# SPDX-License-Identifier: Apache-2.0
"""Weak mode as a property; weak_rounds.py says which. Many rounds of it are run on demand."""

from __future__ import annotations

import os
import subprocess
import sys

import weak_rounds


def test_training_goes_on_through_random_faults(folder):
    """Three rounds of all kinds but `gone`, which costs a minute."""
    done = subprocess.run(
        [sys.executable, os.path.abspath(weak_rounds.__file__), "--rounds", "3", "--seed", "5",
         "--kinds", "kill,stop,full,removed", "--folder", folder],
        capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "3 of seed 5: 0 violations" in done.stdout
