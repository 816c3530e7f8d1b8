#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot.py ROWS.json DIR: draws what `tests/bench/run --json ROWS.json --plot DIR` measured.

save-rate, replicate-rate: GB/s against bytes, Hearth's line and the limit's; save-timeline,
recovery-timeline: where the time of one save and of one recovery went. Each as .png and .svg, if
the file has rows for it. Needs matplotlib (Debian's python3-matplotlib)."""
import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
# The words of an SVG stay words, and the same rows make the same file.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hearth"})
from matplotlib import pyplot as plt  # noqa: E402 (after the choice of the backend)

# Name of the file, case of the row, name of its limit; a case may have rows with other limits.
RATES = [
    ("save-rate", "save: begin, add, commit (blocked)", "streaming copy, same threads"),
    ("replicate-rate", "replicate: sealed to PROTECTED", "raw pull"),
]
TIMELINES = ["save", "recovery"]


def kept(figure, folder, name):
    figure.tight_layout()
    for kind in "png", "svg":
        path = os.path.join(folder, f"{name}.{kind}")
        figure.savefig(path, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        print(path)
    plt.close(figure)


def size_word(size):
    return f"{size >> 20} MiB" if size < 1 << 30 else f"{size / (1 << 30):g} GiB"


def draw_rate(rows, folder, name, case, limit_name):
    found = [r for r in rows if r.get("case") == case and r["limit_name"] == limit_name]
    # One kind of pages; of a size that was measured twice the later row.
    points = {r["bytes"]: r for r in found if r["memory"] == found[0]["memory"]}
    if not points:
        return
    sizes = sorted(points)
    figure, axes = plt.subplots(figsize=(7, 4.2))
    axes.plot(sizes, [points[s]["median"] for s in sizes], "o-", label=f"Hearth, {case}")
    axes.plot(sizes, [points[s]["limit"] for s in sizes], "s--", label=f"limit: {limit_name}")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [size_word(s) for s in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 1.15 * max(max(p["median"], p["limit"]) for p in points.values()))
    axes.set_xlabel("bytes of the shard")
    axes.set_ylabel("GB/s")
    axes.set_title(f"{found[0]['memory']} pages, median of {points[sizes[-1]]['rounds']} rounds")
    axes.grid(alpha=0.3)
    axes.legend()
    kept(figure, folder, name)


def draw_timeline(rows, folder, timeline):
    found = [r for r in rows if r.get("timeline") == timeline]
    if not found:
        return
    largest = max(r["bytes"] for r in found)
    lanes = {r["lane"]: r for r in found if r["bytes"] == largest}
    # A lane has a scale of its own: the second one of a recovery is a small part of the first.
    figure, axes = plt.subplots(len(lanes), figsize=(9, 2.2 * len(lanes)), squeeze=False)
    for place, (lane, row) in zip(axes[:, 0], lanes.items()):
        for name, begin, end in row["phases"]:
            place.barh(0, (end - begin) * 1e3, left=begin * 1e3,
                       label=f"{name}: {(end - begin) * 1e3:.1f} ms")
        place.set_yticks([])
        place.set_xlabel("ms since the beginning")
        place.set_title(lane, fontsize="medium")
        place.grid(axis="x", alpha=0.3)
        place.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize="small")
    figure.suptitle(f"one {timeline}, {size_word(largest)} a rank")
    kept(figure, folder, f"{timeline}-timeline")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, case, limit_name in RATES:
        draw_rate(rows, sys.argv[2], name, case, limit_name)
    for timeline in TIMELINES:
        draw_timeline(rows, sys.argv[2], timeline)


main()
