"""Noise on the effective gradient drives Q_j = v_j² − ‖w_j‖² without randomness, to the balance ‖w_j‖² = c v_j².

The model of minibatch noise: ξ = σ S^½ dB on the gradient of θ = W diag(v), so that one Brownian motion moves v and W:
dv_j = −⟨w_j, g_j dt + ξ_j⟩, dw_j = −v_j (g_j dt + ξ_j), read in Itô's sense.

Source: arXiv 2605.26895 (curvature under noise); the law of balance is known for rescaling symmetries of networks
(Ziyin et al. 2023); its form for a scale vector, and everything about weight decay and single steps, is derived here.
"""

from __future__ import annotations

from functools import partial

import torch
from sympy import Eq, symbols
from torch import Tensor

from scalevec_theory import ito
from scalevec_theory.claim import Claim, Evidence, Margin, Scope, Setting
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Minibatch, ensemble
from scalevec_theory.paired import agreement, simulated
from scalevec_theory.parametrizations import (
    DUAL_SCALE,
    EXPONENTIAL,
    INPUT_SCALE,
    MAGNITUDE_DIRECTION,
    SHARED_INPUT_SCALE,
    Parametrization,
)
from scalevec_theory.problems import Between, Field, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, inner

v, c, dt, dv, dv2, dw2, dp, dq, dQ = symbols("v c dt dv (dv)^2 |dw|^2 d(v^2) d|w|^2 dQ", real=True)
noise, decay_v, decay_W, step, trace, h = symbols("σ^2 λ_v λ_W η tr(S) h_jj", real=True)
EQ_new, EQ_old, Ep, Eq_, Qdot = symbols("E[Q'] E[Q] E[v^2] E|w|^2 dE[Q]/dt", real=True)
wg, ww, gg, wdw, wdB = inner("w", "g"), inner("w", "w"), inner("g", "g"), inner("w", "dw"), inner("w", "dB")
wSw, gξ, ξξ, wξ2 = inner("w", "S w"), inner("g", "ξ"), symbols("E<ξ\\,ξ>", real=True), symbols("E<w\\,ξ>^2", real=True)
slope_noise, law_noise = inner("∇Q", "J^T ξ"), inner("J ∇Q", "ξ")

ITO = {
    "Q = v^2 - |w|^2": Eq(dQ, dp - dq),
    "Itô: d(v^2) = 2 v dv + (dv)^2": Eq(dp, 2 * v * dv + dv2),
    "Itô: d|w|^2 = 2 <w,dw> + |dw|^2": Eq(dq, 2 * wdw + dw2),
}
MOTION = {
    "dv = -<w, g dt + σ dB>": Eq(dv, -wg * dt - wdB),
    "<w,dw> = -v <w, g dt + σ dB>": Eq(wdw, -v * wg * dt - v * wdB),
}
SQUARES = {
    "(dv)^2 = σ^2 <w,S w> dt": Eq(dv2, noise * wSw * dt),
    "|dw|^2 = σ^2 v^2 tr(S) dt": Eq(dw2, noise * v**2 * trace * dt),
}


def prove_drift() -> Proof:
    """The term in dB cancels between v and w, and what Itô's formula adds is left."""
    lemma = Lemma(
        "dQ = σ^2 (<w,S w> - v^2 tr(S)) dt, every c: no term in dB",
        Eq(dQ, noise * (wSw - v**2 * trace) * dt),
        {**ITO, **MOTION, **SQUARES},
    )
    balance = Lemma(
        "S = I: dQ = σ^2 (|w|^2 - c v^2) dt",
        Eq(dQ, noise * (ww - c * v**2) * dt),
        {
            "dQ = σ^2 (<w,S w> - v^2 tr(S)) dt": Eq(dQ, noise * (wSw - v**2 * trace) * dt),
            "S = I: <w,S w> = |w|^2": Eq(wSw, ww),
            "S = I: tr(S) = c": Eq(trace, c),
        },
    )
    return Proof((lemma, balance), "Q_j has no martingale part; its drift vanishes where |w|^2 = c v^2.")


def prove_label_noise() -> Proof:
    """Label noise of strength σ gives the gradient ε xᵀ: within column j the covariance is σ² h_jj I."""
    lemma = Lemma(
        "dQ = σ^2 h_jj (|w|^2 - c v^2) dt, every c",
        Eq(dQ, noise * h * (ww - c * v**2) * dt),
        {
            "dQ = σ^2 (<w,S w> - v^2 tr(S)) dt": Eq(dQ, noise * (wSw - v**2 * trace) * dt),
            "S = h_jj I: <w,S w> = h_jj |w|^2": Eq(wSw, h * ww),
            "S = h_jj I: tr(S) = h_jj c": Eq(trace, h * c),
        },
    )
    return Proof((lemma,), "Noise in other columns, correlated or not, does not enter dQ_j.")


