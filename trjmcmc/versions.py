"""Versions of Python and of the packages that a result depends on."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("torch", "zuko", "numpy", "scipy", "pandas", "arviz", "matplotlib", "tqdm")


def versions() -> dict[str, str]:
    """By name, the version of this package, of Python, of what it needs, and the platform."""
    own = str(sys.modules[__name__.partition(".")[0]].__version__)
    found = {"trjmcmc": own, "Python": platform.python_version()}
    return found | {name: _of(name) for name in PACKAGES} | {"platform": platform.platform()}


def show_versions() -> None:
    """Print the versions that a report of a defect needs.

    Example:
        >>> import trjmcmc as trj
        >>> trj.show_versions()  # doctest: +ELLIPSIS
        trjmcmc ...
        Python ...
        torch ...
    """
    print("\n".join(f"{name} {found}" for name, found in versions().items()))


def _of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
