"""Starting a Java process of Flink: its command line, its log, and a life tied to ours."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from freshet.job.machine.java import PATIENT_START
from freshet.job.machine.processes import STOPS, die_with_parent
from freshet.job.machine.python_path import python_environ

_LOG4J = """rootLogger.level = ${env:FRESHET_FLINK_LOG_LEVEL:-INFO}
rootLogger.appenderRef.file.ref = file
appender.file.name = file
appender.file.type = RollingFile
appender.file.fileName = ${sys:log.file}
appender.file.filePattern = ${sys:log.file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-40.40c{1} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 50MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""
_FIRST_HEAP_MB = 512
# Blocks live as long as an epoch. Left to itself the collector takes ever new memory for them, and most of its cost is
# the kernel's, for pages set to zero (an eighth of all CPU time with two processes).
_YOUNG_MB = 128


def start_java(
    main: Sequence[str],
    heap_mb: int,
    log: Path,
    output: Path,
    scratch: Path,
    environ: Mapping[str, str],
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a class of Flink, with `main` its name and arguments; it ends with the thread that calls this.

    Flink's log goes to the file `log`, what the process itself says to `output`, and what it unpacks to the folder
    `scratch`, which the caller takes away: it is killed in the end. `options` are further ones of Java.
    Its standard input stays open as long as we live.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log4j = log.with_name("log4j.properties")
    if not log4j.is_file() or log4j.read_text(encoding="utf-8") != _LOG4J:
        log4j.write_text(_LOG4J, encoding="utf-8")
    env = python_environ(environ)
    own = [f"-Djava.io.tmpdir={scratch}", f"-Dlog.file={log}", f"-Dlog4j.configurationFile={log4j}"]
    command = [*java_and_memory(env, heap_mb), *options, *own]
    with output.open("ab") as said:
        return subprocess.Popen(
            [*command, "-cp", _class_path(env), *main],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=env,
            preexec_fn=tie_to_parent,
        )


def tie_to_parent() -> None:
    """Let the child, before exec, die with its parent, and leave the terminal's signals to it.

    Blocked, since ignored is not enough: polars sets a handler of SIGINT when it is imported, whatever was there, and
    then a Ctrl-C would end the file that a Sink is writing by KeyboardInterrupt, and with it the attempt.
    """
    die_with_parent()
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)  # else Java would take it, and out of the mask
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)


def java_and_memory(env: dict[str, str], heap_mb: int) -> list[str]:
    """Return the command of Java with what the machine gives it; JVM_ARGS of `env` wins over what we set."""
    from pyflink import pyflink_gateway_server as server

    server.prepare_environment_variables(env)
    return [
        str(Path(env["JAVA_HOME"]) / "bin" / "java"),
        # Java only moves bytes here: its second compiler costs more than it brings (measured on two cores: 3 s of start
        # and 4% of the throughput). JVM_ARGS can take it back.
        "-XX:TieredStopAtLevel=1",
        PATIENT_START,
        *env.get("JVM_ARGS", "").split(),
        f"-Xms{min(heap_mb, _FIRST_HEAP_MB)}m",
        f"-Xmx{heap_mb}m",
        f"-Xmn{min(heap_mb // 4, _YOUNG_MB)}m",
        "-XX:+UseG1GC",
        "-XX:G1HeapRegionSize=8m",  # blocks of a megabyte are ordinary objects then
        "-XX:+UseTransparentHugePages",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+IgnoreUnrecognizedVMOptions",
        "--add-opens=jdk.proxy2/jdk.proxy2=ALL-UNNAMED",
        *server.get_jvm_opts(env),
    ]


def _class_path(env: dict[str, str]) -> str:
    from pyflink import pyflink_gateway_server as server

    return str(server.construct_flink_classpath(env))


def end_java(process: subprocess.Popen[bytes]) -> None:
    """End a Java process by force: call it when the job is over, its shutdown hooks would only take seconds."""
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def last_line(path: Path) -> str:
    """The last line that a process said."""
    lines = path.read_text(errors="replace").strip().splitlines() if path.is_file() else []
    return lines[-1] if lines else ""
