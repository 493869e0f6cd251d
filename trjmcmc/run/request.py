"""What a user asks of a run."""

from __future__ import annotations

from numbers import Real

from ..errors import ConfigurationError


def check_counts(
    draws: int | None, chains: int = 1, thin: int = 1, warmup: int | None = None
) -> None:
    """Refuse counts that are no counts.

    Raises:
        ConfigurationError: One is no integer, or too small.
    """
    counts = (1 if draws is None else draws, chains, thin, 0 if warmup is None else warmup)
    if not all(isinstance(n, int) for n in counts):
        raise ConfigurationError(f"run: draws, chains, thin, warmup are integers, got {counts}")
    if min(counts[:3]) < 1 or counts[3] < 0:
        raise ConfigurationError(
            "run: expected draws, chains, thin >= 1 and warmup >= 0, got "
            f"draws={draws}, chains={chains}, thin={thin}, warmup={warmup}"
        )


def check_seconds(max_seconds: float | None) -> None:
    """Refuse a limit of time that is none.

    Raises:
        ConfigurationError: It is no positive number.
    """
    if max_seconds is not None and not (isinstance(max_seconds, Real) and max_seconds > 0):
        raise ConfigurationError(f"max_seconds: expected a positive number, got {max_seconds!r}")


def check_fit(fit: bool | str, may_train: bool) -> None:
    """Refuse a way to train that there is not.

    Arguments:
        fit: As of :meth:`trjmcmc.TRJSampler.run`.
        may_train: Whether a map may be trained over the models.

    Raises:
        ConfigurationError: Something else was asked for, or no map may be trained.
    """
    if fit not in {"auto", "vi", True, False}:
        raise ConfigurationError(f'fit: expected "auto", "vi", True or False, got {fit!r}')
    if fit in {True, "vi"} and not may_train:
        raise ConfigurationError(
            f"fit={fit!r}: no map is trained over so many graphs; run() samples them"
        )


def checked_mode(mode: bool | str) -> bool | str:
    """How steps are captured, refused if it is none of the three.

    Raises:
        ConfigurationError: It is another.
    """
    if mode is not True and mode is not False and mode != "traced":
        raise ConfigurationError(f'compile: expected False, True or "traced", got {mode!r}')
    return mode
