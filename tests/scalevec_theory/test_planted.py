"""Planted claims: true statements and false ones that differ by a constant, an exponent, a sign or an assumption.

Each family measures something by autodiff or by integration and compares it with a formula that has knobs.  The right
setting must be confirmed and every wrong one refuted, at standard effort.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from scalevec_theory import curvature, ito, operators, scopes
from scalevec_theory.check import check_scope
from scalevec_theory.claim import Claim, Margin, Scope, Verdict
from scalevec_theory.descent import descend
from scalevec_theory.flow import gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import (
    DUAL_SCALE,
    INPUT_SCALE,
    PLAIN,
    exponential_scale,
    magnitude_direction_scale,
)
from scalevec_theory.problems import (
    Between,
    Diagonal,
    Field,
    Identity,
    PositiveDefinite,
    Problems,
    ProblemSpace,
    Real,
    Zero,
)

Dims = dict[str, tuple[int, ...]]

SIZES = {"c": (1, 2, 3), "d": (1, 2, 3)}
COLUMN = {"c": (1, 2, 4)}
ONE_OUTPUT = {"c": (1,)}
SEVERAL_OUTPUTS = {"c": (2, 3)}


def scope(margin: Callable[[Problems, float], Margin], dims: Dims, fields: dict[str, Field], cost: float = 1) -> Scope:
    return Scope("planted", "planted", True, ProblemSpace("planted", dims, fields), margin, cost=cost)


def squares(p: Problems) -> LeastSquares:
    return LeastSquares(p["H"], p["T"])


def times(p: Problems, *values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=p["T"].device)


def size(p: Problems, *names: str) -> Tensor:
    return 1e-3 + torch.stack([p[n].reshape(len(p), -1).square().sum(1) for n in names]).sum(0)


def conserved(p: Problems, accuracy: float, *, a: float, b: float, decay: float = 0.0, rate: float = 0.0) -> Margin:
    """(a v_j² − b‖w_j‖²) e^{rate t} is constant, under decay of everything."""
    start = {"v": p["v"], "W": p["W"]}
    at = times(p, 0, 0.3, 1)
    decays = {"v": decay, "W": decay}
    run = gradient_flow(
        INPUT_SCALE, squares(p), start, at, rtol=accuracy / 100, atol=accuracy / 100, weight_decay=decays
    )
    v, W = run.blocks["v"], run.blocks["W"]
    Q = (a * v.square() - b * W.square().sum(-2)) * torch.exp(rate * at)[:, None]
    scale = size(p, "v", "W") + v.flatten(1).square().amax(1) + W.flatten(1).square().amax(1)
    return Margin.equal(Q, Q[:, :1], accuracy, scale=scale)


def increment(p: Problems, accuracy: float, *, factor: float, power: int, sign: int = 1, of_v: bool = True) -> Margin:
    """One GD step changes Q_j by factor · ηᵖ (sign ⟨w,g⟩² − v²‖g‖²)."""
    run = descend(INPUT_SCALE, squares(p), {"v": p["v"], "W": p["W"]}, step=p["eta"], n_steps=1)
    (Q,) = run.invariants.values()
    g = squares(p).gradient(p["W"] * p["v"][:, None, :])
    inner, norm = (p["W"] * g).sum(1), g.square().sum(1)
    right = factor * p["eta"][:, None] ** power * (sign * inner**2 - (p["v"] ** 2 if of_v else 1) * norm)
    return Margin.equal(Q[:, 1] - Q[:, 0], right, accuracy, scale=size(p, "v", "W") + right.abs().amax(1))


def operator(p: Problems, accuracy: float, *, of_v: float, of_w: float, spread: bool = False) -> Margin:
    """J Jᵀ of w v is of_v · v² I + of_w · w wᵀ (or of_w ‖w‖² I)."""
    v, w = p["v"], p["w"]
    P = operators.matrix(INPUT_SCALE, {"v": v[:, None], "W": w[:, :, None]})
    eye = torch.eye(w.shape[1], dtype=w.dtype)
    outer = w.square().sum(1)[:, None, None] * eye if spread else w[:, :, None] * w[:, None, :]
    right = of_v * v.square()[:, None, None] * eye + of_w * outer
    return Margin.equal(P, right, accuracy, scale=size(p, "v", "w"))


def top_eigenvalue(p: Problems, accuracy: float, *, inside: float = 4.0, power: float = 0.5) -> Margin:
    """On v² − ‖w‖² = 1, λ_max(P) = (1 + inside ‖θ‖²)^power."""
    w = p["w"]
    v = torch.sqrt(1 + w.square().sum(1))
    P = operators.matrix(INPUT_SCALE, {"v": v[:, None], "W": w[:, :, None]})
    theta = (v[:, None] * w).square().sum(1)
    return Margin.equal(torch.linalg.eigvalsh(P)[:, -1:], ((1 + inside * theta) ** power)[:, None], accuracy)


def bottom_eigenvalue(p: Problems, accuracy: float, *, at_least: float) -> Margin:
    """On v² − ‖w‖² = 1, λ_min(P) ≥ at_least · v²."""
    w = p["w"]
    v = torch.sqrt(1 + w.square().sum(1))
    P = operators.matrix(INPUT_SCALE, {"v": v[:, None], "W": w[:, :, None]})
    return Margin.at_least(torch.linalg.eigvalsh(P)[:, 0] / v**2, at_least * torch.ones_like(v), 1e-10)


def scale_of_theta(p: Problems, accuracy: float, *, inside: float) -> Margin:
    """v² = (1 + √(1 + inside‖θ‖²))/2 on v² − ‖w‖² = 1."""
    w = p["w"]
    v = torch.sqrt(1 + w.square().sum(1))
    theta = (v[:, None] * w).square().sum(1)
    return Margin.equal((v**2)[:, None], (0.5 * (1 + torch.sqrt(1 + inside * theta)))[:, None], accuracy)


def mirror(p: Problems, accuracy: float, *, slope: float = 2.0) -> Margin:
    """d/dt ½ arcsinh(slope θ_i) = −g_i under gradient flow from v = 1, W = 0: true for one output only."""
    theta, g = p["theta"][:, :, None], p["g"][:, :, None]
    blocks = INPUT_SCALE.balanced_init(theta)
    velocity = -operators.apply(INPUT_SCALE, blocks, g)
    dual = 0.5 * slope * velocity / torch.sqrt(1 + (slope * theta) ** 2)
    return Margin.equal(dual, -g, accuracy, scale=p["g"].abs().amax(1))


def rate(p: Problems, accuracy: float, *, factor: float, balanced: bool) -> Margin:
    """−dL/dt of the scaled model ≥ factor · ‖G‖², with v² ≥ 1 or without."""
    v = torch.sqrt(1 + p["w"].square().sum(1)) if balanced else p["v"]
    g = p["g"]
    speed = v**2 * g.square().sum(1) + (p["w"] * g).sum(1) ** 2
    norm = g.square().sum(1)
    return Margin.at_least(speed / norm, factor * torch.ones_like(norm), 1e-12 * speed / norm)


def dual_rate(p: Problems, accuracy: float, *, row: float = 1.0, column: float = 1.0, power: int = 2) -> Margin:
    """⟨G, P G⟩ of the dual model = Σ uᵖvᵖG² + row Σ_i(…)² + column Σ_j(…)²."""
    u, v, W, G = p["u"], p["v"], p["W"], p["G"]
    left = (G * operators.apply(DUAL_SCALE, {"u": u, "v": v, "W": W}, G)).sum((1, 2))
    direct = (u[:, :, None].abs() ** power * v[:, None, :].abs() ** power * G**2).sum((1, 2))
    rows = ((W * v[:, None, :] * G).sum(2) ** 2).sum(1)
    columns = ((u[:, :, None] * W * G).sum(1) ** 2).sum(1)
    return Margin.equal(left[:, None], (direct + row * rows + column * columns)[:, None], accuracy)


def final_rate(p: Problems, accuracy: float, *, inside: float = 4.0, power: float = 0.5) -> Margin:
    """The distance to the target of a whitened problem falls in the end like e^{−(1 + inside R²)^power t}."""
    R = p["R"]
    late = torch.stack([5 / torch.sqrt(1 + 4 * R**2), 5.5 / torch.sqrt(1 + 4 * R**2)], 1)
    T = R[:, None, None]
    loss = LeastSquares(torch.ones_like(T), T)
    run = gradient_flow(INPUT_SCALE, loss, INPUT_SCALE.init(torch.zeros_like(T)), late, rtol=1e-11, atol=1e-12)
    slope = -0.5 * torch.log(run.loss[:, 1] / run.loss[:, 0]) / (late[:, 1] - late[:, 0])
    return Margin.equal(slope[:, None], ((1 + inside * R**2) ** power)[:, None], 0.1)


def early_gap(p: Problems, accuracy: float, *, constant: float = 2 / 3, power: int = 3, norm: int = 4) -> Margin:
    """L_plain − L_scaled = constant · tᵖ Σ_j‖g_j(0)‖ⁿ to leading order, from W(0) = 0."""
    T = p["T"]
    g = squares(p).gradient(torch.zeros_like(T))
    t = 1e-2 / (torch.linalg.eigvalsh(p["H"])[:, -1:] + g.flatten(1).norm(dim=1, keepdim=True))
    runs = [
        gradient_flow(model, squares(p), model.init(torch.zeros_like(T)), t, rtol=1e-13, atol=1e-15).loss[:, 0]
        for model in (PLAIN, INPUT_SCALE)
    ]
    leading = constant * t[:, 0] ** power * (g.square().sum(1) ** (norm / 2)).sum(1)
    # Terms of the next order are a few times t; what two losses leave after cancellation is rounding of L(0).
    rounding = 1e-14 * squares(p).value(torch.zeros_like(T))
    ratio = (runs[0] - runs[1]) / leading
    return Margin(0.1 + rounding / leading - (ratio - 1).abs(), torch.zeros_like(ratio))


def polar_operator(p: Problems, accuracy: float, *, along: float = 1.0, across: int = 2) -> Margin:
    """J Jᵀ of v = βα/rms(α) is along·d·nnᵀ + (βᵃ d/‖α‖²)(I − nnᵀ)."""
    beta, alpha = p["beta"], p["alpha"]
    P = operators.matrix(magnitude_direction_scale, {"beta": beta, "alpha": alpha})
    d = alpha.shape[1]
    square = alpha.square().sum(1)[:, None, None]
    nn = alpha[:, :, None] * alpha[:, None, :] / square
    eye = torch.eye(d, dtype=alpha.dtype)
    # ∂v/∂β = n√d contributes d·nnᵀ only where |v|² = β² d; so the first term is exact for every β.
    right = along * d * nn + beta[:, None, None].abs() ** across * d / square * (eye - nn)
    return Margin.equal(P, right, accuracy)


def log_operator(p: Problems, accuracy: float, *, along: float) -> Margin:
    """J Jᵀ of log v = β1 + α − mean α has eigenvalue along·d on the mean direction."""
    P = operators.matrix(
        lambda beta, alpha: torch.log(exponential_scale(beta, alpha)), {"beta": p["beta"], "alpha": p["alpha"]}
    )
    d = p["alpha"].shape[1]
    e = torch.full((d,), d**-0.5, dtype=torch.float64)
    return Margin.equal((P @ e), (along * d * e).expand(len(P), d), accuracy)


def fold(p: Problems, accuracy: float, *, offset: float, bias: bool, relu: bool = False) -> Margin:
    """W((offset + w) ⊙ x + b) = (W diag(1 + w)) x + W b, with or without the bias and a non-linearity."""
    W, w, x, b = p["W"], p["w"], p["x"], p["b"]
    y = (1 + w) * x + b
    z = torch.relu(y) if relu else y
    left = (W @ z[:, :, None])[..., 0]
    right = ((W * (offset + w)[:, None, :]) @ x[:, :, None])[..., 0]
    right = right + (W @ b[:, :, None])[..., 0] if bias else right
    scale = (W.abs() @ ((1 + w.abs()) * x.abs() + b.abs())[:, :, None]).flatten(1).amax(1)
    return Margin.equal(left, right, accuracy, scale=scale)


FREE: dict[str, Field] = {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "v": Real("d"), "W": Real("cd")}
STEP: dict[str, Field] = {**FREE, "eta": Between("", 0.01, 0.5)}
VECTOR: dict[str, Field] = {"v": Real(""), "w": Real("c"), "g": Between("c", 0.1, 3)}
POINT: dict[str, Field] = {"theta": Real("c"), "g": Between("c", 0.1, 3)}
DUAL: dict[str, Field] = {"u": Real("c"), "v": Real("d"), "W": Real("cd"), "G": Between("cd", 0.1, 3)}
POLAR: dict[str, Field] = {"beta": Between("", 0.3, 3), "alpha": Between("d", 0.3, 3)}
NORM: dict[str, Field] = {"W": Real("cd"), "w": Real("d"), "x": Real("d"), "b": Real("d")}
TARGETS: dict[str, Field] = {"T": Between("cd", 0.3, 3.0), "H": Diagonal("dd", 0.3, 3.0)}
D = {"d": (2, 3, 5)}


def balance(p: Problems, accuracy: float, *, power: int = 1, sign: int = 1) -> Margin:
    """Drift of v² − ‖w‖² under noise of unit covariance on the gradient of θ: ‖w_j‖² − c^power v_j²."""
    blocks = {"v": p["v"], "W": p["W"]}
    n = p["W"][0].numel()
    root = torch.eye(n, dtype=torch.float64).expand(len(p), n, n).contiguous()
    noise = ito.effective_noise(INPUT_SCALE, blocks, root)
    drift, _ = ito.rates(lambda b: b["v"].square() - b["W"].square().sum(-2), blocks, noise)
    c = p.dims["c"]
    stated = sign * (p["W"].square().sum(1) - c**power * p["v"].square())
    return Margin.equal(drift, stated, accuracy, scale=c * size(p, "v", "W"))


def langevin(p: Problems, accuracy: float, *, of_v: float = 1.0, of_W: float = 1.0) -> Margin:
    """Drift of v² + ‖W‖² that independent unit noise adds: one for every parameter."""
    blocks = {"v": p["v"], "W": p["W"]}
    total = lambda b: (b["v"].square().sum(-1) + b["W"].square().sum((-2, -1)))[:, None]  # noqa: E731
    drift, _ = ito.rates(total, blocks, ito.independent_noise(blocks))
    stated = torch.full_like(drift, of_v * p.dims["d"] + of_W * p.dims["c"] * p.dims["d"])
    return Margin.equal(drift, stated, accuracy)


def hessian_trace(p: Problems, accuracy: float, *, outputs: bool = True, diagonal: bool = True) -> Margin:
    """tr ∇²L in (v, W) for squared loss: Σ_j h_jj (c v_j² + ‖w_j‖²)."""
    H = curvature.hessian(INPUT_SCALE, squares(p), {"v": p["v"], "W": p["W"]})
    h = p["H"].diagonal(dim1=1, dim2=2) if diagonal else torch.linalg.eigvalsh(p["H"])
    c = p.dims["c"] if outputs else 1
    stated = (h * (c * p["v"].square() + p["W"].square().sum(1))).sum(-1)
    return Margin.equal(H.diagonal(dim1=1, dim2=2).sum(-1)[:, None], stated[:, None], accuracy)


def family(
    margin: Callable[..., Margin], dims: Dims, fields: dict[str, Field], cost: float = 1
) -> Callable[..., Scope]:
    return lambda **knobs: scope(partial(margin, **knobs), dims, fields, cost=cost)


def flow_comparison(*args, **options) -> Callable[[], Scope]:  # type: ignore[no-untyped-def]
    return lambda: scopes.dominates(*args, **options)


conservation = family(conserved, SIZES, FREE, cost=16)
gd = family(increment, SIZES, STEP)
induced = family(operator, COLUMN, VECTOR)
induced_one = family(operator, ONE_OUTPUT, VECTOR)
largest = family(top_eigenvalue, COLUMN, {"w": Real("c")})
smallest = family(bottom_eigenvalue, COLUMN, {"w": Real("c")})
closed_form = family(scale_of_theta, COLUMN, {"w": Real("c")})
mirror_one = family(mirror, ONE_OUTPUT, POINT)
mirror_many = family(mirror, SEVERAL_OUTPUTS, POINT)
instantaneous = family(rate, COLUMN, VECTOR)
dual = family(dual_rate, SIZES, DUAL)
late = family(final_rate, {}, {"R": Between("", 0.2, 3.0)}, cost=16)
early = family(early_gap, SIZES, TARGETS, cost=24)
polar = family(polar_operator, D, POLAR)
logarithmic = family(log_operator, D, POLAR)
folding = family(fold, SIZES, NORM)

balanced = family(balance, SIZES, {"v": Real("d"), "W": Real("cd")}, 32)
diffusing = family(langevin, SIZES, {"v": Real("d"), "W": Real("cd")}, 32)
curved = family(
    hessian_trace, SIZES, {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "v": Real("d"), "W": Real("cd")}, 32
)

TRUE: dict[str, Callable[[], Scope]] = {
    "balance ‖w‖² = c v²": partial(balanced),
    "unit noise adds one for every parameter": partial(diffusing),
    "trace of the Hessian": partial(curved),
    "v² − ‖w‖² is conserved": partial(conservation, a=1, b=1),
    "3v² − 3‖w‖² is conserved": partial(conservation, a=3, b=3),
    "‖w‖² − v² is conserved": partial(conservation, a=-1, b=-1),
    "decay λ: Q e^{2λt} is constant": partial(conservation, a=1, b=1, decay=0.3, rate=0.6),
    "decay 2λ: Q e^{4λt} is constant": partial(conservation, a=2, b=2, decay=0.6, rate=1.2),
    "GD increment": partial(gd, factor=1, power=2),
    "P = v² I + w wᵀ": partial(induced, of_v=1, of_w=1),
    "P = (v² + w²) for one output": partial(induced_one, of_v=1, of_w=1, spread=True),
    "λ_max = √(1 + 4‖θ‖²)": partial(largest),
    "λ_min ≥ v²": partial(smallest, at_least=1 - 1e-9),
    "λ_min ≥ v²/2": partial(smallest, at_least=0.5),
    "v² from θ": partial(closed_form, inside=4.0),
    "mirror flow with one output": partial(mirror_one),
    "rate ≥ ‖G‖² where v² ≥ 1": partial(instantaneous, factor=1 - 1e-9, balanced=True),
    "rate ≥ ½‖G‖² where v² ≥ 1": partial(instantaneous, factor=0.5, balanced=True),
    "rate ≥ 0 everywhere": partial(instantaneous, factor=0.0, balanced=False),
    "dual rate": partial(dual),
    "final rate √(1 + 4R²)": partial(late),
    "early gap (2/3) t³": partial(early),
    "polar operator": partial(polar),
    "log operator": partial(logarithmic, along=1.0),
    "folding a 1 + w norm with bias": partial(folding, offset=1.0, bias=True),
    "uncorrelated, W(0) = 0: scaled ahead": flow_comparison(INPUT_SCALE, PLAIN, inputs="uncorrelated"),
    "whitened, W(0) = 0: scaled ahead": flow_comparison(INPUT_SCALE, PLAIN, inputs="whitened"),
    "whitened, W(0) = 0: dual ahead of plain": flow_comparison(DUAL_SCALE, PLAIN, inputs="whitened"),
    "whitened, one output: scaled ahead": flow_comparison(
        INPUT_SCALE, PLAIN, inputs="whitened", dims={"c": (1,), "d": (1, 2)}
    ),
    "one input, W(0) = 0: scaled ahead": flow_comparison(
        INPUT_SCALE, PLAIN, inputs="correlated", dims={"c": (1, 3), "d": (1,)}
    ),
    "whitened, four outputs: scaled ahead": flow_comparison(
        INPUT_SCALE, PLAIN, inputs="whitened", dims={"c": (4,), "d": (1, 2)}
    ),
    "a large multiple of v² − ‖w‖² is conserved": lambda: scopes.conserved(
        INPUT_SCALE, lambda b: 1e9 * (b["v"] ** 2 - (b["W"] ** 2).sum(-2))
    ),
    "t³ grows like t³": lambda: scopes.grows_like(lambda t: 7 * t**3, 3, low=0.01, high=1),
    "√x grows like x^½": lambda: scopes.grows_like(lambda x: x.sqrt(), 0.5, low=0.01, high=100),
    "arcsinh grows like x near 0": lambda: scopes.grows_like(torch.asinh, 1.0, low=1e-3, high=0.05),
}

FALSE: dict[str, Callable[[], Scope]] = {
    "balance without c": partial(balanced, power=0),
    "balance with c²": partial(balanced, power=2),
    "balance, sign reversed": partial(balanced, sign=-1),
    "noise counts v twice": partial(diffusing, of_v=2.0),
    "noise leaves W out": partial(diffusing, of_W=0.0),
    "trace without c": partial(curved, outputs=False),
    "trace with eigenvalues for h_jj": partial(curved, diagonal=False),
    "v² − 2‖w‖² is conserved": partial(conservation, a=1, b=2),
    "2v² − ‖w‖² is conserved": partial(conservation, a=2, b=1),
    "v² + ‖w‖² is conserved": partial(conservation, a=1, b=-1),
    "v² is conserved": partial(conservation, a=1, b=0),
    "decay λ: Q is constant": partial(conservation, a=1, b=1, decay=0.3),
    "decay λ: Q e^{λt} is constant": partial(conservation, a=1, b=1, decay=0.3, rate=0.3),
    "decay λ: Q e^{4λt} is constant": partial(conservation, a=1, b=1, decay=0.3, rate=1.2),
    "GD increment, first order": partial(gd, factor=1, power=1),
    "GD increment, half": partial(gd, factor=0.5, power=2),
    "GD increment, cubic": partial(gd, factor=1, power=3),
    "GD increment, sign": partial(gd, factor=1, power=2, sign=-1),
    "GD increment, v² forgotten": partial(gd, factor=1, power=2, of_v=False),
    "P = v² I + 2w wᵀ": partial(induced, of_v=1, of_w=2),
    "P = v² I": partial(induced, of_v=1, of_w=0),
    "P = (v² + ‖w‖²) I, true for one output": partial(induced, of_v=1, of_w=1, spread=True),
    "λ_max = √(1 + 2‖θ‖²)": partial(largest, inside=2.0),
    "λ_max = 1 + 4‖θ‖²": partial(largest, power=1.0),
    "λ_min ≥ 1.01 v²": partial(smallest, at_least=1.01),
    "v² from θ, factor 2": partial(closed_form, inside=2.0),
    "mirror flow with several outputs": partial(mirror_many),
    "mirror flow, wrong slope": partial(mirror_one, slope=1.0),
    "rate ≥ ‖G‖² without v² ≥ 1": partial(instantaneous, factor=1.0, balanced=False),
    "rate ≥ 1.5‖G‖² where v² ≥ 1": partial(instantaneous, factor=1.5, balanced=True),
    "dual rate without its rows": partial(dual, row=0.0),
    "dual rate, columns twice": partial(dual, column=2.0),
    "dual rate, first power": partial(dual, power=1),
    "final rate 1 + 4R²": partial(late, power=1.0),
    "final rate √(1 + R²)": partial(late, inside=1.0),
    "early gap (1/3) t³": partial(early, constant=1 / 3),
    "early gap t³": partial(early, constant=1.0),
    "early gap t²": partial(early, power=2),
    "early gap with ‖g‖²": partial(early, norm=2),
    "polar operator without d along": partial(polar, along=0.5),
    "polar operator, β not squared": partial(polar, across=1),
    "log operator without d": partial(logarithmic, along=0.5),
    "folding 1 + w as w": partial(folding, offset=0.0, bias=True),
    "folding without the bias": partial(folding, offset=1.0, bias=False),
    "folding through a non-linearity": partial(folding, offset=1.0, bias=True, relu=True),
    "correlated: scaled ahead": flow_comparison(INPUT_SCALE, PLAIN, inputs="correlated"),
    "any W(0): scaled ahead": flow_comparison(INPUT_SCALE, PLAIN, inputs="whitened", zero_start=False),
    "swapped: plain ahead": flow_comparison(PLAIN, INPUT_SCALE, inputs="uncorrelated"),
    "whitened: dual ahead of scaled": flow_comparison(
        DUAL_SCALE, INPUT_SCALE, inputs="whitened", dims={"c": (2,), "d": (1, 2)}
    ),
    "a tiny multiple of ‖W‖² is conserved": lambda: scopes.conserved(
        INPUT_SCALE, lambda b: 1e-9 * (b["W"] ** 2).sum((-1, -2))
    ),
    "t³ grows like t⁴": lambda: scopes.grows_like(lambda t: 7 * t**3, 4, low=0.01, high=1),
    "sinh grows like x on [0.1, 3]": lambda: scopes.grows_like(torch.sinh, 1.0, low=0.1, high=3),
}


def verdict(planted: Scope) -> Verdict:
    return check_scope(Claim("planted", "", "", "", (planted,)), planted, effort="standard").verdict


def test_there_are_thirty_of_each() -> None:
    assert len(TRUE) >= 30 and len(FALSE) >= 30


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_are_confirmed(name: str) -> None:
    assert verdict(TRUE[name]()) == Verdict.CONFIRMED


@pytest.mark.parametrize("name", FALSE)
def test_false_claims_are_refuted(name: str) -> None:
    assert verdict(FALSE[name]()) == Verdict.REFUTED


def test_unused_fields_do_not_matter() -> None:
    """Fields of a space that the margin ignores neither hide nor fake a violation."""
    fields: dict[str, Field] = {"w": Real("c"), "noise": Real("c"), "I": Identity("cc"), "z": Zero("c")}
    assert verdict(scope(top_eigenvalue, COLUMN, fields)) == Verdict.CONFIRMED
