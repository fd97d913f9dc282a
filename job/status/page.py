"""The page of `freshet status`, and its repetition."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from freshet.job.lifecycle.job_state import RUNNING
from freshet.job.status.memory import memory_in_words
from freshet.job.status.report import Report, report
from freshet.operators.telemetry.figures import NOTED

EVERY_S = 1.0
_BAR = 20  # characters of a busy share of 1


def show(out: Path, *, as_json: bool, watch: bool) -> None:
    """Print the status of the job in `out`, once or each second until the job is over.

    Raises: UsageError where the folder is no job's.
    """
    shown = _again(out) if watch else iter([report(out)])
    if as_json:
        import orjson

        for one in shown:
            print(orjson.dumps(one).decode(), flush=True)
        return
    if not (watch and sys.stdout.isatty()):
        for one in shown:
            print(page(out, one), flush=True)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        for one in shown:
            live.update(Text(page(out, one), no_wrap=True, overflow="ellipsis"), refresh=True)


def _again(out: Path) -> Iterator[Report]:
    while True:
        began_s, found = time.monotonic(), report(out)
        yield found
        if found["state"] != RUNNING:
            return
        time.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))


def page(out: Path, status: Mapping[str, Any]) -> str:
    """Return a status for people."""
    reasons = [f"  {count:>12,}  {reason}" for reason, count in status["reasons"].items()]
    rows = [
        ("job", f"{status['state']}: {status['detail']}"),
        ("name", status["name"]),
        ("folder", str(out)),
        ("epoch", f"{status['epoch']:,}  ({status['vertices']:,} vertices, {status['rows']:,} rows written)"),
        ("events", f"{status['events']:,}  ({_events_per_s(status)})"),
        ("lag", _lag(status)),
        ("freshness", f"p50 {_ms(status['freshness_ms_p50'])}, p99 {_ms(status['freshness_ms_p99'])}, until readable"),
        ("checkpoint", _or_dash(status["checkpoint_age_s"], ",.1f", " s ago")),
        ("shape", f"parts: {_or_dash(status['parts'], ',')}, processes: {status['processes']}"),
        ("rejected", f"{status['rejected']:,}"),
        *([("memory", memory_in_words(status["memory"]))] if status.get("memory") else []),
    ]
    lines = [f"{name:<11} {text}" for name, text in rows] + reasons
    if noted := [f"{name.replace('_', ' ')} {status[name]:,}" for name in NOTED if status.get(name)]:
        lines.append(f"{'noted':<11} {', '.join(noted)}")
    lines += [f"{'server':<11} Flight {one['flight']}, HTTP http://{one['http']}" for one in status["servers"]]
    if status["operators"]:
        lines += ["", f"{'':<12} busy  mean", *_layers(status["layers"]), *_loads(status["operators"])]
    return "\n".join(lines)


def _events_per_s(status: Mapping[str, Any]) -> str:
    mean = f"{_or_dash(status['events_per_s_mean'], ',.0f')}/s since the start"
    return f"{status['events_per_s']:,.0f}/s now, {mean}" if status["state"] == RUNNING else mean


def _lag(status: Mapping[str, Any]) -> str:
    if status["lag"] is None:
        return f"-  ({status['lag_unknown']})" if status.get("lag_unknown") else "-"
    parts = ", ".join(f"{name}: {left:,}" for name, left in status["lag"].items())
    return f"{status['lag_total']:,}" + (f"  ({parts})" if len(status["lag"]) > 1 else "")


def _layers(layers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for load in layers:
        processes = "1 process" if load["processes"] == 1 else f"{load['processes']} processes"
        yield f"{_load('layer {layer}'.format(**load), load)}  {processes}"


def _load(name: str, load: Mapping[str, Any]) -> str:
    busy, mean = load.get("busy"), load.get("busy_mean")
    share = busy if busy is not None else mean or 0.0
    return f"{name:<12} {_percent(busy)}  {_percent(mean)}  {'#' * round(share * _BAR):<{_BAR}}"


def _loads(operators: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, load in operators.items():
        text = _load(name, load)
        if load.get("messages_per_s") is not None:
            text += f"  {load['messages_per_s']:,.0f} messages/s, {load['bytes_per_s'] / 1e6:,.2f} MB/s"
        if "topic" in load:
            text += f"  {load['topic']}"
        yield text.rstrip()


def _percent(share: float | None) -> str:
    return "   -" if share is None else f"{share:4.0%}"


def _ms(value: float | None) -> str:
    return _or_dash(value, ",.1f", " ms")


def _or_dash(value: float | None, spec: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{spec}}{unit}"
