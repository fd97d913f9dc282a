"""Our Java in a job: compiled by the compiler that Flink has for generated code, so no release needs a jar of ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from freshet.job.kafka.client import SHADED, ClientProperties
from freshet.job.uris import file_uri

if TYPE_CHECKING:
    from pyflink.common.typeinfo import TypeInformation
    from pyflink.datastream import DataStream, StreamExecutionEnvironment

TOKEN_URL = Path(__file__).with_name("TokenUrl.java")
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def add_connector(env: StreamExecutionEnvironment, jars: Sequence[Path]) -> None:
    """Let the job, and this process where it draws the job, find the connector."""
    env.add_jars(*map(file_uri, jars))


def add_class(env: StreamExecutionEnvironment, source: Path, folder: Path, shaded: bool = True) -> None:
    """Compile a class, with the connector's jars added before, and let the job find it; the jar lies in `folder`.

    `shaded`: the connector has Kafka's client in it, in a package of another name.
    """
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    text = source.read_text(encoding="utf-8")
    compiler.cook(text if shaded else text.replace(SHADED, ""))
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"{source.stem}.jar"
    with ZipFile(jar, "w") as file:
        for name, code in compiler.getBytecodes().items():
            file.writestr(f"{name}.class", bytes(code))
    env.add_jars(file_uri(jar))


def token_url(properties: ClientProperties) -> Any:
    """The object of `TOKEN_URL` that lets clients ask for tokens where it arrives; None where none are asked for."""
    from pyflink.java_gateway import get_gateway

    url = properties.token_url
    return None if url is None else get_gateway().jvm.TokenUrl(_ALLOWED, url)


def java_operator(
    stream: DataStream, source: Path, references: Sequence[Any], out: TypeInformation, name: str
) -> DataStream:
    """Put an operator that is compiled where it runs behind a stream, in its task; it is given `references`."""
    from pyflink.datastream import DataStream
    from pyflink.java_gateway import get_gateway

    gateway = get_gateway()
    flink = gateway.jvm.org.apache.flink
    given = gateway.new_array(gateway.jvm.Object, len(references))
    for number, value in enumerate(references):
        given[number] = value
    no_options = flink.configuration.Configuration()
    code = flink.table.runtime.generated.GeneratedOperator(source.stem, source.read_text(), given, no_options)
    factory = flink.table.runtime.operators.CodeGenOperatorFactory(code)
    java = stream._j_data_stream
    before = java.getTransformation()
    made = flink.streaming.api.transformations.OneInputTransformation(
        before, name, factory, out.get_java_type_info(), before.getParallelism()
    )
    env = java.getExecutionEnvironment()
    env.addOperator(made)
    return DataStream(flink.streaming.api.datastream.DataStream(env, made))
