#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metrics.py ROOT BUILD: what `hearth metrics` prints of a job of two nodes.

Two ranks, whose nodes are folders here, save three steps. The output has the series that
docs/operate/metrics.md describes, with the labels that stand there, and no others. Counters have
what the job did. The rules and the board of deploy/monitoring ask for series and checks that are
printed, and for each check there is an alert. `promtool check metrics` finds nothing, where it is
there. A root without a job has no series. `hearth exporter` serves the same, on a port and on a
unix socket, from one thread; a socket that is left is replaced, and a file is not. An engine that
is killed is said to be gone; one that ends in order is not."""
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from job import engine_pid, run_job

SAMPLE = re.compile(r'^(hearth_[a-z_]+)\{(.*)\} (\S+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
EVERY = {"job", "node"}

bad = []


def say(what):
    bad.append(what)


def parse(text):
    """{name: [(labels, value)]} of samples, and {name: type} of families."""
    samples, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            samples.setdefault(name, []).append((dict(LABEL.findall(labels)), float(value)))
    return samples, types


def family(name, types):
    """The family that a sample belongs to."""
    for end in "_bucket", "_sum", "_count":
        if name.endswith(end) and types.get(name[:-len(end)]) == "histogram":
            return name[:-len(end)]
    return name


def described(page):
    """{family: labels} of the page's tables."""
    found = {}
    with open(page, encoding="utf-8") as f:
        for line in f:
            cells = [cell.strip() for cell in line.split("|")]
            name = re.fullmatch(r"`(hearth_[a-z_]+)`", cells[1]) if len(cells) == 5 else None
            if name:
                found[name[1]] = set(re.findall(r"`([a-z]+)`", cells[2]))
    return found


def check_page(text, page):
    samples, types = parse(text)
    printed = {}
    for name, rows in samples.items():
        labels = printed.setdefault(family(name, types), set())
        labels.update(*(row[0] for row in rows))
    told = described(page)
    for name in sorted({*printed, *told}):
        if name not in told:
            say(f"{name} is printed, and the page does not describe it")
        elif name not in printed:
            say(f"{name} is on the page, and is not printed")
        elif printed[name] - EVERY != told[name]:
            say(f"{name} has the labels {sorted(printed[name] - EVERY)}, "
                f"the page {sorted(told[name])}")


def value(text, name, /, **labels):
    rows = [v for has, v in parse(text)[0].get(name, []) if labels.items() <= has.items()]
    return sum(rows) if rows else None


def expect(text, want, name, /, **labels):
    have = value(text, name, **labels)
    if have != want:
        say(f"{name} {labels}: {have}, expected {want}")


def check_counts(text):
    expect(text, 1, "hearth_up", job="train7")
    expect(text, 0, "hearth_check", name="engine_gone")
    expect(text, 3, "hearth_saves_total", job="train7", node="n0", level="protected")
    expect(text, 3, "hearth_save_seconds_count", phase="protected")
    expect(text, 3, "hearth_save_seconds_bucket", phase="written", le="+Inf")
    expect(text, 1, "hearth_recoveries_total")
    expect(text, 3, "hearth_copied_objects_total", peer="n1")
    expect(text, 2, "hearth_members")


def check_queries(text, folder):
    """Rules and board name series that are printed."""
    samples = parse(text)[0]
    for name in "alerts.yml", "board.json":
        with open(f"{folder}/{name}", encoding="utf-8") as f:
            for series in sorted(set(re.findall(r"hearth_[a-z_]+", f.read()))):
                if series not in samples:
                    say(f"{name} asks for {series}, which is not printed")
    with open(f"{folder}/alerts.yml", encoding="utf-8") as f:
        asked = set(re.findall(r'name="([a-z_]+)"|#([a-z_]+)$', f.read(), re.M))
    checks = {labels["name"] for labels, _ in samples["hearth_check"]}
    for check in sorted({one or other for one, other in asked} ^ checks):
        say(f"alerts.yml and hearth_check: only one of them has {check}")


def check_tool(text):
    if not shutil.which("promtool"):
        return
    said = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                          capture_output=True)
    if said.returncode or said.stdout or said.stderr:
        say(f"promtool check metrics: {said.stdout}{said.stderr}")


def metrics(job, *args, status=0):
    ran = subprocess.run([f"{job.bin}/hearth", "metrics", *args], text=True, capture_output=True)
    if ran.returncode != status:
        say(f"hearth metrics {args}: status {ran.returncode}, expected {status}: {ran.stderr}")
    return ran.stdout


class Exporter:
    """hearth exporter, and the connection that `connect` makes to where it listens."""

    started = []

    def __init__(self, job, root, listen):
        self.run = subprocess.Popen([f"{job.bin}/hearth", "exporter", "--root", root, "--listen",
                                     listen], text=True, stdout=subprocess.PIPE)
        self.started.append(self.run)
        self.at = self.run.stdout.readline().strip().removeprefix("listening on ")

    def connect(self):
        if not self.at.startswith("unix:"):
            return http.client.HTTPConnection(self.at, timeout=20)
        to = http.client.HTTPConnection("localhost", timeout=20)
        to.sock = socket.socket(socket.AF_UNIX)
        to.sock.connect(self.at.removeprefix("unix:"))
        return to

    def get(self, path, method="GET", **headers):
        to = self.connect()
        to.request(method, path, headers=headers)
        answer = to.getresponse()
        text = answer.read().decode()
        to.close()
        return answer.status, answer.headers["Content-Type"] or "", text

    def end(self):
        self.run.terminate()
        return self.run.wait(10)