def prove_one_output() -> Proof:
    """For one output dQ = −σ²Q dt."""
    lemma = Lemma(
        "c = 1: dQ = -σ^2 Q dt",
        Eq(dQ, -noise * (v**2 - ww) * dt),
        {"dQ = σ^2 (|w|^2 - c v^2) dt": Eq(dQ, noise * (ww - c * v**2) * dt), "c = 1": Eq(c, 1)},
    )
    return Proof((lemma,), "So Q_j(t) = Q_j(0) exp(-σ^2 t) on every path, whatever the loss.")


def prove_weight_decay() -> Proof:
    """Decay adds its own drift; where a law is stationary, E[dQ] = 0 fixes the ratio of the two sizes."""
    decays = Lemma(
        "dQ = (σ^2 (|w|^2 - c v^2) - 2 λ_v v^2 + 2 λ_W |w|^2) dt",
        Eq(dQ, (noise * (ww - c * v**2) - 2 * decay_v * v**2 + 2 * decay_W * ww) * dt),
        {
            **ITO,
            "dv = -<w, g dt + σ dB> - λ_v v dt": Eq(dv, -wg * dt - wdB - decay_v * v * dt),
            "<w,dw> = -v <w, g dt + σ dB> - λ_W |w|^2 dt": Eq(wdw, -v * wg * dt - v * wdB - decay_W * ww * dt),
            "(dv)^2 = σ^2 |w|^2 dt": Eq(dv2, noise * ww * dt),
            "|dw|^2 = σ^2 c v^2 dt": Eq(dw2, noise * c * v**2 * dt),
        },
    )
    ratio = Lemma(
        "(σ^2 + 2 λ_W) E|w|^2 = (c σ^2 + 2 λ_v) E[v^2]",
        Eq((noise + 2 * decay_W) * Eq_, (c * noise + 2 * decay_v) * Ep),
        {
            "the mean of dQ": Eq(Qdot, noise * (Eq_ - c * Ep) - 2 * decay_v * Ep + 2 * decay_W * Eq_),
            "stationary": Eq(Qdot, 0),
        },
    )
    return Proof(
        (decays, ratio),
        "E|w|^2 / E[v^2] = (c σ^2 + 2 λ_v)/(σ^2 + 2 λ_W) under every stationary law of finite second moment; time "
        "averages obey it in the limit because E|Q| is bounded (claim curvature, minibatch-bounded).",
    )


def prove_any_law() -> Proof:
    """A law of the flow of every loss has J∇Q = 0, and noise on the gradient enters through Jᵀ alone."""
    lemma = Lemma(
        "the part of dQ in first order of the noise is 0",
        Eq(slope_noise, 0),
        {
            "dφ = -J^T (g dt + ξ): <∇Q,J^T ξ> = <J ∇Q,ξ>": Eq(slope_noise, law_noise),
            "conserved for every loss: <J ∇Q,g> = 0 for every g, so also for g = ξ": Eq(law_noise, 0),
        },
    )
    return Proof((lemma,), "What moves Q is the term of second order, whose mean Itô's formula gives: a drift.")


def prove_stochastic_step() -> Proof:
    """The increment of one gradient step is exact for any gradient, so also for g + ξ, E[ξ] = 0."""
    lemma = Lemma(
        "E[Q'] = Q + η^2 (<w,g>^2 - v^2 |g|^2 + <w,S w> - v^2 tr(S)), every c",
        Eq(EQ_new, EQ_old + step**2 * (wg**2 - v**2 * gg + wSw - v**2 * trace)),
        {
            "E of the exact increment η^2 (<w,g+ξ>^2 - v^2 |g+ξ|^2), E[ξ] = 0": Eq(
                EQ_new - EQ_old, step**2 * (wg**2 + wξ2 - v**2 * (gg + ξξ))
            ),
            "ξ has covariance S: E<w,ξ>^2 = <w,S w>": Eq(wξ2, wSw),
            "ξ has covariance S: E|ξ|^2 = tr(S)": Eq(ξξ, trace),
        },
    )
    return Proof((lemma,), "In stationary SGD of any step, E[<w,g+ξ>^2] = E[v^2 |g+ξ|^2] exactly.")


