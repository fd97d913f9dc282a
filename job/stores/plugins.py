"""Flink's plugins in the processes that a run starts; the one for S3 is fetched only where a run needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from freshet.job.errors import JobFailed
from freshet.job.machine.artifacts import PLUGINS, make_plugins, s3_jars

_SCHEMES = "s3://", "s3a://"
_KEYS = "s3.", "s3a.", "presto.s3."


def is_on_s3(place: str) -> bool:
    """Return whether a place is in a store that speaks S3."""
    return place.startswith(_SCHEMES)


def wanted_plugins(options: Mapping[str, str], places: Iterable[str | None]) -> list[Path]:
    """Return the jars of the plugin for S3, fetched if need be: a place of the run is on S3, or an option is for it.

    Raises: ArtifactError when it is needed and can't be fetched; UsageError for a mirror that can't be used.
    """
    needed = any(map(is_on_s3, filter(None, places))) or any(key.startswith(_KEYS) for key in options)
    return s3_jars() if needed else []


def plugins_environ(folder: Path, jars: Sequence[Path]) -> dict[str, str]:
    """Make the folder of plugins, that for S3 among them; return what Java's environment needs to find it."""
    make_plugins(folder, jars)
    return {PLUGINS: str(folder)}


def open_file_systems(options: Mapping[str, str]) -> None:
    """Have the file systems of plugins opened by these options, in the process that PyFlink talks to.

    Raises: JobFailed where a plugin can't be loaded.
    """
    from py4j.protocol import Py4JJavaError
    from pyflink.common import Configuration
    from pyflink.java_gateway import get_gateway

    config = Configuration()
    for key, value in options.items():
        config.set_string(key, value)
    core = get_gateway().jvm.org.apache.flink.core
    try:
        plugins = core.plugin.PluginUtils.createPluginManagerFromRootFolder(config._j_configuration)
        core.fs.FileSystem.initialize(config._j_configuration, plugins)
    except Py4JJavaError as error:
        msg = f"Flink's plugins can't be loaded: {error.java_exception}"
        raise JobFailed(msg) from error
