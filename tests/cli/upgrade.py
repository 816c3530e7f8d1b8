#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""upgrade.py BUILD: what `hearth upgrade` does with a program that is newer, older, broken or
foreign, and with an engine in the foreground.

The engine's program is a copy of hearthd, in whose place another file is put: a script that changes
what the trial prints, and then is hearthd again, or ends. After each refusal the engine that ran
answers, with the pid that it had. After an upgrade the socket is the one that was there before."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
bad = []


def check(good, what):
    if not good:
        bad.append(what)
        print(f"upgrade: {what}")


class Job:
    def __init__(self, work, name):
        self.name, self.root = name, work
        self.program = f"{work}/{name}-hearthd"
        shutil.copy(f"{BUILD}/bin/hearthd", self.program)
        self.engine = subprocess.Popen(
            [self.program, "--root", work, "--job", name, "--node", "n1", "--transport", "tcp",
             "--any-root", "--module-dir", f"{BUILD}/lib"])
        self.wait("status", "--alive")

    def hearth(self, *args):
        done = subprocess.run([f"{BUILD}/bin/hearth", *args, "--root", self.root, self.name],
                              capture_output=True, text=True, timeout=100)
        return done.returncode, done.stdout + done.stderr

    def wait(self, *args):
        until = time.monotonic() + 20
        while self.hearth(*args)[0] and time.monotonic() < until:
            time.sleep(0.05)

    def pid(self):
        with open(f"{self.root}/{self.name}/.hearth/lock", encoding="ascii") as f:
            return int(f.read().split()[0])

    def put(self, text):
        """Another program in the place of this one, as a package manager puts it."""
        with open(self.program + ".new", "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(self.program + ".new", 0o755)
        os.rename(self.program + ".new", self.program)

    def refused(self, what, status, part):
        before = self.pid()
        code, text = self.hearth("upgrade")
        check(code == status and part in text, f"{what}: status {code}: {text}")
        check(self.pid() == before, f"{what}: the engine is another one")
        check(self.hearth("status", "--alive")[0] == 0, f"{what}: no engine answers")


# What the trial prints, changed by sed; then hearthd.
CHANGED = """case "$*" in *--trial*) {real} "$@" | sed '{sed}'; exit;; esac
exec {real} "$@"
"""


def refusals(job, real):
    job.put(CHANGED.format(real=real, sed="s/^version .*/version 0.0.9/"))
    job.refused("an older one", 1, "hearthd 0.0.9 is older than ")
    job.put(CHANGED.format(
        real=real, sed="s/^protocol .*/protocol 90 91/;s/^version .*/version 9.0.0/"))
    job.refused("another protocol", 1,
                "hearthd 9.0.0 has the protocol between engines in versions 90 to 91")
    job.put(CHANGED.format(real=real, sed="s/ store$/ hoard/;s/^version .*/version 9.0.0/"))
    job.refused("no such format", 1, "hearthd 9.0.0 does not know the store")
    job.put("echo 'hearthd: no libsodium here' >&2; exit 1\n")
    job.refused("one that does not start", 5, "no libsodium here")
    os.unlink(job.program)
    job.refused("none", 5, "cannot be run: No such file or directory")


def main():
    work = tempfile.mkdtemp(prefix="hearth-upgrade.", dir="/dev/shm")
    jobs, real = [], f"{BUILD}/bin/hearthd"
    try:
        job = Job(work, "newer")
        jobs.append(job)
        refusals(job, real)
        socket, before = os.stat(f"{work}/newer/.hearth/sock").st_ino, job.pid()
        job.put(CHANGED.format(real=real, sed="s/^version .*/version 9.0.0/"))
        code, text = job.hearth("upgrade")
        check(code == 0 and "took the place of" in text, f"a newer one: status {code}: {text}")
        check(job.pid() != before, "a newer one: the engine is the one that ran")
        check(os.stat(f"{work}/newer/.hearth/sock").st_ino == socket, "the socket is another one")
        check(job.engine.poll() is None, "the process in the foreground has ended")
        job.engine.send_signal(signal.SIGTERM)
        check(job.engine.wait(20) == 0, "the engine does not end by a signal to the first process")
        check(not os.path.exists(f"{work}/newer/.hearth/sock"), "the engine left its socket")

        job = Job(work, "broken")  # it prints its versions, and then does not start
        jobs.append(job)
        job.put(f"""case "$*" in *--trial*) exec {real} "$@";; esac\nexit 1\n""")
        job.refused("one that ends", 5, "the engine that ran goes on")
        job.refused("a second try", 5, "hearthd-next")
    finally:
        for job in jobs:
            job.engine.kill()
            try:
                os.kill(job.pid(), signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(work)
    return 1 if bad else 0


sys.exit(main())
