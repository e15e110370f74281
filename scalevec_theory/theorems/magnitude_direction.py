"""v = β α/rms(α) learns its overall scale faster than its direction, and conserves ‖α‖.

Source: arXiv 2605.26895 (magnitude–direction reparameterisation in the original space).
"""

from __future__ import annotations

import torch
from sympy import Eq, Expr, diff, symbols
from torch import Tensor

from scalevec_theory import operators
from scalevec_theory.claim import Claim, Margin, Scope
from scalevec_theory.descent import descend
from scalevec_theory.flow import Trajectory, gradient_flow, parameter_gradient
from scalevec_theory.losses import LeastSquares
from scalevec_theory.parametrizations import MAGNITUDE_DIRECTION, Parametrization, magnitude_direction_scale
from scalevec_theory.problems import Between, PositiveDefinite, Problems, ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof, Vector, inner

beta, a, d, root_d, a_j, a_k, step = symbols("β 1/|α| d √d α_j α_k η", real=True)
y, z, m, alpha = (Vector.named(name) for name in ("y", "z", "m", "α"))
NORM = {"α is not 0: (1/|α|)^2 <α,α> = 1": Eq(a**2 * alpha.dot(alpha), 1)}
ROOT = {"√d^2 = d": Eq(root_d**2, d)}


def pull_back(vector: Vector) -> Vector:
    """(∂v/∂α)ᵀ of v = β √d α/|α|: (β√d/|α|)(I − nnᵀ), symmetric."""
    return beta * root_d * a * (vector - alpha.dot(vector) * a**2 * alpha)


def operator(vector: Vector) -> Vector:
    """d·nnᵀ + (β²d/|α|²)(I − nnᵀ), n = α/|α|."""
    along = alpha.dot(vector) * a**2 * alpha
    return d * along + beta**2 * d * a**2 * (vector - along)


def prove_operator() -> Proof:
    """⟨y, J Jᵀ z⟩ from ∂v/∂β = √d n and ∂v/∂α = (β√d/|α|)(I − nnᵀ), for y and z in R^d."""

    def along(f: Expr, x: Expr) -> Expr:
        """∂f/∂x of f(α, 1/|α|), x an entry of α: ∂(1/|α|)/∂x = −x/|α|³."""
        return diff(f, x) - diff(f, a) * x * a**3

    v_j = beta * root_d * a_j * a
    return Proof(
        (
            Lemma(
                "∂v_j/∂α_k = (β√d/|α|)(δ_jk - n_j n_k), k = j and k != j",
                (
                    Eq(along(v_j, a_j), beta * root_d * a * (1 - (a_j * a) ** 2), evaluate=False),
                    Eq(along(v_j, a_k), -beta * root_d * a * (a_j * a) * (a_k * a), evaluate=False),
                ),
            ),
            Lemma(
                "<y, J J^T z> = d <y,n><n,z> + (β^2 d/|α|^2)(<y,z> - <y,n><n,z>)",
                Eq(
                    root_d**2 * a**2 * y.dot(alpha) * alpha.dot(z) + pull_back(y).dot(pull_back(z)),
                    y.dot(operator(z)),
                ),
                {**NORM, **ROOT},
            ),
        ),
        "For every d >= 1.",
    )


def prove_norm_conserved() -> Proof:
    """α̇ = −(∂v/∂α)ᵀ m is orthogonal to α, whatever m = ∂L/∂v is."""
    flow = {"α flows: <α,dα> = -<α, (∂v/∂α)^T m>": Eq(inner("dα", "α"), -alpha.dot(pull_back(m)))}
    return Proof(
        (Lemma("<α,dα> = 0", Eq(inner("dα", "α"), 0), {**flow, **NORM}),),
        "d|α|^2/dt = 2 <α,dα> = 0 for every differentiable loss, every W and every d.",
    )


