"""Scale-invariant weights: their gradient turns them and lengthens them, decay shortens them, and both come to rest.

The gradient of a loss of w/‖w‖ is orthogonal to w and goes as 1/‖w‖.  Norm and angle per step are measured on
vectors of 128 weights that are driven by tangential noise.

Source: Kosson et al. 2023, "Rotational Equilibrium" (as used by arXiv 2601.04890 for normalised layers).
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sympy import Eq, symbols

from scalevec_theory import abm
from scalevec_theory.claim import Claim, Evidence, Scope, Setting
from scalevec_theory.equilibrium import equilibrium, predict
from scalevec_theory.optimizers import SGD, AdamW, Lion, Muon, Optimizer, SignSGD
from scalevec_theory.paired import agreement, simulated
from scalevec_theory.proof import Lemma, Proof, Vector
from scalevec_theory.walks_at_rest import rms_at_rest, walk_at_rest

CLAIM = "rotational-equilibrium"
SIZE = (128,)
"""Entries of the vectors that are measured."""

eta, lam, N, power, wg, new_norm = symbols("η λ |w|^2 E|g~|^2 <w\\,g> |w_new|^2", real=True)


def prove_sgd() -> Proof:
    """One step of SGD, w' = (1 − ηλ)w − ηg, g = g̃/‖w‖ orthogonal to w; then the fixed point of the mean."""
    w, g = Vector.named("w"), Vector.named("g")
    step = (1 - eta * lam) * w - eta * g
    ww, gg = w.dot(w), g.dot(g)
    pythagoras = Lemma(
        "|w'|^2 = (1 - ηλ)^2 |w|^2 + η^2 |g|^2, every size of w",
        Eq(step.dot(step), (1 - eta * lam) ** 2 * ww + eta**2 * gg),
        {"g is orthogonal to w": Eq(w.dot(g), 0)},
    )
    at_rest = {
        "|w|^2 is what the mean step leaves": Eq(N * N, (1 - eta * lam) ** 2 * N * N + eta**2 * power),
    }
    norm = Lemma(
        "η(λ(2 - ηλ) |w|^4 - η E|g~|^2) = 0", Eq(eta * (lam * (2 - eta * lam) * N**2 - eta * power), 0), at_rest
    )
    turned = symbols("|ηg|^2/|w|^2", real=True)
    angle = Lemma(
        "|w|^4 (|ηg|^2/|w|^2 - ηλ(2 - ηλ)) = 0",
        Eq(N * N * (turned - eta * lam * (2 - eta * lam)), 0),
        at_rest | {"|g|^2 = |g~|^2/|w|^2": Eq(turned * N * N, eta**2 * power)},
    )
    return Proof(
        (pythagoras, norm, angle),
        "|w|^4 = η E|g~|^2 / (λ(2 - ηλ)): the quartic law; each step turns w by about √(ηλ(2 - ηλ)), whatever the "
        "noise and the size of w. For large w, |g~|^2 and |w|^2 keep to their means.",
    )


def angles(optimizer: Optimizer, setting: Setting, n: int) -> tuple[float, float]:
    """√E[sin²] of the angle of the last step of ``n`` vectors near rest, over `angular_update`, and its standard error.

    Two walks of the same random numbers, one a step longer, show a step from both ends.
    """
    rest = equilibrium(optimizer, shape=SIZE, scale_invariant=True)
    steps = round(2 / (optimizer.lr * optimizer.weight_decay)) + 200
    seed = int(setting.rng.integers(2**63))
    before, after = (
        abm.run(
            optimizer, n, t, shape=SIZE, seed=seed, init=rest.rms, scale_invariant=True, dtype=torch.float64
        ).weights
        for t in (steps, steps + 1)
    )
    cosine = torch.nn.functional.cosine_similarity(before, after)
    square = (1 - cosine**2).numpy() / rest.angular_update**2
    ratio = float(np.sqrt(square.mean()))
    return ratio, float(square.std(ddof=1) / n**0.5 / (2 * ratio))


def _at_rest(name: str, optimizer: Optimizer, setting: Setting) -> list[Evidence]:
    n = setting.choose(128, 1600, 6400)
    walk = walk_at_rest(optimizer, setting, n, shape=SIZE, scale_invariant=True)
    stated = equilibrium(optimizer, shape=SIZE, scale_invariant=True)
    ratio, stderr = angles(optimizer, setting, n)
    detail = f"{optimizer}: a step turns w by {ratio * stated.angular_update:.4f}, stated {stated.angular_update:.4f}"
    return [
        rms_at_rest(f"{CLAIM}:{name}", optimizer, stated.mean_square, 0.03, setting, walk),
        simulated(setting, f"{CLAIM}:{name}", 0.03 - abs(ratio - 1), detail, stderr=stderr, instances=n),
    ]


