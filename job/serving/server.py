"""`freshet serve`: follows a job, keeps its table, and answers over Arrow Flight and HTTP, until it is stopped."""

from __future__ import annotations

import faulthandler
import gc
import ipaddress
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NoReturn

from freshet.job.console import say
from freshet.job.errors import EXIT_DONE, UsageError
from freshet.job.machine.ports import free_port, try_to_bind
from freshet.job.machine.processes import allow_many_files, began_s, stop_signals
from freshet.job.serving.bounds.budget import Budget, shared_memory, unpack_few_at_once
from freshet.job.serving.doors.access import Access
from freshet.job.serving.doors.answering import Answering, Doors
from freshet.job.serving.doors.keeper import Keeper
from freshet.job.serving.doors.tokens import GivenToken
from freshet.job.serving.doors.worker import WorkerSettings
from freshet.job.serving.feeds.feed import ComingGraph, Feed, ServeOptions, feeds_of
from freshet.job.serving.tables import place
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.history import History, shared_history
from freshet.job.serving.tables.lookup import Lookup, joined
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.job.serving.view.sampler import Sampler

# What follows the job brings numba in, and HTTP a large framework: both are loaded when Flight answers already.
if TYPE_CHECKING:
    from freshet.job.serving.feeds.follower import Follower

FLIGHT_PORT, HTTP_PORT = 47470, 47480
_STDERR = 2  # the descriptor: what stands in for sys.stderr need have none
_RENEW_S = 1.0  # between two looks at which job other servers have
_TELL_S = 0.5  # between two tries to say where the server is
_SWITCH_INTERVAL_S = 5e-4  # threads that answer wait this long for the one that follows


def serve(options: ServeOptions) -> NoReturn:
    """Serve until SIGINT or SIGTERM, and end the process.

    Raises: UsageError when there is no job, another server, or a port that is taken.
    """
    faulthandler.enable(_STDERR)  # a crash in a library says where
    check_token(options)
    token_sources(options)  # before anything is waited for
    _check_host(options.host)
    if options.tokens and not is_loopback(options.host) and options.certificate is None:
        say(f"--host {options.host}: token and embeddings cross the network as they are; give --tls-cert and --tls-key")
    with stop_signals() as caught:

        def until() -> bool:
            return bool(caught)

        feeds = feeds_of(options, until)
        with ExitStack() as held:
            for feed in feeds:
                held.enter_context(place.only_server(feed.tables))
            allow_many_files()
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            for feed in feeds:
                place.withdraw_others(feed.job, feed.tables)
            tables = [CurrentTable(feed.tables, JobHere.of(feed.job)) for feed in feeds]
            graph = _graph_of(options, feeds, tables)
            lookup = joined([Lookup(one) for one in (tables if graph is None else graph.tables)])
            for one in lookup.each:
                one.hypotheses = None if graph is None else graph.answers
            left = [None if lookup.is_computed else place.left_behind(feed.job, feed.tables) for feed in feeds]
            for table, former in zip(tables, left, strict=True):
                if former is not None:
                    table.begin_with(former.path)
            health = Health(lookup, options.stale_after_s)
            followers: list[Follower] = []
            servers = _Servers(options, lookup, health, feeds)
            beside = None if graph is None else graph.opened()
            try:
                servers.start()
                gc.freeze()
                gc.enable()
                if all(left):
                    servers.announce()
                for table in tables:
                    table.go_on()
                _follow(feeds, followers, until, health)
                unpack_few_at_once()
                if not all(left):
                    servers.announce()
                if beside is not None:
                    beside.start()
                _compact_regularly(options, until)
                _go_on(feeds, followers, until)
            finally:
                if beside is not None:
                    beside.close()
                for follower in followers:
                    follower.close(forget=True)
                servers.stop()
    # Not through the interpreter's end: gRPC would wait there for streams that clients keep open, and threads that hear
    # other servers could crash as what they stand on is taken down.
    sys.stderr.flush()
    os._exit(EXIT_DONE)


