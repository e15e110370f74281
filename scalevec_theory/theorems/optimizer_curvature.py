"""Curvature under the optimizers people use, step by step on minibatches: who needs weight decay, and what for.

SGD and momentum follow the minibatch equation, in which v² − ‖w‖² has no noise: curvature stays bounded.  AdamW has a
law of balance of its own (claim ``decay-pumping``), with and without decay: curvature grows for long, comes to rest,
and is the larger there the smaller the learning rate; only decay on both v and W keeps it from growing as η falls.
Muon is looked at for c = 16 only, for on a single entry it is sign descent; where it comes to rest is measured.

Source: arXiv 2605.26895 (curvature and weight decay in training); the table is derived here.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from scalevec_theory.claim import Claim, Evidence, Scope, Setting
from scalevec_theory.growth import LEAST_SLOPE, growth
from scalevec_theory.losses import LeastSquares
from scalevec_theory.paired import simulated
from scalevec_theory.parametrizations import INPUT_SCALE
from scalevec_theory.phase import DECAYS
from scalevec_theory.pumping import Column
from scalevec_theory.stochastic_descent import stochastic_descent

GROUPS, STEPS = 16, 2000
RATES = {"sgd": 0.1, "momentum": 0.015, "adamw": 0.04, "muon": 0.04}
"""With decay 0.1 the relaxation times, 1/(2ηλ) and 1/η² under SGD, 1/((c−1)η²) at c = 16 under AdamW, are 42 to 125
steps, below the 250 from which growth is looked for."""

OUTPUTS = {"sgd": (1, 4), "momentum": (1, 4), "adamw": (1, 16), "muon": (16,)}

MUON_REST = {"none": 0.14, "v": 0.13, "W": 0.25, "both": 0.24}
"""(E‖w‖²)^-½ at rest under Muon, c = 16: the mean over steps 2,000 to 8,000 of 128 runs."""


def rest(optimizer: str, c: int, decays: str) -> float:
    """The v from which, on the valley v‖w‖ = 1, neither v nor ‖w‖ is expected to move much."""
    if optimizer == "adamw":
        return Column(1.0, c, RATES[optimizer], *DECAYS[decays], sigma=1.0).rest()[0]
    return MUON_REST[decays] if optimizer == "muon" else c**-0.25


def trace_growth(
    optimizer: str, c: int, starts: Mapping[str, float], *, paths: int, seed: int, steps: int = STEPS
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps ``(S,)``, and by what decays the group means of c v² + ‖w‖² ``(GROUPS, S)`` from v = ``starts``, w = T/v.

    One column of target norm 1 with equal entries, x ~ N(0, 1), batches of 4 with label noise of standard deviation 2.
    """
    B = GROUPS * len(starts)
    T = torch.full((B, c, 1), c**-0.5, dtype=torch.float64)
    v0 = torch.tensor(list(starts.values()), dtype=T.dtype).repeat_interleave(GROUPS)
    rates = torch.tensor([DECAYS[decays] for decays in starts], dtype=T.dtype).repeat_interleave(GROUPS, 0)
    saved = np.unique(np.geomspace(steps / 8, steps, 40).round()).astype(int)
    run = stochastic_descent(
        INPUT_SCALE,
        LeastSquares(torch.ones(B, 1, 1, dtype=T.dtype), T),
        {"v": v0[:, None], "W": T / v0[:, None, None]},
        saved.tolist(),
        label_noise=2.0,
        batch=4,
        optimizer=optimizer,  # type: ignore[arg-type]
        step=RATES[optimizer],
        paths=paths,
        seed=seed,
        observe={"trace": lambda v, W: c * v.square()[..., 0] + W.square().sum((-2, -1))},
        weight_decay={"v": rates[:, 0], "W": rates[:, 1]},
    )
    means = run.mean_of_all("trace").numpy()
    return saved, dict(zip(starts, means.reshape(len(starts), GROUPS, -1), strict=True))


