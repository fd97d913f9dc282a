"""Pictures, for the scripts that draw some: matplotlib, which the extra `plots` brings."""

import argparse
from pathlib import Path
from typing import Any

from freshet.extras import MissingExtraError, need


def picture(path: str) -> Path:
    """Returns the path of a picture, as a type of argparse: it is refused before anything is measured for it."""
    try:
        need("plots", path)
    except MissingExtraError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(path)


def pyplot() -> Any:
    """Returns matplotlib's pyplot, which draws into files and needs no screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
