"""`freshet` with faults: `python -m tests.support.runs.faulty run ...` takes the same options and obeys FRESHET_FAULTS.

FRESHET_FAULTS is a JSON object:
    slow    {operator: milliseconds}: each of its acts (of the parser: each chunk) takes so much longer
    lull    the number of a chunk of files: it and all after it take 3 s each, so that the stream outlasts what a test
            does meanwhile, on a slow machine too
    placed  milliseconds: once the topology of a snapshot is placed, the job goes on so much later
    hurry   a file: once it is there, nothing is slow any more
    fail    [{"operator", "part", "epoch", "folder"}]: the act on that epoch raises after it has computed, once (a file
            in `folder` says that it has)
    pass    milliseconds: `freshet embed` goes on so much later after each pass of a layer
    late    milliseconds: the parts of the Sink are closed so much later, one after the other, and nobody waits for it
    chunk   lines of the input, or messages of a topic, that are read at a time at most: a barrier passes between two
            chunks only
    discovery   milliseconds between two looks for partitions that were added to a topic, such as "1000"
    broken  a recovery that is wrong: "offset" skips the first message after a restart, "page" never writes one page of
            a layer's state, "cut" ignores what the cut log has beyond the state; or a Parser that is wrong: "deaf"
            drops half of all deletions without a word
    cuts    the cut log of another job: this one, which is new, cuts its epochs as that one did
The stages are those of `operators.factory`, wrapped.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from freshet.operators import factory
from freshet.operators.dataflow import PARSER, PARTITIONER, SINK
from tests.support.kafka.batches import batch_of, messages_of
from tests.support.simulation.left_out import LeavesPagesOut
from tests.support.stages.checked import check_stages
from tests.support.stages.cuts import lay

check_stages()  # in the processes of Flink, too, which import this module

FACTORY = "tests.support.runs.faulty:make_stage"
_LULL_S, _LOOK_S = 3.0, 0.05


def _faults() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("FRESHET_FAULTS", "{}"))
    return found


def _dawdle(seconds: float) -> None:
    """Let that time pass, or less as soon as there is hurry."""
    hurry, end = Path(_faults().get("hurry", "")), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not hurry.is_file():
        time.sleep(min(left, _LOOK_S))


def make_stage(config: dict[str, Any], operator: str, part: int) -> Any:
    """A stage of the real factory that is slow or fails where FRESHET_FAULTS says so."""
    stage, faults = factory.make_stage(config, operator, part), _faults()
    slow_s = faults.get("slow", {}).get(operator, 0) / 1e3
    mine = [fault for fault in faults.get("fail", []) if (fault["operator"], fault["part"]) == (operator, part)]
    _break(stage, operator, faults.get("broken", ""), Path(config["out"]))
    if operator == PARSER or (operator.startswith(f"{PARSER}-") and slow_s):
        name = "parsed" if hasattr(stage, "parsed") else "parse"  # of files, by both runtimes; of a topic
        parse = getattr(stage, name)

        def slow_parse(given: Any) -> Any:
            _dawdle(_LULL_S if operator == PARSER and given >= faults.get("lull", given + 1) else slow_s)
            return parse(given)

        setattr(stage, name, slow_parse)
        return stage
    if operator == SINK and "late" in faults:
        _close_late(stage, (1 + part) * faults["late"] / 1e3)
    if not (slow_s or mine):
        return stage
    act = stage.act

    def faulty_act(blocks: list[bytes]) -> Any:
        _dawdle(slow_s)
        outcome = act(blocks)
        for fault in mine:
            done = Path(fault["folder"]) / f"failed-{operator}-{part}-{fault['epoch']}"
            if stage.epoch >= fault["epoch"] and not done.exists():
                done.touch()
                msg = f"on purpose, at epoch {stage.epoch}"
                raise RuntimeError(msg)
        return outcome

    stage.act = faulty_act
    return stage


def _close_late(stage: Any, late_s: float) -> None:
    """As when Flink drops a function after its job has ended."""
    close = stage.core.close

    def late_close() -> None:
        time.sleep(late_s)
        close()

    # not a daemon's: the process is to be killed before this is done
    stage.core.close = lambda write=True: threading.Thread(target=late_close).start()


def _break(stage: Any, operator: str, broken: str, out: Path) -> None:
    if broken == "offset" and operator.startswith(f"{PARSER}-"):
        began = out / "job" / "began-before"
        if began.exists():
            _skip_one(stage)
        began.touch()
    elif broken == "deaf" and operator.startswith(PARSER):
        rules = stage._parser._rules
        append = rules.append

        def deaf(record: Any, builder: Any, position: int) -> str | None:
            is_deletion = isinstance(record, dict) and str(record.get("op")).startswith("del_")
            vertex = record.get("id", record.get("src")) if is_deletion else 0
            if isinstance(vertex, int) and vertex % 2:
                return None
            return append(record, builder, position)

        rules.append = deaf
    elif broken == "page" and operator == "storage1":
        stage.sweeper.__class__ = LeavesPagesOut
        stage.sweeper.left_out = "s/0"
    elif broken == "cut" and operator == PARTITIONER:
        restore = stage.restore

        def forgetful(items: Any) -> None:
            restore(items)
            stage.log.last = max(stage.epoch, stage.progress.epoch)

        stage.restore = forgetful


def _skip_one(stage: Any) -> None:
    parse = stage.parse

    def skip(batch: bytes) -> Any:
        stage.parse = parse
        _, *others = messages_of(batch)
        return parse(batch_of(others))

    stage.parse = skip


def _pause_after_passes(seconds: float) -> None:
    from freshet.operators.embed.embedding import Embedding
    from freshet.operators.embed.engine import LAYER
    from freshet.operators.embed.files import FinishedSteps

    do = Embedding.do

    def do_and_pause(embedding: Embedding, name: str) -> dict[str, int]:
        is_new = FinishedSteps(embedding._work).get(name) is None
        found = do(embedding, name)
        if is_new and name.startswith(LAYER):
            _dawdle(seconds)
        return found

    Embedding.do = do_and_pause  # type: ignore[method-assign]


def main() -> None:
    """Run the command line with these stages."""
    from freshet.job import cli
    from freshet.job.kafka import flink_topics
    from freshet.job.local import runtime
    from freshet.job.run import runner
    from freshet.operators.initial import image
    from freshet.operators.parser import files

    faults = _faults()
    files.CHUNK_LINES = faults.get("chunk", files.CHUNK_LINES)
    flink_topics.BATCH_MESSAGES = faults.get("chunk", flink_topics.BATCH_MESSAGES)
    if "cuts" in faults:
        prepare = runner.prepare

        def prepare_with_cuts(config: Any, out: Path) -> Any:
            job = prepare(config, out)
            lay(Path(faults["cuts"]), Path(job.settings.cuts.folder), job.settings.job_id)
            return job

        runner.prepare = prepare_with_cuts
    if "placed" in faults:
        place = image.place_graph

        def place_late(*args: Any) -> Any:
            found = place(*args)
            _dawdle(faults["placed"] / 1e3)
            return found

        image.place_graph = place_late
    if "pass" in faults:
        _pause_after_passes(faults["pass"] / 1e3)
    if "discovery" in faults:
        options_of = flink_topics.source_options
        interval = {"partition.discovery.interval.ms": faults["discovery"]}
        flink_topics.source_options = lambda *args: options_of(*args) | interval
    specify = runner.spec_of
    runner.spec_of = lambda *args: specify(*args).model_copy(update={"factory": FACTORY})
    runtime.make_stage = make_stage
    cli.main()


if __name__ == "__main__":
    main()
