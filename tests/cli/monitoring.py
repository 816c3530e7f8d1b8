#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""monitoring.py ROOT BUILD: Debian's Prometheus watches a job with what deploy/monitoring has.

promtool accepts the rules, and their unit tests pass. Then Prometheus scrapes the exporters of two
nodes, which are folders here, with the rules as they are, but for their waiting times. No alert of
`CAUSED` fires before its cause is planted, and each fires afterwards: the ranks stop saving, an
engine has no job to do, a save is aborted, the tmpfs of a node is full, the log's name is taken,
the coordinator's engine is stopped and continued, an engine is killed, a bit of an object flips.
At last each query of the board returns data.

Exit status 77 where there is no Prometheus, or no mount namespace."""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from job import engine_pid, free_port, run_job

WAIT_S = 30
CAUSED = ["HearthSaveFailed", "HearthLogLost", "HearthEngineSilent", "HearthCoordinatorSilent",
          "HearthEngineGone", "HearthNodeLost", "HearthCopiesBelow", "HearthNotRunning",
          "HearthNoRoom", "HearthChecksumError"]
bad = []


def check_rules(folder, work):
    """The rules for the run, without waiting times."""
    for args in ["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]:
        said = subprocess.run(["promtool", *args], cwd=folder, text=True, capture_output=True)
        if said.returncode:
            bad.append(f"promtool {' '.join(args)}: {said.stdout}{said.stderr}")
    with open(f"{folder}/alerts.yml", encoding="utf-8") as f:
        rules = re.sub(r"^ +for: .*\n", "", f.read(), flags=re.M)
    with open(f"{work}/alerts.yml", "w", encoding="utf-8") as f:
        f.write(rules)


class Prometheus:
    def __init__(self, work, targets):
        self.at = f"127.0.0.1:{free_port()}"
        with open(f"{work}/prometheus.yml", "w", encoding="utf-8") as f:
            # a scrape lasts 2 s while an engine does not answer
            f.write("global: {scrape_interval: 2500ms, scrape_timeout: 2500ms, "
                    "evaluation_interval: 500ms}\nrule_files: [alerts.yml]\n"
                    "scrape_configs: [{job_name: hearth, honor_labels: true, static_configs: "
                    f"[{{targets: {json.dumps(targets)}}}]}}]\n")
        with open(f"{work}/prometheus.log", "w", encoding="utf-8") as log:
            self.run = subprocess.Popen(
                ["prometheus", f"--config.file={work}/prometheus.yml",
                 f"--storage.tsdb.path={work}/tsdb", f"--web.listen-address={self.at}"],
                stdout=log, stderr=log)

    def ask(self, query):
        text = urllib.parse.quote(query)
        with urllib.request.urlopen(f"http://{self.at}/api/v1/query?query={text}", timeout=10) as a:
            return json.load(a)["data"]["result"]

    def fired(self):
        return {one["metric"]["alertname"] for one in
                self.ask('max_over_time(ALERTS{alertstate="firing"}[5m])')}

    def wait(self, what, true):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                if true():
                    return
            time.sleep(0.2)
        bad.append(f"not within {WAIT_S} s: {what}")

    def wait_fired(self, *alerts):
        missing = set(alerts)
        self.wait("an alert fires", lambda: not missing.difference_update(self.fired()) and
                  not missing)
        bad.extend(f"{alert} does not fire" for alert in sorted(missing))

    def end(self):
        self.run.terminate()
        self.run.wait(20)


@contextlib.contextmanager
def exporters(job):
    runs = [subprocess.Popen([f"{job.bin}/hearth", "exporter", "--root", f"{job.work}/n{rank}",
                              "--listen", "127.0.0.1:0"], text=True, stdout=subprocess.PIPE)
            for rank in range(2)]
    try:
        yield [run.stdout.readline().strip().removeprefix("listening on ") for run in runs]
    finally:
        for run in runs:
            run.terminate()
            run.wait(20)


def idle_engine(job):
    """Of a job that no rank joins."""
    run = subprocess.Popen([f"{job.bin}/hearthd", "--root", f"{job.work}/n0", "--any-root", "--job",
                            "idle", "--transport", "tcp", "--node", "n0", "--foreground"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return run


def take_log(job):
    """The engine of node 0 cannot open its log any more; the next line is lost."""
    log = f"{job.work}/n0/train7/.hearth/log"
    os.unlink(log)
    os.mkdir(log)


@contextlib.contextmanager
def small_tmpfs(folder):
    os.mkdir(folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m,mode=0700", "tmpfs", folder],
                   check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def full_tmpfs(folder):
    """Another program has all that is left of it."""
    disk = os.statvfs(folder)
    with open(f"{folder}/other", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, disk.f_bavail * disk.f_frsize)
        yield
    os.unlink(f"{folder}/other")


def flip_bit(job):
    """In what node 0 has of rank 0's saves, under its engine."""
    for path in glob.glob(f"{job.work}/n0/train7/*/__0__0_src0.distcp"):
        with open(path, "r+b") as f:
            f.seek(100000)
            byte = f.read(1)[0]
            f.seek(100000)
            f.write(bytes([byte ^ 1]))


