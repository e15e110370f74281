"""Right order and right limit of the schemes, tested apart, on common Brownian paths."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from scalevec_theory import noise as engine
from scalevec_theory.flow import Blocks
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Custom, Isotropic, Minibatch, Noise
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN, Parametrization


def least_squares(c: int, d: int) -> LeastSquares:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(1, d, d))
    H = A @ A.swapaxes(1, 2) / d + 0.2 * np.eye(d)
    return LeastSquares(torch.from_numpy(H), torch.from_numpy(rng.normal(size=(1, c, d))))


def random_start(c: int, d: int) -> Blocks:
    g = torch.Generator().manual_seed(1)
    return {n: torch.randn(1, *s, generator=g, dtype=torch.float64) for n, s in INPUT_SCALE.shapes(c=c, d=d).items()}


class Coupled(engine._Batched):
    """Steps on given Brownian paths: ``normals`` are used one after another instead of random ones."""

    def __init__(self, *args: object, normals: list[Tensor]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._given = iter(normals)

    def _normal(self, like: Tensor) -> Tensor:
        return next(self._given).expand(like.shape)


def coarsen(fine: Tensor, k: int) -> Tensor:
    """Normals ``(n/k, 2, ...)`` of steps k times as long on the same path, from ``(n, 2, ...)``, fine steps being 1."""
    g = fine.reshape(-1, k, *fine.shape[1:])
    dW, dZ = g[:, :, 0], 0.5 * (g[:, :, 0] + g[:, :, 1] / math.sqrt(3))
    W = dW.cumsum(1) - dW
    total = dW.sum(1)
    area = (W + dZ).sum(1)
    return torch.stack([total / math.sqrt(k), (2 * area / k - total) * math.sqrt(3) / math.sqrt(k)], 1)


def coupled_run(
    model: Parametrization,
    loss: LeastSquares,
    start: Blocks,
    noise: Noise,
    scheme: str,
    end: float,
    fine: Tensor,
    k: int,
) -> Blocks:
    """The final blocks with steps of k fine ones; ``fine`` ``(n, 2, B, paths, size)`` normals, flat over parameters."""
    z = coarsen(fine, k)
    n, paths = len(z), fine.shape[3]
    blocks = {name: x[:, None].expand(-1, paths, *x.shape[1:]) for name, x in start.items()}
    order: list[Tensor] = []
    for step in range(n):
        for which in range(2 if scheme == "sra1" else 1):
            if isinstance(noise, Isotropic):
                at = 0
                for x in blocks.values():
                    size = x[0, 0].numel()
                    order.append(z[step, which][..., at : at + size].reshape(x.shape))
                    at += size
            else:
                order.append(z[step, which].reshape(blocks["W"].shape))
    walk = Coupled(model, loss, blocks, noise, (None, None), dict.fromkeys(blocks, 0.1), 0, scheme, normals=order)
    walk.advance(end / n, n)
    return walk.blocks


CASES = [
    ("euler", Isotropic(0.5), 1.0),
    ("sra1", Isotropic(0.5), 1.5),
    ("euler", Minibatch(0.5), 0.5),
]


@pytest.mark.parametrize(("scheme", "noise", "order"), CASES, ids=["euler-additive", "sra1", "euler-minibatch"])
def test_strong_order(scheme: str, noise: Noise, order: float) -> None:
    """Right order: root mean square difference from the finest steps falls as dt^order."""
    c, d, paths, n = 2, 2, 300, 512
    loss = least_squares(c, d)
    start = random_start(c, d)
    size = c * d + (d if isinstance(noise, Isotropic) else 0)
    fine = torch.randn(n, 2, 1, paths, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    reference = coupled_run(INPUT_SCALE, loss, start, noise, scheme, 1.0, fine, 1)
    errors = []
    for k in (8, 16, 32):
        run = coupled_run(INPUT_SCALE, loss, start, noise, scheme, 1.0, fine, k)
        errors.append(sum((run[b] - reference[b]).square().flatten(2).sum(2).mean().item() for b in run) ** 0.5)
    slope = math.log2(errors[2] / errors[0]) / 2
    assert order - 0.2 < slope < order + 0.35, f"{slope} from {errors}"


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1), ("sra1", 2)])
def test_weak_order(scheme: str, order: int) -> None:
    """Right order of means, here of ‖w‖², v² and the loss, on common paths so that their noise cancels."""
    c, d, paths, n = 2, 2, 4_000, 64
    loss = least_squares(c, d)
    start = random_start(c, d)
    fine = torch.randn(n, 2, 1, paths, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def observed(k: int) -> Tensor:
        x = coupled_run(INPUT_SCALE, loss, start, Isotropic(0.7), scheme, 1.0, fine, k)
        theta = x["W"] * x["v"][:, :, None]
        return torch.stack([(x["W"] ** 2).sum((2, 3)), (x["v"] ** 2).sum(2), loss.value(theta)])[:, 0]

    reference = observed(1)
    errors, noise = [], []
    for k in (4, 8):
        difference = observed(k) - reference
        errors.append(difference.mean(1))
        noise.append(difference.std(1) / math.sqrt(paths))
    worst = errors[1].abs().argmax()
    assert errors[0][worst].abs() > 5 * noise[0][worst]
    ratio = (errors[1] / errors[0])[worst].item()
    exact = (8**order - 1) / (4**order - 1)  # the reference has steps of 1
    assert abs(math.log2(ratio / exact)) < 0.35, f"{ratio} against {exact}"


@pytest.mark.parametrize(("scheme", "order"), [("euler", 1.0), ("sra1", 2.0)])
def test_right_limit_with_additive_noise(scheme: str, order: float) -> None:
    """The solution of W' = −(hW + λW) dt + σ dB on the same path, e^{−at} W(0) + σ ∫ e^{−a(t−s)} dB, by fine sums.

    (For a linear drift the terms of order 3/2 of SRA1's error vanish.)
    """
    n, paths, a, sigma = 4096, 200, 1.3, 0.7
    loss = LeastSquares(torch.full((1, 1, 1), a - 0.1, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64))
    start = {"W": torch.ones(1, 1, 1, dtype=torch.float64)}
    fine = torch.randn(n, 2, 1, paths, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    s = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    exact = math.exp(-a) + sigma * torch.einsum("n,np->p", torch.exp(-a * (1 - s)), fine[:, 0, 0, :, 0]) / math.sqrt(n)
    errors = []
    for k in (256, 512):
        W = coupled_run(PLAIN, loss, start, Isotropic(sigma), scheme, 1.0, fine, k)["W"][0, :, 0, 0]
        errors.append((W - exact).square().mean().sqrt().item())
    assert errors[0] < (0.06 if scheme == "euler" else 0.01)
    assert abs(math.log2(errors[1] / errors[0]) - order) < 0.3


def test_right_limit_with_multiplicative_noise_is_itos() -> None:
    """dW = −hW dt + σW dB has the solution exp((−h − σ²/2)t + σB) and the mean e^{−ht}, in Itô's sense alone."""
    n, paths, rate, sigma = 1024, 500, 0.5, 0.8
    loss = LeastSquares(torch.full((1, 1, 1), rate, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64))
    z = torch.randn(n, 1, paths, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    noise = Custom(lambda W: {"W": sigma * W[..., None]})
    exact = torch.exp(torch.tensor(-rate - sigma**2 / 2) + sigma * z.sum(0) / math.sqrt(n))[0, :, 0]
    errors = []
    for k in (1, 16):
        steps = n // k
        given = list(z.reshape(steps, k, 1, paths, 1).sum(1) / math.sqrt(k))
        start = {"W": torch.ones(1, paths, 1, 1, dtype=torch.float64)}
        walk = Coupled(PLAIN, loss, start, noise, (None, None), {"W": 0.0}, 0, "euler", normals=given)
        walk.advance(1 / steps, steps)
        errors.append((walk.blocks["W"][0, :, 0, 0] - exact).square().mean().sqrt().item())
    assert errors[0] < 0.03
    assert 0.7 * 4 < errors[1] / errors[0] < 1.4 * 4  # order 1/2
