# SPDX-License-Identifier: Apache-2.0
"""Saves and loads of tensors in GPU memory, over a driver of the tests' own (fake_gpu.py). Each
runs in a process of its own: a stray access to GPU memory is a SIGSEGV."""

from __future__ import annotations

import os
import subprocess
import sys

import fake_gpu
import pytest
from lacks import needs

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_gpu.build(str(tmp_path_factory.mktemp("driver")))


@pytest.mark.parametrize("what", [
    "of_all_kinds", "again", "a_kernel_after_a_save_that_returned",
    "a_kernel_on_the_default_stream", "a_kernel_after_before_step", "a_kernel_without_before_step",
    pytest.param("a_kernel_after_staging_completion", marks=needs("experimental")),
    "a_save_after_the_kernels_before_it", "parts_on_several_streams", "no_call_waits_for_a_gpu",
    "through_the_buffers", "dtensors", "tensors_that_are_dropped", "a_save_that_is_withdrawn",
    "a_save_that_the_collector_drops", "inside_a_capture", "a_gpu_that_breaks",
    "into_another_process", "of_a_framework", "a_job_that_is_off", "loads",
    "the_memory_that_a_save_takes"])
def test_gpu_memory(base, driver, what):
    ended = subprocess.run(
        [sys.executable, f"{HERE}/gpu_work.py", what, base], timeout=300, text=True,
        capture_output=True, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "FAKE_GPU": driver, "PYTHONPATH": os.path.dirname(HERE),
             "GLOO_SOCKET_IFNAME": "lo"})
    assert ended.returncode == 0 and ended.stdout.endswith("well\n"), (
        ended.returncode, ended.stdout[-2000:] + ended.stderr[-6000:])
