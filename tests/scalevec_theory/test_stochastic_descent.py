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
from scalevec_theory.stochastic_descent import stochastic_descent

Z = 4.5  # standard errors


def problem(c: int = 2, d: int = 3) -> LeastSquares:
    g = torch.Generator().manual_seed(0)
    A = torch.randn(1, d, d, generator=g, dtype=torch.float64)
    return LeastSquares(A @ A.mT / d + 0.2 * torch.eye(d), torch.randn(1, c, d, generator=g, dtype=torch.float64))


TORCH: dict[str, Callable[[list[Tensor], list[Tensor]], list[torch.optim.Optimizer]]] = {
    "sgd": lambda v, W: [torch.optim.SGD(v, 0.02, weight_decay=0.1), torch.optim.SGD(W, 0.01, weight_decay=0.3)],
    "momentum": lambda v, W: [torch.optim.SGD(v, 0.02, 0.8), torch.optim.SGD(W, 0.01, 0.8)],
    "adamw": lambda v, W: [
        torch.optim.AdamW(v, 0.02, (0.8, 0.9), 1e-3, weight_decay=0.1),
        torch.optim.AdamW(W, 0.01, (0.8, 0.9), 1e-3, weight_decay=0.3),
    ],
    "muon": lambda v, W: [
        torch.optim.AdamW(v, 0.02, (0.8, 0.9), 1e-3, weight_decay=0.1),
        torch.optim.Muon(W, 0.01, momentum=0.8, weight_decay=0.3),
    ],
}


def torch_steps(name: str, loss: LeastSquares, v: Tensor, W: Tensor, paths: int, steps: int) -> list[dict[str, Tensor]]:
    """Blocks ``(B, paths, *block)`` after each step of torch's optimiser on the samples of seed 1, batch 2, σ = 0.5.

    Torch's SGD adds the decay to the gradient: without momentum that is decoupled decay, with momentum it is left out.
    """
    B, c, d = W.shape
    many_v = [v[i].clone().requires_grad_() for i in range(B) for _ in range(paths)]
    many_W = [W[i].clone().requires_grad_() for i in range(B) for _ in range(paths)]
    rules = TORCH[name](many_v, many_W)
    g, root, found = torch.Generator().manual_seed(1), torch.linalg.cholesky(loss.H), []
    for _ in range(steps):
        x = torch.randn(B, paths, 2, d, generator=g).double() @ root.mT[:, None]
        y = x @ loss.T.mT[:, None] + 0.5 * torch.randn(B, paths, 2, c, generator=g).double()
        theta = torch.stack([b * a for a, b in zip(many_v, many_W, strict=True)]).unflatten(0, (B, paths))
        for rule in rules:
            rule.zero_grad()
        (0.5 * (x @ theta.mT - y).square().sum() / 2).backward()
        for rule in rules:
            rule.step()
        found.append({k: torch.stack(x).detach().unflatten(0, (B, paths)) for k, x in (("v", many_v), ("W", many_W))})
    return found


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 1)])
@pytest.mark.parametrize("name", TORCH)
def test_every_step_is_that_of_torch(name: str, shape: tuple[int, int]) -> None:
    one = problem(*shape)
    loss = LeastSquares(torch.cat([one.H, 2 * one.H]), torch.cat([one.T, -one.T]))
    g = torch.Generator().manual_seed(4)
    v = torch.rand(2, shape[1], generator=g, dtype=torch.float64) + 0.5
    W = torch.randn(2, *shape, generator=g, dtype=torch.float64)
    expected = torch_steps(name, loss, v, W, paths=3, steps=10)
    for count in range(1, 11):
        found = stochastic_descent(
            *(INPUT_SCALE, loss, {"v": v, "W": W}, list(range(count + 1))),
            **{"label_noise": 0.5, "batch": 2, "optimizer": name, "step": {"v": 0.02, "W": 0.01}, "paths": 3},
            **{"seed": 1, "observe": {}, "momentum": 0.8, "betas": (0.8, 0.9), "eps": 1e-3},
            weight_decay={"v": 0.0, "W": 0.0} if name == "momentum" else {"v": 0.1, "W": 0.3},
        ).final
        for block, start in (("v", v), ("W", W)):
            # of Muon's steps of 0.01 √max(1, c/d) each may be off by a few roundings of 2⁻⁸
            tolerance = count * 0.01 * math.sqrt(max(1, shape[0] / shape[1])) * 8 * 2**-8 if name == "muon" else 1e-12
            assert (found[block] - expected[count - 1][block]).abs().max() < tolerance
            assert (found[block] - start[:, None]).abs().max() > 20 * tolerance


@pytest.mark.parametrize("name", TORCH)
def test_decay_is_decoupled_and_per_block(name: str) -> None:
    """Without a gradient, at θ = T, only decay moves; momentum does not remember it."""
    T = torch.ones(1, 2, 2, dtype=torch.float64)
    run = stochastic_descent(
        *(PLAIN, LeastSquares(0 * torch.eye(2, dtype=torch.float64)[None], T), {"W": T}, [2]),
        **{"label_noise": 0.0, "batch": 2, "optimizer": name, "step": 0.2, "paths": 3, "seed": 1, "observe": {}},
        weight_decay={"W": 0.5},
    )
    torch.testing.assert_close(run.final["W"], 0.81 * torch.ones(1, 3, 2, 2, dtype=torch.float64))


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
    with pytest.raises(ValueError, match=r"betas=\(0.9, 1.0\)"):
        run(betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="step has the blocks W: expected v, W"):
        run(step={"W": 0.1})


def test_problems_decay_each_at_their_own_rate():
    def run(decay):
        T = torch.ones(2, 3, 1, dtype=torch.float64)
        return stochastic_descent(
            INPUT_SCALE,
            LeastSquares(T.new_ones(2, 1, 1), T),
            {"v": T.new_ones(2, 1), "W": T},
            [5],
            label_noise=1.0,
            batch=2,
            optimizer="adamw",
            step=0.1,
            paths=3,
            seed=0,
            observe={"W": lambda v, W: W},
            weight_decay={"W": decay},
        ).mean["W"]

    one, other, both = run(0.1), run(0.5), run(torch.tensor([0.1, 0.5], dtype=torch.float64))
    for k, alone in enumerate((one, other)):
        torch.testing.assert_close(both[k], alone[k], rtol=1e-13, atol=0)
    assert not torch.allclose(one[1], other[1])
    for wrong, told in ((torch.ones(3), "expected"), (-1.0, ">= 0"), (float("nan"), ">= 0")):
        with pytest.raises(ValueError, match=f"weight_decay.*{told}"):
            run(wrong)