FIELDS: dict[str, Field] = {"v": Real("d"), "W": Real("cd")}
SIZES = {"c": (1, 2, 4), "d": (1, 2, 3)}
ANISOTROPIC = ProblemSpace(
    "noise of covariance S within every column, columns independent; any v and W",
    SIZES,
    {**FIELDS, "S": PositiveDefinite("cc", low=0.01, high=20.0)},
)
LABELS = ProblemSpace("label noise, correlated inputs; any v and W", SIZES, {**FIELDS, "H": PositiveDefinite("dd")})
DESIGNS_TRIED = (INPUT_SCALE, DUAL_SCALE, SHARED_INPUT_SCALE, MAGNITUDE_DIRECTION, EXPONENTIAL)
ANY = ProblemSpace("independent noise on every parameter; any v and W", SIZES, FIELDS)
DESIGNS = ProblemSpace(
    "noise of unit covariance on the gradient of θ; any parameters",
    {"b": (2,), "c": (1, 2), "d": (2, 3)},
    {"u": Real("c"), "v": Real("d"), "alpha": Between("d"), "beta": Between(""), "W": Real("cd"), "V": Real("bcd")},
)
STEPS = ProblemSpace(
    "one step of SGD, gradient g plus noise of two equally likely values ±ξ; any v and W",
    SIZES,
    {**FIELDS, "g": Real("cd"), "xi": Real("cd"), "eta": Between("", 1e-3, 0.5)},
)


def _blocks(problems: Problems) -> dict[str, Tensor]:
    return {"v": problems["v"], "W": problems["W"]}


def _Q(blocks: dict[str, Tensor]) -> Tensor:
    (Q,) = INPUT_SCALE.invariants(**blocks).values()
    return Q


def _size(problems: Problems) -> Tensor:
    return problems["v"].square().sum(-1) + problems["W"].square().flatten(1).sum(-1)


def _root(covariance: Tensor) -> Tensor:
    eigenvalues, axes = torch.linalg.eigh(covariance)
    return axes * eigenvalues.clamp_min(0).sqrt()[..., None, :]


def _kron(A: Tensor, B: Tensor) -> Tensor:
    """Kronecker products of batches of matrices."""
    return torch.vmap(torch.kron)(A, B)


def _eye(n: int, like: Tensor) -> Tensor:
    return torch.eye(n, dtype=like.dtype, device=like.device).expand(len(like), n, n).contiguous()


def _rates_margin(problems: Problems, root: Tensor, expected: Tensor, strength: Tensor, accuracy: float) -> Margin:
    """Drift of Q by Itô's formula against ``expected``, and its quadratic variation against 0, for noise ``root`` dβ.

    Relative to the squares of v and W times the ``strength`` of the noise ``(B,)``.
    """
    drift, variation = ito.rates(_Q, _blocks(problems), ito.effective_noise(INPUT_SCALE, _blocks(problems), root))
    both = torch.cat([drift - expected, variation / _size(problems)[:, None]], 1)
    return Margin.equal(both, torch.zeros_like(both), accuracy, scale=_size(problems) * strength)


def drift_margin(problems: Problems, accuracy: float) -> Margin:
    """wᵀSw − v² tr S; σ = 1."""
    S, W, v = problems["S"], problems["W"], problems["v"]
    trace = S.diagonal(dim1=1, dim2=2).sum(-1)
    expected = torch.einsum("nij,nik,nkj->nj", W, S, W) - v**2 * trace[:, None]
    return _rates_margin(problems, _kron(_root(S), _eye(W.shape[-1], W)), expected, trace, accuracy)


def label_margin(problems: Problems, accuracy: float) -> Margin:
    """h_jj (‖w_j‖² − c v_j²); σ = 1."""
    H, W, v = problems["H"], problems["W"], problems["v"]
    c, h = W.shape[1], H.diagonal(dim1=1, dim2=2)
    expected = h * (W.square().sum(1) - c * v**2)
    return _rates_margin(problems, _kron(_eye(c, W), _root(H)), expected, c * h.amax(-1), accuracy)


def isotropic_margin(problems: Problems, accuracy: float) -> Margin:
    """Minus the quadratic variation of Q per unit of size under independent noise, which is 4(v² + ‖w‖²)."""
    _, variation = ito.rates(_Q, _blocks(problems), ito.independent_noise(_blocks(problems)))
    return Margin.equal(variation, torch.zeros_like(variation), accuracy, scale=_size(problems))


