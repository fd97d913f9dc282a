"""The Java of Flink's scripts in a test run: they ask it the same question about the same configuration only once.

Each start of a cluster's process asks Java three times for its configuration and the sizes of its memory, by
BashJavaUtils, which took as long as the process itself until it is ready. An answer is kept under what the question
reads: its arguments and `config.yaml`. Processes that start together wait for the one that asks first.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SCRIPT = """\
#!/bin/sh
java='{java}'
case " $* " in
  *" org.apache.flink.runtime.util.bash.BashJavaUtils "*) ;;
  *) exec "$java" "$@" ;;
esac
asked= conf= before=
for word in "$@"; do
  case "$before" in --configDir) conf=$word ;; esac
  before=$word
  case "$word" in taskmanager.resource-id=*) ;; *) asked="$asked $word" ;; esac
done
kept='{folder}'/$( {{ echo "$asked"; cat "$conf/config.yaml"; }} | sha256sum | cut -c1-64)
exec 9> "$kept.lock"
if command -v flock > /dev/null; then flock 9; fi
if [ ! -f "$kept" ]; then
  "$java" {quick} "$@" > "$kept.new" 2>&1 || {{ code=$?; cat "$kept.new"; exit $code; }}
  mv "$kept.new" "$kept"
fi
cat "$kept"
"""


def java_home_of_scripts(java_home: Path, folder: Path) -> Path:
    """Return a folder that is to Flink's scripts what `java_home` is, made in `folder` if it is not there yet."""
    home = folder / "java"
    if not home.exists():
        answers, made = folder / "answers", folder / f"java-{os.getpid()}"
        answers.mkdir(exist_ok=True)
        (made / "bin").mkdir(parents=True)
        for path in java_home.iterdir():
            if path.name != "bin":
                (made / path.name).symlink_to(path)
        script = made / "bin" / "java"
        script.write_text(_SCRIPT.format(java=java_home / "bin" / "java", quick=_QUICK, folder=answers))
        script.chmod(0o755)
        with suppress(OSError):  # another test process has made it meanwhile
            made.rename(home)
    return home
