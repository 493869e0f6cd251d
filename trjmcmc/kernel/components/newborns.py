"""Components drawn where the residual asks for them, and how probable that was."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution

from ...errors import ConfigurationError, TargetError
from ...grouping import on_host
from ...rng import host_number, seeded
from ...target.exchangeable import Components, components_of
from ...target.support import cast_to, unchecked
from ...target.target import Target
from ...target.tempered import Tempered, power_of
from ...transport.normals import NormalMixture
from .amplitudes import Amplitudes
from .cells import Cells
from .residual import MatchedFilter, Residual

Found = tuple["Newborns | ConfigurationError", ...]

SHARES = (0.15, 0.45, 0.4, 0.4)  # of newborns: of the prior, cells, what is learned, the user

WIDE, TIMES = 0.2, 8.0**0.5  # share of the amplitudes from a wider normal, and how much wider

DRAWS = 20_000  # prior draws by which the signal is looked at

LOOKED_AT = 256  # of them, at which the prior is

DEPENDENT = 1e-3  # nats by which one coordinate changes the prior of another

NORMALS = 16  # components of the mixture of normals that is learned


class Places(NamedTuple):
    """How probable each cell is, for each of C chains.

    Attributes:
        log_weight: Shape (C, J).
        whole: Cumulative sums of the weights over the largest, shape (C, J).
        log_total: Of all weights, shape (C,).
    """

    log_weight: Tensor
    whole: Tensor
    log_total: Tensor


class Newborns:
    r"""A density of components given what others leave of the data.

    Coordinates that signals are not linear in are drawn from the prior, from cells in proportion to
    what a component there would explain, from what warm-up has seen, or from the densities that
    the user has given; then amplitudes are drawn
    from their normal given the rest. It needs an additive likelihood that is differentiable in the
    sum, and a prior in which coordinates of a component are independent.

    Arguments:
        parts: The components' kind.

    Attributes:
        amplitudes: What signals are linear in.
        cells: Where they differ.

    Raises:
        ConfigurationError: The likelihood or the prior is not of this kind.

    Example:
        >>> from trjmcmc import problems
        >>> from trjmcmc.target.exchangeable import components_of
        >>> target = problems.pulses(true=1, seed=2)
        >>> newborns = Newborns(components_of(target)[0])
        >>> theta, none = torch.zeros(500, target.dim), torch.zeros(500, 500, dtype=torch.float64)
        >>> residual, g = newborns.residual(theta, none), torch.Generator().manual_seed(0)
        >>> born, one = torch.ones(500, dtype=torch.bool), torch.ones(500)
        >>> x, signal, log_q = newborns.placed(theta, residual, one, theta[:, :3], born, g)
        >>> centre = 2 * x[:, 1].sigmoid() - 1
        >>> bool((centre.median() - target.pulses_true[0, 1]).abs() < 0.1)
        True
    """

    def __init__(self, parts: Components) -> None:
        single = parts.single
        if single is None or not parts.additive or parts.delicate:
            raise ConfigurationError(
                "births by the residual: expected a likelihood that is Additive and takes no "
                "logarithm of the sum"
            )
        self.parts, self.single, self._account = parts, single, parts.target.account
        generator = torch.Generator(parts.target.device).manual_seed(3)
        _, theta = parts.examples(generator, DRAWS)
        x = parts.sample_prior(theta, host_number(generator))
        fine = x.isfinite().all(1)
        theta, x = theta[fine], x[fine]
        if len(x) < 2 * LOOKED_AT:
            raise ConfigurationError("draws from the prior of a component are hardly ever finite")
        if not self._independent(theta, x):
            raise ConfigurationError(
                "the prior of one parameter of a component depends on another: they can't be "
                "drawn one by one"
            )
        self.amplitudes = Amplitudes(single, theta, x)
        self.cells = Cells(self.amplitudes, theta, x)
        self._given = self._births(theta, x)
        self.columns = (~self.amplitudes.columns).nonzero()[:, 0]
        self._cut = torch.tensor(self.cells.columns, dtype=torch.long, device=x.device)
        self._learned: NormalMixture | None = None
        self._filter: MatchedFilter | None = None
        self._data = single.contribution(theta[:1], x[:1]).shape[1:]
        points = self.amplitudes.points

        def reference(rows: int) -> Residual:
            none = theta.new_zeros(rows, points).double()
            return self.residual(theta[:1].expand(rows, -1), none, counted=False)

        try:
            reference(1)
            if self.cells.number:
                self._filter = MatchedFilter(self.amplitudes, self.cells, reference)
        except (RuntimeError, TargetError) as error:
            raise ConfigurationError(
                f"the likelihood is not differentiable in the components' sum: {error}"
            ) from error

    def _independent(self, theta: Tensor, x: Tensor) -> bool:
        """Whether each parameter of a component has a prior that the others do not change."""
        n = LOOKED_AT
        theta, x, other = theta[:n], x[:n], x[n : 2 * n]
        here = self.single.log_prior_by_slot(theta, x)
        for place in self.single.places.values():
            moved = x.clone()
            moved[:, place] = other[:, place]
            change = (self.single.log_prior_by_slot(theta, moved) - here).abs()
            change[:, place] = 0.0
            if bool((change > DEPENDENT * (1 + here.abs())).any()):
                return False
        return True

    def _births(self, theta: Tensor, x: Tensor) -> dict[str, Distribution]:
        """The user's densities of its parameters."""
        additive, single = self.parts.target.additive, self.single
        assert additive is not None
        target = self.parts.target
        given: dict[str, Distribution] = {
            name: cast_to(density, target.dtype, target.device)
            for name, density in additive.births.items()
            if name in single.places
        }
        if normal := [name for name in given if name in self.amplitudes.names]:
            raise TargetError(
                f"Additive: births: {normal} are amplitudes, which are drawn from their normal "
                "given the data; leave them out, or state linear=()"
            )
        values = single.values(theta[:1], x[:1])
        for name, density in given.items():
            shape, wanted = density.batch_shape + density.event_shape, values[name].shape[2:]
            if shape != wanted:
                raise TargetError(
                    f"Additive: births: {name!r}: expected a distribution of shape "
                    f"{tuple(wanted)}, that of one component, got {tuple(shape)}"
                )
        return given

    def on(self, parts: Components) -> Newborns:
        """The same where the likelihood is tempered."""
        found = copy.copy(self)
        found.parts = parts
        return found

    def learned(self, x: Tensor, generator: torch.Generator) -> Newborns:
        """The density that also draws what components (n, P) look like, but for amplitudes."""
        found = copy.copy(self)
        if len(self.columns):
            found._learned = NormalMixture.fitted(x[:, self.columns], NORMALS, generator)
        return found

    # ---- the data -----------------------------------------------------------------------------

    def residual(self, theta: Tensor, total: Tensor, *, counted: bool = True) -> Residual:
        """What sums (C, points) of components leave of the data.

        Arguments:
            theta: Points that hold the shared parameters, shape (C, D).
            total: The sums, float64.
            counted: Whether likelihoods count as evaluations of the target.

        Raises:
            BudgetError: The target's limit does not allow as many evaluations.
        """
        values = self.single.values(theta, theta.new_zeros(len(theta), self.parts.width))

        def log_likelihood(total: Tensor) -> Tensor:
            if counted:
                self._account.check(len(total))
                self._account.add(evaluations=len(total))
            data = total.view(len(total), *self._data)
            return self.single.log_likelihood(data, values).double()

        def along(signal: Tensor) -> Tensor:
            return log_likelihood(total + signal)

        with torch.enable_grad():
            at = total.detach().requires_grad_()
            value = log_likelihood(at)
            (slope,) = torch.autograd.grad(value.sum(), at)
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
        power = power_of(self.parts.target)
        found = Residual(total, value.detach(), slope, power, slope.new_zeros(0), along)
        if self._filter is None:
            return found
        return found._replace(gain=self._filter.gain(found, constant=not self.parts.shared))

    # ---- the density --------------------------------------------------------------------------

    def placed(
        self,
        theta: Tensor,
        residual: Residual,
        share: Tensor,
        x: Tensor,
        born: Tensor | bool,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Newborns of some chains, and how probable they and the components of others are.

        Arguments:
            theta: Points that hold the shared parameters, shape (C, D).
            residual: What the component is to explain.
            share: Of the cells' gains, that count, shape (C,).
            x: Components of the chains that have no newborn, shape (C, P).
            born: Which have one, shape (C,); or whether all have.
            generator: Source of randomness.

        Returns:
            Coordinates (C, P), not finite where there is no such component; signals (C, points),
            float64; log densities (C,), float64.
        """
        places = self._places(residual, share)
        if isinstance(born, bool):
            births, born = born, torch.full_like(x[:, 0], born, dtype=torch.bool)
        else:
            births = not on_host(born) or bool(born.any())
        if births:
            drawn = self._drawn(theta, places, generator)
            x = torch.where(born[:, None], drawn, x)
        lost = ~x.isfinite().all(1, keepdim=True)
        x = torch.where(lost, 0.0, x)
        log_q = self._log_shape(theta, places, x)
        values = self.single.values(theta, x)
        basis = self.amplitudes.basis(values)
        if not self.amplitudes.size:
            return torch.where(lost, math.nan, x), basis[:, 0], log_q
        mean, factor = self._conditional(residual, basis)
        vector = self.amplitudes.vector(values)
        if births:
            noise = torch.randn(
                vector.shape, generator=generator, device=x.device, dtype=vector.dtype
            )
            u = torch.rand(len(x), 1, generator=generator, device=x.device)
            noise = torch.where(u < WIDE, TIMES * noise, noise)
            drawn = (
                mean
                + torch.linalg.solve_triangular(factor.mT, noise[..., None], upper=True)[..., 0]
            )
            vector = torch.where(born[:, None], drawn, vector)
            values = self.amplitudes.put(values, vector)
        log_q = log_q + _log_normal((factor.mT @ (vector - mean)[..., None])[..., 0], factor)
        log_q = log_q + self.amplitudes.log_volume(values)
        x = x.clone()
        for name in self.amplitudes.names:
            coordinate, log_slope = self.single.coordinates(values, name)
            place = self.single.places[name]
            x[:, place] = torch.where(born[:, None], coordinate.to(x), x[:, place])
            log_q = log_q + log_slope.double()
        x = torch.where(lost, math.nan, x)
        if not births:
            return x, (vector[:, None] @ basis)[:, 0], log_q
        # of the coordinates as they are kept, which are rounded
        return x, self.single.contribution(theta, x).reshape(len(x), -1), log_q

    def _shares(self) -> tuple[float, float, float, float]:
        known = (True, self.cells.number > 0, self._learned is not None, bool(self._given))
        shares = [share * there for share, there in zip(SHARES, known, strict=True)]
        prior, cells, learned, given = (s / sum(shares) for s in shares)
        return prior, cells, learned, given

    def _places(self, residual: Residual, share: Tensor) -> Places | None:
        """How probable each cell is."""
        if not self.cells.number:
            return None
        log_weight = torch.addcmul(
            self.cells.log_mass.float(), share.float()[:, None], residual.gain
        )
        most = log_weight.amax(1, keepdim=True)
        whole = (log_weight - most).exp_().cumsum(1)
        return Places(log_weight, whole, most[:, 0] + whole[:, -1].log())

    def _drawn(self, theta: Tensor, places: Places | None, generator: torch.Generator) -> Tensor:
        """A component of each chain whose amplitudes are of the prior, (C, P)."""
        n, (prior, by_cells, learned, _) = len(theta), self._shares()
        x = self.parts.sample_prior(theta, host_number(generator))
        u = torch.rand(n, 1, generator=generator, device=x.device)
        if places is not None:
            whole = places.whole
            v = torch.rand(n, 1, generator=generator, device=x.device, dtype=whole.dtype)
            cell = torch.searchsorted(whole, v * whole[:, -1:])[:, 0]
            moved = x.clone()
            cell = cell.clamp(max=self.cells.number - 1)
            moved[:, self._cut] = self.cells.draw(cell, generator).to(x)
            x = torch.where((u >= prior) & (u < prior + by_cells), moved, x)
        if self._learned is not None:
            moved = x.clone()
            moved[:, self.columns] = self._learned.sample(n, generator)
            x = torch.where(u >= prior + by_cells, moved, x)
        if self._given:
            with seeded(host_number(generator), x.device), unchecked():
                drawn = {name: d.sample((n, 1)) for name, d in self._given.items()}
            values = self.single.values(theta, x)
            moved = x.clone()
            for name, value in drawn.items():
                fresh = values | {name: value.to(x)}
                moved[:, self.single.places[name]], _ = self.single.coordinates(fresh, name)
            x = torch.where(u >= prior + by_cells + learned, moved, x)
        return x

    def _log_shape(self, theta: Tensor, places: Places | None, x: Tensor) -> Tensor:
        """Log density of the coordinates that are not amplitudes, (C,), float64."""
        prior, by_cells, learned, given = self._shares()
        by_slot = self.single.log_prior_by_slot(theta, x).double()
        log_prior = by_slot[:, self.columns].sum(1)
        found = math.log(prior) + log_prior
        if places is not None:
            cell, inside = self.cells.of(x)
            log_q = places.log_weight.gather(1, cell[:, None])[:, 0] - places.log_total
            log_q = log_q.double() - self.cells.log_size[cell]
            log_q = log_q + log_prior - by_slot[:, self._cut].sum(1)
            log_q = torch.where(inside, math.log(by_cells) + log_q, -math.inf)
            found = torch.logaddexp(found, log_q)
        if self._learned is not None:
            log_q = self._learned.log_prob(x[:, self.columns]).double()
            found = torch.logaddexp(found, math.log(learned) + log_q)
        if self._given:
            values, log_q = self.single.values(theta, x), log_prior
            for name, density in self._given.items():
                _, log_slope = self.single.coordinates(values, name)
                with unchecked():
                    log_value = density.log_prob(values[name]).double().reshape(len(x), -1).sum(1)
                log_value = log_value.nan_to_num(-math.inf) + log_slope
                log_q = log_q - by_slot[:, self.single.places[name]].sum(1) + log_value
            found = torch.logaddexp(found, math.log(given) + log_q)
        return found

    def _conditional(self, residual: Residual, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (C, L) and factor of the precision (C, L, L) of amplitudes given the rest.

        As if the likelihood were normal in them and so were their prior.
        """
        mean, covariance = self.amplitudes.mean, self.amplitudes.covariance
        prior, power = self.amplitudes.precision, residual.power
        curvature = residual.curvature(basis, covariance.diagonal().sqrt())
        precision = prior + power * curvature.nan_to_num(0.0, 0.0, 0.0)
        factor, failed = torch.linalg.cholesky_ex(precision)
        sound = (failed == 0) & factor.isfinite().all(2).all(1)
        factor = torch.where(sound[:, None, None], factor, self.amplitudes.factor)
        slope = (basis @ residual.slope[..., None])[..., 0].nan_to_num(0.0, 0.0, 0.0)
        right = power * slope + prior @ mean
        return torch.cholesky_solve(right[..., None], factor)[..., 0], factor


def newborns_of(parts: Components) -> Newborns:
    """The density for components of a kind; what costs likelihoods is known to the target.

    Raises:
        ConfigurationError: The likelihood or the prior is not of its kind.
    """
    target = parts.target
    bare = target.target if isinstance(target, Tempered) else target
    found = bare.cached(_of_all_kinds)[parts.place]
    if isinstance(found, ConfigurationError):
        raise found
    return found.on(parts)


def _of_all_kinds(target: Target) -> Found:
    found: list[Newborns | ConfigurationError] = []
    for parts in components_of(target):
        try:
            found.append(Newborns(parts))
        except ConfigurationError as error:
            found.append(error)
    return tuple(found)


def _log_normal(z: Tensor, factor: Tensor) -> Tensor:
    """Log density of two normals of one centre, at z in units of the narrow one, (C,)."""
    size, square = z.shape[1], z.square().sum(1)
    narrow = math.log(1 - WIDE) - 0.5 * square
    wide = math.log(WIDE) - size * math.log(TIMES) - 0.5 * square / TIMES**2
    log_det = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return torch.logaddexp(narrow, wide) + log_det - 0.5 * size * math.log(2 * math.pi)
