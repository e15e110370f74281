"""Predictions against closed forms, naive sums over all pairs of steps, and torch's own optimizers."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
import torch
from scipy.linalg import solve_discrete_lyapunov

from scalevec_theory import abm
from scalevec_theory.equilibrium import equilibrium, leading_order, norm_of_gaussians, predict
from scalevec_theory.norm_spread import SpreadLaw, norm_spread
from scalevec_theory.optimizers import SGD, Adam, AdamW, Lion, Muon, Optimizer, RMSProp, SignSGD
from scalevec_theory.schedules import cosine, wsd
from scalevec_theory.sign_updates import gradient_filter, nonlinear_share

CASES: list[tuple[Optimizer, dict]] = [
    (AdamW(0.1, 0.1, betas=(0.9, 0.95)), {}),
    (Adam(0.1, 0.1, betas=(0.9, 0.95)), {"noise": 0.7}),
    (RMSProp(0.1, 0.1, alpha=0.95), {}),
    (SGD(0.1, 0.1), {"noise": 2.0}),
    (SGD(0.1, 0.1, momentum=0.9, nesterov=True), {}),
    (SGD(0.1, 0.1, momentum=0.5), {"scale_invariant": True, "shape": (50,)}),
    (AdamW(0.1, 0.1, betas=(0.9, 0.95)), {"scale_invariant": True, "shape": (50,)}),
    (SignSGD(0.1, 0.1), {}),
    (Lion(0.1, 0.1), {}),
    (Lion(0.1, 0.1), {"scale_invariant": True, "shape": (50,)}),
    (Muon(0.1, 0.1), {"shape": (64, 256)}),
]


@pytest.mark.parametrize(("optimizer", "law"), CASES)
def test_the_recursion_tends_to_the_equilibrium_from_above_and_below(optimizer: Optimizer, law: dict) -> None:
    rest = equilibrium(optimizer, **law)
    for factor in (0.5, 2.0):
        run = predict(optimizer, 4000, init=factor * rest.rms, **law)
        assert run.mean_square[0] == pytest.approx(factor**2 * rest.mean_square)
        assert run.mean_square[-1] == pytest.approx(rest.mean_square, rel=1e-6)
        assert run.update_mean_square[-1] == pytest.approx(rest.update_mean_square, rel=1e-6)
        assert run.angular_update[-1] == pytest.approx(rest.angular_update, rel=1e-6)


@pytest.mark.parametrize(("optimizer", "law"), [c for c in CASES if "scale_invariant" not in c[1]])
def test_the_leading_order_is_the_limit_of_a_small_step(optimizer: Optimizer, law: dict) -> None:
    small = {"lr": 1e-4 * optimizer.lr, "weight_decay": 1e-4 * optimizer.weight_decay}
    slow = {"betas": (optimizer.betas[0], 1 - 1e-5)} if isinstance(optimizer, Adam) else {}
    slow = {"alpha": 1 - 1e-5} if isinstance(optimizer, RMSProp) else slow
    tiny = type(optimizer)(**{**vars(optimizer), **small, **slow})
    assert equilibrium(tiny, **law).mean_square == pytest.approx(leading_order(tiny, **law), rel=1e-4)


def test_stationary_laws_by_hand() -> None:
    """SGD: ησ²/(λ(2 − ηλ)) = 0.4/(0.5·1.9) at σ = 2; momentum and Nesterov as proved; sign: η/(λ(2 − ηλ))."""
    assert equilibrium(SGD(0.2, 0.5), noise=2.0).mean_square == pytest.approx(0.2 * 4 / (0.5 * 1.9), rel=1e-12)
    x, mu = 0.2 * 0.5, 0.9
    heavy = 0.2 * (1 + mu) / (0.5 * (1 - mu) * (2 * (1 + mu) - x))
    assert equilibrium(SGD(0.2, 0.5, momentum=mu)).mean_square == pytest.approx(heavy, rel=1e-10)
    nesterov = 0.2 * (1 + mu + x * mu + 2 * x * mu**2) / (0.5 * (1 - mu + x * mu) * (2 + 2 * mu - x * (1 + 2 * mu)))
    assert equilibrium(SGD(0.2, 0.5, momentum=mu, nesterov=True)).mean_square == pytest.approx(nesterov, rel=1e-10)
    assert equilibrium(SignSGD(0.2, 0.5)).mean_square == pytest.approx(0.2 / (0.5 * 1.9), rel=1e-12)
    a, beta = 0.99, 0.9
    ar2 = 0.1**2 * (1 - beta) ** 2 / ((1 - a**2) * (1 - beta**2)) * (1 + a * beta) / (1 - a * beta)
    near = AdamW(0.1, 0.1, betas=(beta, 1 - 1e-12), eps=0.0)
    assert equilibrium(near).mean_square == pytest.approx(ar2, rel=1e-9)
    invariant = equilibrium(SGD(0.2, 0.5), shape=(10,), scale_invariant=True, noise=3.0)
    assert (10 * invariant.mean_square) ** 2 == pytest.approx(0.2 * 9 * 9 / (0.5 * 1.9), rel=1e-10)
    assert invariant.angular_update == pytest.approx(math.sqrt(0.1 * 1.9), rel=1e-10)


def _adam_by_pairs(optimizer: AdamW, lr: np.ndarray, kurtosis: float) -> float:
    """E[w_T²] from w = 0 by the double sum over steps of the first-order covariance, gradient by gradient."""
    (beta1, beta2), T = optimizer.betas, len(lr)
    s = np.arange(T)
    gap = np.tril(s[:, None] - s[None, :])
    A, B = (np.tril((1 - b) * float(b) ** gap) / (1 - float(b) ** (s[:, None] + 1)) for b in (beta1, beta2))  # (t, s)
    keep = np.append(np.cumprod((1 - lr * optimizer.weight_decay)[::-1])[::-1][1:], 1.0) * lr
    total = 0.0
    for t, u in itertools.product(range(T), repeat=2):
        S = [(kurtosis - 1) * float(B[i] @ B[j]) for i, j in ((t, t), (u, u), (t, u))]
        factor = 1 - (kurtosis - 1) / 2 * (B[t] + B[u]) + 3 / 8 * (S[0] + S[1]) + S[2] / 4
        total += keep[t] * keep[u] * float((A[t] * A[u] * factor).sum())
    return total


@pytest.mark.parametrize(("betas", "kurtosis"), [((0.9, 0.999), 3.0), ((0.5, 0.998), 1.5), ((0.0, 0.999), 5.0)])
def test_adamw_is_the_sum_over_all_pairs_of_steps(betas: tuple[float, float], kurtosis: float) -> None:
    """The expansion term by term; what the recursion keeps beyond the first order is below 1e-4 here."""
    optimizer, factors = AdamW(0.1, 0.2, betas=betas, eps=0.0), wsd(120, 60)
    expected = _adam_by_pairs(optimizer, 0.1 * factors, kurtosis)
    got = predict(optimizer, 120, kurtosis=kurtosis, lr_schedule=factors).mean_square[-1]
    assert got == pytest.approx(expected, rel=1e-4)


def test_every_second_moment_of_lion_by_pairs_of_steps() -> None:
    """The covariance of two signs from the covariance of the two filtered gradients, which is a sum over gradients."""
    optimizer, lr = Lion(0.1, 0.3, betas=(0.8, 0.9)), 0.1 * cosine(60, 10)
    beta1, beta2 = optimizer.betas
    filters = np.zeros((60, 60))
    for t in range(60):
        filters[t, :t] = beta1 * (1 - beta2) * beta2 ** np.arange(t - 1, -1, -1)
        filters[t, t] = 1 - beta1
    R = filters @ filters.T
    signs = 2 / np.pi * np.arcsin(np.clip(R / np.sqrt(np.outer(R.diagonal(), R.diagonal())), -1, 1))
    keep = np.append(np.cumprod((1 - 0.3 * lr)[::-1])[::-1][1:], 1.0) * lr
    run = predict(optimizer, 60, init=0.5, lr_schedule=lr / 0.1)
    expected = keep @ signs @ keep + 0.25 * np.prod((1 - 0.3 * lr) ** 2)
    assert run.mean_square[-1] == pytest.approx(expected, rel=1e-6)


def test_sgd_with_schedules_of_both_is_exact() -> None:
    """The map from gradients to w is linear: push each unit gradient through torch's own SGD."""
    steps, lr, decay = 40, 0.1 * wsd(40, 10), 0.3 * cosine(40)
    pushes = torch.eye(steps, dtype=torch.float64)
    w = torch.nn.Parameter(torch.zeros(steps, dtype=torch.float64))
    optimizer = torch.optim.SGD([w], lr=1.0, momentum=0.9, weight_decay=0.0, nesterov=True)
    for t in range(steps):
        optimizer.param_groups[0].update(lr=float(lr[t]), weight_decay=float(decay[t]))
        w.grad = pushes[t].clone()
        optimizer.step()
    ours = SGD(0.1, 0.3, momentum=0.9, nesterov=True)
    run = predict(ours, steps, noise=2.0, lr_schedule=lr / 0.1, weight_decay_schedule=decay / 0.3)
    assert run.mean_square[-1] == pytest.approx(4 * float((w.detach() ** 2).sum()), rel=1e-12)


