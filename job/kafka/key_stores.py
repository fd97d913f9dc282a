"""Keys and certificates for Python's Kafka clients, in PEM, made of what Java's client is given."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from freshet.job.errors import UsageError, one_line

_TRUST, _KEY = "truststore", "keystore"
_KINDS = ("PEM", "JKS", "PKCS12")


def tls_files(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of kafka-python for the TLS properties of Java's client.

    Stores that are no PEM files are read by Java, and become PEM files in the memory of this process.
    Raises: UsageError for a store that can't be read, or of another kind.
    """
    options: dict[str, Any] = {}
    if (roots := _pem(given, _TRUST)) is not None:
        options["ssl_cafile"] = roots
    if (own := _pem(given, _KEY)) is not None:
        options["ssl_certfile"] = own
        if _kind(given, _KEY) == "PEM" and given.get("ssl.key.password"):
            options["ssl_password"] = given["ssl.key.password"]
    if "ssl.endpoint.identification.algorithm" in given:
        options["ssl_check_hostname"] = given["ssl.endpoint.identification.algorithm"] != ""
    return options


def _kind(given: Mapping[str, str], store: str) -> str:
    name = f"ssl.{store}.type"
    kind = given.get(name, "JKS").upper()
    if kind not in _KINDS:
        msg = f"kafka: {name}: expected one of {', '.join(_KINDS)}, which Python's clients can use too"
        raise UsageError(msg)
    return kind


def _pem(given: Mapping[str, str], store: str) -> str | None:
    """The PEM file of a store; None where there is none."""
    kind, name = _kind(given, store), f"ssl.{store}.location"
    if (text := _inline(given, store)) is not None:
        if kind != "PEM" or name in given:
            msg = f"kafka: ssl.{store}.type: expected PEM and no {name}, since certificates stand in the properties"
            raise UsageError(msg)
        return _private_file(text)
    place = given.get(name)
    if place is None or kind == "PEM":
        return place
    try:
        changed = os.stat(place).st_mtime_ns
    except OSError as error:
        msg = f"kafka: {name}: {place} can't be read: {error.strerror}"
        raise UsageError(msg) from None
    password = given.get(f"ssl.{store}.password")
    key_password = given.get("ssl.key.password", password) if store == _KEY else None
    return _converted(name, place, kind, password, key_password, changed)


def _inline(given: Mapping[str, str], store: str) -> str | None:
    names = ("certificates",) if store == _TRUST else ("key", "certificate.chain")
    found = [given.get(f"ssl.{store}.{name}") for name in names]
    if not any(found):
        return None
    for name, text in zip(names, found, strict=True):
        if not text:
            msg = f"kafka: ssl.{store}.{name}: missing; a PEM key store needs {' and '.join(names)}"
            raise UsageError(msg)
    return "\n".join(str(text) for text in found) + "\n"


@lru_cache(16)
def _converted(name: str, place: str, kind: str, password: str | None, key_password: str | None, _: int) -> str:
    with _java() as java:
        try:
            text = _read(java, place, kind, password, key_password, has_key=name == f"ssl.{_KEY}.location")
        except Exception as error:  # whatever Java says of a store that is broken, or has another password
            cause = getattr(error, "java_exception", None)
            why = one_line(str(cause.getMessage()) if cause is not None else error)
            msg = f"kafka: {name}: {place} can't be read as {kind}: {why}"
            raise UsageError(msg) from None
    if not text:
        msg = f"kafka: {name}: {place} has no {'key' if name == f'ssl.{_KEY}.location' else 'certificate'} in it"
        raise UsageError(msg)
    return _private_file(text)


def _read(gateway: Any, place: str, kind: str, password: str | None, key_password: str | None, has_key: bool) -> str:
    """The certificates of a trust store; of a key store the first key, and its chain."""
    jvm = gateway.jvm
    store = jvm.java.security.KeyStore.getInstance(kind)
    stream = jvm.java.io.FileInputStream(place)
    try:
        store.load(stream, _chars(jvm, password))
    finally:
        stream.close()
    aliases = list(jvm.java.util.Collections.list(store.aliases()))
    if not has_key:
        return "".join(_block("CERTIFICATE", store.getCertificate(alias).getEncoded()) for alias in aliases)
    for alias in aliases:
        if store.isKeyEntry(alias):
            key = _encoded(gateway, store.getKey(alias, _chars(jvm, key_password)))
            chain = [_block("CERTIFICATE", one.getEncoded()) for one in store.getCertificateChain(alias)]
            return _block("PRIVATE KEY", key) + "".join(chain)
    return ""


def _encoded(gateway: Any, key: Any) -> bytes:
    """Return a key as PKCS #8; by reflection, since the class of a key is none that others may call."""
    java = gateway.jvm.java.lang
    method = java.Class.forName("java.security.Key").getMethod("getEncoded", gateway.new_array(java.Class, 0))
    return bytes(method.invoke(key, gateway.new_array(java.Object, 0)))


def _chars(jvm: Any, text: str | None) -> Any:
    if text is None:
        return None
    writer = jvm.java.io.CharArrayWriter()
    writer.write(text)
    return writer.toCharArray()


def _block(name: str, content: bytes) -> str:
    return f"-----BEGIN {name}-----\n{base64.encodebytes(content).decode()}-----END {name}-----\n"


@contextmanager
def _java() -> Iterator[Any]:
    """A Java of its own, which is asked over an authenticated socket: no secret stands in a process list."""
    from py4j.java_gateway import JavaGateway

    from freshet.job.machine.java import find_java_home

    java = find_java_home(os.environ) / "bin" / "java"
    gateway = JavaGateway.launch_gateway(
        java_path=str(java), javaopts=["-Xmx64m", "-XX:TieredStopAtLevel=1"], die_on_exit=True, enable_auth=True
    )
    try:
        yield gateway
    finally:
        gateway.shutdown()


@lru_cache(16)
def _private_file(text: str) -> str:
    """A file in memory that this process alone can open, and that ends with it however it ends."""
    file = os.memfd_create("freshet-keys")
    with os.fdopen(os.dup(file), "wb") as writer:
        writer.write(text.encode())
    return f"/proc/self/fd/{file}"