def prove_gd_growth() -> Proof:
    """One step α − η(∂v/∂α)ᵀ m: the cross term vanishes."""
    gradient = pull_back(m)
    new = alpha - step * gradient
    return Proof(
        (
            Lemma(
                "|α - η ∂L/∂α|^2 = |α|^2 + η^2 |∂L/∂α|^2",
                Eq(new.dot(new), alpha.dot(alpha) + step**2 * gradient.dot(gradient)),
                NORM,
            ),
        ),
        "So |α| never shrinks under gradient descent, and grows with every step that has a gradient.",
    )


def prove_d_fold() -> Proof:
    """The operator along n and across it, where ‖α‖² = d."""
    standard = {"|α|^2 = d, kept from α = 1": Eq(a**2 * d, 1)}
    return Proof(
        (
            Lemma(
                "<α, P m> = d <α,m>: along v the velocity is d times that of v itself as a parameter",
                Eq(alpha.dot(operator(m)), d * alpha.dot(m)),
                NORM,
            ),
            Lemma(
                "<z, P m> = β^2 <z,m> for z orthogonal to α: across v it is β^2 times, 1 at the start",
                Eq(z.dot(operator(m)), beta**2 * z.dot(m)),
                {"z ⊥ α": Eq(alpha.dot(z), 0), **standard},
            ),
        ),
        "|α| is conserved, so this holds at every time from standard initialisation, with β^2 = mean(v^2).",
    )


def prove_on_theta() -> Proof:
    """θ_j = v_j w_j when the parameters of v move it by −S m; S may be any operator, of any parametrisation of v."""
    v, dv, Sm = symbols("v_j dv_j (Sm)_j", real=True)
    flow = {
        "v moves: dv = -S m": Eq(dv, -Sm),
        "w flows: <z,dw> = -v <z,g>": Eq(inner("z", "dw"), -v * inner("z", "g")),
    }
    return Proof(
        (
            Lemma(
                "<z,dθ_j> = -(v_j^2 <z,g_j> + <z,w_j> (S m)_j), every z in R^c",
                Eq(dv * inner("z", "w") + v * inner("z", "dw"), -(v**2 * inner("z", "g") + inner("z", "w") * Sm)),
                flow,
            ),
        ),
        "m_k = ∂L/∂v_k = <w_k, g_k>; for every c and d.",
    )


DIMS = {"c": (1, 2), "d": (1, 2, 4)}


def _nonzero(problems: Problems) -> Tensor:
    """rms α ≥ 0.1: the map is undefined at α = 0, and its flow is stiff near it."""
    return problems["alpha"].square().mean(1).sqrt() >= 0.1


def at_most(bound: float, problems: Problems) -> Tensor:
    """No entry of T and of the parameters exceeds the bound: larger ones only make the flow stiff."""
    fields = [x for name, x in problems.fields.items() if name not in ("H", "eta")]
    return torch.stack([x.unsqueeze(-1).flatten(1).abs().amax(1) <= bound for x in fields]).all(0)


SCALE = ProblemSpace(
    "any β and α with rms α ≥ 0.1, any gradient m of v",
    {"d": (1, 2, 4)},
    {"beta": Real(""), "alpha": Real("d"), "m": Real("d")},
    where=_nonzero,
)
ON_THETA = ProblemSpace(
    "any β, W, gradient G of θ, and α with rms α ≥ 0.1",
    DIMS,
    {"beta": Real(""), "alpha": Real("d"), "W": Real("cd"), "G": Real("cd")},
    where=_nonzero,
)
STANDARD = ProblemSpace("α = 1, β = 1, any gradient m of v", {"d": (2, 3, 4)}, {"m": Real("d")})
SQUARES = ProblemSpace(
    "squared loss with correlated inputs, T and parameters up to 3 in size, rms α(0) ≥ 0.1",
    {"c": (1, 2), "d": (2, 3)},
    {"H": PositiveDefinite("dd", high=20.0), "T": Real("cd"), "beta": Real(""), "alpha": Real("d"), "W": Real("cd")},
    where=lambda p: _nonzero(p) & at_most(3.0, p),
)
STEPS = ProblemSpace(
    f"{SQUARES.assumptions}, step η", SQUARES.dims, {**SQUARES.fields, "eta": Between("", 1e-3, 0.1)}, _nonzero
)