TORCH = {
    "adamw": (AdamW(0.1, 0.1, betas=(0.9, 0.95)), torch.optim.AdamW, {"betas": (0.9, 0.95)}),
    "adam": (Adam(0.1, 0.1, betas=(0.9, 0.95)), torch.optim.Adam, {"betas": (0.9, 0.95)}),
    "rmsprop": (RMSProp(0.1, 0.1), torch.optim.RMSprop, {}),
    "momentum": (SGD(0.1, 0.1, momentum=0.9), torch.optim.SGD, {"momentum": 0.9}),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch_itself_follows_the_prediction(name: str) -> None:
    """60,000 weights in torch.optim along a WSD schedule; three standard errors of the rms are 0.9%."""
    ours, theirs, options = TORCH[name]
    steps, n = 400, 60_000
    factors = wsd(steps, 50)
    w = torch.nn.Parameter(torch.zeros(n))
    optimizer = theirs([w], lr=ours.lr, weight_decay=ours.weight_decay, **options)
    generator, rms = torch.Generator().manual_seed(1), {}
    for t in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = ours.lr * float(factors[t - 1])
        w.grad = torch.randn(n, generator=generator)
        optimizer.step()
        rms[t] = float(w.detach().square().mean().sqrt())
    expected = predict(ours, steps, lr_schedule=factors).rms
    for t in (50, 100, 200, 300, 400):
        assert rms[t] / expected[t] == pytest.approx(1, abs=0.012), t


@pytest.mark.parametrize(
    ("rule", "init", "steps"),
    [
        (AdamW(0.02, 0.15, betas=(0.9, 0.95)), 0.2, [3, 20, 150]),
        (AdamW(0.05, 0.8, betas=(0.0, 0.9)), 0.3, [3, 20, 150]),
        (AdamW(0.04, 0.5, betas=(0.0, 0.99)), 0.2, [3, 20, 150]),
        (SGD(0.1, 0.05), 0.5, [3, 20, 150]),
        (SGD(0.1, 0.005, momentum=0.9), 1.0, [60, 150]),
        (SignSGD(0.02, 0.5), 0.1, [20, 60, 150]),
        (Lion(0.02, 0.1, betas=(0.9, 0.98)), 0.1, [3, 10, 20]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_scale_invariant_norms_deviate_as_stated_from_their_start_on(
    rule: Optimizer, init: float, steps: list[int]
) -> None:
    n = 128
    walk = abm.run(rule, 500, steps[-1], shape=(n,), seed=1, init=init, scale_invariant=True, record=steps)
    mean, deviation = predict(rule, steps[-1], init=init, shape=(n,), scale_invariant=True).norm(n)
    norms = np.sqrt(n * walk.squares)
    assert norms.mean(1) == pytest.approx(mean[steps], rel=0.01)
    assert norms.std(1) == pytest.approx(deviation[steps], rel=0.13)


@pytest.mark.parametrize("follows", [True, False])
def test_at_rest_the_spread_solves_its_equations(follows: bool) -> None:
    p, Q, r, beta2, rho = 0.1, 2.0, float(follows), 0.8, 0.2
    step = np.array([[1 - rho - r * rho, -r * rho], [beta2 - 1, beta2]])
    own = np.array([r * rho, 1 - beta2])
    kicks = np.outer(own, own) + np.diag([2 * (p * rho * (1 - rho) + (1 - p) ** 2 * Q * rho**2), 0])
    rest = solve_discrete_lyapunov(step, kicks)[0, 0]
    law = SpreadLaw(p, Q, follows, memory=0.5, divisor_memory=beta2)
    assert norm_spread(law, np.full(300, rho))[-1] == pytest.approx(rest, rel=1e-12)


def test_the_share_of_muons_power_that_is_not_linear_is_that_of_random_matrices() -> None:
    rule, shape, (steps, lags) = Muon(0.02, 0.1, momentum=0.9, ns_steps=0), (24, 24), (100, 40)
    q, rng = gradient_filter(rule), np.random.default_rng(0)
    m, filtered = rng.normal(size=(40, *shape)) * math.sqrt((1 - 0.9) / (1 + 0.9)), []
    for g in rng.normal(size=(steps, 40, *shape)):
        filtered.append(q.own * g + q.past * m)
        m = q.memory * m + (1 - q.memory) * g
    left, _, right = np.linalg.svd(np.stack(filtered), full_matrices=False)
    updates = left @ right
    slope = float((updates * filtered).sum() / np.square(filtered).sum())
    power = [
        sum((1 + (k > 0)) * float((x[: steps - lags] * x[k : steps - lags + k]).mean()) for k in range(lags))
        for x in (updates - slope * np.stack(filtered), updates)
    ]
    assert power[0] / power[1] == pytest.approx(nonlinear_share(rule, shape), rel=0.1)


def test_norms_of_gaussians_by_quadrature() -> None:
    for n in (1, 3, 50):
        r = (np.arange(200_000) + 0.5) / 200_000 * (np.sqrt(n) + 12)
        density = r ** (n - 1) * np.exp(-r * r / 2)
        density /= density.sum()
        mean = float(density @ r)
        std = math.sqrt(float(density @ r**2) - mean**2)
        assert norm_of_gaussians(np.array(2.0), n) == pytest.approx((2 * mean, 2 * std), rel=1e-5)
    below, above = (norm_of_gaussians(np.array(1.0), n) for n in (9_999, 10_000))
    assert above[0] / below[0] == pytest.approx(math.sqrt(10_000 / 9_999), abs=1e-7)
    assert above[1] == pytest.approx(below[1], rel=1e-4)


def test_the_angle_is_that_of_a_step_by_hand() -> None:
    """w' = a w − s with s orthogonal to w (sign descent): sin² = E s²/E w'²; it is not defined for a start at 0."""
    run = predict(SignSGD(0.1, 0.5), 3)
    assert math.isnan(run.angular_update[0])
    assert run.angular_update[1] == pytest.approx(math.sqrt(0.01 / (0.95**2 * 0.01 + 0.01)))


def test_without_decay_there_is_no_equilibrium_but_a_transient() -> None:
    assert equilibrium(AdamW(0.1)).rms == leading_order(SGD(0.1)) == math.inf
    run = predict(SignSGD(0.1), 50)
    np.testing.assert_allclose(run.mean_square, 0.01 * np.arange(51), rtol=1e-12)


INVARIANT = {"shape": (128,), "scale_invariant": True}


@pytest.mark.parametrize(
    ("optimizer", "init", "shape"),
    [
        (AdamW(0.1, 0.05, betas=(0.9, 0.95)), 0.25, (128,)),
        (Lion(0.1, 0.05, betas=(0.9, 0.99)), 0.02, (128,)),
        (Muon(0.1, 0.05), 0.02, (16, 32)),
    ],
)
def test_scale_invariant_weights_that_grow_are_predicted(
    optimizer: Optimizer, init: float, shape: tuple[int, ...]
) -> None:
    """A divisor without bias correction, or older gradients taken to be of today's size, are off by more than half."""
    record = [0, 2, 5, 10, 20]
    law = {"shape": shape, "scale_invariant": True}
    walk = abm.run(optimizer, 200, 20, seed=3, init=init, record=record, **law)
    measured = walk.mean_square / walk.mean_square[0] * init**2
    stated = predict(optimizer, 20, init=init, **law).mean_square[record]
    np.testing.assert_allclose(np.sqrt(measured / stated), 1, atol=0.015)


@pytest.mark.parametrize(
    ("optimizer", "law", "told"),
    [
        # Beside each, how far off the rms of torch's own steps was.
        (Adam(0.1, 0.1), {"init": 10.0, "lr_schedule": np.full(200, 0.1)}, r"weight_decay \* rms / \(noise"),  # 71%
        (Adam(1e-3, 1e-3), {"noise": 1e-6}, r"lr \* weight_decay / \(noise \+ eps\) = 0.99"),
        (RMSProp(0.01, 0.1), {}, "no warm-up of 5 steps"),  # 1.5%
        (AdamW(0.1, 0.1, betas=(0.0, 0.95)), {"kurtosis": 9.0}, "kurtosis=9"),  # 2%
        (Muon(0.1, 0.1, momentum=0.9999), {"shape": (8, 8), "noise": 1e-6}, "torch's guard"),
        (SGD(0.1, 0.05, momentum=0.9), {**INVARIANT, "shape": (2,), "init": 1.0}, "2 scale-invariant entries"),  # 53%
        (AdamW(0.1, 0.05, betas=(0.9, 0.95), eps=0.1), {**INVARIANT, "init": 1.0}, r"eps \* norm / noise"),  # -34%
        (AdamW(0.1, 0.05, betas=(0.9, 0.95)), {**INVARIANT, "init": 0.02}, "lr / rms reaches 5"),  # 9.5%
        (Lion(0.1, 0.1), {**INVARIANT, "init": 1.0}, "momentum remembers is 1, above 0.1: ± of the norm"),  # 50% of ±
    ],
)
def test_settings_in_which_it_was_off_are_told(optimizer: Optimizer, law: dict, told: str) -> None:
    assert any(re.search(told, line) for line in predict(optimizer, 200, **law).outside)


@pytest.mark.parametrize(
    ("optimizer", "law"),
    [
        (AdamW(0.1, 0.1, betas=(0.0, 0.95), eps=0.5), {}),
        (Adam(0.1, 0.05, betas=(0.95, 0.95)), {"noise": 0.5, "init": 1.0}),
        (RMSProp(0.1, 0.1), {"lr_schedule": wsd(200, 5)}),
        (SGD(1.0, 1.5, momentum=0.5), {"kurtosis": 9.0}),
        (Lion(0.5, 1.0, betas=(0.95, 0.5)), {}),
        (Muon(0.5, 0.4), {"shape": (32, 64)}),
        (SGD(0.1, 0.1), {**INVARIANT, "init": 1.0}),
        (AdamW(0.1, 0.05, betas=(0.9, 0.95)), {**INVARIANT, "init": 0.25}),
        (Lion(0.1, 0.01), {**INVARIANT, "init": 0.01}),
        (Muon(0.1, 0.005), {**INVARIANT, "shape": (64, 64), "init": 1.0}),
    ],
)
def test_settings_within_the_tested_limits_are_not_told(optimizer: Optimizer, law: dict) -> None:
    assert predict(optimizer, 200, **law).outside == ()
    rest = {k: v for k, v in law.items() if k not in ("init", "lr_schedule")}
    assert equilibrium(optimizer, **rest).outside == ()


def test_the_equilibrium_tells_too() -> None:
    assert "beta2=0.5 is below 0.95" in equilibrium(AdamW(0.1, 0.1, betas=(0.0, 0.5))).outside[0]
    assert "lr * weight_decay = 0.02 is above" in equilibrium(AdamW(0.1, 0.2)).outside[0]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: predict(Adam(0.1, 0.1), 5, **INVARIANT, init=1.0), "scale_invariant=True with Adam: no law"),
        (lambda: equilibrium(RMSProp(0.1, 0.1), **INVARIANT), "scale_invariant=True with RMSProp: no law"),
        (lambda: predict(Muon(0.1), 5, shape=(2, 2)), r"shape=\(2, 2\): Muon's law is that of large matrices"),
        (lambda: equilibrium(Muon(0.1, 0.1), shape=(1, 16)), r"shape=\(1, 16\)"),
        (lambda: equilibrium(Lion(1e-6, 1e-6, betas=(0.9, 1 - 1e-9))), "is felt for 2e.10 steps"),
        (lambda: equilibrium(AdamW(1.0, 2.0)), r"lr \* weight_decay = 2: unstable"),
        (lambda: predict(AdamW(1.0, 1.5), 5, lr_schedule=np.full(5, 2.0)), r"lr \* weight_decay = 3: unstable"),
        (lambda: equilibrium(SGD(1.0, 2.0)), "unstable"),
        (lambda: equilibrium(SGD(1.0, 3.9, momentum=0.9, nesterov=True)), "unstable"),
        (lambda: predict(torch.optim.NAdam([torch.zeros(2)]), 5), r"optimizer is a torch.*NAdam: expected AdamW"),
        (lambda: predict(AdamW(1.0), 0), "steps=0"),
        (lambda: predict(AdamW(1.0), 5, init=-1.0), "init=-1.0"),
        (lambda: predict(AdamW(1.0), 5, noise=0.0), "noise=0.0"),
        (lambda: predict(AdamW(1.0), 5, kurtosis=0.5), "kurtosis=0.5"),
        (lambda: predict(Muon(1.0), 5), "shape=None"),
        (lambda: predict(Muon(1.0), 5, shape=(8,)), r"shape=\(8,\)"),
        (lambda: predict(SGD(1.0), 5, scale_invariant=True, shape=(4,)), "init=0"),
        (lambda: predict(SGD(1.0), 5, lr_schedule=np.ones(4)), r"lr_schedule has shape \(4,\)"),
        (lambda: predict(SGD(1.0), 2, weight_decay_schedule=-np.ones(2)), "weight_decay_schedule has values"),
        (lambda: leading_order(SGD(1.0, 1.0), correlation=1.0), "correlation=1.0"),
        (lambda: leading_order(Lion(1.0, 0.1), correlation=0.5), "correlation=0.5"),
        (lambda: norm_of_gaussians(np.ones(1), 0), "n=0"),
    ],
)
def test_bad_input_is_named(call, told: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=told):
        call()
