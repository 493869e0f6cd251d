"""Models of a list that differ in length alone, as one density at vectors of the longest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributions import (
    Beta,
    Cauchy,
    Dirichlet,
    Distribution,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
)
from torch.nn.functional import logsigmoid, pad

from ..grouping import surely
from .density import Density
from .prior import Prior

ALL = 1e4  # at which a logistic function is one, and its logarithm costs no more than elsewhere

OF_NUMBERS = {  # each entry of which is known by the parameters of its own
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
}


class Padded(Density):
    """The density of all models of a list, given which slots each row uses as its items.

    A likelihood sees zeros after the end of a row's vectors.

    Arguments:
        longest: That of the longest model, with which all others begin: see :func:`padded`.
    """

    def __init__(self, longest: Density) -> None:
        vars(self).update(vars(longest))
        some = {b.prior.name: b.prior.spec for b in longest.blocks}
        self._shares = {
            k: _Shares(d.concentration) for k, d in some.items() if isinstance(d, Dirichlet)
        }
        self.blocks = [
            replace(b, items=b.slots) if len(b.prior.batch_shape) else b for b in longest.blocks
        ]

    def _entries(
        self, theta: Tensor, items: Tensor | None, *, dense: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Tensor]]:
        assert items is not None
        theta = torch.where(items, theta, 0.0)
        values, log_densities, sure = {}, [], self._sure(theta)
        for block in self.blocks:
            prior, x, used = block.prior, theta[:, block.slots], items[:, block.slots]
            known = sure and prior.reach is not None
            if prior.name in self._shares:
                value, log_density = self._shares[prior.name].evaluate(x, used, known)
            else:
                value, log_density = prior.evaluate(x, {}, known)
                if block.items is not None:
                    value, log_density = (torch.where(used, v, 0.0) for v in (value, log_density))
            values[prior.name] = value
            log_densities.append(log_density)
        return values, values, log_densities


class _Shares:
    """Dirichlet priors of the first entries of a vector, however many.

    Arguments:
        concentration: Of the longest, shape (K + 1,).
    """

    def __init__(self, concentration: Tensor) -> None:
        left = torch.arange(len(concentration))[:, None] - torch.arange(len(concentration) - 1)
        self.log_left = left.clamp(min=1).to(concentration).log()
        self.concentration = concentration
        self.constant = concentration.cumsum(0).lgamma() - concentration.lgamma().cumsum(0)

    def evaluate(self, x: Tensor, used: Tensor, sure: bool) -> tuple[Tensor, Tensor]:
        """:meth:`Prior.evaluate` where the vector has one entry more than slots are used.

        The Jacobian is the product of all entries.

        Arguments:
            x: Unconstrained slots, shape (C, K), finite where they are not used.
            used: The first of each row, shape (C, K), bool.
            sure: Whether no slot is beyond the reach of the longest.

        Returns:
            Shapes (C, K + 1), zero after the last, and (C,), nats.
        """
        n, kept = used.sum(-1), pad(used, (1, 0), value=True)
        x = torch.where(used, x - self.log_left.index_select(0, n), ALL)  # then all that is left
        log_rest = pad(logsigmoid(-x).cumsum(-1), (1, 0))
        log_value = torch.where(kept, pad(logsigmoid(x), (0, 1)) + log_rest, 0.0)
        log_density = log_value @ self.concentration + self.constant.index_select(0, n)
        value = log_value.exp()
        if sure or surely(inside := value >= torch.finfo(value.dtype).tiny):
            return value * kept, log_density
        inside = inside.all(-1)
        value = torch.where(inside[:, None], value, 1 / (n + 1)[:, None].to(value)) * kept
        return value, torch.where(inside, log_density, -torch.inf)


def padded(each: Sequence[Density]) -> Padded | None:
    """The densities of a list as one, where each is the longest's but for its length.

    That is so where they have one function, which may be given zeros, and every prior has the
    type and the first parameters of the longest's.
    """
    longest = max(each, key=lambda density: density.width)
    alike = len(each) > 1 and all(_begins(density, longest) for density in each)
    return Padded(longest) if alike else None


def _begins(short: Density, long: Density) -> bool:
    """Whether the longest density begins with a shorter one."""
    if not short.padded or short.on_reference or short.fused or len(short.blocks) < 1:
        return False
    functions = [
        [d.likelihood.function, d.surrogate and d.surrogate.function] for d in (short, long)
    ]
    names = [[b.prior.name for b in d.blocks] for d in (short, long)]
    return (
        all(a is b for a, b in zip(*functions, strict=True))
        and names[0] == names[1]
        and all(_cut(a.prior, b.prior) for a, b in zip(short.blocks, long.blocks, strict=True))
    )


def _cut(short: Prior, long: Prior) -> bool:
    """Whether a prior is the first entries of another."""
    one, other = short.spec, long.spec
    if not isinstance(one, Distribution) or type(one) is not type(other) or len(short.shape) > 1:
        return False
    if type(one) not in (OF_NUMBERS if short.shape == short.batch_shape else {Dirichlet}):
        return False
    one, other = short.distribution({}, 1), long.distribution({}, 1)
    pairs = [(getattr(one, name), getattr(other, name)) for name in one.arg_constraints]
    return all(torch.equal(a, b[: len(a)] if a.dim() else b) for a, b in pairs)
