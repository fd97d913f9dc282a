"""A swap from its options to its end."""

from __future__ import annotations

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.options.layers import take_layers
from freshet.job.swap.ahead import CurrentJob, options_of_new_job, out_of_new_job, refuse
from freshet.job.swap.commands import Commands, SwapFailed
from freshet.job.swap.record import STEPS, Swap, SwapLine, SwapRecord
from freshet.job.swap.steps import EMBEDDED, SwapSteps


def go_on(swap: Swap, line: SwapLine) -> SwapRecord:
    """Begin a swap, or go on with the one under way, as far as its line says.

    Raises: SwapFailed where the new job can't take the place; UsageError for a line that can't be.
    """
    take_layers(line.layers)
    found = swap.record()
    record = _begun(swap, line) if found is None else swap.same(found, line.asked)
    if line.print_spec and not record.by_hand:
        msg = f"{swap.service.folder}: a swap is under way without --print-spec; repeat its line to go on with it"
        raise UsageError(msg)
    if found is not None:
        done = ", ".join(record.seconds) or "nothing"
        say(f"the swap goes on that was begun before; done: {done}")
    commands = Commands()
    steps = SwapSteps(swap, line, commands)
    try:
        record = swap.run(record, steps.all(), "embed" if line.print_spec else "check" if line.hold else STEPS[-1])
    except SwapFailed:
        steps.give_up(record)
        swap.end(record)
        raise
    if line.print_spec:
        _print_spec(swap, record, line, commands)
    elif not line.hold:
        swap.end(record)
    return record


def _begun(swap: Swap, line: SwapLine) -> SwapRecord:
    serving = CurrentJob.of(swap.service)
    refuse(swap.service, serving, line.model, in_turn=line.in_turn, by_hand=line.print_spec)
    return swap.begin(
        serving.current,
        line.asked,
        options_of_new_job(serving, line.options),
        out=str(out_of_new_job(swap.service, serving, line.out)),
        events=list(serving.saved.settings.sources),
        cluster="" if line.print_spec else serving.cluster,
        by_hand=line.print_spec,
    )


def _print_spec(swap: Swap, record: SwapRecord, line: SwapLine, commands: Commands) -> None:
    """Write the manifests of the new job on stdout."""
    work = swap.work(record)
    given = ["--model", str(line.model), "--snapshot", str(work / EMBEDDED), "--out", record.out]
    given += [word for one in record.events for word in ("--events", one)]
    given += [word for one in line.layers for word in ("--layers", one)]
    commands.show("spec", *given, "--config", str(swap.config(record)))
    say("start that, and repeat the line without --print-spec: it goes on once the new job runs")
