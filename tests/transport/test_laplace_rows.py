"""Second derivatives row by row and all at once."""

import pytest
import torch

from trjmcmc.transport import laplace


@pytest.mark.parametrize("d", [1, 4])
def test_rows_one_by_one_are_rows_together(d, monkeypatch):
    """Of a function that some coordinates do not enter."""
    x = torch.randn(5, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaf = x.requires_grad_()
    value = (leaf[:, :1] ** 3 * (1 + leaf[:, : max(1, d - 1)]).exp()).sum()
    (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
    single = laplace._rows_of_hessian(slope, leaf)
    monkeypatch.setattr(laplace, "ROW_BY_ROW", 0)
    assert single.shape == (5, d, d) and single.abs().max() > 0
    assert torch.allclose(single, laplace._rows_of_hessian(slope, leaf))
    assert torch.allclose(single, single.transpose(1, 2))