def _graph_of(options: ServeOptions, feeds: Sequence[Feed], tables: Sequence[CurrentTable]) -> ComingGraph | None:
    """Return the graph of the job, where it is asked for or needed.

    Raises: UsageError where it is needed, and this server can't have it.
    """
    job = feeds[0].job
    if options.graph is not None:
        return options.graph(job, tables, options.kind)
    if job.inner_width:
        msg = (
            f"--tables {job.log.tables}: embeddings of this job are computed as they are read (--embeddings asked), by "
            "one process that has the job's input; serve it by --tables O/tables and --workers 1"
        )
        raise UsageError(msg)
    return None


def _follow(feeds: Sequence[Feed], followers: list[Follower], until: Callable[[], bool], health: Health) -> None:
    """Add the follower of each feed, whose table is readable on return; health has what they know."""
    health.trouble = lambda: next((one.trouble for one in followers if one.trouble), None)
    health.following = lambda: next((found for one in followers if (found := one.next_figures()) is not None), None)
    for feed in feeds:
        followers.append(feed.follower(feed.job))
        _start(followers[-1], until)


def _go_on(feeds: Sequence[Feed], followers: list[Follower], until: Callable[[], bool]) -> None:
    """Follow until `until` returns True, by the followers that take the place of those that are left behind."""
    from freshet.job.serving.feeds.together import follow

    def following(feed: Feed, former: Follower) -> Follower:
        left = former.is_left_behind and not until()
        return (_next_follower(feed, former, until) if left else None) or former

    while not until():
        follow(followers, until)
        for k, feed in enumerate(feeds):  # no name here keeps a former one, and with it its table's memory
            followers[k] = following(feed, followers[k])


def _start(follower: Follower, until: Callable[[], bool]) -> None:
    """Have the table be readable."""
    began = time.perf_counter()
    follower.start(until)
    if until():
        return
    took = time.perf_counter() - began
    how = "taken over as it stood" if follower.taken_over else f"loaded from {follower.origin}"
    say(f"table of {follower.table.path} {how} in {took:.2f} s, at epoch {follower.table.epoch}")


def _next_follower(feed: Feed, former: Follower, until: Callable[[], bool]) -> Follower | None:
    """Follow the job that has taken the place of the former one; until its table is there, readers have the former's.

    None where there is none after all.
    """
    if former.following is not None:
        former.give_way()
        return former.following
    job = feed.renewed(former.job)
    if job is None:
        time.sleep(_RENEW_S)
        return None
    if job.generation is None:
        say(
            f"the servers to feed from are of the job {job.job_id} now: its table takes the place of "
            f"{former.job.job_id}'s at epoch {former.seen}, which readers have seen; to begin with it earlier, start "
            "this server again"
        )
    else:
        say(f"generation {job.generation}: preparing the table of the job {job.job_id}")
    following = feed.follower(job)
    following.take_place_of(former)
    _start(following, lambda: until() or following.is_left_behind)
    if not following.is_readable:  # the server ends, or there is a third job
        following.close(forget=False)
        return None
    former.give_way()
    return following


def check_token(options: ServeOptions) -> None:
    """Look whether whoever reaches the server has to bear a token, or was let in on purpose.

    Raises: UsageError otherwise.
    """
    given = options.tokens
    if given and options.without_token:
        msg = f"--without-token: there is a token, of {next(iter(given))}; leave one of the two out"
        raise UsageError(msg)
    if not given and not options.without_token and not is_loopback(options.host):
        msg = (
            f"--host {options.host}: whoever reaches this machine would read all embeddings, the model and names of "
            "folders; give --token or FRESHET_TOKEN, or --without-token to let them"
        )
        raise UsageError(msg)


def token_sources(options: ServeOptions) -> tuple[GivenToken, ...]:
    """Return what gives the tokens of a server.

    Raises: UsageError for a file without a token.
    """
    rights = {"--read-token": Access.READ}
    return tuple(
        GivenToken.of(option, rights.get(option.partition(" ")[0], Access.ADMIN), value)
        for option, value in options.tokens.items()
    )


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host(host: str) -> None:
    """Raises: UsageError for one that nobody can listen at here."""
    try:
        try_to_bind(host)
    except (OSError, UnicodeError) as error:  # a name with an empty or a long part is no name
        why = error.strerror if isinstance(error, OSError) else "it is no name"
        msg = f"--host {host}: this machine can't listen there: {why}; give an address of it, such as 127.0.0.1"
        raise UsageError(msg) from None