def order(job, letter):
    for rank in job.ranks:
        rank.stdin.write(letter)
        rank.stdin.flush()


def plant(job, prometheus):
    prometheus.wait("both nodes are scraped",
                    lambda: len(prometheus.ask('hearth_up{job="train7"} == 1')) == 2)
    prometheus.wait_fired("HearthProtectionAtRisk", "HearthProtectionLost")  # ranks stop saving
    early = prometheus.fired() & set(CAUSED)
    if early:
        bad.append(f"without a cause: {sorted(early)}")
    idle = idle_engine(job)
    prometheus.wait_fired("HearthNotRunning")
    idle.terminate()
    idle.wait(20)
    order(job, "a")
    prometheus.wait_fired("HearthSaveFailed")
    with full_tmpfs(f"{job.work}/n1"):
        order(job, "l")
        prometheus.wait_fired("HearthNoRoom")
    coordinator = engine_pid(job, 0)
    os.kill(coordinator, signal.SIGSTOP)
    prometheus.wait_fired("HearthEngineSilent", "HearthCoordinatorSilent")
    os.kill(coordinator, signal.SIGCONT)
    prometheus.wait("the engines have met again", lambda: prometheus.ask(
        'hearth_health{job="train7"}') and not prometheus.ask(
        'hearth_check{job="train7", name=~"coordinator_silent|node_unreachable|node_lost"} > 0'))
    take_log(job)
    os.kill(engine_pid(job, 1), signal.SIGKILL)
    prometheus.wait_fired("HearthEngineGone", "HearthNodeLost", "HearthCopiesBelow",
                          "HearthLogLost")
    job.end_ranks()
    flip_bit(job)
    job.steps = 0
    job.launch()  # and recovers
    prometheus.wait_fired("HearthChecksumError")


def check_board(prometheus, path):
    with open(path, encoding="utf-8") as f:
        panels = json.load(f)["panels"]
    for panel in panels:
        for target in panel["targets"]:
            query = target["expr"].replace("$job", ".+")
            if not prometheus.ask(query):
                bad.append(f"board, {panel['title']}: no data: {query}")


def main(root, build, mounts=""):
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        print("skipped: prometheus is not installed")
        return 77
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        print("skipped: no mount namespace can be made here")
        return 77
    if not mounts:
        os.execvp("unshare", ["unshare", "-rm", sys.executable, *sys.argv, "mounts"])
    with tempfile.TemporaryDirectory() as work, small_tmpfs(f"{work}/n1"):
        check_rules(f"{root}/deploy/monitoring", work)
        with run_job(build, work, HEARTH_DEAD_MS="3000", HEARTH_HEARTBEAT_MS="200") as job:
            with exporters(job) as targets:
                prometheus = Prometheus(work, targets)
                try:
                    plant(job, prometheus)
                    check_board(prometheus, f"{root}/deploy/monitoring/board.json")
                finally:
                    prometheus.end()
        if bad and os.path.exists(f"{work}/prometheus.log"):
            with open(f"{work}/prometheus.log", encoding="utf-8") as f:
                print("".join(line for line in f if "level=error" in line or "level=warn" in line))
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
