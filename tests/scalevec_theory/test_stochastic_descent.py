"""Discrete optimisers on minibatches: torch's rules, the law of the gradient, the limit of small steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import LabelNoise, ensemble
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN
from scalevec_theory.stochastic_descent import Optimizer, newton_schulz, stochastic_descent

Z = 4.5  # standard errors


def problem(c: int = 2, d: int = 3) -> LeastSquares:
    g = torch.Generator().manual_seed(0)
    A = torch.randn(1, d, d, generator=g, dtype=torch.float64)
    return LeastSquares(A @ A.mT / d + 0.2 * torch.eye(d), torch.randn(1, c, d, generator=g, dtype=torch.float64))


TORCH: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.3),
    "muon": lambda p: torch.optim.Muon(p, lr=0.05, momentum=0.8, weight_decay=0.3),
}


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4,)])
@pytest.mark.parametrize("name", TORCH)
def test_rule_is_that_of_torch(name: str, shape: tuple[int, ...]) -> None:
    """Ten steps on the same gradients.  Torch's SGD has coupled decay, so none there; its Muon rounds to bfloat16."""
    g = torch.Generator().manual_seed(1)
    decay = 0.3 if name in ("adamw", "muon") else 0.0
    theirs_name = "adamw" if name == "muon" and len(shape) == 1 else name
    rule = Optimizer(name, {"W": 0.05}, {"W": decay}, momentum=0.8, betas=(0.8, 0.9), eps=1e-3)  # type: ignore[arg-type]
    x = torch.randn(2, 3, *shape, generator=g, dtype=torch.float64)
    leaf = [p.clone().requires_grad_() for p in x.flatten(0, 1)]
    theirs = TORCH[theirs_name](leaf)
    blocks = {"W": x}
    for _ in range(10):
        gradient = torch.randn(x.shape, generator=g, dtype=torch.float64)
        for p, grad in zip(leaf, gradient.flatten(0, 1), strict=True):
            p.grad = grad.clone()
        theirs.step()
        blocks = rule.update(blocks, {"W": gradient})
    found, expected = blocks["W"].flatten(0, 1), torch.stack([p.detach() for p in leaf])
    # of Muon's ten steps of 0.05 · √(5/3) each may be off by a few roundings of 2⁻⁸
    tolerance = 10 * 0.05 * math.sqrt(5 / 3) * 8 * 2**-8 if theirs_name == "muon" else 1e-12
    assert (found - expected).abs().max() < tolerance
    assert (found - x.flatten(0, 1)).abs().max() > 20 * tolerance


def test_newton_schulz_is_its_polynomial_on_singular_values() -> None:
    g = torch.Generator().manual_seed(2)
    matrix = torch.randn(3, 4, 6, generator=g, dtype=torch.float64)
    U, s, Vt = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.square().sum(-1, keepdim=True).sqrt()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    torch.testing.assert_close(newton_schulz(matrix), U @ (s[..., None] * Vt))
    torch.testing.assert_close(newton_schulz(matrix.mT), (U @ (s[..., None] * Vt)).mT)


def test_decay_is_decoupled_and_per_block() -> None:
    one = torch.ones(1, 1, 2, 2, dtype=torch.float64)
    for name in ("sgd", "momentum", "adamw", "muon"):
        rule = Optimizer(name, {"v": 0.1, "W": 0.2}, {"v": 0.0, "W": 0.5})  # type: ignore[arg-type]
        blocks = rule.update({"v": one[0], "W": one}, {"v": 0 * one[0], "W": 0 * one})
        torch.testing.assert_close(blocks, {"v": one[0], "W": 0.9 * one})


