"""Packages that only some need, imported on first use."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ..errors import ConfigurationError


def needed(package: str, extra: str, what: str) -> ModuleType:
    """A package that is imported now, or the error that says how to install it.

    Arguments:
        package: What to import.
        extra: The extra of this package that installs it.
        what: Who asks for it.

    Raises:
        ConfigurationError: It is not installed.

    Example:
        >>> needed("math", "none", "an example").sqrt(4.0)
        2.0
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package.split(".")[0]:
            raise  # it is there, and lacks something itself
        raise ConfigurationError(
            f"{what} needs {package}, which is not installed: pip install 'trjmcmc[{extra}]'"
        ) from None