def _scope(name: str, law: str, optimizer: Optimizer) -> Scope:
    return Scope(
        name,
        f"Scale-invariant vectors of {SIZE[0]} entries under {law}: √E‖w‖² at rest and the root mean square angle of a "
        "step are within 3% of the stated.",
        True,
        measure=lambda setting: _at_rest(name, optimizer, setting),
    )


# Settings and walks were chosen after first ones, of longer memories, had left the 10% undecided.
SPREADING = (
    SGD(0.1, 0.1),
    SGD(0.1, 0.003, momentum=0.9),
    AdamW(0.1, 0.03, betas=(0.8, 0.95)),
    SignSGD(0.1, 0.1),
    Lion(0.1, 0.02, betas=(0.9, 0.99)),
)


def measure_spread(name: str, optimizers: tuple[Optimizer, ...], as_free: bool, setting: Setting) -> list[Evidence]:
    """The standard deviation of ‖w‖² at rest over the stated one, that of independent Gaussians if ``as_free``."""
    found = []
    for optimizer in optimizers:
        n = setting.choose(400, 3000, 12_000)
        walk = walk_at_rest(optimizer, setting, n, shape=SIZE, scale_invariant=True)
        rest = equilibrium(optimizer, shape=SIZE, scale_invariant=True).rms
        course = predict(optimizer, int(walk.steps[-1]), init=rest, shape=SIZE, scale_invariant=True)
        stated = 2 / SIZE[0] * (1.0 if as_free else float(course.spread[-1]))
        square = np.square(walk.squares / walk.squares.mean(1, keepdims=True) - 1).mean(0) / stated
        ratio = float(square.mean()) ** 0.5
        stderr = float(square.std(ddof=1) / n**0.5) / (2 * ratio)
        detail = f"{optimizer}: relative deviation of ‖w‖² {ratio * stated**0.5:.4f}, stated {stated**0.5:.4f}"
        margin = 0.1 - abs(ratio - 1)
        found.append(simulated(setting, f"{CLAIM}:{name}", margin, detail, stderr=stderr, instances=n))
    return found


WAY_ADAMW = AdamW(0.1, 0.05, betas=(0.9, 0.99))
STARTS, WAY, SEEN = (0.3, 3.0), 200, (1, 3, 10, 30, 60, 100, 200)
"""First norms in units of that at rest, steps, and those at which norms are compared."""


def _on_the_way(
    name: str, optimizer: Optimizer, shape: tuple[int, ...], as_free: bool, setting: Setting
) -> list[Evidence]:
    """Norms of walks over those of the recursion, that of free weights if ``as_free``."""
    quick = 400 if len(shape) == 1 else 100  # Muon's steps are the dear ones
    n = setting.choose(quick, 4 * quick, 16 * quick)
    rest = equilibrium(optimizer, shape=shape, scale_invariant=True).rms
    found = []
    for start in STARTS:
        run = abm.run(
            optimizer,
            n,
            WAY,
            shape=shape,
            seed=int(setting.rng.integers(2**63)),
            init=start * rest,
            scale_invariant=True,
            record=(0, *SEEN),
            device=setting.device,
        )
        stated = predict(optimizer, WAY, init=start * rest, shape=shape, scale_invariant=not as_free).mean_square
        # Over the vector's own first size, so that its scatter, which the decay keeps for long, does not count.
        ratio = torch.from_numpy(run.squares / run.squares[0] / (stated[run.steps] / stated[0])[:, None])[1:].T
        detail = f"{optimizer}, from {start:g} of the norm at rest, steps {SEEN[0]} to {WAY}"
        found.append(agreement(ratio.sqrt(), 0.02, setting, f"{CLAIM}:{name}", detail))
    return found


def _transient(
    name: str, law: str, optimizer: Optimizer, shape: tuple[int, ...] = (512,), as_free: bool = False
) -> Scope:
    return Scope(
        name,
        f"Tensors of 512 entries under {law}: from {STARTS[0]:g} and {STARTS[1]:g} of the norm at rest, ‖w‖ is within "
        f"2% of the recursion at every step that is looked at, {SEEN[0]} to {WAY}.",
        not as_free,
        measure=lambda setting: _on_the_way(name, optimizer, shape, as_free, setting),
    )


def measure_root_law(setting: Setting) -> list[Evidence]:
    """‖w‖ of SGD when η/λ is divided by 16: the quartic law divides it by 2, the law of free weights by 4."""
    norms = []
    for decay in (0.02, 0.32):
        walk = walk_at_rest(SGD(0.1, decay), setting, setting.choose(64, 400, 1600), shape=SIZE, scale_invariant=True)
        norms.append(np.sqrt(walk.squares.mean(0)))
    ratio = float(norms[0].mean() / norms[1].mean())
    stderr = ratio * float(np.sqrt(sum(x.var(ddof=1) / len(x) / x.mean() ** 2 for x in norms)))
    detail = f"‖w‖ at λ = 0.02 over ‖w‖ at λ = 0.32 is {ratio:.3f}: the root of 16 is 4, its fourth root 2"
    margin = 0.2 - abs(ratio / 4 - 1)
    return [simulated(setting, f"{CLAIM}:sgd-root-law", margin, detail, stderr=stderr / 4, instances=len(norms[0]))]


