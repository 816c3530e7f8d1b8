#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""a_night.py ROOT BUILD [--print]: docs/operate/a-night.md shows what happens.

Four ranks on four nodes, which are folders here, save all the time. What the page tells happens to
them: a node is lost with its memory, and the job starts again with a spare. Before each block of
the page stands a comment that says what has happened by then; the block's commands are typed on the
node that its prompt names, and must print what the page shows, aside from numbers, bars, and which
of the nodes was slowest. --print: prints the page with what they print now."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

JOB = "train7"
RACK = ["r1", "r1", "r2", "r2", "r2"]
DEADLINE = 60


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Night:
    def __init__(self, build, work):
        self.build, self.work, self.ranks, self.launches = build, work, {}, 0

    def env(self, node):
        env = {name: value for name, value in os.environ.items() if not name.startswith("HEARTH_")}
        env.update(HEARTH_ROOT=f"{self.work}/n{node}", PATH=f"{self.work}/bin:{env['PATH']}",
                   COLUMNS="80", NO_COLOR="1")
        return env

    def launch(self, nodes):
        port = free_port()
        self.launches += 1
        for rank, node in enumerate(nodes):
            os.makedirs(f"{self.work}/n{node}", 0o700, exist_ok=True)
            env = self.env(node)
            env.update(HEARTH_JOB=JOB, HEARTH_NODE=f"n{node}", HEARTH_ANY_ROOT="1",
                       HEARTH_MACHINE=f"m{node}", HEARTH_DOMAINS=RACK[node],
                       HEARTH_ENGINE=f"{self.build}/bin/hearthd", HEARTH_KEEP="2",
                       HEARTH_TRANSPORT="tcp", HEARTH_DEAD_MS="2000", HEARTH_HEARTBEAT_MS="200",
                       HEARTH_PORT=str(port), MASTER_ADDR="127.0.0.1", RANK=str(rank),
                       WORLD_SIZE=str(len(nodes)))
            with open(f"{self.work}/rank{rank}.{self.launches}", "w") as out:
                self.ranks[node] = subprocess.Popen([f"{self.build}/bin/cli_a_night"], env=env,
                                                    stdin=subprocess.PIPE, stdout=out)

    def saved(self):
        """Steps that rank 0 of this launch has seen PROTECTED"""
        with open(f"{self.work}/rank0.{self.launches}") as out:
            return out.read().count("protected ")

    def wait(self, what, holds):
        end = time.monotonic() + DEADLINE
        while not holds():
            if time.monotonic() > end:
                raise SystemExit(f"a_night.py: not within {DEADLINE} s: {what}")
            time.sleep(0.05)

    def status(self, node):
        return subprocess.run([f"{self.work}/bin/hearth", "status", JOB], env=self.env(node),
                              capture_output=True, text=True)

    def engine_pid(self, node):
        """0: none runs"""
        out = subprocess.run([f"{self.work}/bin/hearth", "ls", "--json", JOB], env=self.env(node),
                             capture_output=True, text=True).stdout
        return json.loads(out)["engine_pid"] or 0 if out.strip() else 0

    def end_ranks(self):
        for rank in self.ranks.values():
            rank.kill()
            rank.wait()
        self.ranks = {}

    # ---- what the page's comments name ----
    def saves(self):
        self.launch([0, 1, 2, 3])
        self.wait("ten saves", lambda: self.saved() >= 10)

    def loses(self):
        os.kill(self.engine_pid(3), signal.SIGKILL)
        self.ranks[3].kill()
        shutil.rmtree(f"{self.work}/n3")
        self.wait("node n3 is lost, and its copies are made again",
                  lambda: all(self.at_risk(node) for node in range(3)))

    def at_risk(self, node):
        raised = self.status(node).stdout
        must = "Node n3 is lost", "protection_old", "save_failed"
        return all(one in raised for one in must) and "copies_below" not in raised

    def replaces(self):
        self.end_ranks()
        self.launch([0, 1, 2, 4])
        self.wait("three saves", lambda: self.saved() >= 3)
        self.wait("all is well", lambda: not any(self.status(n).returncode for n in (0, 1, 2, 4)))

    def close(self):
        self.end_ranks()
        for node in range(len(RACK)):
            pid = self.engine_pid(node) if os.path.isdir(f"{self.work}/n{node}") else 0
            if pid:
                os.kill(pid, signal.SIGTERM)
                self.wait("an engine ends", lambda: not self.engine_pid(node))


# ---- The page ----

# Lines that differ from night to night: who was slowest, each phase and report, and what of a save
# that has just begun is under way.
DIFFER = re.compile(r"^(slowest:|step \d+ of epoch|(behind|room|write|seal|copy|manifest|promise|"
                    r"decision|written|copied|sealed|held|promised|join|inventory|plan|pull|"
                    r"verify|vote) )")


def commands(page):
    """[(what has happened by then or None, first line, [lines])]: a prompt begins one"""
    found, moment = [], None
    for number, line in enumerate(page[:-1]):
        if m := re.match(r"<!-- night: (\w+) -->", line):
            moment = m.group(1)
        elif re.match(r"    n\d\$ ", line):
            found.append((moment, number, [line[4:]]))
            moment = None
        elif found and number == found[-1][1] + len(found[-1][2]) and (
                line.startswith("    ") or not line and page[number + 1].startswith("    ")):
            found[-1][2].append(line[4:])
    return found


def shape(lines):
    """Without what differs from run to run"""
    lines = re.sub(r"\n {8}", " ", "\n".join(lines)).split("\n")
    text = "\n".join(line for line in lines if not DIFFER.match(line))
    text = re.sub(r"\b[0-9a-f]{8}\b", "#", text)
    text = re.sub(r"(?<![A-Za-z])\d[\d.]*", "#", text)
    text = re.sub(r"\b[KMGT]i?B\b", "B", text)
    return " ".join(text.split())


def tell(night, root, prints):
    path = f"{root}/docs/operate/a-night.md"
    with open(path, encoding="utf-8") as f:
        page = f.read().splitlines()
    bad, shown = 0, {}
    for moment, at, lines in commands(page):
        if moment:
            getattr(night, moment)()
        node, command = re.match(r"n(\d)\$ (.*)", lines[0]).groups()
        have = subprocess.run(command, shell=True, env=night.env(node), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.splitlines()
        shown[at] = (len(lines), [lines[0]] + have)
        if shape(have) != shape(lines[1:]) and not prints:
            bad = 1
            print(f"{path}:{at + 1}: {command}\n--- the page:\n{shape(lines[1:])}\n"
                  f"--- printed:\n{shape(have)}\n")
    if prints:
        for at in sorted(shown, reverse=True):
            count, lines = shown[at]
            page[at:at + count] = [f"    {line}".rstrip() for line in lines]
        print("\n".join(page))
        return 0
    return bad


def main(root, build, prints=""):
    with tempfile.TemporaryDirectory() as work:
        os.symlink(f"{build}/bin", f"{work}/bin")
        night = Night(build, work)
        try:
            return tell(night, root, prints == "--print")
        finally:
            night.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
