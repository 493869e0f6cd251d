"""A short list of named models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import UnknownModelError
from .base import Space, listing


class ModelList(Space):
    """A finite list of models; item i is slot i.

    Arguments:
        names: One name a model.
        slots: Which slots each model uses, shape (M, D) bool.
        log_prior: Normalised log prior probabilities, shape (M,).
    """

    table: Tensor
    log_prior_table: Tensor

    def __init__(self, names: Sequence[str], slots: Tensor, log_prior: Tensor) -> None:
        super().__init__()
        self.names = list(names)
        self.code_width, self.size = 1, len(self.names)
        self.n_items = slots.shape[1]
        self.context_width = self.size
        self.register_buffer("table", slots.bool())
        self.register_buffer("log_prior_table", log_prior)
        self.register_buffer("slot_item", torch.arange(self.n_items))

    def extra_repr(self) -> str:
        return listing(self.names)

    def items(self, code: Tensor) -> Tensor:
        return self.table.index_select(0, code[:, 0])  # a quarter of [...]'s time

    def active(self, code: Tensor) -> Tensor:
        return self.items(code)

    def context(self, code: Tensor) -> Tensor:
        one_hot = code == torch.arange(self.context_width, device=code.device)
        return one_hot.to(self.log_prior_table.dtype)

    def log_prior(self, code: Tensor) -> Tensor:
        return self.log_prior_table.index_select(0, code[:, 0])

    def sample_prior(self, n: int, generator: torch.Generator) -> Tensor:
        weights = self.log_prior_table.exp()
        return torch.multinomial(weights, n, replacement=True, generator=generator)[:, None]

    def label(self, code: Tensor) -> list[str]:
        return [self.names[i] for i in code[:, 0].tolist()]

    def code_of(self, model: Any) -> Tensor:
        if model not in self.names:
            raise UnknownModelError(f"no model {model!r}; the models are {listing(self.names)}")
        return torch.tensor([self.names.index(model)], device=self.table.device)

    def enumerate(self) -> Tensor:
        return torch.arange(len(self.names), device=self.table.device)[:, None]

    def index(self, code: Tensor) -> Tensor:
        return code[:, 0]

    def neighbours(self, code: Tensor) -> tuple[Tensor, Tensor]:
        near = self.enumerate()[None].expand(len(code), -1, -1)
        return near, (near != code[:, None]).any(-1)

    def levels(self) -> tuple[Tensor, Tensor]:
        low = torch.zeros(1, dtype=torch.long, device=self.table.device)
        return low, low + len(self.names)

    def largest(self, n: int, generator: torch.Generator) -> Tensor:
        """Every model, all equally often."""
        return self.enumerate().repeat(-(-n // len(self.names)), 1)

    def certain(self) -> tuple[Tensor, Tensor]:
        possible = self.table[self.log_prior_table > -math.inf]
        return possible.all(0), ~possible.any(0)

    def spec(self) -> dict[str, Any]:
        return {
            "kind": "ModelList",
            "names": self.names,
            "slots": self.table.cpu(),
            "log_prior": self.log_prior_table.cpu(),
        }

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> Space:
        return cls(spec["names"], spec["slots"], spec["log_prior"])