claim = Claim(
    id=CLAIM,
    title="Scale-invariant weights: norm and angle per step at rest, norm on the way there",
    statement="Under SGD a scale-invariant weight comes to rest at ‖w‖⁴ = η E‖g̃‖²/(λ(2 − ηλ)), not at a norm ∝ "
    "√(η/λ); normalised updates keep √(η/λ). The angle of a step is √(2ηλ) for SGD, √(2ηλ/(1 + μ)) with momentum, "
    "√(2ηλ(1 − β₁)/(1 + β₁)) for AdamW, and neither noise nor size of the weight enters. On the way to rest older "
    "gradients, which were of another size, still stand in the filters and in v̂.",
    formula=r"\text{SGD: } \lVert w \rVert^4 = \frac{\eta\,\mathbb{E} \lVert \tilde g \rVert^2}{\lambda (2 - \eta "
    r"\lambda)}, \qquad \angle(w_t, w_{t+1}) \simeq \sqrt{2 \eta \lambda}",
    source="Kosson et al. 2023 (rotational equilibrium); Lion's angle, the finite-step constants and transients are "
    "derived here",
    figures=("equilibrium", "norm-spread"),
    scopes=(
        Scope(
            "sgd-law",
            "A step of SGD orthogonal to w, of size E‖g̃‖²/‖w‖², leaves ‖w‖² as it is in the mean exactly where ‖w‖⁴ = "
            "η E‖g̃‖²/(λ(2 − ηλ)), and turns w there by the angle of sine about √(ηλ(2 − ηλ)).",
            True,
            proof=prove_sgd,
        ),
        _scope("sgd", "SGD, ‖w‖⁴ = η E‖g̃‖²/(λ(2 − ηλ)) and angle √(ηλ(2 − ηλ))", SGD(0.1, 0.1)),
        _scope(
            "momentum",
            "SGD with momentum 0.9, about ‖w‖⁴ = η E‖g̃‖²/(2λ(1 − μ)) and angle √(2ηλ/(1 + μ))",
            SGD(0.1, 0.05, momentum=0.9),
        ),
        _scope(
            "adamw",
            "AdamW (0.9, 0.95), the norm of free weights and about the angle √(2ηλ(1 − β₁)/(1 + β₁))",
            AdamW(0.1, 0.05, betas=(0.9, 0.95)),
        ),
        _scope("signsgd", "sign descent, the norm of free weights and about the angle √(2ηλ)", SignSGD(0.1, 0.1)),
        _scope(
            "lion",
            "Lion (0.9, 0.95), the norm of free weights and the angle to match",
            Lion(0.1, 0.05, betas=(0.9, 0.95)),
        ),
        Scope(
            "spread",
            f"‖w‖² of vectors of {SIZE[0]} entries at rest deviates from its mean by the stated share of √(2/n), that "
            "of independent Gaussians, within 10%: √(ηλ/2) of it under SGD and √(1 − 2/π) under sign descent, at ηλ = "
            "0.01; and what follows from their filters under SGD with momentum 0.9 at ηλ/(1 − μ) = 0.003, AdamW "
            "(0.8, 0.95) at ηλ = 0.003 and Lion (0.9, 0.99) at ηλ = 0.002.",
            True,
            measure=partial(measure_spread, "spread", SPREADING, False),
        ),
        Scope(
            "spread-as-free",
            "Under SGD at ηλ = 0.01 ‖w‖² of such vectors deviates as that of independent Gaussians does, by √(2/n), "
            "within 10%.",
            False,
            measure=partial(measure_spread, "spread-as-free", SPREADING[:1], True),
        ),
        _transient("sgd-transient", "SGD with momentum 0.9", SGD(0.1, 0.05, momentum=0.9)),
        _transient("adamw-transient", "AdamW (0.9, 0.99), v̂ following the gradient's size", WAY_ADAMW),
        _transient("adamw-transient-as-free", "AdamW (0.9, 0.99), by the law of free weights", WAY_ADAMW, as_free=True),
        _transient("lion-transient", "Lion (0.9, 0.95)", Lion(0.1, 0.05, betas=(0.9, 0.95))),
        _transient("muon-transient", "Muon, matrices of 8 × 64", Muon(0.1, 0.05), (8, 64)),
        Scope(
            "sgd-root-law",
            "Under SGD the norm of a scale-invariant weight goes as √(η/λ) (to 20% over a factor 16), as that of a "
            "free one does.",
            False,
            measure=measure_root_law,
        ),
    ),
)
