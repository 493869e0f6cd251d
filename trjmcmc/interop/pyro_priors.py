"""Priors of a Pyro model: distributions of torch as they are, or one for each of a batch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Transform, TransformedDistribution, constraints

from ..rng import seeded
from ..target.prior import PriorSpec
from ..target.support import cast_to, repaired, support_of, unchecked
from .pyro_program import PyroLatent, PyroProgram
from .site import Conditional

TREE = (Distribution, Transform, constraints.Constraint)

TRIED = 3  # points at which a distribution that was made for a batch is tried

SAME = 1e-6  # relative, of its log density


class Marked(Tensor):
    """A tensor that marks all that is computed of it."""


class _Reached(Exception):
    """The site that is asked for; the rest of the model need not be run."""


def priors_of(program: PyroProgram) -> dict[str, PriorSpec]:
    """The prior of each latent site, in their order."""
    found: dict[str, PriorSpec] = {}
    for latent, parents in zip(program.latents.values(), _parents(program), strict=True):
        fixed = _of_torch(latent.fn)
        found[latent.name] = (
            _conditional(program, latent, parents)
            if parents
            else cast_to(fixed, program.dtype, latent.value.device)
        )
    return found


def _of_torch(fn: Distribution) -> Distribution:
    """Pyro's class of a transformed distribution as torch's own, whose support is found out."""
    if isinstance(fn, TransformedDistribution) and type(fn).__name__ == "TransformedDistribution":
        return TransformedDistribution(_of_torch(fn.base_dist), list(fn.transforms))
    return repaired(fn)


# ---- which sites a prior depends on -----------------------------------------------------------


def _parents(program: PyroProgram) -> list[list[str]]:
    """Of each latent site, the sites before it that its distribution is computed of."""
    names = list(program.latents)
    found: list[list[str]] = [[] for _ in names]
    for i, name in enumerate(names[:-1]):
        marked = _marked_by(program, name) if program.vectorized else None
        for j in range(i + 1, len(names)):
            if marked is None or names[j] in marked:
                found[j].append(name)
    return found


def _marked_by(program: PyroProgram, name: str) -> set[str] | None:
    """Sites whose distribution is computed of a site; None if that can't be found out."""
    marked = set[str]()

    def see(message: Any) -> None:
        name, fn = message["name"], message["fn"]
        if name in program.latents and (
            any(isinstance(x, Marked) for x in tensors_of(fn))
            or isinstance(fn.log_prob(message["value"]), Marked)  # of tensors that are held deeper
        ):
            marked.add(name)

    values = program.examples
    values[name] = values[name].as_subclass(Marked)
    try:
        with unchecked(), torch.no_grad():
            program.walk(values, see)
    except Exception:  # it does not like marked tensors: all sites after it, then
        return None
    return marked


# ---- distributions that depend on others ------------------------------------------------------


def tensors_of(thing: Any) -> Iterator[Tensor]:
    """All tensors inside a distribution, in a fixed order."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for x in thing:
            yield from tensors_of(x)
    elif isinstance(thing, TREE):
        for name, x in sorted(vars(thing).items()):
            if name not in {"_inv", "_cached_x_y"}:
                yield from tensors_of(x)


def for_batch(fn: Distribution, tensors: Iterator[Tensor]) -> Distribution:
    """A distribution of C points, with its tensors in the order of :func:`tensors_of`.

    Arguments:
        fn: The distribution of one point.
        tensors: (C, *shape) each.
    """
    found: Distribution = _with(fn, tensors, 0)
    return found


def _with(thing: Any, tensors: Iterator[Tensor], rank: int) -> Any:
    """A copy with other tensors; those of less than a rank get axes of one behind the batch's."""
    if isinstance(thing, Tensor):
        x = next(tensors)
        extra = max(0, rank - thing.dim())
        return x.reshape(len(x), *[1] * extra, *x.shape[1:])
    if isinstance(thing, list | tuple):
        return type(thing)(_with(x, tensors, rank) for x in thing)
    if not isinstance(thing, TREE):
        return thing
    new = copy.copy(thing)
    if isinstance(thing, TransformedDistribution):
        rank = len(thing.batch_shape) + len(thing.event_shape)
    elif isinstance(thing, Distribution):
        rank = len(thing.batch_shape)
    fields: dict[str, Any] = dict(vars(thing))
    for name, x in sorted(fields.items()):
        if name == "_inv":
            fields[name] = None
        elif name == "_cached_x_y":
            fields[name] = (None, None)
        else:
            fields[name] = _with(x, tensors, rank)
    if isinstance(thing, Distribution):
        size = [-1]
        for x in tensors_of_fields(fields):
            size = [len(x)]
            break
        fields["_batch_shape"] = torch.Size((*size, *thing.batch_shape))
        fields["_validate_args"] = False
    vars(new).clear()
    vars(new).update(fields)
    return new