def test_gradient_has_the_moments_of_a_gaussian_batch() -> None:
    """Cov(G_ij, G_kl) = [(EHEᵀ + σ²I)_ik H_jl + (EH)_il (EH)_kj]/b by Isserlis, E = θ − T, from one step of SGD."""
    loss, sigma, batch, paths, eta = problem(), 0.7, 3, 200_000, 0.5
    W = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    run = stochastic_descent(
        *(PLAIN, loss, {"W": W}, [1]),
        **{"label_noise": sigma, "batch": batch, "optimizer": "sgd", "step": eta, "paths": paths, "seed": 1},
        observe={},
    )
    G = ((W[:, None] - run.final["W"]) / eta)[0].flatten(1)
    E, H = (W - loss.T)[0], loss.H[0]
    mean = (E @ H).flatten()
    eye = torch.eye(2, dtype=torch.float64)
    covariance = torch.einsum("ik,jl->ijkl", E @ H @ E.mT + sigma**2 * eye, H) + torch.einsum(
        "il,kj->ijkl", E @ H, E @ H
    )
    covariance = covariance.reshape(6, 6) / batch
    assert ((G.mean(0) - mean).abs() < Z * (covariance.diag() / paths).sqrt()).all()
    centred = G - mean
    products = centred[:, :, None] * centred[:, None]
    assert ((products.mean(0) - covariance).abs() < Z * products.std(0) / math.sqrt(paths)).all()


def test_small_steps_at_the_optimum_are_label_noise() -> None:
    """σ²η/b per unit of time: the means of the equation at the same time, up to the order of the step."""
    loss, eta, batch, sigma, n = problem(), 0.01, 4, 3.0, 200
    start = INPUT_SCALE.balanced_init(loss.T)
    observe = {"v²": lambda v, W: v**2, "w²": lambda v, W: (W**2).sum(2)}
    discrete = stochastic_descent(
        *(INPUT_SCALE, loss, start, [n]),
        **{"label_noise": sigma, "batch": batch, "optimizer": "sgd", "step": eta, "paths": 4000, "seed": 1},
        observe=observe,
    )
    continuous = ensemble(
        *(INPUT_SCALE, loss, start, LabelNoise(sigma * math.sqrt(eta / batch)), [n * eta]),
        **{"dt": eta, "paths": 50_000, "seed": 2, "observe": observe},
    )
    for name in observe:
        a, b = discrete.mean[name][0, 0], continuous.mean[name][0, 0]
        moved = (a - observe[name](**{k: x[:, None] for k, x in start.items()})[0, 0]).abs()
        se = (discrete.stderr[name][0, 0] ** 2 + continuous.stderr[name][0, 0] ** 2).sqrt()
        assert ((a - b).abs() < Z * se + 0.1 * moved).all(), name
        assert (moved > 10 * se).any()


def test_same_seed_same_numbers() -> None:
    loss = problem()
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))
    before, finals = torch.get_num_threads(), []
    try:
        for threads, seed in ((1, 5), (2, 5), (1, 6)):
            torch.set_num_threads(threads)
            run = stochastic_descent(
                *(INPUT_SCALE, loss, start, [0, 3, 10]),
                **{"label_noise": 1.0, "batch": 2, "optimizer": "muon", "step": {"v": 0.01, "W": 0.1}, "paths": 50},
                **{"seed": seed, "observe": {"v": lambda v, W: v}, "quantiles": (0.5,)},
            )
            finals.append(run.final["W"])
            assert run.times.tolist() == [0, 3, 10] and run.quantiles["v"].shape == (1, 1, 3, 3)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[0], finals[2])


def test_bad_input_is_named() -> None:
    loss = problem()
    start = INPUT_SCALE.init(torch.zeros_like(loss.T))

    def run(**changes: object) -> None:
        options: dict[str, object] = {"label_noise": 1.0, "batch": 2, "optimizer": "sgd", "step": 0.1, "paths": 4}
        options |= {"seed": 1, "observe": {"v": lambda v, W: v}} | changes
        stochastic_descent(INPUT_SCALE, loss, start, options.pop("steps", [1]), **options)  # type: ignore[arg-type]

    run()
    for name, value in (
        ("label_noise", -1.0),
        ("batch", 0),
        ("optimizer", "adam"),
        ("step", 0.0),
        ("momentum", 1.0),
        ("eps", -1.0),
        ("steps", [2, 1]),
        ("steps", []),
        ("seed", -1),
        ("paths", 0),
    ):
        with pytest.raises(ValueError, match=f"{name}="):
            run(**{name: value})
    with pytest.raises(ValueError, match=r"betas\[1\]=1"):
        run(betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="step has the blocks W: expected v, W"):
        run(step={"W": 0.1})
