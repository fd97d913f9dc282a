"""TLS of a server and of its clients: certificate, key and roots as PEM files, and connections by them."""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow.flight as flight

from freshet.job.errors import UsageError, one_line

_ADDRESS = re.compile(r"(?:(?P<scheme>grpc(?:\+tcp|\+tls)?)://)?(?P<place>[^/\s]+:\d{1,5})")
_NO_PROXY = ("grpc.enable_http_proxy", 0)
_BEGIN = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Certificate of a server, with its key."""

    cert: Path
    key: Path

    @staticmethod
    def read(cert: Path | None, key: Path | None) -> Certificate | None:
        """The certificate of two files, looked at; None where neither is given.

        Raises: UsageError for files that can't be read or do not belong together.
        """
        if cert is None and key is None:
            return None
        if cert is None or key is None:
            given, other = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
            msg = f"{given}: goes with {other} only; give both"
            raise UsageError(msg)
        for option, file in (("--tls-cert", cert), ("--tls-key", key)):
            _read(option, file)
        try:
            # without a password: nobody is there to type one
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
        except (ssl.SSLError, ValueError, OSError) as error:
            what = "not the key of that certificate" if "MISMATCH" in str(error) else one_line(error)
            msg = f"--tls-cert {cert}, --tls-key {key}: {what}; expected two PEM files, the key without a password"
            raise UsageError(msg) from None
        return Certificate(cert, key)

    @property
    def pair(self) -> tuple[bytes, bytes]:
        """Certificate and key, as Flight takes them."""
        return self.cert.read_bytes(), self.key.read_bytes()


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server's Flight: HOST:PORT, and whether it uses TLS."""

    host: str
    port: int
    tls: bool

    @staticmethod
    def parse(text: str) -> Address | None:
        """HOST:PORT, or with grpc:// or grpc+tls:// before it; None for anything else."""
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found["place"].rpartition(":")[2]) < 65536:
            return None
        host, _, port = found["place"].rpartition(":")
        return Address(host.strip("[]"), int(port), found["scheme"] == "grpc+tls")

    def location(self, host: str | None = None) -> str:
        """Return the form for Flight, with another address of the same host if one is given."""
        at = host or self.host
        return f"grpc{'+tls' if self.tls else ''}://{f'[{at}]' if ':' in at else at}:{self.port}"

    def connect(self, roots: bytes | None, options: list[tuple[str, int]], host: str | None = None) -> Any:
        """A client; the server's certificate must be for the host that was named, whatever address that has.

        A server on this machine is reached without the proxy that the environment may name.
        """
        more: dict[str, Any] = {}
        if self.tls:
            found = roots if roots is not None else _roots_of_system()
            more = {"tls_root_certs": found} if found else {}
            more |= {"override_hostname": self.host} if host is not None else {}
        direct = [_NO_PROXY] if _is_here(host or self.host) else []
        return flight.connect(self.location(host), generic_options=[*options, *direct], **more)


def _is_here(host: str) -> bool:
    """Return whether a host is this machine, by name or address alone: behind a proxy a name may be unknown here."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        name = host.lower().rstrip(".")
        return name == "localhost" or name.endswith(".localhost") or name == socket.gethostname().lower()
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or mapped.is_unspecified


def read_roots(roots: str | Path | bytes | None, option: str = "tls_roots") -> bytes | None:
    """Return the certificates that a client trusts, from a PEM file or as given; None: those of the system.

    Raises: UsageError if they are invalid.
    """
    if roots is None:
        return None
    found = roots if isinstance(roots, bytes) else _read(option, Path(roots))
    if _BEGIN not in found:
        shown = "bytes" if isinstance(roots, bytes) else roots
        msg = f"{option} {shown}: expected PEM, which has a line {_BEGIN.decode()}"
        raise UsageError(msg)
    return found


def _read(option: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"{option} {file}: can't be read: {error.strerror}"
        raise UsageError(msg) from None


def _roots_of_system() -> bytes:
    """GRPC as it is built into pyarrow does not know where they are."""
    file = ssl.get_default_verify_paths().cafile
    return Path(file).read_bytes() if file is not None else b""
