"""The options of a job as a new one that is to take its place takes them over."""

from __future__ import annotations

from typing import Any

from freshet.job.folder.job_file import SavedJob
from freshet.job.options.flags import in_words
from freshet.job.options.marks import Holds
from freshet.job.options.run_config import RunConfig, option_name, that_hold
from freshet.job.run.resume import options_for_life

# What two jobs can't share: a name, topics and files that one writes, a port.
_ITS_OWN = {"name", "embeddings_to", "dead_letters", "flight_port"}


def options_of_successor(saved: SavedJob) -> dict[str, Any]:
    """Return the options that a job has, by their names in the --config file, as people write them.

    Those that are as they are by default are left out; so are the model, inputs and outputs. Secrets are not among
    them.
    """
    had = options_for_life(saved.settings) | dict(saved.options)
    if not had["edge_ttl_ms"] and not had["ts_jump_ms"]:
        del had["ts_jump_ms"]  # nothing has asked for it
    fields = RunConfig.model_fields
    names = [name for how in (Holds.FOR_LIFE, Holds.KEPT) for name, _ in that_hold(how) if name not in _ITS_OWN]
    given = {name: had[name] for name in names if name in had}
    usual = {name: fields[name].get_default(call_default_factory=True) for name in given}
    taken = {name: value for name, value in given.items() if value not in (None, usual[name])}
    runtime = {} if saved.runtime == fields["runtime"].default else {"runtime": saved.runtime}
    return runtime | {option_name(name): in_words(option_name(name), value) for name, value in taken.items()}
