"""The options of `freshet swap`: its own, and those of `freshet run` for the new job."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from freshet.job.commands.promote import SERVICE, seconds
from freshet.job.commands.run import RunCommand
from freshet.job.errors import EXIT_CHECK_FAILED
from freshet.job.options.config_file import read_config_file
from freshet.job.options.flags import parameter, parameters
from freshet.job.units import OFF

# What a swap says itself, or takes from the job that serves.
_NAMES = "out", "config", "hold", "in_turn", "print_spec", "gate", "wait", "keep"
_OWN = {"model", "snapshot", "events", "out", "resume", "start_from", "until", "detach", "stay", "undirected"}


def swap(**given: Any) -> None:
    """Serve the embeddings of another model, without a gap, by a job beside the one that serves.

    Exports the live graph of the current job of the service folder V, embeds it by the model, begins a job from that,
    waits until it has read as far, checks that its embeddings are finite, promotes it, keeps the job before for a
    while, so that `freshet rollback V` is at once, and stops it. The new job has the options of the one before; any of
    `freshet run` may be given. Repeat the same line to go on after a kill. Prints a JSON line with the seconds of each
    step. Exits with 1 where the new job fails or is refused by the check; the one before serves on.

    [bold]Examples[/bold]

    [cyan]freshet swap V --model M2[/cyan]

    [cyan]freshet swap V --model M2 --gate ./compare.sh --keep 1h[/cyan]
    promotes where the command ends with 0; it gets FRESHET_OLD, FRESHET_NEW, FRESHET_MODEL and FRESHET_SERVICE.

    [cyan]freshet swap V --model M2 --in-turn[/cyan]
    stops the job before first, as a local job needs it; its table answers meanwhile.
    """
    import orjson

    from freshet.job.service.generations import Service
    from freshet.job.swap.commands import SwapFailed
    from freshet.job.swap.record import Swap, SwapLine
    from freshet.job.swap.swapping import go_on

    service, model = Service(given.pop("service")), given.pop("model").absolute()
    own = {name: given.pop(name) for name in _NAMES}
    options = {name.rstrip("_"): value for name, value in given.items() if value not in (None, [])}
    line = SwapLine(
        model=model,
        out=own["out"],
        options={**({} if own["config"] is None else read_config_file(own["config"])), **options},
        in_turn=bool(own["in_turn"]),
        gate=own["gate"] or "",
        hold=bool(own["hold"]),
        print_spec=bool(own["print_spec"]),
        wait_s=seconds(own["wait"] or "1h"),
        keep_s=0.0 if own["keep"] == OFF else seconds(own["keep"] or "1h", "--keep"),
    )
    going = Swap(service)
    with going.alone():
        try:
            record = go_on(going, line)
        except SwapFailed as error:
            typer.echo(f"swap: {error}", err=True)
            raise typer.Exit(EXIT_CHECK_FAILED) from None
    if not line.print_spec:
        print(orjson.dumps(record.as_json()).decode())


def _parameters() -> list[inspect.Parameter]:
    own: dict[str, Any] = {
        "model": Annotated[Path, typer.Option(metavar="M2", help="Model folder of the new job.", show_default=False)],
        "out": Annotated[Path | None, typer.Option(metavar="O2", help="Its output folder (default: V/jobs/gN).")],
        "config": Annotated[Path | None, typer.Option(metavar="C", help="--config of the new job.")],
        "hold": Annotated[
            bool, typer.Option("--hold", help="End before the promotion; the same line without it goes on.")
        ],
        "in_turn": Annotated[bool, typer.Option("--in-turn", help="Stop the job before first.")],
        "print_spec": Annotated[
            bool, typer.Option("--print-spec", help="Write the manifests of the new job, as `freshet spec`, and end.")
        ],
        "gate": Annotated[
            str | None, typer.Option(metavar="CMD", help="Command that has to end with 0 before the promotion.")
        ],
        "wait": Annotated[str, typer.Option(help="Maximum wait for the new job to catch up (default: 1h).")],
        "keep": Annotated[
            str,
            typer.Option(help="How long the job before goes on after the promotion; off: not at all (default: 1h)."),
        ],
    }
    made = [parameter(name, annotation) for name, annotation in own.items()]
    made[0] = made[0].replace(default=inspect.Parameter.empty)
    service = inspect.Parameter("service", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=SERVICE)
    taken = {one.name for one in made}
    rest = [one for one in parameters() if one.name.rstrip("_") not in _OWN | taken]
    return [service, *made, *rest]


COMMAND = RunCommand
swap.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]
