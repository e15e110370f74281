"""Itô's formula by differentiation, against closed forms and against a simulated step."""

from __future__ import annotations

import torch

from scalevec_theory import ito
from scalevec_theory.parametrizations import DUAL_SCALE, INPUT_SCALE, PLAIN


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_square_of_brownian_motion() -> None:
    blocks = {"x": normal(5, 3)}
    drift, variation = ito.rates(lambda b: b["x"] ** 2, blocks, ito.independent_noise(blocks))
    torch.testing.assert_close(drift, torch.ones(5, 3, dtype=torch.float64))
    torch.testing.assert_close(variation, 4 * blocks["x"] ** 2)


def test_effective_noise_is_the_jacobian_transposed() -> None:
    blocks = {"v": normal(2, 3), "W": normal(2, 4, 3)}
    eye = torch.eye(12, dtype=torch.float64).expand(2, 12, 12)
    noise = ito.effective_noise(INPUT_SCALE, blocks, eye)
    column = noise["v"].reshape(4, 3, 2, 3)  # entry (i, j) of θ, problem, entry of v
    expected = torch.einsum("bij,jk->ijbk", blocks["W"], torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(column, expected)


def test_a_root_enters_by_its_columns() -> None:
    blocks, root = {"W": normal(1, 2, 2)}, normal(1, 4, 4)
    noise = ito.effective_noise(PLAIN, blocks, root)
    torch.testing.assert_close(noise["W"].reshape(4, 4).mT, root[0])


def test_drift_of_a_dual_scale_is_the_mean_change_in_small_steps() -> None:
    blocks = {"u": normal(1, 2), "v": normal(1, 2), "W": normal(1, 2, 2)}
    root = normal(1, 4, 4)

    def loss(b: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.sin(b["u"]).sum(-1) * b["v"].square().sum(-1) + b["W"].pow(3).sum((-2, -1))

    noise = ito.effective_noise(DUAL_SCALE, blocks, root)
    drift, variation = ito.rates(loss, blocks, noise)
    h = 1e-4
    up, down = (loss({n: x + s * h * noise[n] for n, x in blocks.items()}) for s in (1, -1))
    torch.testing.assert_close(drift, ((up + down - 2 * loss(blocks)) / (2 * h * h)).sum(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(variation, ((up - down) / (2 * h)).square().sum(0), rtol=1e-5, atol=1e-5)
