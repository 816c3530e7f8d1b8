# SPDX-License-Identifier: Apache-2.0
"""A job of two ranks (manual_job.c) on two nodes, which are folders of `work`: it saves
`steps` steps, and its engines run until the ranks end."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def engine_pid(job, rank):
    """0: none runs."""
    out = subprocess.run([f"{job.bin}/hearth", "ls", "--root", f"{job.work}/n{rank}"], text=True,
                         capture_output=True).stdout.split("\n")
    found = [int(line.split()[1]) for line in out if re.match(r"train7 +\d", line)]
    return found[0] if found else 0


class Job:
    def __init__(self, build, work, steps, **options):
        self.bin, self.work, self.steps = f"{build}/bin", work, steps
        self.options = options
        self.launch()

    def launch(self):
        port = free_port()
        self.ranks = [self._start(rank, port, self.options) for rank in range(2)]

    def _start(self, rank, port, options):
        root = f"{self.work}/n{rank}"
        os.makedirs(root, 0o700, exist_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH_")}
        env.update(HEARTH_ROOT=root, HEARTH_JOB="train7", HEARTH_NODE=f"n{rank}",
                   HEARTH_ANY_ROOT="1", HEARTH_MACHINE=f"m{rank}", HEARTH_KEEP="3",
                   HEARTH_ENGINE=f"{self.bin}/hearthd", HEARTH_TRANSPORT="tcp",
                   HEARTH_PORT=str(port), MASTER_ADDR="127.0.0.1", RANK=str(rank), WORLD_SIZE="2",
                   **options)
        return subprocess.Popen([f"{self.bin}/cli_manual", str(self.steps)], env=env, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_until(self, true, seconds=20):
        end = time.monotonic() + seconds
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} s")
            time.sleep(0.05)

    def end_ranks(self):
        for rank in self.ranks:
            rank.stdin.close()
            rank.wait(60)
        self.ranks = []

    def end(self):
        self.end_ranks()
        for rank in range(2):
            pid = engine_pid(self, rank)
            if pid:
                os.kill(pid, signal.SIGTERM)
            self.wait_until(lambda at=rank, was=pid: not was or engine_pid(self, at) != was)


@contextlib.contextmanager
def run_job(build, work, steps=3, **options):
    job = Job(build, work, steps, **options)
    try:
        said = [rank.stdout.readline().strip() for rank in job.ranks]
        if said != ["saved", "saved"]:
            raise RuntimeError("; ".join(said))
        yield job
    finally:
        job.end()