def designs_margin(problems: Problems, accuracy: float) -> Margin:
    """The largest quadratic variation of any conserved quantity of five parametrisations, σ = 1."""
    names = {"u": problems["u"], "v": problems["v"], "alpha": problems["alpha"], "beta": problems["beta"]}
    worst = []
    for p in DESIGNS_TRIED:
        W = problems["V"] if p is SHARED_INPUT_SCALE else problems["W"]
        blocks = {name: W if name == "W" else names[name] for name in p.axes}
        theta = p.forward(**blocks)
        noise = ito.effective_noise(p, blocks, _eye(theta[0].numel(), theta))
        square = torch.stack([x.square().sum(0).reshape(len(theta), -1).sum(1) for x in noise.values()]).sum(0)
        _, variation = ito.rates(partial(_laws, p), blocks, noise)
        slope = torch.stack([x.square().reshape(len(theta), -1).sum(1) for x in blocks.values()]).sum(0) + 1
        worst.append((variation / (square * slope)[:, None]).amax(1))
    largest = torch.stack(worst, 1)
    return Margin.equal(largest, torch.zeros_like(largest), accuracy, scale=torch.ones_like(largest[:, 0]))


def _laws(parametrization: Parametrization, blocks: dict[str, Tensor]) -> Tensor:
    """Every conserved quantity of a parametrisation, side by side, ``(B, K)``."""
    return torch.cat([q.reshape(len(q), -1) for q in parametrization.invariants(**blocks).values()], 1)


def step_margin(problems: Problems, accuracy: float) -> Margin:
    """The mean of Q over the two outcomes of one step against the closed form; S = ξ ξᵀ in every column."""
    v, W, g, xi = (problems[name] for name in ("v", "W", "g", "xi"))
    eta = problems["eta"][:, None]
    after = []
    for sign in (1, -1):
        noisy = g + sign * xi
        after.append(_Q({"v": v - eta * (W * noisy).sum(1), "W": W - eta[..., None] * v[:, None] * noisy}))
    change = 0.5 * (after[0] + after[1]) - _Q(_blocks(problems))
    signal = (W * g).sum(1) ** 2 - v**2 * g.square().sum(1)
    noise = (W * xi).sum(1) ** 2 - v**2 * xi.square().sum(1)
    size = _size(problems) * (1 + problems["eta"] ** 2 * (g.square() + xi.square()).flatten(1).sum(-1))
    return Margin.equal(change, eta**2 * (signal + noise), accuracy, scale=size)


GROUPS, SIGMA = 16, 0.5


def _paths(setting: Setting, c: int, decay_W: float, times: list[float], start: dict[str, float]) -> dict[str, Tensor]:
    """Group means ``(GROUPS, S)`` of p = v², q = ‖w‖², Q = p − q and |q − cp| under minibatch noise; T of norm 1."""
    T = torch.full((GROUPS, c, 1), c**-0.5, dtype=torch.float64)
    blocks = {"v": T.new_full((GROUPS, 1), start["v"]), "W": start["w"] * T}
    run = ensemble(
        INPUT_SCALE,
        LeastSquares(torch.ones(GROUPS, 1, 1, dtype=torch.float64), T),
        blocks,
        Minibatch(SIGMA),
        times,
        dt=2e-3,
        paths=setting.choose(64, 512, 4096),
        seed=int(setting.rng.integers(2**31)),
        observe={
            "p": lambda v, W: v.square()[..., 0],
            "q": lambda v, W: W.square().sum((-2, -1)),
            "Q": lambda v, W: v.square()[..., 0] - W.square().sum((-2, -1)),
            "gap": lambda v, W: (W.square().sum((-2, -1)) - c * v.square()[..., 0]).abs(),
        },
        weight_decay={"v": 0.0, "W": decay_W},
    )
    return {name: run.mean_of_all(name) for name in run.mean}


LATE = [20.0 + k for k in range(21)]
STANDARD = {"v": 1.0, "w": 0.0}


def measure_one_output(setting: Setting) -> list[Evidence]:
    times = [1.0, 4.0]
    Q = _paths(setting, 1, 0.0, times, {"v": 2.0, "w": 0.5})["Q"]
    exact = (4 - 0.25) * torch.exp(-(SIGMA**2) * torch.tensor(times))
    return [agreement(Q / exact, 0.01, setting, "law-of-balance:one-output", "Q at t = 1 and 4, σ = 0.5, dt = 0.002")]


def measure_balance(setting: Setting) -> list[Evidence]:
    mean = _paths(setting, 4, 0.0, LATE, STANDARD)
    ratio = mean["q"].mean(1, keepdim=True) / (4 * mean["p"].mean(1, keepdim=True))
    return [agreement(ratio, 0.03, setting, "law-of-balance:balance", "E‖w‖²/(c E[v²]), c = 4, σ = 0.5, t = 20 to 40")]


