"""Names of what a user's script makes again, so that nothing of it is written to disk."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Generator, Tensor, nn
from torch.distributions import Distribution

Path = tuple[tuple[str, Any], ...]  # steps from a root: of an attribute, a key, an index

PLAIN = (str, bytes, int, float, complex, bool, type(None), Tensor, Generator, ModuleType, type)

DEEPEST = 40  # steps from a root

MOST = 100_000  # objects of a root that are looked at: data of the user's may be large


def paths(roots: Mapping[str, Any], whole: set[str]) -> dict[int, tuple[str, Path]]:
    """Names of objects by their identity: a root, and the steps from there; the shortest.

    Arguments:
        roots: Objects by name.
        whole: Roots that are taken as they are, with all that they hold; of the others functions
            alone are named.
    """
    found: dict[int, tuple[str, Path]] = {}
    for name, root in roots.items():
        seen: set[int] = set()
        ahead: list[tuple[Any, Path]] = [(root, ())]
        for it, path in ahead:  # grows while it is gone through: the nearest come first
            if isinstance(it, PLAIN) or id(it) in seen or len(path) > DEEPEST:
                continue
            seen.add(id(it))
            if len(seen) > MOST:
                break
            function = isinstance(it, FunctionType)
            if function or (name in whole and not isinstance(it, dict | list | tuple | set)):
                found.setdefault(id(it), (name, path))
            ahead += [(child, (*path, step)) for step, child in _children(it)]
    return found


def _children(it: Any) -> list[tuple[tuple[str, Any], Any]]:
    if isinstance(it, dict):
        return [(("key", k), v) for k, v in it.items() if isinstance(k, str | int | tuple)]
    if isinstance(it, list | tuple):
        return [(("index", i), v) for i, v in enumerate(it)]
    if isinstance(it, FunctionType):
        return []
    if isinstance(it, MethodType):
        return [(("attribute", "__self__"), it.__self__)]
    return [(("attribute", k), v) for k, v in getattr(it, "__dict__", {}).items()]


def follow(roots: Mapping[str, Any], name: str, path: Path) -> Any:
    """The object of a name.

    Raises:
        KeyError, AttributeError, IndexError, TypeError: There is none.
    """
    it = roots[name]
    for how, step in path:
        it = (
            it.__dict__[step]
            if how == "attribute" and step != "__self__"
            else (it.__self__ if how == "attribute" else it[step])
        )
    return it


def classes(*roots: Any) -> dict[str, type]:
    """Classes of the user's among the parts of objects that the user has given, by name."""
    found: dict[str, type] = {}
    seen: set[int] = set()
    ahead = list(roots)
    while ahead:
        it = ahead.pop()
        if isinstance(it, PLAIN) or id(it) in seen or isinstance(it, Distribution):
            continue
        seen.add(id(it))
        kind = type(it)
        if kind.__module__.startswith(("trjmcmc.target.", "trjmcmc.space.")):
            continue  # what a kernel is of is made again as it is
        if kind.__module__.partition(".")[0] not in {"builtins", "torch", "trjmcmc", "zuko"}:
            found[f"{kind.__module__}.{kind.__qualname__}"] = kind
        if isinstance(it, nn.Module) or kind.__module__.partition(".")[0] != "torch":
            ahead += [child for _, child in _children(it)]
    return found
