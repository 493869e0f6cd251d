"""Parameters of a component that its signal is linear in."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import TargetError
from ...target.single import Single

ROWS = 16  # prior draws at which a signal is looked at

FACTORS = (-1.0, 0.5, 2.0)  # of amplitudes: a linear signal is multiplied alike

EXACT = 1e-4  # error of a signal that is linear, relative to the largest of it

MOMENTS = 4096  # prior draws of which mean and covariance are taken


class Amplitudes:
    r"""What the signal of a component is linear in: f(a, x) = a_1 f_1(x) + ... + a_L f_L(x).

    Either parameters that enter so, or one that does and an angle w beside it, whose two make a
    vector: (a cos w, a sin w). Which they are is found out at a few prior draws, or stated by the
    user and checked there; the angle is found out.

    Arguments:
        single: A component whose likelihood is additive.
        theta: Points that hold the shared parameters, shape (n, D).
        x: Components drawn from the prior, shape (n, P).

    Raises:
        TargetError: What the user has stated is not so.

    Attributes:
        names: Their parameters; none where nothing is linear.
        size: L.
        columns: Their coordinates, shape (P,), bool.
        points: Numbers in a signal.
        mean, covariance: Of the vector a priori, shape (L,) and (L, L), float64.
        precision, factor: Inverse of the covariance and its Cholesky factor, (L, L), float64.

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.target.exchangeable import components_of
        >>> (planets,) = components_of(problems.radial_velocity())
        >>> _, theta = planets.examples(torch.Generator().manual_seed(0), 100)
        >>> x = planets.one(theta, torch.zeros(100, dtype=torch.long))
        >>> Amplitudes(planets.single, theta, x).names
        ('amplitude', 'periastron')
    """

    def __init__(self, single: Single, theta: Tensor, x: Tensor) -> None:
        self.single = single
        values = single.values(theta[:ROWS], x[:ROWS])
        scalar = [name for name in single.places if values[name][0].numel() == 1]
        signal = self._signal(values)
        self.points = signal.shape[1]
        # where a product of two enters, one of them is taken: it is linear in each, not in both
        found = self._stated(values, scalar, signal)
        if found is None:
            found = [name for name in scalar if self._scales(values, [name], signal)][:1]
        if not found and single.linear is None:
            found = [name for name in scalar if self._straight(values, name)]
            found = found if self._scales(values, found, signal) else []
        self._turn: tuple[float, float] | None = None
        if len(found) == 1 and bool((values[found[0]] > 0).all()):
            angles = [n for n in scalar if n not in found and self._turns(values, n, signal)]
            self._turn = single.turn(angles[0]) if angles else None
            found += angles[:1]
        self.names, self.size = tuple(found), len(found)
        self.columns = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
        for name in found:
            self.columns[single.places[name]] = True
        if found:
            many = self.vector(single.values(theta[:MOMENTS], x[:MOMENTS]))
            self.mean = many.mean(0)
            self.covariance = torch.atleast_2d(many.T.cov(correction=0))
            self.precision = torch.linalg.inv(self.covariance)
            self.factor = torch.linalg.cholesky(self.precision)

    # ---- what is linear -----------------------------------------------------------------------

    def _signal(self, values: dict[str, Tensor], **changed: Tensor) -> Tensor:
        signal = self.single.added({**values, **changed})
        return signal.reshape(len(signal), -1)

    def _stated(
        self, values: dict[str, Tensor], scalar: Sequence[str], signal: Tensor
    ) -> list[str] | None:
        """The amplitudes that the user has stated; None if nothing was."""
        if self.single.linear is None:
            return None
        found = [name for name in self.single.linear if name in self.single.places]
        if self.single.linear and not found:
            return None  # they belong to another kind
        if vectors := [name for name in found if name not in scalar]:
            raise TargetError(f"Additive: linear: expected numbers, {vectors} have several entries")
        if found and not (
            self._scales(values, found, signal) and self._adds(values, found, signal)
        ):
            raise TargetError(
                f"Additive: linear: what a component adds is not linear in {found}; state all that "
                "it is linear in together, and nothing else"
            )
        return found

    def _scales(self, values: dict[str, Tensor], names: Sequence[str], signal: Tensor) -> bool:
        """Whether the signal is multiplied as these are, all together."""
        changed = [{name: factor * values[name] for name in names} for factor in FACTORS]
        pairs = zip(changed, FACTORS, strict=True)
        return bool(names) and all(_same(self._signal(values, **c), f * signal) for c, f in pairs)

    def _adds(self, values: dict[str, Tensor], names: Sequence[str], signal: Tensor) -> bool:
        """Whether the signal of sums of these is the sum of the signals."""
        others = {name: values[name].roll(1, 0) for name in names}
        sums = {name: values[name] + others[name] for name in names}
        return _same(self._signal(values, **sums), signal + self._signal(values, **others))

    def _straight(self, values: dict[str, Tensor], name: str) -> bool:
        """Whether the signal is a straight line in one of them."""
        at = [self._signal(values, **{name: c * values[name]}) for c in (0.0, 1.0, 2.0)]
        return _same(at[2] - at[1], at[1] - at[0])

    def _turns(self, values: dict[str, Tensor], name: str, signal: Tensor) -> bool:
        """Whether the signal is a sum of sine and cosine of an angle."""
        turn = self.single.turn(name)
        if turn is None:
            return False
        low, high = turn
        angle = 2 * math.pi * (values[name] - low) / (high - low)
        at = [torch.full_like(angle, low + share * (high - low)) for share in (0.0, 0.25)]
        cos, sin = (self._signal(values, **{name: value}) for value in at)
        return _same(angle.cos().flatten(1) * cos + angle.sin().flatten(1) * sin, signal)

    # ---- the vector ---------------------------------------------------------------------------

    def vector(self, values: dict[str, Tensor]) -> Tensor:
        """The amplitudes of components, by values as of ``Single.values``, (C, L), float64."""
        found = torch.stack([values[name].flatten().double() for name in self.names], 1)
        if self._turn is None:
            return found
        low, high = self._turn
        angle = 2 * math.pi * (found[:, 1] - low) / (high - low)
        return found[:, :1] * torch.stack([angle.cos(), angle.sin()], 1)

    def put(self, values: dict[str, Tensor], vector: Tensor) -> dict[str, Tensor]:
        """The values with other amplitudes (C, L)."""
        found = list(vector.T)
        if self._turn is not None:
            low, high = self._turn
            share = torch.atan2(found[1], found[0]) / (2 * math.pi) % 1.0
            found = [vector.norm(dim=1), low + share * (high - low)]
        like = [values[name] for name in self.names]
        new = [v.to(old).view_as(old) for v, old in zip(found, like, strict=True)]
        return values | dict(zip(self.names, new, strict=True))

    def log_volume(self, values: dict[str, Tensor]) -> Tensor:
        """log |d vector / d parameters|, (C,), float64."""
        first = values[self.names[0]].flatten().double()
        if self._turn is None:
            return torch.zeros_like(first)
        low, high = self._turn
        return first.log() + math.log(2 * math.pi / (high - low))

    def basis(self, values: dict[str, Tensor]) -> Tensor:
        """The signals f_1 to f_L, or the signal itself where nothing is linear, (C, L, points)."""
        if not self.size:
            return self._signal(values)[:, None]
        n = len(values[self.names[0]])
        each = {k: v.repeat(self.size, *[1] * (v.ndim - 1)) for k, v in values.items()}
        unit = torch.eye(self.size, dtype=torch.float64, device=self.columns.device)
        signals = self._signal(self.put(each, unit.repeat_interleave(n, 0)))
        return signals.unflatten(0, (self.size, n)).transpose(0, 1)


def _same(x: Tensor, y: Tensor) -> bool:
    size = y.abs().amax()
    return bool(size > 0) and bool(((x - y).abs() <= EXACT * size).all())
