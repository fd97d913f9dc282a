"""Shows what each partitioner makes of a graph or a stream (partition_trials.py): a measuring tool."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.script import run_script
from freshet.job.errors import UsageError
from freshet.job.options.config_file import load_partitioning
from freshet.job.run.preflight import check_model, check_snapshot, event_files
from freshet.partitioner.config import PLACEMENTS, STRATEGIES, WHOLE
from scripts.tools.partition_trials import run_trials


def partition(
    parts: Annotated[int, typer.Option(min=1, help="Number of parts.")],
    events: Annotated[
        list[str] | None, typer.Option(metavar="PATH", help="Event files or folders; repeatable.")
    ] = None,
    snapshot: Annotated[Path | None, typer.Option(help="Graph to place first.")] = None,
    partitioner: Annotated[
        list[str] | None, typer.Option(help=f"{', '.join(STRATEGIES)}; repeatable (default: all).")
    ] = None,
    undirected: Annotated[bool, typer.Option("--undirected/--directed", help="Mirror every edge.")] = False,
    snapshot_placement: Annotated[
        str, typer.Option(metavar="|".join(PLACEMENTS), help="How hybrid and locality place the snapshot, as of a run.")
    ] = WHOLE,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="M", help="Model folder: its layers run on the events, and what leaves a part is counted."
        ),
    ] = None,
) -> None:
    """Show what each partitioner makes of a graph or a stream.

    Prints replication factor, cut, balance and edges/s of each. With --model the layers run, too, and it prints the
    bytes an event that the Partitioner sends, and that operators send to other parts: the less, the more a further
    process brings.

    [bold]Examples[/bold]

    [cyan]scripts/tools/partition.py --snapshot S --parts 8[/cyan]
    [cyan]scripts/tools/partition.py --snapshot S --events E --parts 8 --model M[/cyan]
    """
    if snapshot is None and not events:
        msg = "nothing to partition; give --snapshot, --events, or both"
        raise UsageError(msg)
    if snapshot is not None:
        check_snapshot(snapshot)
    if model is not None:
        check_model(model)
    event_files(events or [])
    placed = {"parts": parts, "snapshot_placement": snapshot_placement}
    tried = [load_partitioning(placed | {"partitioner": name}) for name in partitioner or STRATEGIES]
    run_trials(tried=tried, events=events or [], snapshot=snapshot, undirected=undirected, model=model)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
app.command()(partition)

if __name__ == "__main__":
    run_script(app, "partition.py")
