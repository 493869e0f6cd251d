"""What is tried of a model of another language before anybody samples it."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import TargetError
from ..rng import seeded
from ..target.density import Block, Density
from ..target.model import Model
from ..target.support import support_of, unchecked
from .check_points import check_points, check_slopes
from .foreign import ForeignModel

Joined = TypeVar("Joined", bound=Model)

DRAWS = 4096  # by which normalisation is judged

CONDITIONS = 2  # values of the parameters before it at which a prior is checked

SPREAD = 0.5  # variance of the normal over that of the prior draws it is fitted to

NEAR = 0.25  # share of the draws that it is fitted to: those nearest to the likeliest

NARROW = 5  # coordinates up to which it is; in more it would be too narrow, and takes all

ERRORS = 6.0  # standard errors beyond which a prior is not normalised, and

LEAST = 0.05  # the least relative error of a constant that is reported

ENTRIES = 100  # of a prior that are checked at most

FAR = 4  # draws outside the support that rounding explains where parameters before it are far out

EQUAL = 8  # draws of one number that are the same where a prior has an atom, and

CENTRAL = 10.0  # unconstrained coordinates up to which they are: at the ends draws are rounded

POINTS = 5  # prior draws at which batches and gradients are checked


def checked_alone(prior: Distribution, language: str) -> Distribution:
    """A distribution of another language, after its draws and its constant are tried.

    Raises:
        TargetError: It does not integrate to 1, has atoms, or draws outside its support.
    """
    with seeded(0), torch.no_grad(), unchecked():
        owner = f"a distribution of {language}"
        density = Density(owner, {"value": prior}, lambda p: torch.zeros(()), True, None)
        check_priors(density, language)
    return prior


def checked(model: ForeignModel) -> ForeignModel:
    """The model, after a few calls that find out what would make its answers wrong.

    Draws of every prior lie in its support, whatever the parameters before it, and no number is
    drawn again and again. It is normalised: for draws x of it the mean of q(x) / p(x) is 1
    whatever the density q, here a normal of half the variance of those draws that lie around the
    likeliest. Batches agree with points alone, gradients with differences, one call for both with
    prior and likelihood, numbers with the precision.

    Arguments:
        model: The model.

    Raises:
        TargetError: One of these is wrong.
    """
    dtype = model.dtype or torch.get_default_dtype()
    with seeded(0), torch.no_grad(), unchecked():
        density = _density(model, dtype, fused=model.fused)
        if not density.blocks:
            return model
        check_priors(density, model.language)
        draws = density.sample(POINTS, None)
        theta = density.unconstrain(draws, None, density.width).to(dtype)
    theta = theta[theta.isfinite().all(-1)]
    with unchecked():
        check_points(density, theta, model.language)
        if density.differentiable:
            check_slopes(density, theta, model.language)
    return model


def checked_joint(model: Joined, language: str) -> Joined:
    """A joint on a reference, after its batches, its gradients and its precision are tried.

    At draws of the reference where it is possible. A function that fails on the host, in both
    precisions where it states none, is left to the target, which knows its device.

    Arguments:
        model: The joint.
        language: Which it was written in, for messages.

    Raises:
        TargetError: Batches differ from their points alone, gradients from differences, or
            numbers are in another precision than the model states.
    """
    for dtype in (torch.float64, torch.float32) if model.dtype is None else (model.dtype,):
        with seeded(0), torch.no_grad(), unchecked():
            try:
                density = _density(model, dtype, on_reference=True)
                by_points = density.likelihood.foreign  # in the order that they have in a batch
                if not density.blocks or (by_points and not density.differentiable):
                    return model
                draws = density.sample(POINTS, None)
                theta = density.unconstrain(draws, None, density.width).to(dtype)
                values = density.constrain(theta, None)
                log_joint = density.likelihood(values, POINTS)
            except Exception:  # of the user's function: the target says what is wrong with it
                continue
        if model.dtype is None and log_joint.dtype != dtype:
            continue
        theta = theta[log_joint.isfinite() & theta.isfinite().all(-1)]
        if not len(theta):
            break
        with unchecked():
            if not by_points:
                check_points(density, theta, language)
            if density.differentiable:
                check_slopes(density, theta, language)
        break
    return model


def _density(model: Model, dtype: torch.dtype, **how: Any) -> Density:
    """The density of a model on the host, as a target makes it."""
    owner, rest = f"model {model.name!r}", (model.vectorized, model.surrogate)
    made = Density(owner, model.priors, model.log_likelihood, *rest, **how)
    return made.to(dtype, torch.device("cpu"))


def check_priors(density: Density, language: str) -> None:
    """Refuse priors whose densities do not integrate to 1 over their own draws."""
    parents = density.sample(DRAWS, None)
    for block in density.blocks:
        _check_support(block, parents[block.prior.name], parents, density.owner, allowed=FAR)
    for i in range(CONDITIONS):
        given = {k: v[i : i + 1].expand(DRAWS, *v.shape[1:]) for k, v in parents.items()}
        for block in density.blocks:
            draws = block.prior.sample(DRAWS, given)
            _check_draws(block, draws, given, density.owner)
            found = _mass(block, draws, given)
            if found is None:
                continue
            mean, error = found
            worst = int(((mean - 1).abs() - ERRORS * error).argmax())
            gap = abs(float(mean[worst]) - 1)
            if not gap <= ERRORS * float(error[worst]) + LEAST:
                raise TargetError(
                    f"the prior of {block.prior.name!r} in {density.owner} does not integrate to 1 "
                    f"by its own draws: {1 / max(float(mean[worst]), 1e-300):.4g} instead. Its "
                    f"density in {language} lacks a constant, or its draws are of another "
                    "distribution; evidences would be wrong by that. State it as a prior of "
                    "torch.distributions or trj.priors, or the model as trj.Joint"
                )


def _check_support(
    block: Block, draws: Tensor, given: dict[str, Tensor], owner: str, *, allowed: int = 0
) -> None:
    """Refuse draws of numbers outside the support, or NaN, where they are more than allowed."""
    prior = block.prior
    if not _is_of_numbers(block):
        return
    support = _of_entries(block, given)
    beyond = draws < getattr(support, "lower_bound", -math.inf)
    beyond = beyond | (draws > getattr(support, "upper_bound", math.inf))
    beyond = beyond | draws.isnan()
    outside = int(beyond.reshape(DRAWS, -1).any(1).sum())
    if outside > allowed:
        raise TargetError(
            f"the prior of {prior.name!r} in {owner}: {outside} of {DRAWS} of its draws lie "
            "outside the support that it states. If a transform restricts it, its density does not "
            "integrate to 1 there, and evidences would be wrong by that: truncate the "
            "distribution itself"
        )


def _is_of_numbers(block: Block) -> bool:
    """Whether a prior is of numbers, not of simplexes and the like."""
    return block.prior.size == math.prod(block.prior.shape) and bool(block.prior.size)


def _of_entries(block: Block, given: dict[str, Tensor]) -> Any:
    """Where each entry lies, given the parameters before it."""
    support: Any = support_of(block.prior.distribution(given, DRAWS))
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support


def _check_draws(block: Block, draws: Tensor, given: dict[str, Tensor], owner: str) -> None:
    """Refuse draws outside the support, and numbers that are drawn again and again."""
    prior = block.prior
    _check_support(block, draws, given, owner)
    if not _is_of_numbers(block):
        return
    x, support = prior.unconstrain(draws, given)[:, :ENTRIES], _of_entries(block, given)
    real = support is constraints.real
    ranked = x.sort(0).values
    equal = ranked[EQUAL:] == ranked[:-EQUAL]
    equal &= ranked[EQUAL:].isfinite() & (real | (ranked[EQUAL:].abs() < CENTRAL))
    if bool(equal.any()):
        raise TargetError(
            f"the prior of {prior.name!r} in {owner} has atoms: one number comes back among "
            f"{DRAWS} draws. A posterior of that is no density; make the value, or what censors, "
            "a model of its own in the list (spike and slab: two models)"
        )


def _mass(block: Block, draws: Tensor, given: dict[str, Tensor]) -> tuple[Tensor, Tensor] | None:
    """Mean of q / p over prior draws by entry, and its standard error; None if q can't be had."""
    prior = block.prior
    if not prior.size:
        return None
    x = prior.unconstrain(draws, given)
    _, log_p = prior.evaluate(x, given)
    log_p = log_p.reshape(DRAWS, -1).double()
    x = x.reshape(DRAWS, log_p.shape[1], -1).double()[:, :ENTRIES]
    log_p = log_p[:, :ENTRIES]
    fine = x.isfinite().all(-1) & log_p.isfinite()
    x = torch.where(fine[:, :, None], x, x.nanmedian(0).values.nan_to_num(0.0, 0.0, 0.0))
    cuts = torch.tensor([0.25, 0.75], dtype=torch.float64)
    low, high = x.quantile(cuts, 0)
    scale = (high - low) / 1.349
    if not bool((scale > 0).all()):
        return None
    z = x / scale
    # the draws around the likeliest: of one mode, where a prior has several
    top = torch.where(fine, log_p, -math.inf).argmax(0)
    away = (z - z.gather(0, top[None, :, None].expand(1, -1, z.shape[-1]))).square().sum(-1)
    near = (away <= away.quantile(NEAR if z.shape[-1] <= NARROW else 1.0, 0)).to(z)
    share = near / near.sum(0)
    centre = torch.einsum("ne,nei->ei", share, z)
    z = (z - centre).clamp(-10, 10)
    cov = torch.einsum("ne,nei,nej->eij", share, z, z)
    eye = torch.eye(cov.shape[-1]).to(cov)
    factor = torch.linalg.cholesky(SPREAD * cov + 1e-9 * eye)
    white = torch.linalg.solve_triangular(factor, z.permute(1, 2, 0), upper=False)
    log_q = -0.5 * white.square().sum(1).T - 0.5 * x.shape[-1] * math.log(2 * math.pi)
    log_q = log_q - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    log_w = log_q - scale.log().sum(-1) - log_p
    w = torch.where(fine, log_w.clamp(max=700.0).exp(), 0.0)
    return w.mean(0), w.std(0) / math.sqrt(DRAWS)
