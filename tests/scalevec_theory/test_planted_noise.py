"""Planted claims about equilibria, multipliers and symmetries: true ones, and false ones that differ in one term.

The right law must be confirmed and every wrong one refuted, at standard effort; equilibria are simulated, the rest is
searched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from scalevec_theory import ito, multipliers
from scalevec_theory.check import check_scope
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting, Verdict
from scalevec_theory.losses import CrossEntropy
from scalevec_theory.optimizers import SGD, AdamW, Lion, Muon, Optimizer, SignSGD
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.problems import Between, Field, Probabilities, Problems, ProblemSpace, Real
from scalevec_theory.walks_at_rest import rms_at_rest, walk_at_rest

TOLERANCE = 0.01
WALKS = 200_000
Law = Callable[[float, float, float], float]


def at_rest(optimizer: Optimizer, law: Law, shape: tuple[int, ...] = ()) -> Scope:
    """√E[w²] at rest is √law(η, λ, momentum), within 1%."""
    expected = law(optimizer.lr, optimizer.weight_decay, getattr(optimizer, "momentum", 0.0))

    def measure(setting: Setting) -> list[Evidence]:
        n = 16 if shape else WALKS
        walk = walk_at_rest(optimizer, setting, n, shape=shape)
        return [rms_at_rest("planted:planted", optimizer, expected, TOLERANCE, setting, walk)]

    return Scope("planted", "planted", True, measure=measure)


def searched(margin: Callable[[Problems, float], Margin], dims: dict[str, tuple[int, ...]], **fields: Field) -> Scope:
    return Scope("planted", "planted", True, ProblemSpace("planted", dims, fields), margin)


def gradient_law(p: Problems, accuracy: float, *, block: str, claimed: Callable[..., Tensor]) -> Margin:
    """The gradient of one multiplier of θ = s diag(r) W diag(k), by autodiff, against a formula in θ, W and G."""
    loss = CrossEntropy(p["X"], p["Y"])
    blocks = {b: p[b].clone().requires_grad_() for b in multipliers.MULTIPLIERS.axes}
    theta = multipliers.MULTIPLIERS.forward(**blocks)
    (exact,) = torch.autograd.grad(loss.value(theta).sum(), blocks[block])
    G, plain = loss.gradient(theta.detach()), {b: x.detach() for b, x in blocks.items()}
    stated = claimed(G=G, **plain)
    sizes = multipliers.gradients(G.abs().clamp(min=1e-12), **{b: x.abs() for b, x in plain.items()})
    scale = sizes[block].reshape(len(G), -1).amax(1)
    return Margin.equal(exact.reshape(len(G), -1), stated.reshape(len(G), -1), accuracy, scale=scale)


def gradient(block: str, claimed: Callable[..., Tensor]) -> Callable[[], Scope]:
    return lambda: searched(
        partial(gradient_law, block=block, claimed=claimed),
        {"c": (2, 3), "d": (1, 3), "n": (4,)},
        X=Real("nd"),
        Y=Probabilities("nc"),
        s=Real(""),
        r=Real("c"),
        k=Real("d"),
        W=Real("cd"),
    )


PRODUCT = Parametrization(
    "product", {"a": "c", "b": "d"}, lambda a, b: a[..., :, None] * b[..., None, :], lambda a, b: {}
)


def along_orbit(p: Problems, accuracy: float, *, independent: bool, of_a: float, of_b: float, sizes: bool) -> Margin:
    """Drift of |a|² − |b|² under unit noise on every parameter, or on ∂L/∂θ, for θ = a bᵀ."""
    blocks = {"a": p["a"], "b": p["b"]}
    c, d = p.dims["c"], p.dims["d"]
    root = torch.eye(c * d, dtype=torch.float64, device=p["a"].device).expand(len(p), -1, -1)
    noise = ito.independent_noise(blocks) if independent else ito.effective_noise(PRODUCT, blocks, root)
    drift, _ = ito.rates(lambda x: (x["a"].square().sum(-1) - x["b"].square().sum(-1))[:, None], blocks, noise)
    a2, b2 = p["a"].square().sum(-1), p["b"].square().sum(-1)
    n_a, n_b = (c, d) if sizes else (1, 1)
    stated = of_a * n_a - of_b * n_b if independent else of_a * n_a * b2 - of_b * n_b * a2
    stated = torch.as_tensor(stated, dtype=torch.float64, device=a2.device).expand(len(p))
    return Margin.equal(drift, stated[:, None], accuracy, scale=1 + c * b2 + d * a2)


def orbit(*, independent: bool, of_a: float = 1.0, of_b: float = 1.0, sizes: bool = True) -> Callable[[], Scope]:
    margin = partial(along_orbit, independent=independent, of_a=of_a, of_b=of_b, sizes=sizes)
    return lambda: searched(margin, {"c": (1, 2, 3), "d": (1, 2, 3)}, a=Real("c"), b=Real("d"))


def norm_growth(p: Problems, accuracy: float, *, power: int, factor: float) -> Margin:
    """A gradient step of a function of c/‖c‖: ‖c‖² grows by factor · ηᵖ‖g‖²."""
    c = p["c"].clone().requires_grad_()
    loss = (c / c.norm(dim=-1, keepdim=True) * p["target"]).sum(-1)
    (g,) = torch.autograd.grad(loss.sum(), c)
    eta, before = p["eta"], p["c"].square().sum(-1)
    grown = (p["c"] - eta[:, None] * g).square().sum(-1) - before
    return Margin.equal(
        grown[:, None], (factor * eta**power * g.square().sum(-1))[:, None], accuracy, scale=before + g.square().sum(-1)
    )


def growth(power: int = 2, factor: float = 1.0) -> Callable[[], Scope]:
    fields = {"c": Real("n"), "target": Real("n"), "eta": Between("", 0.01, 1.0)}
    return lambda: searched(partial(norm_growth, power=power, factor=factor), {"n": (2, 3)}, **fields)


def half(lr: float, decay: float, momentum: float) -> float:
    return lr / (2 * decay)


def sgd(lr: float, decay: float, momentum: float) -> float:
    """To first order in ηλ: ησ²/(2λ(1 − momentum))."""
    return lr / (2 * decay * (1 - momentum))


SMALL = {"lr": 0.02, "weight_decay": 0.1}
ADAMW = AdamW(0.02, 0.1, betas=(0.9, 0.999))
SIGN, LION, MUON = SignSGD(**SMALL), Lion(**SMALL), Muon(0.1, 0.1)
MOMENTUM = SGD(**SMALL, momentum=0.9)

TRUE: dict[str, Callable[[], Scope]] = {
    "AdamW: η/(2λ)": partial(at_rest, ADAMW, half),
    "SignSGD: η/(2λ)": partial(at_rest, SIGN, half),
    "momentum: η/(2λ(1 − momentum))": partial(at_rest, MOMENTUM, sgd),
    "∂L/∂s = Σ r_i W_ij k_j G_ij": gradient("s", lambda s, r, k, W, G: torch.einsum("bi,bij,bj,bij->b", r, W, k, G)),
    "∂L/∂r_i = s Σ_j W_ij k_j G_ij": gradient(
        "r", lambda s, r, k, W, G: s[:, None] * torch.einsum("bij,bj,bij->bi", W, k, G)
    ),
    "∂L/∂W = s r k G": gradient("W", lambda s, r, k, W, G: s[:, None, None] * r[:, :, None] * k[:, None, :] * G),
    "independent noise: drift c − d": orbit(independent=True),
    "minibatch noise: drift c|b|² − d|a|²": orbit(independent=False),
    "‖c‖² grows by η²‖g‖²": growth(),
}
FALSE: dict[str, Callable[[], Scope]] = {
    "AdamW: η/λ": partial(at_rest, ADAMW, lambda lr, decay, m: lr / decay),
    "AdamW: η/(4λ)": partial(at_rest, ADAMW, lambda lr, decay, m: lr / (4 * decay)),
    "AdamW: ∝ η²/λ, right at η = 1": partial(at_rest, ADAMW, lambda lr, decay, m: lr**2 / (2 * decay)),
    "AdamW: ∝ √(η/λ)": partial(at_rest, ADAMW, lambda lr, decay, m: (lr / (2 * decay)) ** 0.5),
    "AdamW: β₁ enlarges it": partial(at_rest, ADAMW, lambda lr, decay, m: lr / (2 * decay * (1 - 0.9))),
    "AdamW: 3% off": partial(at_rest, ADAMW, lambda lr, decay, m: 1.06 * lr / (2 * decay)),
    "SignSGD: η/λ": partial(at_rest, SIGN, lambda lr, decay, m: lr / decay),
    "momentum does not matter to SGD": partial(at_rest, MOMENTUM, half),
    "momentum: 1 − momentum squared": partial(at_rest, MOMENTUM, lambda lr, decay, m: sgd(lr, decay, m) / (1 - m)),
    "Lion as AdamW: η/(2λ)": partial(at_rest, LION, half),
    "Muon as AdamW: η/(2λ) for each entry": partial(at_rest, MUON, half, (16, 16)),
    "∂L/∂s = Σ θ_ij G_ij": gradient("s", lambda s, r, k, W, G: torch.einsum("b,bi,bij,bj,bij->b", s, r, W, k, G)),
    "∂L/∂s is a mean": gradient("s", lambda s, r, k, W, G: torch.einsum("bi,bij,bj,bij->b", r, W, k, G) / W[0].numel()),
    "∂L/∂r without s": gradient("r", lambda s, r, k, W, G: torch.einsum("bij,bj,bij->bi", W, k, G)),
    "∂L/∂r without k": gradient("r", lambda s, r, k, W, G: s[:, None] * torch.einsum("bij,bij->bi", W, G)),
    "∂L/∂k sums over columns": gradient(
        "k", lambda s, r, k, W, G: (s * torch.einsum("bi,bij,bij->b", r, W, G))[:, None].expand(k.shape)
    ),
    "∂L/∂W = G": gradient("W", lambda s, r, k, W, G: G),
    "independent noise drifts by c + d": orbit(independent=True, of_b=-1.0),
    "independent noise: sizes do not matter": orbit(independent=True, sizes=False),
    "minibatch noise: sizes do not matter": orbit(independent=False, sizes=False),
    "minibatch noise: |b|² counts twice": orbit(independent=False, of_a=2.0),
    "minibatch noise does not drift": orbit(independent=False, of_a=0.0, of_b=0.0),
    "‖c‖² grows by η‖g‖²": growth(power=1),
    "‖c‖² grows by 2η²‖g‖²": growth(factor=2.0),
    "‖c‖² is kept": growth(factor=0.0),
}


def verdict(planted: Scope) -> Verdict:
    return check_scope(Claim("planted", "", "", "", (planted,)), planted, effort="standard").verdict


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_are_confirmed(name: str) -> None:
    assert verdict(TRUE[name]()) == Verdict.CONFIRMED


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_refuted(name: str) -> None:
    assert verdict(FALSE[name]()) == Verdict.REFUTED
