"""Curvature under the optimizers people use, step by step on minibatches: who needs weight decay, and where.

SGD and momentum follow the minibatch equation, in which v² − ‖w‖² has no noise: curvature stays bounded.  AdamW, and
Muon with AdamW on the scales, divide by the gradient's size, so that noise across w moves ‖w‖² outwards by (c−1)η² a
step whatever v is (claim ``decay-pumping``): curvature grows unless decay on W stops it.  Muon is looked at for c = 16
only, for on a single entry it is sign descent.

Source: arXiv 2605.26895 (curvature and weight decay in training); the table is derived here.
"""

from __future__ import annotations

import numpy as np
import torch

from scalevec_theory.claim import Claim, Evidence, Scope, Setting, measured
from scalevec_theory.growth import LEAST_SLOPE, Growth, growth
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import measured_again
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.phase import DECAYS
from scalevec_theory.stochastic_descent import stochastic_descent

GROUPS, STEPS = 16, 2000
RATES = {"sgd": 0.1, "momentum": 0.015, "adamw": 0.04, "muon": 0.04}
"""With decay 0.1 the relaxation times, 1/(2ηλ) and 1/η² under SGD, 1/((c−1)η²) at c = 16 under AdamW, are 42 to 125
steps, below the 250 from which growth is looked for."""

NORMALISING = ("adamw", "muon")


def expected(optimizer: str, c: int, decays: str) -> str:
    """Whether E of the Hessian's trace stays "bounded" or is "growing"."""
    if optimizer not in NORMALISING or decays == "both":
        return "bounded"
    if decays == "W":
        return "growing" if c == 1 else "bounded"
    return "growing" if decays == "v" or c >= 2 else "bounded"


def cells(optimizer: str) -> tuple[tuple[int, str], ...]:
    """Every number of outputs and every decay that is looked at."""
    return tuple((c, decays) for c in ((16,) if optimizer == "muon" else (1, 16)) for decays in DECAYS)


def trace_growth(
    optimizer: str, c: int, decays: str, *, paths: int, seed: int, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray, Growth]:
    """Steps ``(S,)``, group means of c v² + ‖w‖² ``(GROUPS, S)`` and the test's answer, from v = 1, W = 0.

    One column of target norm 1 with equal entries, x ~ N(0, 1), batches of 4 with label noise of standard deviation 2.
    """
    T = torch.full((GROUPS, c, 1), c**-0.5, dtype=torch.float64)
    decay_v, decay_W = DECAYS[decays]
    saved = np.unique(np.geomspace(steps / 8, steps, 40).round()).astype(int)
    run = stochastic_descent(
        INPUT_SCALE,
        LeastSquares(torch.ones(GROUPS, 1, 1, dtype=torch.float64), T),
        INPUT_SCALE.init(torch.zeros_like(T)),
        saved.tolist(),
        label_noise=2.0,
        batch=4,
        optimizer=optimizer,  # type: ignore[arg-type]
        step=RATES[optimizer],
        paths=paths,
        seed=seed,
        observe={"trace": lambda v, W: c * v.square()[..., 0] + W.square().sum((-2, -1))},
        weight_decay={"v": decay_v, "W": decay_W},
    )
    means = run.mean["trace"].numpy()
    return saved, means, growth(saved, means)


def _cell(setting: Setting, scope: str, optimizer: str, c: int, decays: str, answer: str) -> Evidence:
    paths = setting.choose(16, 32, 128) * (1 if optimizer in NORMALISING else 2)
    _, means, found = trace_growth(optimizer, c, decays, paths=paths, seed=int(setting.rng.integers(2**31)))
    margin = (found.slope - LEAST_SLOPE) * (1 if answer == "growing" else -1)
    detail = (
        f"{optimizer}, c = {c}, decay on {decays}, {STEPS:,} steps: ln E[trace] against ln t has slope "
        f"{found.slope:.3f} ± {found.stderr:.3f}"
    )
    again = measured_again(setting, f"optimizer-curvature:{scope}", detail, margin) if margin < 0 else None
    return measured(
        "simulation",
        margin,
        detail,
        stderr=found.stderr,
        instances=means.shape[0] * paths,
        seed=setting.seed,
        counterexample=again,
    )


def _optimizer(name: str, quick: tuple[tuple[int, str], ...], statement: str) -> Scope:
    """Every cell as expected: the ``quick`` ones, or all of `cells`."""

    def measure(setting: Setting) -> list[Evidence]:
        chosen = quick if setting.effort == "quick" else cells(name)
        return [_cell(setting, name, name, c, d, expected(name, c, d)) for c, d in chosen]

    return Scope(name, statement, True, measure=measure)


def _sentence(name: str, statement: str, optimizer: str, c: int, decays: str, answer: str) -> Scope:
    def measure(setting: Setting) -> list[Evidence]:
        return [_cell(setting, name, optimizer, c, decays, answer)]

    return Scope(name, statement, False, measure=measure)


SETUP = f"(λ = 0.1, c = 1 and 16, {STEPS:,} steps)"
claim = Claim(
    id="optimizer-curvature",
    title="Curvature under SGD, momentum, AdamW and Muon, with and without weight decay",
    statement="On minibatches the expected trace of the Hessian stays bounded under SGD and momentum without any "
    "decay; under AdamW and Muon it grows without decay on W once there are several outputs, and decay on both stops "
    "it.",
    source="arXiv 2605.26895, curvature with and without weight decay",
    figures=("optimizer-curvature",),
    scopes=(
        _optimizer("sgd", ((16, "none"),), f"SGD, η = 0.1: E of the trace is bounded whatever decays {SETUP}."),
        _optimizer("momentum", ((16, "none"),), f"SGD with momentum 0.9, η = 0.015: the same {SETUP}."),
        _optimizer(
            "adamw",
            ((1, "W"), (16, "none"), (16, "both")),
            "AdamW, η = 0.04: E of the trace grows with decay on v only; without decay if c = 16; with decay on W only "
            f"if c = 1; and is bounded otherwise {SETUP}.",
        ),
        _optimizer(
            "muon",
            ((16, "none"),),
            f"Muon on W with AdamW on v, η = 0.04: as AdamW for c = 16 (λ = 0.1, {STEPS:,} steps).",
        ),
        _sentence(
            "sgd-needs-decay",
            "Without weight decay E of the trace grows under SGD (c = 1).",
            "sgd",
            1,
            "none",
            "growing",
        ),
        _sentence(
            "adamw-pumping-without-end",
            "Decay on W but not on v lets E of the trace grow without end under AdamW for every c (c = 16).",
            "adamw",
            16,
            "W",
            "growing",
        ),
        _sentence(
            "adamw-usual-decay",
            "Decay on W but not on v keeps E of the trace bounded under AdamW for every c (c = 1).",
            "adamw",
            1,
            "W",
            "bounded",
        ),
    ),
)