def _cells(
    setting: Setting, scope: str, optimizer: str, c: int, answer: str, starts: Mapping[str, float]
) -> list[Evidence]:
    paths = setting.choose(16, 32, 128)
    steps, means = trace_growth(optimizer, c, starts, paths=paths, seed=int(setting.rng.integers(2**31)))
    evidence = []
    for decays, v0 in starts.items():
        found = growth(steps, means[decays])
        margin = (found.slope - LEAST_SLOPE) * (1 if answer == "growing" else -1)
        detail = (
            f"{optimizer}, c = {c}, decay on {decays}, {STEPS:,} steps from v = {v0:.3g}: ln E[trace] against ln t has "
            f"slope {found.slope:.3f} ± {found.stderr:.3f}"
        )
        address = f"optimizer-curvature:{scope}"
        evidence.append(simulated(setting, address, margin, detail, stderr=found.stderr, instances=GROUPS * paths))
    return evidence


def _optimizer(name: str, statement: str) -> Scope:
    """E of the trace stays bounded for every number of outputs and every decay, from the expected point of rest."""

    def measure(setting: Setting) -> list[Evidence]:
        found = []
        for c in OUTPUTS[name]:
            found += _cells(setting, name, name, c, "bounded", {decays: rest(name, c, decays) for decays in DECAYS})
        return found

    return Scope(name, statement, True, measure=measure)


def _growing(name: str, statement: str, optimizer: str, decays: str, *, holds: bool, start: float | None) -> Scope:
    """E of the trace is growing, at the largest number of outputs looked at."""
    c = OUTPUTS[optimizer][-1]

    def measure(setting: Setting) -> list[Evidence]:
        v0 = rest(optimizer, c, decays) if start is None else start
        return _cells(setting, name, optimizer, c, "growing", {decays: v0})

    return Scope(name, statement, holds, measure=measure)


SETUP = f"(λ = 0.1, {STEPS:,} steps from the expected point of rest)"
claim = Claim(
    id="optimizer-curvature",
    title="Curvature under SGD, momentum, AdamW and Muon, with and without weight decay",
    statement="On minibatches the expected trace of the Hessian stays bounded under SGD, momentum, AdamW and Muon with "
    "and without decay; under AdamW and Muon without decay it first grows for long.",
    formula=r"\sup_t \mathbb{E}\left[\operatorname{tr}\,\nabla^2 L\right] < \infty \quad \text{for all } \lambda_v, "
    r"\lambda_W \in \{0, \lambda\}",
    source="arXiv 2605.26895, curvature with and without weight decay",
    figures=("optimizer-curvature",),
    scopes=(
        _optimizer("sgd", f"SGD, η = 0.1, c = 1 and 4: E of the trace is bounded whatever decays {SETUP}."),
        _optimizer("momentum", f"SGD with momentum 0.9, η = 0.015, c = 1 and 4: the same {SETUP}."),
        _optimizer("adamw", f"AdamW, η = 0.04, c = 1 and 16: the same {SETUP}."),
        _optimizer(
            "muon", f"Muon on W with AdamW on v, η = 0.04: the same for c = 16 {SETUP}; these points are measured."
        ),
        _growing(
            "adamw-first-steps",
            "AdamW without decay from v = ‖w‖ = 1: over the first 2,000 steps E of the trace is growing (c = 16).",
            "adamw",
            "none",
            holds=True,
            start=1.0,
        ),
        _growing(
            "muon-first-steps",
            "Muon on W, AdamW on v, no decay, from v = ‖w‖ = 1: over the first 2,000 steps it is growing (c = 16).",
            "muon",
            "none",
            holds=True,
            start=1.0,
        ),
        _growing(
            "adamw-diverges",
            "Without weight decay E of the trace grows without bound under AdamW (c = 16, η = 0.04).",
            "adamw",
            "none",
            holds=False,
            start=None,
        ),
        _growing(
            "sgd-diverges",
            "Without weight decay E of the trace grows without bound under SGD (c = 4, η = 0.1).",
            "sgd",
            "none",
            holds=False,
            start=None,
        ),
    ),
)
