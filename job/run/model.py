"""The model of a new job and what it needs: the snapshot to start from, the number of parts, ids with learned rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from freshet.gnn.any_plan import (
    AnyPlan,
    aggregated,
    inner_plan,
    learned_rows_of,
    names_of_returned,
    unmerged,
)
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.model import ModelError
from freshet.gnn.own.running import no_merge
from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.pipeline import check_layers, division_of, pipeline_of
from freshet.job.folder.made_image import MadeImage, in_words
from freshet.job.options.output_options import ASKED
from freshet.job.options.run_config import RunConfig, option_values
from freshet.job.options.runtime_options import FLINK_PARTS_MAX
from freshet.operators.checks.layers import is_own, running_of
from freshet.operators.factory import load_plan
from freshet.operators.snapshot.reader import MODEL_SHA256, Snapshot, id_kind_of, open_snapshot
from freshet.partitioner.config import SPLITTING_NONE, GraphRules
from freshet.partitioner.ids import INT, STRING
from freshet.partitioner.times.units import MS, TsUnit


@dataclass(frozen=True)
class Start:
    """The snapshot that a job starts from: its graph, and the image in its folder, if there is one."""

    graph: Snapshot
    made: MadeImage | None

    @staticmethod
    def open(
        folder: Path,
        model: Path,
        plan: AnyPlan,
        id_bytes_max: int,
        rules: GraphRules,
        *,
        cast_ids: bool = False,
        ts_unit: TsUnit = MS,
    ) -> Start:
        """Open the snapshot of a graph with these rules; its rows are not read yet.

        Raises: SnapshotError for bad files or columns; UsageError for the snapshot of another model.
        """
        graph = open_snapshot(
            folder, plan.features, edge_types=plan.edge_types or None, id_bytes_max=id_bytes_max,
            is_timed=rules.is_timed, cast_ids=cast_ids, ts_unit=ts_unit,
        )  # fmt: skip
        if graph.remark:
            say(graph.remark)
        embedded = graph.info.get(MODEL_SHA256)
        if embedded not in (None, plan.sha256):
            msg = (
                f"--snapshot {folder}: has the embeddings of another model (SHA-256 {str(embedded)[:12]}, that of "
                f"--model {model} is {plan.sha256[:12]}); give that model, or the snapshot that was embedded"
            )
            raise UsageError(msg)
        if embedded is not None and cast_ids and id_kind_of(folder) != STRING:
            msg = f"--id-type string: {folder} was embedded with int ids; leave it out, or give the graph alone"
            raise UsageError(msg)
        made = made_for(folder, rules)
        return Start(graph, made)

    def without_image(self) -> Start:
        """Return the start of a job that computes less than the image has."""
        if self.made is not None:
            say("snapshot: its state has all layers, so that of --embeddings asked is computed once more")
        return replace(self, made=None)


def made_for(snapshot: Path, rules: GraphRules) -> MadeImage | None:
    """Return the image in a snapshot's folder, if a job with these rules can start from it.

    Raises: UsageError, DamagedFileError for one that can't be read.
    """
    return None if rules.is_timed else MadeImage.of(snapshot)  # an image has no times


@dataclass(frozen=True)
class PreparedModel:
    """A new job's model, the number of its parts, and the snapshot that it starts from (None: an empty graph).

    `written`: the plan of what the job computes and writes, `plan` or its inner layers alone.
    """

    folder: Path
    plan: AnyPlan
    written: AnyPlan
    parts: int
    start: Start | None

    @property
    def inner_widths(self) -> dict[str, int]:
        """Widths of the rows that are written in the place of embeddings, by kind; empty where embeddings are."""
        return {} if self.written is self.plan else dict(self.written.out)


def read_model(config: RunConfig) -> PreparedModel:
    """Read the model and open the snapshot of a new job.

    Raises: UsageError where --pipeline or the snapshot does not fit the model; SnapshotError.
    """
    folder = config.model.absolute()
    plan = plan_to_run(config.model, undirected=config.undirected)
    _refuse_server(config.flight_port, config.out, plan)
    written = inner_of(plan) if config.embeddings == ASKED else plan
    parts = parts_of(config, len(written.layers))
    refuse_splits(written, parts, config.strategy)
    for line in unchecked_in_words(plan):
        say(line)
    start = None
    if config.snapshot is not None:
        rules = GraphRules(**option_values(config, GraphRules))
        of = config.snapshot, config.model, plan, config.id_bytes_max, rules
        start = Start.open(*of, cast_ids=config.cast_ids, ts_unit=config.ts_unit)
        start = start if written is plan else start.without_image()
    return PreparedModel(folder, plan, written, parts, start)


def inner_of(plan: AnyPlan) -> AnyPlan:
    """Return the plan of a job whose embeddings are computed at the read.

    Raises: UsageError for a model that has no such jobs.
    """
    try:
        return inner_plan(plan)
    except ModelError as error:
        msg = f"--embeddings {ASKED}: {error}"
        raise UsageError(msg) from None


def _refuse_server(flight_port: int | None, out: Path, plan: AnyPlan) -> None:
    """Refuse the one server of --flight-port where the model returns several kinds of vertices.

    Raises: UsageError.
    """
    names = names_of_returned(plan)
    if flight_port is not None and len(names) > 1:
        msg = (
            f"--flight-port: the model returns {len(names)} kinds of vertices ({', '.join(names)}), and a server has "
            f"the embeddings of one; leave it out, and start `freshet serve --tables {out}/tables --kind "
            f"{names[0]}`, and so for each"
        )
        raise UsageError(msg)


def parts_of(config: RunConfig, layers: int) -> int:
    """Return the number of a new job's parts: where none is given, a layer has a part for each subtask.

    Raises: UsageError where --pipeline does not fit.
    """
    if config.layer_parallelism is not None:
        check_layers(config.layer_parallelism, layers)
    if config.runtime != "flink":
        return config.part_count
    division = division_of(*config.processes, layers, config.part_count)
    return config.parts if config.parts is not None else max(division.by_layer)


def as_the_snapshot_was_made(config: RunConfig) -> RunConfig:
    """Return a new job's options, where not given those that its snapshot's state was made with; say which.

    Raises: UsageError where the job can't have that many parts.
    """
    rules = GraphRules(**option_values(config, GraphRules))
    made = None if config.snapshot is None or config.embeddings == ASKED else made_for(config.snapshot, rules)
    if made is None:
        if config.snapshot is not None and rules.is_timed and MadeImage.of(config.snapshot) is not None:
            say("snapshot: its state was made without times of events, so it is computed once more")
        return config
    taken = {name: value for name, value in made.options().items() if name not in config.model_fields_set}
    if config.runtime == "flink":
        layers = len(load_plan(str(config.model.absolute())).layers)
        fit_parts(config, taken.get("parts", config.part_count), layers)
    defaults = config.model_copy(update={"parts": config.part_count})
    if new := {name: value for name, value in taken.items() if value != getattr(defaults, name)}:
        say(f"snapshot: its state was made with {in_words(new)}, which this job takes over")
    return config.model_copy(update=taken)


def fit_parts(config: RunConfig, parts: int, layers: int) -> None:
    """Refuse processes that leave a layer more subtasks than a snapshot's state has parts.

    Raises: UsageError, with what would fit.
    """
    made_with = f"--snapshot {config.snapshot}: its state was made with --parts {parts}"
    if config.layer_parallelism is not None and max(config.layer_parallelism) > parts:
        msg = f"{made_with}; give a --layer-parallelism up to that"
        raise UsageError(msg)

    def fits(parallelism: int) -> bool:
        return parallelism // (config.pipeline or pipeline_of(parallelism, None, layers, parts)) <= parts

    if (config.layer_parallelism is not None or fits(config.parallelism)) and parts <= FLINK_PARTS_MAX:
        return
    fitting = (n for n in range(config.parallelism, 0, -(config.pipeline or 1)) if fits(n))
    expected = f"--parallelism {next(fitting)}" if parts <= FLINK_PARTS_MAX else "--runtime local"
    msg = f"{made_with}; give {expected}"
    raise UsageError(msg)


def plan_to_run(model: Path, *, undirected: bool) -> AnyPlan:
    """Return the plan of a new job's model.

    Raises: KindsError for edges between two kinds that are to be undirected; ModelError.
    """
    plan = load_plan(str(model.absolute()))
    if not isinstance(plan, KindsPlan):
        return plan
    assert plan.features.kinds is not None  # as each such model has them
    plan.features.kinds.mirrors(undirected=undirected)
    return plan


def refuse_splits(plan: AnyPlan, parts: int, strategy: str) -> None:
    """Refuse parts that vertices are split among, where an aggregate cannot merge what they make.

    Raises: UsageError naming the layer, and what would do.
    """
    if parts > 1 and strategy not in SPLITTING_NONE and (found := unmerged(plan)):
        name = found[0].synopsis.name
        if running_of(found[0]) is not None:
            raise UsageError(no_merge(name))
        msg = f"{name} reads all in-edges of a vertex at once, which must lie in one part: run with --parts 1, or with "
        raise UsageError(msg + "--partitioner locality or hash, which split no vertex")


def unchecked_in_words(plan: AnyPlan) -> list[str]:
    """Return lines about layers of a user's that were not tried when the model was exported, or less than is usual."""
    if not plan.checks and any(map(is_own, aggregated(plan))):
        return [
            "model: its export tried none of its layers of your own, so a wrong declaration makes wrong embeddings; "
            "`freshet layer check` tries them"
        ]
    found = [(layer.place, one) for layer in plan.checks for one in layer.answers if one.is_cut_short]
    return [f"model: {place}, {one.claim}: {one.words} ({one.case})" for place, one in found]


def learned_ids(plan: AnyPlan, found: Mapping[str, str | None]) -> str | None:
    """Return the kind of ids that a model has learned rows of; None where it has none.

    `found`: the kinds of ids that a job has, by the option that says so.
    Raises: UsageError where the job has others, none of which would be found.
    """
    rows = learned_rows_of(plan)
    if not rows:
        return None
    kind = STRING if rows[0].of_strings else INT
    for what, other in found.items():
        if other not in (None, kind):
            msg = f"{what}: {other} ids, but the model has learned rows of {kind} ids; export it with ids= of the job's"
            raise UsageError(msg)
    return kind