def measure_weight_decay(setting: Setting) -> list[Evidence]:
    c, decay_W = 4, 0.1
    mean = _paths(setting, c, decay_W, LATE, STANDARD)
    exact = c * SIGMA**2 / (SIGMA**2 + 2 * decay_W)
    ratio = mean["q"].mean(1, keepdim=True) / mean["p"].mean(1, keepdim=True) / exact
    detail = "E‖w‖²/E[v²] over cσ²/(σ² + 2λ_W), c = 4, σ = 0.5, λ_W = 0.1, t = 20 to 40"
    return [agreement(ratio, 0.03, setting, "law-of-balance:weight-decay", detail)]


def measure_every_path(setting: Setting) -> list[Evidence]:
    mean = _paths(setting, 4, 0.0, LATE, STANDARD)
    relative = (mean["gap"] / (mean["q"] + 4 * mean["p"])).mean(1)
    margin, stderr = 0.05 - relative.mean().item(), (relative.std() / GROUPS**0.5).item()
    detail = f"E|‖w‖² − cv²|/E(‖w‖² + cv²) is {relative.mean():.3f}, c = 4, σ = 0.5, t = 20 to 40"
    return [simulated(setting, "law-of-balance:every-path", margin, detail, stderr=stderr, instances=GROUPS)]


claim = Claim(
    id="law-of-balance",
    title="Minibatch noise drives ‖w_j‖² to c v_j² without randomness",
    statement="Noise of covariance σ² I on the gradient of θ = W diag(v) gives dQ_j = σ²(‖w_j‖² − c v_j²) dt for "
    "Q_j = v_j² − ‖w_j‖², with no martingale part.",
    formula=r"dQ_j = \sigma^2 \left(\lVert w_j \rVert^2 - c\,v_j^2\right) dt, \qquad Q_j = v_j^2 - \lVert w_j \rVert^2",
    source="arXiv 2605.26895, curvature under noise; the law is derived here",
    figures=("law-of-balance",),
    scopes=(
        Scope(
            "anisotropic",
            "Noise of covariance S within each column: dQ_j = (w_jᵀ S w_j − v_j² tr S) dt with no martingale part; for "
            "S = σ² I this is σ²(‖w_j‖² − c v_j²) dt.",
            holds=True,
            space=ANISOTROPIC,
            margin=drift_margin,
            proof=prove_drift,
            cost=4,
        ),
        Scope(
            "label-noise",
            "Label noise σ, gradient noise ε xᵀ: dQ_j = σ² h_jj (‖w_j‖² − c v_j²) dt, for correlated inputs, too.",
            holds=True,
            space=LABELS,
            margin=label_margin,
            proof=prove_label_noise,
            cost=4,
        ),
        Scope(
            "any-law",
            "No conserved quantity of any parametrisation has a martingale part under noise on the gradient of θ "
            "(searched on input, dual and shared scales, magnitude–direction and exponential).",
            holds=True,
            space=DESIGNS,
            margin=designs_margin,
            proof=prove_any_law,
            cost=16,
        ),
        Scope(
            "isotropic-noise",
            "Q_j has no martingale part under independent noise on every parameter.",
            holds=False,
            space=ANY,
            margin=isotropic_margin,
            cost=4,
        ),
        Scope(
            "one-output",
            "For c = 1, Q_j(t) = Q_j(0) e^{−σ²t} on every path, whatever the loss.",
            holds=True,
            proof=prove_one_output,
            measure=measure_one_output,
        ),
        Scope(
            "balance",
            "From standard initialisation E‖w_j‖²/(c E[v_j²]) tends to 1 (c = 4, σ = 0.5).",
            holds=True,
            measure=measure_balance,
        ),
        Scope(
            "every-path",
            "For c = 4 the balance ‖w_j‖² = c v_j² is reached on every path, to 5%, not only in the mean.",
            holds=False,
            measure=measure_every_path,
        ),
        Scope(
            "weight-decay",
            "With decay, dQ_j = (σ²(‖w_j‖² − c v_j²) − 2λ_v v_j² + 2λ_W‖w_j‖²) dt, and stationary means have "
            "E‖w_j‖²/E[v_j²] = (cσ² + 2λ_v)/(σ² + 2λ_W).",
            holds=True,
            proof=prove_weight_decay,
            measure=measure_weight_decay,
        ),
        Scope(
            "stochastic-step",
            "One step of SGD with gradient noise of covariance S changes Q_j on average by exactly "
            "η²(⟨w_j,g_j⟩² − v_j²‖g_j‖² + w_jᵀ S w_j − v_j² tr S).",
            holds=True,
            space=STEPS,
            margin=step_margin,
            proof=prove_stochastic_step,
        ),
    ),
)