def expect_status(exporter, want, *args, **headers):
    have = exporter.get(*args, **headers)[0]
    if have != want:
        say(f"{exporter.at} {args}: status {have}, expected {want}")


def check_refused(job, root):
    """An empty path is the abstract socket that every user reaches; ports end at 65535."""
    for at in "unix:", "127.0.0.1:65536", "127.0.0.1:", "127.0.0.1:-1":
        run = Exporter(job, root, at)
        if run.at or run.run.wait(10) != 2:
            say(f"an exporter listens on {run.at} for --listen {at}")


def check_left(job, root, at):
    if not at.startswith("unix:"):
        return
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(at[5:])
    again = Exporter(job, root, at)
    expect_status(again, 200, "/healthz")
    again.end()
    with open(at[5:], "w", encoding="utf-8") as f:
        f.write("precious")
    again = Exporter(job, root, at)
    if again.at or not os.path.isfile(at[5:]) or os.path.getsize(at[5:]) != 8:
        say("an exporter takes the place of a file")
    if again.end() == 5:
        os.unlink(at[5:])


def check_exporter(job, listen, text):
    root = f"{job.work}/n0"
    exporter = Exporter(job, root, listen)
    if "built without" in exporter.at or not exporter.at:
        return
    check_refused(job, root)
    _, kind, served = exporter.get("/metrics")
    if sorted(parse(served)[0]) != sorted(parse(text)[0]) or "0.0.4" not in kind:
        say(f"{listen}: other series than hearth metrics prints, as {kind}")
    _, kind, served = exporter.get("/metrics", Accept="application/openmetrics-text")
    if not served.endswith("# EOF\n") or "# TYPE hearth_saves counter" not in served:
        say(f"{listen}: no OpenMetrics, as {kind}")
    expect_status(exporter, 200, "/healthz")
    expect_status(exporter, 404, "/other")
    expect_status(exporter, 405, "/metrics", "POST")
    idle = [exporter.connect() for _ in range(20)]
    for one in idle:
        if one.sock is None:
            one.connect()
    threads = len(os.listdir(f"/proc/{exporter.run.pid}/task"))
    if threads != 1:
        say(f"the exporter has {threads} threads with 20 connections")
    began = time.monotonic()
    expect_status(exporter, 200, "/healthz")
    if time.monotonic() - began > 9:  # Prometheus gives a scrape 10 s
        say(f"{listen}: 20 silent connections held up a request for {time.monotonic() - began} s")
    for one in idle:
        one.close()
    second = subprocess.run([f"{job.bin}/hearth", "exporter", "--root", root, "--listen",
                             exporter.at], text=True, capture_output=True, timeout=20)
    if second.returncode != 5 or second.stdout:
        say(f"a second exporter on {exporter.at}: {second.returncode} {second.stdout}")
    if exporter.end():
        say(f"the exporter on {listen} does not end well on SIGTERM")
    check_left(job, root, exporter.at)
    if exporter.at.startswith("unix:") and os.path.exists(exporter.at[5:]):
        say(f"{exporter.at} is left")


def check_other_user(job, root):
    """Another user may list the root, and look into none of its jobs."""
    if os.geteuid():
        return
    for path in job.work, root:
        os.chmod(path, 0o755)
    os.chmod(f"{root}/train7", 0o700)
    for more in [], ["train7"]:
        ran = subprocess.run([f"{job.bin}/hearth", "metrics", "--root", root, *more], text=True,
                             capture_output=True, user=65534, group=65534, extra_groups=[])
        if ran.returncode != 5 or ran.stdout:
            say(f"another user, {more}: {ran.returncode}, {ran.stdout[:80]!r}, {ran.stderr!r}")
        if not more and "1 jobs of" not in ran.stderr:
            say(f"another user is not told of the job: {ran.stderr!r}")
    for path in job.work, root:
        os.chmod(path, 0o700)


def check_ends(job):
    """The engine of rank 1's node is killed; then rank 0's ends in order."""
    os.kill(engine_pid(job, 1), signal.SIGKILL)
    job.wait_until(lambda: not engine_pid(job, 1))
    text = metrics(job, "--root", f"{job.work}/n1")
    expect(text, 0, "hearth_up", job="train7")
    expect(text, 2, "hearth_check", name="engine_gone", job="train7")
    os.kill(engine_pid(job, 0), signal.SIGTERM)
    job.wait_until(lambda: not engine_pid(job, 0))
    if metrics(job, "--root", f"{job.work}/n0"):
        say("a job whose engine ended in order has series")


def main(root, build):
    with tempfile.TemporaryDirectory() as work:
        with run_job(build, work) as job:
            text = metrics(job, "--root", f"{work}/n0")
            check_page(text, f"{root}/docs/operate/metrics.md")
            check_counts(text)
            check_queries(text, f"{root}/deploy/monitoring")
            check_tool(text)
            if metrics(job, "--root", f"{work}/n0", "train7").count("\n") != text.count("\n"):
                say("a job that is named has other series")
            metrics(job, "--root", f"{work}/n0", "other", status=3)
            check_other_user(job, f"{work}/n0")
            try:
                check_exporter(job, "127.0.0.1:0", text)
                check_exporter(job, f"unix:{work}/metrics.sock", text)
            finally:
                for run in Exporter.started:
                    run.kill()
            job.end_ranks()
            check_ends(job)
        os.mkdir(f"{work}/empty", 0o700)
        if metrics(job, "--root", f"{work}/empty"):
            say("a root without a job has series")
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