def tensors_of_fields(fields: Mapping[str, Any]) -> Iterator[Tensor]:
    """All tensors among the attributes of an object."""
    for _, x in sorted(fields.items()):
        yield from tensors_of(x)


class ConditionalSite:
    """The distribution of a site given others, for a batch of these.

    Arguments:
        program: The model.
        latent: The site.
    """

    def __init__(self, program: PyroProgram, latent: PyroLatent) -> None:
        self.program, self.latent, self.fn = program, latent, _of_torch(latent.fn)
        self.whole = program.vectorized and self._works()

    def _at(self, given: Mapping[str, Tensor], ask: Any) -> Any:
        """What is asked of the distribution at one point, as soon as it is known."""
        found: list[Any] = []

        def before(message: Any) -> None:
            if message["name"] == self.latent.name:
                found.append(ask(_of_torch(message["fn"])))
                raise _Reached

        values = self.program.examples | dict(given)
        del values[self.latent.name]
        try:
            self.program.walk(values, lambda message: None, before)
        except _Reached:
            return found[0]
        raise RuntimeError(f"site {self.latent.name!r} was not reached")

    def distribution(self, given: Mapping[str, Tensor]) -> Distribution:
        """Of C points, given (C, *shape) by name."""
        tensors = self.program.mapped(
            lambda one: self._at(one, lambda fn: list(tensors_of(fn))), dict(given)
        )
        return for_batch(self.fn, iter(tensors))

    def log_prob(self, value: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        """Log density by batch entry, (C, *batch), nats."""
        if self.whole:
            return self.distribution(given).log_prob(value)
        return self._one_by_one(value, given)

    def _one_by_one(self, value: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        name = self.latent.name

        def one(values: dict[str, Tensor]) -> Tensor:
            here = {k: v for k, v in values.items() if k != name}
            found: Tensor = self._at(here, lambda fn: fn.log_prob(values[name]))
            return found

        found: Tensor = self.program.mapped(one, {**given, name: value})
        return found

    def sample(self, n: int, given: Mapping[str, Tensor], seed: int) -> Tensor:
        """Draws, (n, *shape)."""
        with seeded(seed):
            if self.whole:
                return self.distribution(given).sample()
            rows = [{k: v[i] for k, v in given.items()} for i in range(n)]
            return torch.stack([self._at(row, lambda fn: fn.sample()) for row in rows])

    def support(self, given: Mapping[str, Tensor]) -> Any:
        """Where values lie, given (C, *shape) by name."""
        return support_of(self.distribution(given))

    def _works(self) -> bool:
        """Whether the distribution made for a batch is that of its points."""
        many = self.program.draws(TRIED)  # apart: what is left of one point would be seen
        value = many.pop(self.latent.name)
        try:
            with unchecked(), torch.no_grad(), seeded(0):
                whole = self.distribution(many)
                got, expected = whole.log_prob(value), self._one_by_one(value, many)
                draws = whole.sample()
            torch.testing.assert_close(got, expected, rtol=SAME, atol=SAME)
            return draws.shape == value.shape
        except Exception:  # a distribution that is built otherwise: one by one, then
            return False


def _conditional(program: PyroProgram, latent: PyroLatent, parents: list[str]) -> Conditional:
    given, support = ConditionalSite(program, latent), support_of(_of_torch(latent.fn))
    moving = any(isinstance(x, Tensor) for x in tensors_of(support))
    return Conditional(
        parents,
        given.log_prob,
        given.sample,
        given.support if moving and given.whole else support,
        latent.fn.batch_shape,
        latent.fn.event_shape,
        like=latent.value,
    )
