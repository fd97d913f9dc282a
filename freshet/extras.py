"""The extras of freshet-gnn: packages that some commands need, and how to install them."""

from __future__ import annotations

from importlib.util import find_spec

from freshet.errors import InputError

# As pyproject.toml has them, by the names that are imported.
EXTRAS = {
    "torch": ("torch", "torch_geometric"),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "plots": ("matplotlib",),
    "proofs": ("z3",),
}


class MissingExtraError(InputError, ImportError):
    """A package of an extra that is not installed."""


def how_to_install(extra: str) -> str:
    """Return how an extra is installed, while no index has Freshet: in a checkout, or from a wheel made there."""
    from freshet.version import __version__

    wheel = f"dist/freshet_gnn-{__version__}-py3-none-any.whl"
    return f"run `make install` in the checkout, or `make wheel` there and pip install '{wheel}[{extra}]'"


def need(extra: str, who: str) -> None:
    """Look whether an extra is installed.

    Raises: MissingExtraError naming the first package that is not; `who` needs it.
    """
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        msg = f"{who}: needs {missing[0]}, which is not installed; {how_to_install(extra)}"
        raise MissingExtraError(msg)
