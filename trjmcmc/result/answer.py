"""From a fitted q to its answer, and from a run's draws to how far off that was."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..doubts.doubt import Doubt
from ..doubts.of_answers import (
    averaged,
    of_audit,
    of_bound,
    of_counts,
    of_moments,
    of_probabilities,
    of_reach,
    of_spread,
    of_weights,
)
from ..doubts.of_search import DRAWS_OF_A_NEIGHBOUR, NEIGHBOURS, of_neighbours
from ..errors import NonFiniteError
from ..estimate.estimate import Estimate
from ..estimate.importance import (
    CHUNK,
    log_weights,
    pareto_k,
    pareto_smoothed,
    probabilities,
    rounded,
    smoothed,
)
from ..estimate.reach import far_draws
from ..pilot.report import AuditReport
from ..space.base import Space
from ..space.codes import distinct
from ..target.target import Target
from ..transport.base import Transport
from ..weights.base import ModelWeights
from ..weights.score_gradient import CategoricalWeights
from .axes import description
from .variational import Variational
from .variational_draws import VariationalDraws

if TYPE_CHECKING:
    import pandas as pd

Q_DRAWS = 8192  # from q that its answer is made of

FEWEST_OF_A_MODEL = 1024  # draws of each model of a small space, by which q(m) is found

MODELS_LISTED = 50  # models in the table at most

FAR_DRAWS = 32_768  # of longer tails, of all models together

IMPOSSIBLE = -1e30  # logit of a model that q never draws

OF_NOTE = 0.05  # probability of a model whose evidence has to be known

BEYOND = 0.01  # share of the posterior beyond the reach of q that is a doubt


BEYOND_SIGMAS = 3.0  # standard errors by which an evidence with longer tails must be larger

MOST_SUMMED = 4096  # models whose known evidences are added up


class Weighed(NamedTuple):
    """Draws from q.

    Attributes:
        code: Shape (S, L).
        theta: Shape (S, D).
        log_joint: Shape (S,), float64, nats.
        log_q: Of model and theta together, shape (S,), float64, nats.
    """

    code: Tensor
    theta: Tensor
    log_joint: Tensor
    log_q: Tensor

    @property
    def log_w(self) -> Tensor:
        """Log importance weights, shape (S,), nats; -inf where the density is zero."""
        return (self.log_joint - self.log_q).nan_to_num(-math.inf, -math.inf, -math.inf)


@torch.no_grad()
def variational(
    target: Target,
    weights: ModelWeights | None,
    transport: Transport,
    generator: torch.Generator,
    *,
    n: int = Q_DRAWS,
    family: str = "",
    listed: Tensor | None = None,
    far: int = FAR_DRAWS,
) -> Variational:
    """Draw from q, and weigh the draws.

    Arguments:
        target, transport: As fitted.
        weights: q(m); None for that which fits best, in a small space.
        generator: Source of randomness.
        n: Draws from q.
        family: Of the map, by name.
        listed: Models that have a row each, and a share of the q(m) that fits best, (M, L); all of
            a small space if omitted.
        far: Draws of longer tails at most, of all models together.

    Raises:
        NonFiniteError: No draw of q lies where the posterior has a density.
    """
    import pandas as pd

    space = target.space
    kind = type(weights).__name__ if weights is not None else ""
    models = None
    codes = space.enumerate() if listed is None and space.few and space.several else listed
    if weights is None:
        codes = space.enumerate() if codes is None else codes
        models, weights = best_weights(target, transport, codes, generator, n)
        kind = "their evidence bounds" if space.several else ""
    elif codes is not None:
        models, _ = best_weights(target, transport, codes, generator, n)
        models["probability"] = weights.log_prob(codes).double().exp().tolist()
    weighed = weigh(target, weights, transport, generator, n)
    log_w = weighed.log_w
    if not bool((log_w > -math.inf).any()):
        raise NonFiniteError(
            f"variational answer: none of {n} draws of q lies where the posterior has a finite "
            "density; train longer, or by another family"
        )
    drawn, which, _ = distinct(weighed.code)
    log_p, labels = weights.log_prob(drawn).double(), space.label(drawn)
    top = log_p.argsort(descending=True)[:MODELS_LISTED]
    probabilities = pd.Series(
        log_p[top].exp().tolist(), index=space.label(drawn[top]), name="probability"
    )
    values = target.padded_values(weighed.code, weighed.theta)
    weighted, k = smoothed(log_w), pareto_k(log_w)
    log_evidence = rounded(weighted, target.dtype)
    out_there: list[Doubt] = []
    if models is not None:
        assert codes is not None
        models, out_there = _with_longer_tails(models, codes, target, transport, generator, far)
        unknown = models["log_evidence_se"].isna() & (models["probability"] > OF_NOTE)
        log_evidence = _in_total(models, space.log_prior(codes))
        k = max([k, *models["pareto_k"][unknown]])
    ess_share = weighted.ess / len(log_w)
    answer = Variational(
        kind,
        probabilities,
        _inclusion(space, weighed.code),
        rounded(bound(log_w), target.dtype),
        family=family,
        log_evidence=log_evidence,
        ess_share=ess_share,
        pareto_k=k,
        models=models,
        sample=VariationalDraws(
            tuple(labels),
            which.cpu(),
            {name: value.cpu() for name, value in values.items()},
            weighed.theta.cpu(),
            weighed.log_joint.cpu(),
            weighed.log_q.cpu(),
            {model.name: description(model, plain=True) for model in target.models},
        ),
        exact=_exact(target),
        transport=transport,
        weights=weights,
    )
    assert answer.sample is not None
    found = [
        *_doubts(answer, space, weighed, codes),
        *out_there,
        *of_moments(_by_model(answer.sample)),
        *(of_counts(labels, log_p.exp(), which.bincount()) if space.several else ()),
        *of_neighbours(target, transport, weighed.code, log_evidence.value, generator),
    ]
    return replace(answer, doubts=tuple(found))


def answer_cost(space: Space, n: int, far: int) -> int:
    """Evaluations of the answer of a fit at most.

    Arguments:
        space: The models.
        n: Draws from q.
        far: Draws of longer tails, of all models together.
    """
    if not space.few:
        return n + NEIGHBOURS * DRAWS_OF_A_NEIGHBOUR
    models = int(space.size or 1)
    each = max(FEWEST_OF_A_MODEL, n // models)
    return n + models * (each + max(FEWEST_OF_A_MODEL, min(far, FAR_DRAWS) // models))


def _by_model(sample: VariationalDraws) -> Iterator[tuple[str, dict[str, Any], Tensor]]:
    """Labels, numbers and log weights of draws, model by model."""
    for label in sample.models:
        rows, numbers = sample.columns(label)
        yield label, numbers, sample.log_weight[rows]


def weigh(
    target: Target, weights: ModelWeights, transport: Transport, generator: torch.Generator, n: int
) -> Weighed:
    """Draws from q with both log densities."""
    parts = []
    for size in [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else []):
        code = weights.sample(size, generator)
        z = transport.reference.sample((size, target.dim), generator, target.dtype)
        theta, log_q = transport.push(z, code)
        theta = torch.where(target.space.active(code), theta, 0.0)
        log_joint = target.log_joint(code, theta)
        target.check_finite(code, theta, log_joint)
        log_q = log_q.double() + weights.log_prob(code).double()
        parts.append((code, theta, log_joint.double(), log_q))
    return Weighed(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def best_weights(
    target: Target, transport: Transport, codes: Tensor, generator: torch.Generator, n: int
) -> tuple[pd.DataFrame, CategoricalWeights]:
    r"""What the map says of each of some models, and the q(m) over them that fits it best.

    .. math:: q(m) \propto p(m) \exp \mathrm{ELBO}(m)

    Returns:
        The table of :attr:`Variational.models`, and q(m).
    """
    import pandas as pd

    space = target.space
    log_prior = space.log_prior(codes).double()
    each, bounds, rows = max(FEWEST_OF_A_MODEL, n // len(codes)), [], []
    for code, prior in zip(codes, log_prior.tolist(), strict=True):
        log_w = log_weights(target, transport, code, each, generator)
        elbo, log_evidence = (rounded(e, target.dtype) for e in (bound(log_w), smoothed(log_w)))
        bounds.append(elbo.value)
        numbers = (elbo - prior, log_evidence - prior)
        row = [x for e in numbers for x in (e.value, e.std_error)]
        rows.append([*row, log_evidence.ess / each, pareto_k(log_w)])
    weights = CategoricalWeights(space).to(target.device)
    weights.logits.fill_(IMPOSSIBLE)
    known = torch.tensor(bounds).to(weights.logits).nan_to_num(neginf=IMPOSSIBLE)
    weights.logits[space.index(codes)] = known
    columns = ["elbo", "elbo_se", "log_evidence", "log_evidence_se", "ess_share", "pareto_k"]
    table = pd.DataFrame(rows, pd.Index(space.label(codes), name="model"), columns)
    table.insert(0, "probability", known.double().softmax(0).tolist())
    return table, weights


def _with_longer_tails(
    table: pd.DataFrame,
    codes: Tensor,
    target: Target,
    transport: Transport,
    generator: torch.Generator,
    most: int,
) -> tuple[pd.DataFrame, list[Doubt]]:
    """The table of models, with evidences by draws of longer tails.

    Draws of q keep theirs where the others can't be averaged, unless these find more by several
    errors.

    Returns:
        The table, and what of common models lies beyond the reach of q.
    """
    space, table = target.space, table.copy()
    doubts = list[Doubt]()
    n = max(FEWEST_OF_A_MODEL, min(most, FAR_DRAWS) // len(codes))
    for code, (label, row) in zip(codes, table.copy().iterrows(), strict=True):
        draws = far_draws(target, transport, code, n, generator)
        if draws is None:
            continue
        prior = float(space.log_prior(code[None]).double()[0])
        far = rounded(draws.log_evidence(), target.dtype) - prior
        own, own_error = row["log_evidence"], row["log_evidence_se"]
        more = far.value - own > BEYOND_SIGMAS * math.hypot(far.std_error, own_error)
        unknown = math.isnan(own_error) and not far.warning
        beyond = -math.expm1(min(0.0, own - far.value)) if more or unknown else 0.0
        if float(row["probability"]) * beyond > BEYOND:
            doubts.append(of_reach(str(label), float(row["probability"]) * beyond))
        elif not far.warning and float(row["probability"]) > OF_NOTE:
            slots = space.active(code[None])[0].nonzero()[:, 0].tolist()
            doubts += of_spread(str(label), draws, [target.slot_names[j] for j in slots])
        if more or not far.warning:
            error = math.nan if far.warning else far.std_error
            table.loc[label, ["log_evidence", "log_evidence_se"]] = far.value, error
    return table, doubts


def _in_total(table: pd.DataFrame, log_prior: Tensor) -> Estimate:
    """Log evidence of all models together by that of each."""
    masses = torch.tensor(table["log_evidence"].to_numpy()) + log_prior.double().cpu()
    masses = masses.nan_to_num(-math.inf, math.inf, -math.inf)
    p, error = masses.softmax(0), torch.tensor(table["log_evidence_se"].to_numpy())
    error = torch.where(p > OF_NOTE, error, error.nan_to_num(1.0))  # of a small share no matter
    total = (p * error).square().sum().sqrt()
    return Estimate(float(masses.logsumexp(0)), float(total))


def bound(log_w: Tensor) -> Estimate:
    """The evidence lower bound of q where the density is not zero, nats.

    Arguments:
        log_w: Log weights of draws from q, shape (n,), nats; -inf outside the support.
    """
    finite = log_w[log_w.isfinite()]
    if not len(finite):
        return Estimate(-math.inf, math.inf, 0.0, "no draw in the support")
    share = len(finite) / len(log_w)
    spread = float(finite.std()) if len(finite) > 1 else math.nan
    error = math.hypot(
        spread / math.sqrt(len(finite)), math.sqrt((1 - share) / (share * len(log_w)))
    )
    return Estimate(float(finite.mean()) + math.log(share), error, float(len(finite)))


def _exact(target: Target) -> float | None:
    """Log evidence of all models together where the target knows it, nats."""
    space, size = target.space, target.space.size
    if size is None or size > MOST_SUMMED:
        return None
    truth = target.truth
    if truth is None or not truth.log_evidence:
        return None
    codes = space.enumerate()
    labels = space.label(codes)
    if any(label not in truth.log_evidence for label in labels):
        return None
    known = torch.tensor([float(truth.log_evidence[label]) for label in labels])
    total = (known.double() + space.log_prior(codes).double().cpu()).logsumexp(0)
    return float(total) if math.isfinite(total) else None


def _inclusion(space: Space, code: Tensor, weight: Tensor | None = None) -> pd.Series | None:
    """Inclusion probabilities by draws (S, L) with weights of sum one, shape (S,)."""
    if not space.has_named_items:
        return None
    items = space.items(code).double()
    share = items.mean(0) if weight is None else weight @ items
    import pandas as pd

    index = pd.Index(space.names, name="item")
    return pd.Series(share.tolist(), index, name="probability", dtype=float)


# ---- what speaks against it -------------------------------------------------------------------


def audited(
    answer: Variational, audit: AuditReport | None, more: Sequence[Doubt] = ()
) -> Variational:
    """The answer with what independent tempered draws say against it.

    Arguments:
        answer: The answer.
        audit: What they say of the map, if they could be relied on.
        more: What else speaks against it.
    """
    found = (*of_audit(audit), *more, *answer.doubts)
    return replace(answer, audited=audit is not None, doubts=found)


def _doubts(
    answer: Variational, space: Space, weighed: Weighed, codes: Tensor | None
) -> list[Doubt]:
    """What draws and weights say against an answer, gravest first."""
    known = answer.log_evidence.value if answer.exact is None else answer.exact
    coordinates = float(space.active(weighed.code).sum(-1).double().mean())
    return [
        *of_weights(weighed.log_w, answer.pareto_k, answer.ess_share),
        *of_bound(known - answer.elbo.value, coordinates),
        *(_of_inclusion(answer, space, weighed) or _of_models(answer, space, codes)),
    ]


def _of_inclusion(answer: Variational, space: Space, weighed: Weighed) -> list[Doubt]:
    """An item whose probability under q is not that by importance weights."""
    q = answer.inclusion
    if q is None or not averaged(answer.pareto_k, answer.ess_share):
        return []
    corrected = _inclusion(space, weighed.code, pareto_smoothed(weighed.log_w)[0].softmax(0))
    assert corrected is not None
    noise = math.sqrt(0.25 / (answer.ess_share * len(weighed.code)))
    return of_probabilities(q, [Estimate(p, 0.0) for p in corrected], [noise] * len(q))


def _of_models(answer: Variational, space: Space, codes: Tensor | None) -> list[Doubt]:
    """A model whose probability by its bound is not that by its evidence."""
    if answer.models is None or codes is None or not space.several:
        return []
    log_prior = space.log_prior(codes).double().cpu()
    table = answer.models[(log_prior > -math.inf).tolist()]
    masses = table["log_evidence"] + log_prior[log_prior > -math.inf].tolist()
    errors = table["log_evidence_se"].fillna(0.0)
    q = table["probability"]
    corrected = probabilities([Estimate(*x) for x in zip(masses, errors, strict=True)])
    return of_probabilities(q, corrected, (q * (1 - q) * table["elbo_se"]).tolist())
