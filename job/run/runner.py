"""`freshet run`: starts a job or takes it up again, runs it on Flink or locally, and sums it up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from freshet.files.whole import remove_all_left_behind
from freshet.gnn.any_plan import learned_rows_of
from freshet.gnn.model import SPEC_FILE
from freshet.job.console import ProgressDisplay, Stats, say
from freshet.job.errors import EXIT_DONE, JobFailed, one_line
from freshet.job.flink.checkpoints import prune
from freshet.job.flink.job_run import JobRun, NotOverError, RunResult
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.pipeline import Division, division_of, groups_max, parts_by_subtask
from freshet.job.folder import layout, run_file
from freshet.job.lifecycle.ending import spec_of_cluster_job
from freshet.job.lifecycle.summary import StartUp, complete_epoch, live_remarks, profile, progress
from freshet.job.local.malloc import give_freed_memory_back
from freshet.job.machine.kernels import Jobs, are_ready, compile_ahead, progress_line
from freshet.job.machine.processes import stop_signals
from freshet.job.options.flink_keys import of_processes, resolve
from freshet.job.options.run_config import RunConfig, option_values
from freshet.job.options.runtime_options import AUTO, FLINK_PARTS_MAX
from freshet.job.run.early_ends import ended_by_signals, failure_noted
from freshet.job.run.job_states import FormerCheckpoints, JobStates
from freshet.job.run.model import parts_of, plan_to_run, refuse_splits
from freshet.job.run.new_job import Job, prepare
from freshet.job.run.outputs import note_topics, watch_topics
from freshet.job.run.resume import attach, resume, state_to_resume
from freshet.job.run.session import JobPlan, Running, plan_job, sum_up
from freshet.job.run.sources import Processes, file_readers_of, readers_of
from freshet.job.run.watching import Lag, LevelWatch, RejectWatch
from freshet.job.stores.job_artifacts import put_artifacts
from freshet.operators.factory import load_plan, plan_of
from freshet.operators.snapshot.reader import id_kind_of
from freshet.operators.telemetry.figures import UNLEARNED
from freshet.operators.telemetry.load import Window
from freshet.operators.telemetry.recent import EVENTS_S
from freshet.state.task_parts import DENSE_PARTS


def run(config: RunConfig, *, in_application: bool = False) -> int:
    """Run a job to its end; returns the exit code. The last line on stdout is the summary.

    `in_application`: Flink has started this program, and the job is its application's.
    Raises: UsageError for wrong use or a bad input file; JobFailed with the root cause.
    """
    out, clock = config.out.absolute(), StartUp()
    with ended_by_signals(out), failure_noted(out):
        return start(plan_job(config, in_application=in_application), clock).wait()


def start(plan: JobPlan, clock: StartUp) -> Running:
    """Prepare the job of a plan; the returned one runs, or is watched, in its `wait`.

    Raises: UsageError for options, a model or events that do not fit; InputError for a bad input file.
    """
    return _attached(plan, clock) if plan.attaches else _started(plan, clock)


def _started(plan: JobPlan, clock: StartUp) -> Running:
    """Begin a job, or go on with one that has stopped."""
    config, out = plan.config, plan.out
    if config.runtime == "local" and config.memory_bytes is not None:
        give_freed_memory_back()
    _warm_up(config)
    config, job = resume(config, out, is_over=plan.is_over) if config.resume else (config, prepare(config, out))
    # A server may be at work in tables/, a compaction in embeddings/, which removes its own, as the Sink does.
    remove_all_left_behind(out, but=(layout.TABLES, layout.EMBEDDINGS, layout.INNER))
    attempt = {"run": job.settings.run, "epoch": complete_epoch(out)}
    run_file.update_run(out, attempt=attempt, what_if=config.what_if)
    if job.outputs.seen:
        note_topics(out, job.outputs.seen)
    if config.embeddings_from_start:
        from freshet.job.run.topic_start import put_start  # which loads a client of Kafka

        put_start(job, config.client_properties, out)
    processes = config.processes_at_most if config.runtime == "flink" else 1
    file_readers = file_readers_of(job.sources, config.readers, processes)
    ends = job.sources.lane_ends if job.settings.sealing.epoch_event_time_ms else ()
    job = replace(job, settings=replace(job.settings, file_readers=file_readers, lane_ends=ends))
    running = Running(job, out, clock, RejectWatch(out, job.settings.letters.target, config.max_rejected))
    if plan.is_over:
        return replace(running, to_its_end=partial(_leave_over, plan), has_end=False)
    took = clock.reached("prepared")
    say(f"prepared in {took:.1f} s: {job.settings.parts} parts, {job.sources}")
    if config.runtime == "local":
        if idle := [key for key in config.flink if not key.startswith("s3.")]:
            say(f"-D {', '.join(idle)}: no effect with --runtime local, which runs no Flink")
        return replace(running, to_its_end=_run_local, **config.served(are_asked=bool(job.settings.inner_widths)))
    if not config.resume:
        say(_growth(job.settings.parts, len(plan_of(job.settings).layers)))
    states = JobStates(out, job.settings.job_id, config.checkpoint_dir, "--resume", config.flink)
    spec = spec_of(job, config, states)
    if config.detach:
        end = partial(_submit, spec, config.resume, config.max_rejected)
        return replace(running, to_its_end=end, has_end=False)
    run_file.update_run(out, resumed=config.resume)
    begin = _application(recovered=False) if plan.in_application else None
    end = partial(run_on_flink, spec, FormerCheckpoints(spec, config.resume, states), begin)
    return replace(running, to_its_end=end, **config.served(are_asked=bool(job.settings.inner_widths)))


def _attached(plan: JobPlan, clock: StartUp) -> Running:
    """Watch a job that runs on a cluster, as the process that started it did."""
    from freshet.job.flink.runtime import attach_job

    out, former = plan.out, plan.former
    assert former is not None
    config, job = attach(plan.config, out)
    secret = {"user_options": resolve(config.flink), "kafka_properties": dict(config.client_properties)}
    spec = spec_of_cluster_job(out).model_copy(update={"cluster": former.run["cluster"], **secret})
    say(f"the job runs: {former.detail}; this command attaches to it and starts no other one")
    rejects = RejectWatch(out, job.settings.letters.target, config.max_rejected)
    running = Running(
        job, out, clock, rejects, **config.served(are_asked=bool(job.settings.inner_widths)), is_own=False
    )
    if config.detach:
        return replace(running, to_its_end=_leave, flight_port=None, has_end=False)
    states = JobStates(out, job.settings.job_id, config.checkpoint_dir, "--resume", config.flink)
    checkpoints = FormerCheckpoints(spec, former.run.get("resumed"), states)
    begin = _application(recovered=True) if plan.in_application else attach_job
    return replace(running, to_its_end=partial(run_on_flink, spec, checkpoints, begin))


def _leave_over(plan: JobPlan, running: Running) -> int:
    """Leave a job that has taken in all of its input as it is; returns the exit code."""
    if plan.in_application:
        from freshet.job.flink.application import execute_nothing

        execute_nothing()
    code = running.rejects.verdict(sum_up(plan.out), EXIT_DONE)
    say(f"nothing left to do: the job in {plan.out} has taken in all of its input")
    return EXIT_DONE if plan.config.resume == AUTO else code  # whoever starts it again and again is to cease


def _application(*, recovered: bool) -> Callable[..., RunResult]:
    """Return what runs the job inside a Flink application; `recovered`: its JobManager has the job already."""
    from freshet.job.flink.application import run_application

    return partial(run_application, recovered)


def _growth(parts: int, layers: int) -> str:
    """Describe how far a new job can grow, since its parts stay as they are."""
    stages = groups_max(layers)
    most = min(parts * stages, FLINK_PARTS_MAX)
    of = f"{parts} parts" if parts > 1 else "1 part"
    return f"at most {most} processes for this job's life: {of} (--parts), {stages} stages of layers"


def _submit(spec: JobSpec, resume: str | None, max_rejected: float | None, running: Running) -> int:
    """Submit a job to a cluster and leave; `resume` and `max_rejected` are the options."""
    from freshet.job.flink.runtime import submit_job

    Lag(running.out, running.job.sources)  # notes for `freshet status` where the input begins
    run_file.update_run(running.out, resumed=resume)
    submit_job(spec)
    running.clock.reached("job_submitted")
    run_file.update_run(running.out, startup_seconds=running.clock.seconds)
    if max_rejected is not None:
        say("--max-rejected: only a command that watches the job checks it; --resume latest attaches one")
    return _leave(running)


def _leave(running: Running) -> int:
    """Say where the job is that goes on without this process."""
    run = run_file.read_run(running.out)
    say(f"job {run['job_id']} goes on without this command; Flink UI at http://{run['rest']}")
    print(orjson.dumps({name: run[name] for name in ("job_id", "flink_ui", "cluster")}).decode(), flush=True)
    return EXIT_DONE


def _warm_up(config: RunConfig) -> None:
    """Compile what this job needs, in several processes, where that was not done yet on this machine."""
    jobs = None  # a job that goes on has its model in its folder
    if config.model is not None and (config.model / SPEC_FILE).is_file():
        graph = None if config.resume or config.cast_ids else config.snapshot
        kind = config.id_kind if graph is None else id_kind_of(graph)
        plan = plan_to_run(config.model, undirected=config.undirected)
        parts, to_topic = parts_of(config, len(plan.layers)), config.embeddings_to is not None
        if not config.resume:
            refuse_splits(plan, parts, config.strategy)
        jobs = Jobs(config.model, parts > 1, kind, to_topic=to_topic, many_parts=parts > DENSE_PARTS)
    if not are_ready(jobs):
        say("compiling kernels, once per machine: about twenty seconds on two cores (see `freshet warm-up`)")
        try:
            with ProgressDisplay() as bar:
                compile_ahead(lambda done, total: bar.update(progress_line(done, total)), jobs)
        except JobFailed as error:
            say(f"{error}; the job will compile by itself what it needs, which takes longer")


def _watch(running: Running, lag: Lag, bar: ProgressDisplay) -> Callable[[], None]:
    """A callback that shows the newest figures, at most five times a second."""
    job, out, clock, rejects = running.job, running.out, running.clock, running.rejects
    last, window = [0.0], Window(EVENTS_S)
    said = set() if learned_rows_of(load_plan(job.settings.model)) else {UNLEARNED}
    before = progress(out)["epochs"]

    def update() -> None:
        now = time.monotonic()
        if now - last[0] < 0.2:
            return
        last[0] = now
        figures = progress(out)
        events = figures["events"]
        for name, words in live_remarks(out, said):
            said.add(name)
            say(words)
        if figures["epochs"] > before:
            clock.reached("first_epoch")
        bar.update(
            Stats(
                events=events,
                events_per_s=window.rates(now, {"events": events})["events"],
                epoch=figures["epoch"],
                rows=figures["rows"],
                lag_events=lag.of(events),
                rejected=rejects.look(),
                **{name: figures[name] for name in Stats._fields if name in figures and "_ms_p" in name},
            )
        )

    return update


def _run_local(running: Running) -> int:
    from freshet.job.local.runtime import LocalRuntime

    job, out = running.job, running.out
    from freshet.job.run.early_ends import bounded_stop

    def drop(number: int) -> None:
        """End the process at a signal, whatever is at work."""
        try:
            bar.close()
            epoch, ended = complete_epoch(out), {"ended_ms": _now_ms(), "startup_seconds": running.clock.seconds}
            run_file.update_run(out, state=run_file.STOPPED, epoch=epoch, **ended)
            say(f"stopped amid an epoch; {_go_on_after(epoch)}, which computes that epoch again")
            sum_up(out)
        finally:
            os._exit(128 + number)

    runtime = LocalRuntime(job.settings, len(job.sources.chunks), out / layout.STATE)
    with stop_signals() as caught:  # also of a job that ends just then, until that is recorded
        with ProgressDisplay() as bar, bounded_stop(caught, drop):
            tried = job.settings.run
            run_file.update_run(out, state=run_file.RUNNING, runtime="local", started_ms=_now_ms(), tried=tried)
            update = _watch(running, Lag(out, job.sources), bar)

            def on_progress() -> None:
                if caught or running.rejects.is_too_much():
                    runtime.stop()
                update()

            try:
                finished = runtime.run(on_progress, bar.update)
            except Exception as error:
                run_file.update_run(out, state=run_file.FAILED, error=one_line(error), ended_ms=_now_ms())
                raise JobFailed(one_line(error)) from error
        seconds = {name: round(value, 3) for name, value in runtime.times.seconds.items()}
        state, epoch = run_file.FINISHED if finished else run_file.STOPPED, complete_epoch(out)
        ended: dict[str, Any] = {
            "profile_seconds": seconds,
            "memory_bytes": runtime.memory_bytes,
            "ended_ms": _now_ms(),
        }
        run_file.update_run(out, state=state, epoch=epoch, sums=runtime.sums, **ended)
    if not finished:
        say(f"stopped; {_go_on_after(epoch)}")
    return 128 + caught[0] if caught and not finished else EXIT_DONE


def _go_on_after(epoch: int) -> str:
    return f"the output is complete up to epoch {epoch}; go on with --resume latest"


def run_on_flink(
    spec: JobSpec, former: FormerCheckpoints, begin: Callable[..., RunResult] | None, running: Running
) -> int:
    """Have a job run to its end; `begin` starts it, or attaches to it (None: `run_job`)."""
    from freshet.job.flink.runtime import run_job

    out = spec.out_path
    levels = LevelWatch(out)

    def started(run: JobRun) -> None:
        former.own_checkpoint, former.own_away = lambda: run.own_checkpoint, lambda: run.own_away
        levels.network_bytes = run.network_bytes
        running.clock.reached("job_submitted")
        say(f"job {run.job_id}; Flink UI at http://{run.rest_address}")

    sources, topics = running.job.sources, watch_topics(running.job.outputs, spec.kafka_properties)
    with ProgressDisplay() as bar, Lag(out, sources) as lag, topics:
        try:
            update = _watch(running, lag, bar)

            def watch() -> None:
                update()
                levels.look()
                former.look()

            begun = begin or (run_job if spec.cluster is None else partial(run_job, waiting=bar.update))
            result = begun(spec, started, watch, _tell_restart, running.rejects.is_too_much)
        except NotOverError:  # the job goes on
            raise
        except JobFailed as error:
            cause = former.explained(one_line(error))
            run_file.update_run(out, state=run_file.FAILED, error=cause, ended_ms=_now_ms())
            raise JobFailed(cause) from error
    epoch = complete_epoch(out)
    run_file.update_run(out, epoch=epoch, levels=levels.as_dict(), **profile(out))
    if not result.job_id:
        say("stopped before the job was submitted; go on with --resume latest")
    elif result.state == run_file.STOPPED:
        how = f"with savepoint {result.savepoint}" if result.savepoint else "by someone else"
        say(f"stopped {how}; the output is complete up to epoch {epoch}")
    else:
        prune(spec.checkpoints, keep=None)
        former.prune_away(keep=())
        former.replace_last(result.savepoint)
    return 128 + result.signal if result.signal else EXIT_DONE


def _tell_restart(cause: str) -> None:
    say(f"restarted after: {cause}", "warning")


def spec_of(job: Job, config: RunConfig, states: JobStates) -> JobSpec:
    """Return what the Flink job is built from; `states` are those of the job.

    Raises: UsageError where the state that `--resume` names isn't there, or is another job's.
    """
    layers = len(plan_of(job.settings).layers)
    division = division_of(*config.processes, layers, job.settings.parts)
    if shares := division.words():
        say(shares)
    if config.cluster is not None and (idle := of_processes(config.flink)):
        say(f"-D {', '.join(idle)}: no effect on the processes of --cluster, which have their own configuration")
    processes = Processes(division.processes, division.first_slots, division.differs or config.cluster is not None)
    readers = readers_of(job.sources.topics, config.readers, processes, resumes=config.resume is not None)
    place, flink = layout.checkpoint_dir_of_job(config.checkpoint_dir, states.job_id) or "", resolve(config.flink)
    artifacts = "" if config.cluster is None else put_artifacts(job.settings, place, flink)
    found = {
        "name": layout.name_of_job(config.name, states.out),
        "parallelism": division.processes,
        "pipeline": division.groups,
        "layer_parallelism": division.by_layer if division.differs else None,
        "out": str(states.out),
        "parts": job.settings.parts,
        "layers": layers,
        "stage": replace(
            job.settings, **_tasks(division, job.settings.parts), readers=readers, artifacts=artifacts
        ).to_dict(),
        "chunks": len(job.sources.chunks),
        "topics": job.sources.topic_specs,
        "topic_readers": readers,
        "embeddings_to": job.outputs.embeddings,
        "embeddings_by_kind": dict(job.outputs.by_kind),
        "letters_to": job.outputs.letters,
        "kafka_properties": dict(config.client_properties),
        "user_options": flink,
        "checkpoint_dir": place,
        "ends_with_state": not config.detach and any(topic.end is not None for topic in job.sources.topics),
        "resume": state_to_resume(config.resume, states) if config.resume else None,
    }
    return JobSpec(**option_values(config, JobSpec) | found)


def _tasks(division: Division, parts: int) -> dict[str, Any]:
    """Return the settings of how many parts each task of a layer has; the raw features are divided as layer 1 is."""
    first, *others = (parts_by_subtask(parts, count, FLINK_PARTS_MAX).counts for count in division.by_layer)
    return {"layer_tasks": (first, first, *others)} if division.differs else {"tasks": first}


def _now_ms() -> int:
    return int(time.time() * 1e3)
