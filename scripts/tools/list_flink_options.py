"""Rewrites job/options/flink_options.json from the installed Flink: `scripts/tools/list_flink_options.py`.

Every public constant of type ConfigOption in Flink's jars is asked for its key, its former keys and its type.
"""

import json
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from rich.progress import track

from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.machine.java import flink_home
from freshet.job.options.flink_keys import KEYS

OPTION = "org.apache.flink.configuration.ConfigOption"
# Classes whose options stand in the definition of a table, not in Flink's configuration.
OF_TABLES = re.compile(r"shaded|\.connectors?\.|\.formats?\.|\.table\.(factories|filesystem|gateway)|\.file\.table\.")
# What a value is checked for; whatever else an option has is text to Freshet.
CHECKED = {
    "java.lang.Boolean": "boolean",
    "java.lang.Integer": "integer",
    "java.lang.Long": "integer",
    "java.lang.Double": "number",
    "java.lang.Float": "number",
    "java.time.Duration": "duration",
    "org.apache.flink.configuration.MemorySize": "size",
}


def classes() -> list[str]:
    """The classes of Flink that name the type in their bytes."""
    found = set[str]()
    jars = [*(flink_home() / "lib").glob("flink-*.jar"), *(flink_home() / "opt").glob("flink-python*.jar")]
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                name = entry.removesuffix(".class").replace("/", ".")
                if name == entry or not name.startswith("org.apache.flink.") or OF_TABLES.search(name):
                    continue
                if b"configuration/ConfigOption;" in archive.read(entry):
                    found.add(name)
    return sorted(found)


def options_of(jvm: Any, name: str) -> dict[str, Any]:
    """The options that a class declares, by key, each with its type."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        declared = list(jvm.java.lang.Class.forName(name, False, loader).getFields())
    except Exception:  # a class whose own needs are not there
        return {}
    found: dict[str, Any] = {}
    for field in declared:
        if field.getType().getName() != OPTION or field.getDeclaringClass().getName() != name:
            continue
        try:
            option = field.get(None)
            get_class = option.getClass().getDeclaredMethod("getClazz", None)
            is_list = option.getClass().getDeclaredMethod("isList", None)
            for method in (get_class, is_list):
                method.setAccessible(True)
            kind = get_class.invoke(option, None)
            if is_list.invoke(option, None):
                told: Any = "text"
            elif kind.isEnum():
                told = [str(one.name()) for one in kind.getEnumConstants()]
            else:
                told = CHECKED.get(kind.getName(), "map" if kind.getName() == "java.util.Map" else "text")
            found[str(option.key())] = told
            for former in option.fallbackKeys():
                found.setdefault(str(former.getKey()), told)
        except Exception as error:
            print(f"{name}.{field.getName()}: left out: {str(error).splitlines()[0]}")
    return found


def is_key(key: str) -> bool:
    """Return whether it can stand in a configuration: not Flink's own, and no part of a name."""
    return (
        "$" not in key
        and "<" not in key
        and ("." in key or key in ("scheduler-mode", "restart-strategy", "high-availability"))
    )


def main() -> None:
    from pyflink.java_gateway import get_gateway

    with tempfile.TemporaryDirectory() as folder:
        java = start_gateway(Path(folder), Path(folder), 512)
        try:
            found: dict[str, Any] = {}
            for name in track(classes(), description="classes"):
                for key, told in options_of(get_gateway().jvm, name).items():
                    found.setdefault(key, told)
        finally:
            stop_gateway(java)
    lines = [f"{json.dumps(key)}: {json.dumps(told)}" for key, told in sorted(found.items()) if is_key(key)]
    KEYS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