def _loss(problems: Problems) -> LeastSquares:
    return LeastSquares(problems["H"], problems["T"])


def _blocks(problems: Problems) -> dict[str, Tensor]:
    return {name: problems[name] for name in MAGNITUDE_DIRECTION.axes}


def operator_margin(problems: Problems, accuracy: float) -> Margin:
    scale = {"beta": problems["beta"], "alpha": problems["alpha"]}
    return Margin.equal(
        operators.matrix(magnitude_direction_scale, scale), operators.magnitude_direction(**scale), accuracy
    )


def on_theta_margin(problems: Problems, accuracy: float) -> Margin:
    beta, alpha, W, G = (problems[k] for k in ("beta", "alpha", "W", "G"))
    v, S = magnitude_direction_scale(beta, alpha), operators.magnitude_direction(beta, alpha)
    size = operators.scaled_columns(v.abs(), W.abs(), S.abs(), G.abs()).flatten(1).amax(1)
    found = operators.apply(MAGNITUDE_DIRECTION, _blocks(problems), G)
    return Margin.equal(found, operators.scaled_columns(v, W, S, G), accuracy, scale=size)


def d_fold_margin(problems: Problems, accuracy: float) -> Margin:
    """Along and across n at ‖α‖² = d, with m split the same way."""
    beta, m = problems["beta"], problems["m"]
    n = torch.nn.functional.normalize(problems["alpha"], dim=1)
    d = n.shape[1]
    found = operators.apply(magnitude_direction_scale, {"beta": beta, "alpha": n * d**0.5}, m)
    along = (n * m).sum(1, keepdim=True) * n
    stated = d * along + beta[:, None] ** 2 * (m - along)
    return Margin.equal(found, stated, accuracy, scale=(d + beta**2) * m.norm(dim=1))


def direction_margin(problems: Problems, accuracy: float) -> Margin:
    m = problems["m"]
    start = {"beta": torch.ones_like(m[:, 0]), "alpha": torch.ones_like(m)}
    return Margin.equal(operators.apply(magnitude_direction_scale, start, m), m.shape[1] * m, accuracy)


MAX_STEPS = 100
"""A flow that needs more steps for two units of its time scale is given up, and counted as not computed."""


def early_flow(parametrization: Parametrization, problems: Problems, accuracy: float) -> Trajectory:
    """Gradient flow of squared loss over two units of its fastest time scale at the start.

    That is the curvature λ_max(H) tr J Jᵀ, or the speed at which the parameters move if it is larger: far from its
    target a flow of this kind speeds up exponentially.
    """
    loss, start = _loss(problems), {name: problems[name] for name in parametrization.axes}
    curvature = torch.linalg.eigvalsh(loss.H)[:, -1]
    curvature = curvature * operators.matrix(parametrization, start).diagonal(dim1=1, dim2=2).sum(1)
    gradient = parameter_gradient(parametrization, loss, start)
    speed = torch.stack([g.unsqueeze(-1).flatten(1).square().sum(1) for g in gradient.values()]).sum(0).sqrt()
    times = torch.tensor([0.0, 0.5, 2.0], dtype=speed.dtype, device=speed.device) / (curvature + speed)[:, None]
    tolerance = accuracy / 100
    return gradient_flow(parametrization, loss, start, times, rtol=tolerance, atol=tolerance, max_steps=MAX_STEPS)


def norm_margin(problems: Problems, accuracy: float) -> Margin:
    square = early_flow(MAGNITUDE_DIRECTION, problems, accuracy).invariants["|alpha|^2"]
    return Margin.equal(square, square[:, :1], accuracy)