def _port(wanted: int | None, default: int, host: str, option: str) -> int:
    if wanted is None:
        return free_port(default, host)
    if wanted and free_port(wanted, host) != wanted:
        msg = f"{option} {wanted}: the port is taken; give another one, or none for the next free one"
        raise UsageError(msg)
    return free_port(wanted, host)


class _Servers:
    """Servers of this process, and of the worker processes."""

    def __init__(self, options: ServeOptions, lookup: Lookup, health: Health, feeds: Sequence[Feed]) -> None:
        self._doors = _doors(options)
        processes = len(self._doors.flight_ports)
        shared, history = shared_memory(processes), shared_history()
        budget = Budget(0, processes, shared)
        lookup.as_server(budget)
        health.history = History(history)
        self._sampler = Sampler(lookup, health)
        self._answering = Answering(self._doors, 0, lookup, health)
        jobs = {str(feed.tables): feed.job.described() for feed in feeds}
        work = WorkerSettings(self._doors, 0, os.getpid(), jobs, options.stale_after_s, shared, history)
        self._tables, self._workers, self._is_announced = [feed.tables for feed in feeds], list[int](), False
        self._keeper = Keeper(work, self._changed, budget.forget, lambda: self._answering.tokens.sources)

    def start(self) -> None:
        """Answer over HTTP, too; Flight does so already. Workers follow."""
        self._answering.start()
        self._keeper.start()
        self._sampler.start()

    def announce(self) -> None:
        """Say where it answers."""
        self._is_announced = True
        self._write_or_wait()
        flight, http = self._places()
        scheme = "" if self._doors.cert else "http://"
        say(f"serving: Flight at {flight}, HTTP at {scheme}{http} (its API: /docs)")

    def stop(self) -> None:
        """Answer no more."""
        self._sampler.stop()
        self._keeper.stop()
        self._answering.stop()

    def _changed(self, workers: list[int]) -> None:
        self._workers = workers
        if self._is_announced:
            self._write_or_wait()

    def _write_or_wait(self) -> None:
        try:
            self._write()
        except OSError as error:  # a full disk: who knows the ports is served meanwhile
            say(f"{self._tables[0]}: {error.strerror}; clients do not find the server there until this has changed")
            threading.Thread(target=_until_done, args=(self._write,), name="freshet-announce", daemon=True).start()

    def _write(self) -> None:
        flight, http = self._places()
        more = {"workers": self._workers, "flights": self._doors.flights} if len(self._doors.flight_ports) > 1 else {}
        for tables in self._tables:
            place.write_server(tables, pid=os.getpid(), began_s=began_s(), flight=flight, http=http, **more)

    def _places(self) -> tuple[str, str]:
        """Flight and HTTP; with TLS as URIs, which clients take as they take HOST:PORT."""
        doors = self._doors
        flight, http = ("grpc+tls://", "https://") if doors.cert else ("", "")
        host = f"[{doors.host}]" if ":" in doors.host else doors.host
        return f"{flight}{host}:{doors.flight_ports[0]}", f"{http}{host}:{doors.http_port}"


def _until_done(write: Callable[[], None]) -> None:
    while True:
        time.sleep(_TELL_S)
        with suppress(OSError):
            write()
            return


def _doors(options: ServeOptions) -> Doors:
    host, found = options.host, options.certificate
    ports = [_port(options.port, FLIGHT_PORT, host, "--port")]
    http_port = _port(options.http_port, HTTP_PORT, host, "--http-port")
    while len(ports) < options.workers:
        following = free_port(ports[-1] + 1, host)
        ports.append(following if following != http_port else free_port(following + 1, host))
    cert, key = (None, None) if found is None else (str(found.cert.absolute()), str(found.key.absolute()))
    return Doors(host, tuple(ports), http_port, token_sources(options), cert, key, options.cors)


def _compact_regularly(options: ServeOptions, ended: Callable[[], bool]) -> None:
    if options.compact is None:
        return

    def run() -> None:
        assert options.compact is not None
        due = time.monotonic() + options.compact_every_s
        while not ended():
            time.sleep(0.5)
            if time.monotonic() >= due:
                try:
                    options.compact()
                except Exception as error:  # a full disk, say: serving goes on
                    say(f"--compact: {type(error).__name__}: {error}")
                due = time.monotonic() + options.compact_every_s

    threading.Thread(target=run, name="freshet-compact", daemon=True).start()
