"""Tables of a job on several machines, for people."""

from __future__ import annotations

from itertools import zip_longest

from freshet.job.size.machines import INTERVALS, KEPT, Cluster, Rates
from freshet.job.units import readable
from freshet.operators.dataflow import PARTITIONER

_SHOWN = 8  # limits


def page_of(found: Cluster, rates: Rates) -> str:
    """Return the machines, what goes between them, checkpoints, and the limits, nearest first."""
    partitioner, all_of_it = found.operators[PARTITIONER], sum(found.operators.values())
    shared = "each has all layers"
    if found.groups > 1:
        shared = f"{found.groups} groups share the layers, {found.tasks} of each"
    lines = [
        f"{len(found.machines)} machines, one process each, {rates.events_per_s:,.0f} events/s: {shared}",
        f"freshet run --parallelism {len(found.machines)} --pipeline {found.groups} --parts {found.parts}; a vertex "
        f"has {found.replicas:.2f} rows over all parts",
        "",
        *_machines(found),
        "",
        *_links(found),
        "",
        f"checkpoint  {readable(found.checkpoint)}; {found.checkpoint_s:,.0f} s at most, on the largest machine; disk "
        f"{readable(found.disk)} for {KEPT} of them and the one that is written",
        f"recovery    {found.recovery_s:,.0f} s at most: reading the state, and replaying {INTERVALS} intervals",
        "",
        f"{'limit':48} {'used':>8}  met at",
    ]
    for one in found.limits[:_SHOWN]:
        lines.append(f"{one.name:48} {one.share:8.1%}  {one.met_at:,.0f} {one.unit}")
    lines += [
        "",
        f"The Partitioner's thread is full at {rates.events_per_s / partitioner:,.0f} events/s, when all operators "
        f"take {all_of_it / partitioner:.1f} cores.",
        "Parser, Sink and Flink come on top; processor time is that of a small graph on this machine.",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _machines(found: Cluster) -> list[str]:
    rows = [["machine", "memory", "state", "sends/s", "receives/s", "cores", "operators"]]
    for number, one in enumerate(found.machines):
        held, carried = (one.memory, one.state), (int(one.sends), int(one.receives))
        sizes = [readable(size) for size in (*held, *carried)]
        rows.append([str(number), *sizes, f"{one.cores:.2f}", ", ".join(one.operators)])
    return ["{:<7} {:>11} {:>11} {:>11} {:>11} {:>6}  {}".format(*row) for row in rows]


def _links(found: Cluster) -> list[str]:
    lines = [f"{'between machines':26} {'bytes/s':>11}   {'processor time of':18} {'cores':>6}"]
    for link, spent in zip_longest(found.links.items(), found.operators.items()):
        left = f"{link[0]:26} {readable(int(link[1])):>11}" if link else " " * 38
        lines.append(f"{left}   {spent[0]:18} {spent[1]:6.2f}" if spent else left)
    return lines
