"""A user id without a name: Java's own login, which Hadoop in the plugin for S3 asks, gets one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from freshet.job.machine import nameless
from freshet.job.machine.java import flink_home, java_environ

LOGIN = """
public class Login {
    public static void main(String[] arguments) throws Exception {
        javax.security.auth.Subject subject = new javax.security.auth.Subject();
        com.sun.security.auth.module.UnixLoginModule module = new com.sun.security.auth.module.UnixLoginModule();
        module.initialize(subject, null, new java.util.HashMap(), new java.util.HashMap());
        module.login();
        module.commit();
        System.out.println(subject.getPrincipals().iterator().next());
    }
}
"""


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(nameless.JAVA_OPTIONS, raising=False)
    monkeypatch.setattr(nameless, "has_name", lambda: False)


def test_javas_login_takes_the_id_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Login.java").write_text(LOGIN)
    monkeypatch.setenv(nameless.JAVA_OPTIONS, "-Dours=1 -Xmx64m")
    environ = java_environ()
    assert environ[nameless.JAVA_OPTIONS].startswith(f"-Dours=1 {nameless.PATCH}")
    assert java_environ(environ) == environ, "a process that ours starts has it already"
    classes = ":".join(map(str, (flink_home() / "lib").glob("*.jar")))
    main = ["org.codehaus.janino.SimpleCompiler", str(tmp_path / "Login.java"), "Login"]
    command = [f"{environ['JAVA_HOME']}/bin/java", "-cp", classes, *main]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == f"UnixPrincipal: uid-{os.getuid()}"


def test_who_has_a_name_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nameless, "has_name", lambda: True)
    assert nameless.JAVA_OPTIONS not in java_environ()


def test_a_class_that_can_not_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nameless.java_options(tmp_path, flink_home(), dict(os.environ)) == ""
    assert f"user id {os.getuid()} has no name here, and S3 in Flink needs one: " in capsys.readouterr().err
