"""Every update rule against torch.optim, or against its published formula, step by step on the same gradients."""

from __future__ import annotations

import pytest
import torch

from scalevec_theory.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer, RMSProp, SignSGD
from scalevec_theory.update_rules import initial_state, orthogonal_factor, update

PAIRS = {
    "adamw": (AdamW(0.03, 0.2, betas=(0.8, 0.95), eps=1e-3), torch.optim.AdamW, {"betas": (0.8, 0.95), "eps": 1e-3}),
    "adam": (Adam(0.03, 0.2, betas=(0.8, 0.95), eps=1e-3), torch.optim.Adam, {"betas": (0.8, 0.95), "eps": 1e-3}),
    "rmsprop": (RMSProp(0.03, 0.2, alpha=0.9, eps=1e-3), torch.optim.RMSprop, {"alpha": 0.9, "eps": 1e-3}),
    "sgd": (SGD(0.03, 0.2), torch.optim.SGD, {}),
    "momentum": (SGD(0.03, 0.2, momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (SGD(0.03, 0.2, momentum=0.9, nesterov=True), torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "muon": (Muon(0.03, 0.2), torch.optim.Muon, {}),
    "muon-plain": (Muon(0.03, 0.2, 0.8, nesterov=False), torch.optim.Muon, {"momentum": 0.8, "nesterov": False}),
    "muon-rms": (
        Muon(0.03, 0.2, adjust_lr="match_rms_adamw"),
        torch.optim.Muon,
        {"adjust_lr_fn": "match_rms_adamw"},
    ),
}


def _gradients(steps: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(steps, *shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
def test_every_step_is_that_of_torch(name: str, shape: tuple[int, ...]) -> None:
    ours, theirs, options = PAIRS[name]
    w = torch.linspace(-1, 1, 24).reshape(shape).clone()
    reference = torch.nn.Parameter(w.clone())
    optimizer = theirs([reference], lr=ours.lr, weight_decay=ours.weight_decay, **options)
    state = initial_state(ours, w)
    for t, g in enumerate(_gradients(20, shape), 1):
        reference.grad = g
        optimizer.step()
        update(ours, state, w, g, t, ours.lr, ours.weight_decay)
        # Newton–Schulz rounds to bfloat16, 8 bits, and a product of a batch may sum in another order.
        atol = 20 * ours.lr * 2**-8 if isinstance(ours, Muon) else 1e-6
        torch.testing.assert_close(w, reference.detach(), rtol=1e-6, atol=atol)


def _lion(w: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Chen et al. 2023, algorithm 2, with lr 0.03, decay 0.2 and betas (0.9, 0.99)."""
    c = 0.9 * m + 0.1 * g
    return w - 0.03 * (torch.sign(c) + 0.2 * w), 0.99 * m + 0.01 * g


def _signum(w: torch.Tensor, m: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bernstein et al. 2018, with momentum 0.8, lr 0.03, decay 0.2."""
    m = 0.8 * m + 0.2 * g
    return w - 0.03 * (torch.sign(m) + 0.2 * w), m


@pytest.mark.parametrize(("ours", "step"), [(Lion(0.03, 0.2), _lion), (SignSGD(0.03, 0.2, momentum=0.8), _signum)])
def test_lion_and_sign_descent_are_those_published(ours: Optimizer, step) -> None:  # type: ignore[no-untyped-def]
    w = torch.linspace(-1, 1, 24, dtype=torch.float64)
    state, expected, m = initial_state(ours, w), w.clone(), torch.zeros_like(w)
    for t, g in enumerate(_gradients(20, (24,)).double(), 1):
        expected, m = step(expected, m, g)
        update(ours, state, w, g, t, ours.lr, ours.weight_decay)
        torch.testing.assert_close(w, expected, rtol=1e-12, atol=1e-12)


def test_matrices_of_a_batch_are_independent_and_the_exact_factor_is_orthogonal() -> None:
    matrices = _gradients(3, (5, 8)).double()
    together = orthogonal_factor(matrices, 0)
    for one, all_ in zip(matrices, together, strict=True):
        torch.testing.assert_close(orthogonal_factor(one, 0), all_)
    identity = torch.eye(5, dtype=torch.float64).expand(3, 5, 5)
    torch.testing.assert_close(together @ together.mT, identity)
    assert bool((torch.linalg.eigvalsh(together @ matrices.mT) > 0).all())
    for one, all_ in zip(matrices, orthogonal_factor(matrices, 5), strict=True):
        torch.testing.assert_close(orthogonal_factor(one, 5), all_, rtol=0, atol=0.02)
