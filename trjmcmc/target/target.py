"""Targets: priors and likelihoods as one log joint density on padded unconstrained coordinates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution

from ..checks import checked_dtype, spelled
from ..errors import TargetError
from ..rng import host_number, seeded
from ..space.base import Kind, Space
from ..space.prior import LogWeights
from .account import Account, Counted
from .additive import Additive
from .densities import ByModel, Densities, Shared
from .density import Density
from .equations import Equations
from .likelihood import LogLikelihood
from .model import Model, Truth, stated_dtype
from .parameters import NamedParameters
from .pieces import in_pieces
from .prior import PriorSpec
from .probe import probe
from .remade import Remade
from .scores import LocalScores
from .support import unchecked
from .words import InWords

Found = TypeVar("Found")


class Target(NamedParameters, InWords, Remade, Counted):
    """The posterior over models and parameters, up to its normalising constant.

    Nothing that a run does changes it, so that many may share one. Two forms: a list of models,
    each with its own priors and likelihood::

        Target([Model(...), Model(...)], model_prior=[0.5, 0.5])

    and a large space with one batched likelihood for all models::

        Target(Subsets(names, of="beta"), priors={"beta": ..., "sigma": ...}, log_likelihood=f)

    where ``f(params, active)`` gets per-item parameters of shape (C, items, ...), zero where
    ``active`` (C, items) is False; with several kinds of components ``active`` is a dict by kind.
    The prior of a per-item parameter is for one item, shared by all, or has one entry an item.

    Arguments:
        models: Models, or a :class:`Space`.
        priors: Large form only: prior of each parameter.
        log_likelihood: Large form only: function of (params, active).
        model_prior: List form only: probabilities, :class:`LogWeights`, or a distribution over
            the index; None is uniform. Spaces carry their own prior.
        surrogate, vectorized: Large form only, as in :class:`Model`.
        truth: Known answers, if any.
        dtype: Precision that parameters reach the likelihood in; state it where that holds data.
            If omitted that which models state, or torch's default, which is open to runs.
        device: Where parameters live, the CPU if omitted; the likelihood's data must be there.

    Attributes:
        space: The bound model space.
        dim: D, padded unconstrained coordinates.
        account: Evaluations since it was made: all that changes. A run's own are in its report.

    Raises:
        TargetError, ShapeError, NonFiniteError: The statement of the problem is wrong; every
            likelihood is called once at a few prior draws to find out.

    Source:
        Padded (saturated) space: Brooks et al. (2003), https://doi.org/10.1111/1467-9868.03711

    Example:
        >>> from torch.distributions import Normal
        >>> from trjmcmc import Subsets
        >>> x, y = torch.eye(3), torch.tensor([1.0, 0.0, 2.0])
        >>> target = Target(
        ...     Subsets(["a", "b", "c"], of="beta"),
        ...     priors={"beta": Normal(0.0, 1.0)},
        ...     log_likelihood=lambda p, active: -(y - p["beta"] @ x).square().sum(-1),
        ... )
        >>> code = target.space.code_of("a+c")
        >>> target.log_joint(code[None], torch.tensor([[1.0, 0.0, 2.0]])).shape
        torch.Size([1])
    """

    _densities: Densities
    _known: dict[Callable[..., Any], Any]

    @spelled
    def __init__(
        self,
        models: Sequence[Model] | Space,
        priors: Mapping[str, PriorSpec] | None = None,
        log_likelihood: LogLikelihood | None = None,
        *,
        model_prior: Sequence[float] | Tensor | Distribution | LogWeights | None = None,
        surrogate: LogLikelihood | None = None,
        vectorized: bool = True,
        truth: Truth | None = None,
        dtype: torch.dtype | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.truth = truth
        dtype = checked_dtype(dtype) or stated_dtype(models, log_likelihood)
        self.is_precision_open = dtype is None
        self.dtype = dtype or torch.get_default_dtype()
        self.device = torch.device(device or "cpu")
        # prior draws that find out shapes come from the global generator: leave it as it was
        with seeded(0, self.device), torch.no_grad():
            densities: Densities
            if isinstance(models, Space):
                if model_prior is not None:
                    raise TargetError("model_prior: a space carries its own prior; pass it there")
                densities = Shared(models, priors, log_likelihood, surrogate, vectorized)
            else:
                if priors is not None or log_likelihood is not None or surrogate is not None:
                    raise TargetError(
                        "priors, log_likelihood, surrogate: with a list of models each model "
                        "carries its own; these arguments go with a space"
                    )
                densities = ByModel(models, model_prior)
            self._hold(densities.to(self.dtype, self.device))
            self._probe()

    def _hold(self, densities: Densities) -> None:
        self._densities = densities
        self.space, self.dim = densities.space, densities.dim
        self.slot_names = densities.slot_names
        self.account, self._known = Account(), {}

    def _probe(self) -> None:
        self._densities = self._densities.tried(*probe(self, self.account))

    def to(
        self, *, dtype: torch.dtype | None = None, device: Any = None, probe: bool = True
    ) -> Target:
        """A copy in another precision or on another device, itself where nothing is changed.

        Tensors inside the user's functions stay where they are; the account is the copy's own,
        unless nothing is new but that its precision is stated.

        Arguments:
            dtype, device: What to change.
            probe: Call every likelihood once there.
        """
        new = copy.copy(self)
        new.dtype = dtype or self.dtype
        new.is_precision_open = self.is_precision_open and dtype is None
        new.device = torch.device(device or self.device)
        if (new.dtype, new.device) == (self.dtype, self.device):
            return self if new.is_precision_open == self.is_precision_open else new
        new._hold(self._densities.to(new.dtype, new.device))
        if probe:
            with seeded(0, new.device), torch.no_grad():
                new._probe()
        return new

    def over(self, space: Space) -> Target:
        """The same density over other models of the same items and slots."""
        new = copy.copy(self)
        new._hold(self._densities.over(space))
        return new

    def cached(self, function: Callable[[Target], Found]) -> Found:
        """What a function says of this target, computed at the first call and kept here."""
        if function not in self._known:
            self._known[function] = function(self)
        return self._known[function]

    # ---- evaluation -------------------------------------------------------------------------

    @in_pieces
    def log_prior_and_likelihood(
        self, code: Tensor, theta: Tensor, *, surrogate: bool = False, total: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Log prior (model, parameters and Jacobian) and log likelihood.

        Arguments:
            code: Models, shape (C, L), int64.
            theta: Padded unconstrained coordinates, shape (C, D); spare slots are ignored.
            surrogate: Take the models' smooth surrogates of their likelihoods, where they have one.
            total: What the components add up to, (C, *data), if the likelihood is
                :class:`Additive` and that is known.

        Raises:
            BudgetError: ``limit`` does not allow as many evaluations.

        Returns:
            Two tensors of shape (C,), nats. Where the prior is -inf the likelihood is finite
            and has no meaning. A likelihood that is NaN or +inf far out in the prior's tail
            (numbers that overflow) is taken as impossible and counted in ``overflows``.
        """
        each = self._densities.each
        if not surrogate or any(d.surrogate is None for d in each):
            self.account.check(len(theta))

        with unchecked():
            found = self._densities.evaluate(code, theta, surrogate, total)
        self.account.add(evaluations=found.calls, overflows=found.forgiven)
        return self.space.log_prior(code) + found.log_prior, found.log_likelihood

    def with_presence(self, bits: Tensor, items: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Log prior and log likelihood of subsets whose items are present by degrees.

        Arguments:
            bits: Units, 0 to 1, shape (C, L).
            items: Presence of each item, shape (C, I); parameters are multiplied by it.
            theta: Coordinates of all items, present or not, shape (C, D).

        Returns:
            Two tensors of shape (C,), nats, differentiable in the presence.
        """
        (density,) = self._densities.each
        with unchecked():
            log_prior, log_likelihood, calls, _ = density.evaluate(theta, items, True)
        self.account.add(evaluations=calls)
        return self.space.graded_log_prior(bits) + log_prior, log_likelihood

    def log_joint(self, code: Tensor, theta: Tensor, total: Tensor | None = None) -> Tensor:
        """log p(model) p(theta | model) p(data | theta, model) abs(d params / d theta).

        Arguments:
            code: Models, shape (C, L), int64.
            theta: Padded unconstrained coordinates, shape (C, D); spare slots are ignored.
            total: As for :meth:`log_prior_and_likelihood`.

        Returns:
            Shape (C,), nats; -inf outside the support; NaN where the likelihood is NaN.
        """
        log_prior, log_likelihood = self.log_prior_and_likelihood(code, theta, total=total)
        log_joint = log_prior + log_likelihood
        return torch.where(log_prior == -math.inf, log_prior, log_joint)

    def likelihood_dtype(self, code: Tensor, theta: Tensor) -> torch.dtype | None:
        """Precision of the numbers that a model's likelihood returns; None of a black box.

        Arguments:
            code: One model, shape (L,).
            theta: One point, shape (1, D).
        """
        density = self._densities.of(code)
        if density.likelihood.foreign:
            return None
        items = self._densities.items(code[None])
        self.account.add(evaluations=1)
        with unchecked():
            shown = density.shown(theta, items)
            return density.likelihood(shown, 1, density.by_kind(items)).dtype

    @in_pieces
    def log_joint_and_grad(
        self, code: Tensor, theta: Tensor, *, temper: float | Tensor = 1.0, surrogate: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Tempered log joint, likelihood to the power ``temper``, and its gradient.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            temper: Exponent of the likelihood in [0, 1], one number or shape (C,).
            surrogate: Take the models' smooth surrogates of their likelihoods, where they have one.

        Returns:
            Values, shape (C,), nats, and gradients, shape (C, D), zero in spare slots.
        """
        self.account.add(gradients=len(theta))
        with torch.enable_grad():
            leaf = theta.detach().requires_grad_()
            found = self.log_prior_and_likelihood(code, leaf, surrogate=surrogate)
            log_prior, log_likelihood = found
            value = log_prior + temper * log_likelihood
            if not value.requires_grad:  # no parameters
                return value, torch.zeros_like(theta)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
        gradient = torch.zeros_like(theta) if gradient is None else gradient
        value = torch.where(log_prior == -math.inf, log_prior, value)
        return value.detach(), torch.where(self.space.active(code), gradient, 0.0)

    @property
    def differentiable(self) -> bool:
        """Whether gradients of every likelihood (or its smooth surrogate) can be had."""
        return all(density.differentiable for density in self._densities.each)

    def start_of(self, code: Tensor) -> str:
        """What draws of a model, (L,), start from, in a word: ``prior`` or ``reference``."""
        return "reference" if self._densities.of(code).on_reference else "prior"

    # ---- likelihoods of sums over components ------------------------------------------------

    @property
    def additive(self) -> Additive | None:
        """The likelihood, if it is :class:`Additive`."""
        return self._densities.each[0].additive

    @property
    def scores(self) -> LocalScores | None:
        """The likelihood, if it is a sum of local scores of a graph and nothing else."""
        return None if self.dim else self._densities.each[0].scores

    @property
    def equations(self) -> Equations | None:
        """The likelihood, if it is a sum over the nodes of a graph."""
        return self._densities.each[0].equations

    def total(self, code: Tensor, theta: Tensor) -> Tensor:
        """What the components of an additive likelihood add up to, float64, (C, *data)."""
        assert self.additive is not None
        items = self.space.items(code)
        with unchecked():
            shown = self._densities.each[0].shown(theta, items)
            return self.additive.total(shown, self.space.by_kind(items))

    def contribution(self, theta: Tensor, kind: int = 0) -> Tensor:
        """What the first component of a kind adds at each point, float64, (C, *data)."""
        assert self.additive is not None
        which = self.space.kinds[kind]
        first = torch.arange(self.space.n_items, device=theta.device) == which.first
        with unchecked():
            shown = self._densities.each[0].shown(theta, first.expand(len(theta), -1))
            return self.additive.of_one(shown, which.name).double()

    def density_of_one(self, kind: Kind) -> Density:
        """The density of one component of a kind and of what all share: ``Density.of_one``."""
        return self._densities.each[0].of_one(kind.items)

    # ---- parameters -------------------------------------------------------------------------

    @property
    def models(self) -> list[Model]:
        """Models of a list as they were stated; none in a space."""
        return self._densities.models

    # ---- prior draws, births and deaths -----------------------------------------------------

    def sample_prior(self, code: Tensor, generator: torch.Generator) -> Tensor:
        """Padded coordinates drawn from the parameters' prior, (C, L) -> (C, D).

        Rows whose draw falls on the boundary of the support in floating point come out as
        infinite; spare slots are zero.
        """
        theta = torch.zeros(len(code), self.dim, dtype=self.dtype, device=self.device)
        with seeded(host_number(generator), self.device), torch.no_grad(), unchecked():
            for density, rows in self._densities.rows(code):
                n = len(theta[rows])
                if n and density.blocks:
                    items = self._densities.items(code[rows])
                    draws = density.sample(n, items)
                    theta[rows] = density.unconstrain(draws, items, self.dim).to(theta)
        return torch.where(self.space.active(code), theta, 0.0)

    def shared_slots(self, old: Tensor, new: Tensor) -> Tensor:
        """Slots that hold the same entry of the same parameter in both models, (C, D), bool."""
        return self._densities.shared_slots(old, new)

    def sample_missing(self, code: Tensor, theta: Tensor, keep: Tensor, seed: int) -> Tensor:
        """Draw entries of the parameters from their priors, given those that are kept.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            keep: Slots to keep, shape (C, D), bool; see :meth:`shared_slots`.
            seed: Of the prior draws.

        Returns:
            Shape (C, D); infinite where a draw falls on the boundary of the support.
        """
        with seeded(seed, self.device), torch.no_grad(), unchecked():
            (filled,) = self._densities.by_row(
                lambda d, x, keep, items: (d.sample_missing(x, keep > 0, items),), code, theta, keep
            )
        return torch.where(self.space.active(code), filled, 0.0)

    def prior_by_slot(self, code: Tensor, theta: Tensor) -> Tensor:
        """Log prior density of each entry of each parameter, on the first of its slots.

        Shape (C, D), nats, zero elsewhere; the Jacobian is inside, p(model) is not.
        """
        with unchecked():
            (found,) = self._densities.by_row(
                lambda d, theta, items: (d.prior_by_slot(theta, items),), code, theta
            )
        return torch.where(self.space.active(code), found, 0.0)

    def log_prior_change(
        self, code: Tensor, theta: Tensor, priors: Mapping[str, PriorSpec]
    ) -> Tensor:
        """Log of other priors over the present ones of some parameters, shape (C,), nats.

        Arguments:
            code: Models, shape (C, L).
            theta: Padded coordinates, shape (C, D).
            priors: By name, distributions of the shape of the present ones.

        Raises:
            TargetError: No model has such a parameter.
        """
        known = {b.prior.name for d in self._densities.each for b in d.blocks}
        if missing := sorted(set(priors) - known):
            raise TargetError(f"priors: no parameter {missing}; there are {sorted(known)}")
        change = theta.new_zeros(len(theta))
        with unchecked():
            for density, rows in self._densities.rows(code):
                items = self._densities.items(code[rows])
                change[rows] = density.log_prior_change(theta[rows], items, priors)
        return change