def _one_step(problems: Problems) -> tuple[Tensor, Tensor, Tensor]:
    """‖α‖² before and after one step of gradient descent ``(B, 2)``, η²‖∂L/∂α‖² ``(B,)``, and the size of its terms."""
    loss, start, eta = _loss(problems), _blocks(problems), problems["eta"]
    run = descend(MAGNITUDE_DIRECTION, loss, start, step=eta, n_steps=1)
    square = run.invariants["|alpha|^2"]
    gradient = parameter_gradient(MAGNITUDE_DIRECTION, loss, start)["alpha"]
    # β√d (I − nnᵀ) m/‖α‖ cancels: what rounds is m, not its projection
    m = (start["W"] * loss.gradient(run.theta[:, 0])).sum(1)
    uncancelled = eta * start["beta"].abs() * (m.shape[1] / square[:, 0]).sqrt() * m.norm(dim=1)
    return square, eta**2 * gradient.square().sum(1), square[:, 0] + uncancelled**2


def growth_margin(problems: Problems, accuracy: float) -> Margin:
    square, growth, size = _one_step(problems)
    return Margin.equal(square[:, 1] - square[:, 0], growth, accuracy, scale=size)


def gd_norm_margin(problems: Problems, accuracy: float) -> Margin:
    square, _, size = _one_step(problems)
    return Margin.equal(square[:, 1], square[:, 0], accuracy, scale=size)


claim = Claim(
    id="magnitude-direction",
    title="v = β α/rms(α) learns its scale d times faster, its direction not, and conserves ‖α‖",
    statement="For v = β α/rms(α), started at α = 1 and β = 1, gradient flow conserves ‖α‖ and moves v by "
    "−(d·nnᵀ + (β²d/‖α‖²)(I − nnᵀ)) ∂L/∂v, n = α/‖α‖.",
    formula=r"\dot v = -\left(d\,n n^\top + \frac{\beta^2 d}{\lVert \alpha \rVert^2} (I - n n^\top)\right) \nabla_v "
    r"L, \qquad n = \frac{\alpha}{\lVert \alpha \rVert}, \qquad \frac{d}{dt} \lVert \alpha \rVert = 0",
    source="arXiv 2605.26895, reparameterisation in the original space",
    figures=("magnitude-direction",),
    scopes=(
        Scope(
            "operator",
            "J Jᵀ of (β, α) ↦ v is d·nnᵀ + (β²d/‖α‖²)(I − nnᵀ), n = α/‖α‖.",
            holds=True,
            space=SCALE,
            margin=operator_margin,
            proof=prove_operator,
        ),
        Scope(
            "on-theta",
            "Gradient flow moves column j of θ = W diag(v) by −(v_j² g_j + w_j (S m)_j) with S that operator on v and "
            "m_k = ⟨w_k, g_k⟩.",
            holds=True,
            space=ON_THETA,
            margin=on_theta_margin,
            proof=prove_on_theta,
        ),
        Scope(
            "norm-conserved",
            "Gradient flow of any differentiable loss conserves ‖α‖ (searched on squared loss).",
            holds=True,
            space=SQUARES,
            margin=norm_margin,
            accuracy=1e-5,
            proof=prove_norm_conserved,
            cost=8,
        ),
        Scope(
            "gd-growth",
            "One step η of gradient descent adds exactly η²‖∂L/∂α‖² to ‖α‖².",
            holds=True,
            space=STEPS,
            margin=growth_margin,
            accuracy=1e-10,
            proof=prove_gd_growth,
        ),
        Scope(
            "gd-conserves-norm",
            "One step η of gradient descent conserves ‖α‖.",
            holds=False,
            space=STEPS,
            margin=gd_norm_margin,
        ),
        Scope(
            "d-fold",
            "From α(0) = 1, at every time, v moves d times as fast along itself as v learned directly would at the "
            "same v and W, and β² = mean(v²) times as fast across.",
            holds=True,
            space=SCALE,
            margin=d_fold_margin,
            proof=prove_d_fold,
        ),
        Scope(
            "direction-d-fold",
            "At α = 1, β = 1 and d ≥ 2, v moves d times as fast in every direction as v learned directly would.",
            holds=False,
            space=STANDARD,
            margin=direction_margin,
        ),
    ),
)
