"""A machine that has another Flink, another Java and other packages, as its environment says."""

from __future__ import annotations

from pathlib import Path

_JAVA = """#!/bin/sh
echo 'openjdk version "1.8.0_392"' >&2
[ "$1" = -version ]
"""
_CONFIG = 'env.java.opts.all: "-XX:NoSuchOption -Xmx16m"\njobmanager.rpc.address: nowhere\n'


def other_flink(folder: Path) -> dict[str, str]:
    """Variables that name a Flink, a Hadoop, a Java 8 and packages in this folder, none of which works."""
    flink, java, packages = folder / "flink", folder / "java", folder / "packages"
    for name in ("bin", "conf", "lib", "opt", "plugins"):
        (flink / name).mkdir(parents=True)
    (flink / "conf" / "config.yaml").write_text(_CONFIG)
    for jar in ("lib/flink-dist-1.17.2.jar", "opt/flink-python-1.17.2.jar"):
        (flink / jar).write_text("no jar")
    for name in ("numpy", "orjson", "py4j", "pyflink", "state", "typer"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").write_text(f"raise ImportError('another {name}')\n")
    (java / "bin").mkdir(parents=True)
    (java / "bin" / "java").write_text(_JAVA)
    (java / "bin" / "java").chmod(0o755)
    folders = {f"FLINK_{name.upper()}_DIR": str(flink / name) for name in ("bin", "conf", "lib", "opt", "plugins")}
    return folders | {
        "FLINK_HOME": str(flink),
        "FLINK_ENV_JAVA_OPTS": "-XX:NoSuchOption",
        "FLINK_LOG_DIR": "/nonexistent",
        "PYFLINK_GATEWAY_PORT": "9",
        "PYFLINK_GATEWAY_DISABLED": "1",
        "HADOOP_CLASSPATH": str(flink / "lib" / "*"),
        "HADOOP_CONF_DIR": str(flink / "conf"),
        "JAVA_HOME": str(java),
        "JAVA_TOOL_OPTIONS": "-Xmx16m -Dsome.property=1",
        "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -XX:+UseZGC",
        "_JAVA_OPTIONS": "-Xmx16m",
        "PYTHONPATH": str(packages),
    }
