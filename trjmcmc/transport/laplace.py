"""Laplace's approximation of each model, found when it is first asked for, as a map."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigurationError
from ..target.resolution import resolved
from ..target.target import Target
from ..target.units import STEP, WIDEST, prior_units
from .base import Bijection
from .memory import ROW_BYTES, CodeMemory
from .reference import Reference

MODE, FACTOR, LOG_EVIDENCE = range(3)  # what is remembered of a model

ITERATIONS = 40

SETTLED = 1e-4  # nats: Newton steps that would gain less end the search for a mode

LENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01)  # shares of a Newton step that are tried, longest first

LONGEST = 1.0  # prior standard deviations of a step off a saddle, in each direction

ROW_BY_ROW = 32  # rows of a Hessian up to which they are taken one by one: to take them together
# torch first imports SymPy, a second, and then saves some milliseconds

CHECKED = 4  # points at which second derivatives are compared with differences

AGREE = 0.1  # largest difference of second derivatives, relative to the largest of them

STIFFEST = 1e10  # largest precision of a coordinate in its unit

BATCH = 2**22  # entries of all Hessians of a batch, at most


class Expansion(NamedTuple):
    """A quadratic in coordinates w that are zero where an item is absent, float64.

    Attributes:
        precision: Minus its second derivatives, positive definite, shape (D, D).
        slope: Its gradient at w = 0, shape (D,).
        constant: What a slot adds to a model's log evidence beside that, nats, shape (D,).
        centre: Where w = 0, in the target's coordinates, shape (D,): zero but for slots that
            are always in use.
    """

    precision: Tensor
    slope: Tensor
    constant: Tensor
    centre: Tensor


class LaplaceMap(Bijection):
    r"""The normal at each model's mode, with a flow inside it if there is one.

    .. math:: T(z \mid m) = \hat\theta(m) + L(m)\, f(z \mid m), \qquad
              L L^\top = (-\nabla^2 \log\pi(\hat\theta(m), m))^{-1}

    Mode and curvature come from damped Newton steps on the log joint, batched over the models
    that are asked for and remembered in bounded memory: there is no table of models, and
    nothing to train. They depend on the model alone, so the map is as valid as any other; on
    Gaussian posteriors it is exact. Curvature is made safe in units of the prior: no direction
    is wider than four of its standard deviations, saddles are turned up.

    Arguments:
        target: The target. Its likelihood, or its surrogate, needs gradients; second
            derivatives are taken by automatic differentiation, by differences of gradients
            where they do not exist.
        flow: A bijection over the same space that passes spare coordinates, such as
            :class:`CosmicFlow`: the shape that is not normal. None leaves it out.
        megabytes: Memory for modes and factors. When it is full all are forgotten and found
            again as needed.
        reference: Of the map, if there is no flow; standard normal if omitted.

    Raises:
        ConfigurationError: No gradients; a flow that moves spare coordinates or lies over
            another space.

    Source:
        Laplace's method: Tierney & Kadane (1986), https://doi.org/10.1080/01621459.1986.10478240

    Example:
        >>> from trjmcmc import problems
        >>> target = problems.variable_selection(4)
        >>> flow = LaplaceMap(target)
        >>> code = target.space.enumerate()
        >>> exact = torch.tensor(list(target.truth.log_evidence.values()))
        >>> gap = flow.log_evidence(code) - target.space.log_prior(code) - exact
        >>> bool(gap.abs().max() < 1e-3)
        True
    """

    location: Tensor
    scale: Tensor

    def __init__(
        self,
        target: Target,
        flow: Bijection | None = None,
        *,
        megabytes: float = 512.0,
        reference: Reference | None = None,
    ) -> None:
        if not target.differentiable:
            raise ConfigurationError(
                "LaplaceMap: the likelihood has no gradients; write it in torch, wrap it by "
                "trj.with_gradient, or give the models a surrogate"
            )
        if flow is not None and (not flow.spares_pass or flow.space.n_slots != target.dim):
            raise ConfigurationError(
                "flow: expected a bijection over the target's space that passes spare coordinates"
            )
        super().__init__(target.space, flow.reference if flow is not None else reference)
        self.flow = flow
        self.megabytes = megabytes
        location, scale = prior_units(target)
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)
        self._use(target)

    def _use(self, target: Target) -> None:
        self.target = target
        self._twice: bool | None = None  # whether second derivatives are to be had
        d, width = max(1, target.dim), target.space.code_width
        number = torch.finfo(target.dtype).bits // 8
        rows = self.megabytes * 2**20 / (number * (d * d + d + 1) + ROW_BYTES)
        models = target.space.size if target.space.units else None
        self._memory = CodeMemory(self._find, width, int(rows), number=models)

    # ---- the transport ------------------------------------------------------------------------

    def from_reference(self, z: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        x, ladj = (z, 0.0) if self.flow is None else self.flow.from_reference(z, code)
        mode, factor = self._memory(code, MODE, FACTOR)
        active = self.space.active(code)
        moved = mode + (factor @ torch.where(active, x, 0.0)[..., None])[..., 0]
        return torch.where(active, moved, z), ladj + _log_det(factor)

    def to_reference(self, theta: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        mode, factor = self._memory(code, MODE, FACTOR)
        active = self.space.active(code)
        gap = torch.where(active, theta - mode, 0.0)
        x = torch.linalg.solve_triangular(factor, gap[..., None], upper=True)[..., 0]
        x = torch.where(active, x, theta)
        z, ladj = (x, 0.0) if self.flow is None else self.flow.to_reference(x, code)
        return z, ladj - _log_det(factor)

    def normals(self, code: Tensor) -> tuple[Tensor, Tensor]:
        """Modes (C, D), and upper triangular factors of the covariances there, (C, D, D)."""
        mode, factor = self._memory(code, MODE, FACTOR)
        return mode, factor

    def log_evidence(self, code: Tensor) -> Tensor:
        """Laplace's log evidence, p(model) included, (C, L) -> (C,), nats.

        -inf where the log joint could not be evaluated near the prior.
        """
        return self._memory(code, LOG_EVIDENCE)[0]

    def expansion(self, code: Tensor) -> Expansion:
        """The log joint of all items together, to second order around one model's mode.

        Arguments:
            code: One model of :class:`~trjmcmc.Subsets`, shape (L,).

        Where all items together have no density there, curvature is the prior's.
        """
        everything = torch.ones_like(code[None])
        always = self.space.active(torch.zeros_like(everything))[0]
        mode = self._memory(code[None], MODE)[0]
        _, slope, bend = self._derivatives(
            everything, self._units(mode), torch.ones_like(always)[None]
        )
        centre = torch.where(always, mode, 0.0)
        precision = _safe(bend)[0]
        away = ((mode - centre) / self.scale)[0].double()
        per_slot = self.target.prior_by_slot(everything, centre)[0].double()
        constant = per_slot + self.scale.double().log() + 0.5 * math.log(2 * math.pi)
        return Expansion(precision, slope[0] + precision @ away, constant, centre[0])

    # ---- modes and curvatures -------------------------------------------------------------------

    def _find(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Modes (n, D), factors (n, D, D) and log evidences (n,) of distinct models."""
        d = max(1, self.space.n_slots)
        parts = [self._modes(part) for part in code.split(max(1, BATCH // (d * d)))]
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    @torch.no_grad()
    def _modes(self, code: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Damped Newton steps in units of the prior; each row ends by itself."""
        active = self.space.active(code)
        u = torch.zeros(active.shape, dtype=self.scale.dtype, device=self.scale.device)
        value, slope, bend = self._derivatives(code, u, active)
        rows = torch.arange(len(code), device=u.device)  # those that still move
        for _ in range(ITERATIONS):
            step, gain = _newton(bend[rows], slope[rows])
            rows, step = rows[gain > SETTLED], step[gain > SETTLED].to(u)
            if not len(rows):
                break
            there, better = self._along(code[rows], u[rows], step, value[rows])
            rows = rows[better]
            if not len(rows):
                break
            u[rows] = there[better]
            found = self._derivatives(code[rows], u[rows], active[rows])
            value[rows], slope[rows], bend[rows] = found
        return self._normal(u, value, bend, active)

    def _along(self, code: Tensor, u: Tensor, step: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The first of ever shorter steps that gains, and whether there is one, (n,)."""
        there, better = u.clone(), torch.zeros_like(value, dtype=torch.bool)
        for length in LENGTHS:
            left = (~better).nonzero()[:, 0]
            if not len(left):
                break
            tried = u[left] + length * step[left]
            gains = self._log_joint(code[left], tried) > value[left]
            there[left[gains]] = tried[gains]
            better[left[gains]] = True
        return there, better

    def _normal(
        self, u: Tensor, value: Tensor, bend: Tensor, active: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        root = _inverse_transposed(torch.linalg.cholesky(_safe(bend)))
        scale = torch.where(active, self.scale, 1.0)
        root = (scale[..., None] * root).to(u.dtype)
        mode = self._theta(u, active)
        log_evidence = value + _log_det(root) + 0.5 * math.log(2 * math.pi) * active.sum(-1)
        wide = _wide(mode, root, active)
        return mode, wide, log_evidence.nan_to_num(-math.inf, -math.inf, -math.inf)

    def _units(self, theta: Tensor) -> Tensor:
        return (theta - self.location) / self.scale

    def _theta(self, u: Tensor, active: Tensor) -> Tensor:
        return torch.where(active, self.location + self.scale * u, 0.0)

    def _log_joint(self, code: Tensor, u: Tensor) -> Tensor:
        theta = self._theta(u, self.space.active(code))
        log_prior, log_likelihood = self.target.log_prior_and_likelihood(
            code, theta, surrogate=True
        )
        return torch.where(log_prior == -math.inf, log_prior, log_prior + log_likelihood)

    def _derivatives(self, code: Tensor, u: Tensor, active: Tensor) -> tuple[Tensor, ...]:
        """Log joint (n,), gradient (n, D) and minus the Hessian (n, D, D), float64, in u."""
        with torch.enable_grad():
            leaf = u.detach().requires_grad_()
            value = self._log_joint(code, leaf)
            if not value.requires_grad:
                return value, torch.zeros_like(u).double(), _unit(active)
            (slope,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
            hessian = self._hessian(code, leaf, slope).double()
        both = active[:, :, None] & active[:, None, :]
        bend = torch.where(both, -0.5 * (hessian + hessian.mT), _unit(active))
        slope = torch.where(active, slope.detach().double(), 0.0)
        broken = ~(bend.isfinite().all(-1).all(-1) & slope.isfinite().all(-1))
        bend = torch.where(broken[:, None, None], _unit(active), bend)
        slope = torch.where(broken[:, None], 0.0, slope)
        return value.detach(), slope, bend

    def _hessian(self, code: Tensor, leaf: Tensor, slope: Tensor) -> Tensor:
        """By automatic differentiation where that proves right at the first points."""
        if self._twice is not False:
            try:
                found = _rows_of_hessian(slope, leaf).detach()
            except RuntimeError:  # some operation has a first derivative only
                self._twice = False
            else:
                if self._twice is None and bool(found.isfinite().all()):
                    checked = self._differences(code[:CHECKED], leaf.detach()[:CHECKED])
                    gap = (found[:CHECKED] - checked).abs().amax((1, 2))
                    size = checked.abs().amax((1, 2)) + 1
                    self._twice = bool((gap < AGREE * size).double().mean() > 0.5)
                if self._twice is not False:
                    return found
        return self._differences(code, leaf.detach())

    def _differences(self, code: Tensor, u: Tensor) -> Tensor:
        """The Hessian from differences of gradients, (n, D, D), float64."""
        n, d = u.shape
        step = STEP * torch.eye(d, dtype=u.dtype, device=u.device)
        points = torch.stack([u[:, None] + step, u[:, None] - step]).flatten(0, 2)
        with torch.enable_grad():
            leaf = points.requires_grad_()
            value = self._log_joint(code.repeat_interleave(d, 0).repeat(2, 1), leaf)
            (slope,) = torch.autograd.grad(value.sum(), leaf)
        up, down = slope.double().view(2, n, d, d)
        return (up - down) / (2 * STEP)

    def _apply(self, fn: Any, recurse: bool = True) -> LaplaceMap:
        super()._apply(fn, recurse)
        self._use(self.target.to(dtype=self.scale.dtype, device=self.scale.device))
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LaplaceMap:
        flow = copy.deepcopy(self.flow, memo)
        return LaplaceMap(
            self.target, flow, megabytes=self.megabytes, reference=copy.deepcopy(self.reference)
        )


def _unit(active: Tensor) -> Tensor:
    eye = torch.eye(active.shape[1], dtype=torch.float64, device=active.device)
    return eye.expand(len(active), -1, -1)


def _rows_of_hessian(slope: Tensor, leaf: Tensor) -> Tensor:
    """Second derivatives of what ``slope`` is the gradient of, (n, D, D)."""
    d = leaf.shape[1]
    if not slope.requires_grad:  # the log joint is linear
        return torch.zeros(len(leaf), d, d, dtype=leaf.dtype, device=leaf.device)
    if d <= ROW_BY_ROW:
        of_each = [
            torch.autograd.grad(x.sum(), leaf, retain_graph=True, allow_unused=True)[0]
            for x in slope.unbind(1)
        ]
        return torch.stack([torch.zeros_like(leaf) if x is None else x for x in of_each], 1)
    each = torch.eye(d, dtype=leaf.dtype, device=leaf.device)[:, None].expand(-1, len(leaf), -1)
    (rows,) = torch.autograd.grad(slope, leaf, each, is_grads_batched=True, allow_unused=True)
    return (torch.zeros_like(each) if rows is None else rows).transpose(0, 1)


def _newton(bend: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Newton steps (n, D), and what a quadratic would gain, nats (n,)."""
    factor, info = torch.linalg.cholesky_ex(bend)
    step = torch.cholesky_solve(slope[..., None], factor)[..., 0]
    unsafe = info > 0
    if bool(unsafe.any()):
        unit, values, vectors = _safe_spectrum(bend[unsafe])
        along = (vectors.mT @ (unit * slope[unsafe])[..., None])[..., 0] / values
        turned = (vectors @ along.clamp(-LONGEST, LONGEST)[..., None])[..., 0]
        step[unsafe] = unit * turned
    return step, 0.5 * (slope * step).sum(-1)


def _safe(bend: Tensor) -> Tensor:
    """Precisions (n, D, D): themselves where they are positive definite and nowhere too wide."""
    factor, info = torch.linalg.cholesky_ex(bend)
    wide = _inverse_transposed(factor).square().sum(-1).amax(-1) > WIDEST**2
    unsafe = (info > 0) | wide
    if not bool(unsafe.any()):
        return bend
    unit, values, vectors = _safe_spectrum(bend[unsafe])
    mended = bend.clone()
    mended[unsafe] = (vectors * values[:, None]) @ vectors.mT / (unit[:, :, None] * unit[:, None])
    return mended


def _safe_spectrum(bend: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Units (n, D), and the spectrum in these: eigenvalues kept sensible, and eigenvectors.

    A unit is the prior's, but for coordinates that data tell 1e5 times as well as it does:
    beside their precisions the prior's would be lost in rounding.
    """
    own = bend.diagonal(dim1=-2, dim2=-1).abs()
    unit = (STIFFEST / own.clamp(min=STIFFEST)).sqrt()
    values, vectors = torch.linalg.eigh(unit[:, :, None] * bend * unit[:, None])
    return unit, values.abs().clamp(WIDEST**-2, own.shape[1] * STIFFEST), vectors


def _inverse_transposed(factor: Tensor) -> Tensor:
    """Upper triangular U with U U^T the inverse of factor factor^T."""
    eye = torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False).mT


def _wide(mode: Tensor, root: Tensor, active: Tensor) -> Tensor:
    """Upper triangular factors of normals that are wider than the numbers at their modes."""
    loc = torch.where(active, mode, 0.0).flip(-1)
    flipped = root.flip(-1, -2).double()  # lower triangular
    return resolved(loc.double(), flipped, root.dtype).flip(-1, -2).to(root.dtype)


def _log_det(factor: Tensor) -> Tensor:
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
