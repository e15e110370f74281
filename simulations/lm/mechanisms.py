"""Experiments on what happens inside small models: many short paired runs, each settled before it was run.

At learning rate 10⁻² and weight decay 1 a run of 120 steps keeps e^−0.6 of its start, at weight decay 4 e^−2.4; the
predictions that sizes are compared with take that into account.  The bands that statements are tested against are those
of the papers' wording, and 5% where they say "follow" and "alike".  In a first look (60 steps, three seeds) differences
of losses scattered from seed to seed by 0.01 to 0.04 nats: six seeds decide the threshold of 0.02 with a chance of 0.45
at the former and 0.01 at the latter, 16 with one of 1.00 and 0.10, 24 with one of 1.00 and 0.22.

Questions that six seeds or ten had left undecided were asked again of 5 to 24 others, from `AGAIN` on; ``diversity``
was asked a third time after six and twelve seeds, ``projector`` after five and six, ``width`` at three and four widths.
The band of ``crossover-moved`` is as wide as the model of a constant signal is off where gradients are made by it, in
40 steps of AdamW (0.9, 0.95).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from simulations.lm.contrast import Contrast, difference, mean, ratio, slope
from simulations.lm.experiment import Experiment

PAPER_A, PAPER_B = "arXiv 2605.26895", "arXiv 2601.04890"
SIZES = {"width": 32, "layers": 2, "heads": 2, "hidden": 88}
SETTINGS = {
    "lr": 1e-2,
    "weight_decay": 1.0,
    "batch": 8,
    "length": 64,
    "held_out": 8,
    "evaluations": 4,
    "clip_multipliers": False,
}
INNER = "query|key|value|attention.out|gate|up|down"
ALIKE = (-0.05, 0.05)
FLAT = (-0.02, 0.02)
ABOVE = (0.0, math.inf)
AGAIN = 100
"""The first seed of what is asked again."""

FAR = {"low": 0.1, "lower": 10**-0.25, "middle": 10**0.5, "higher": 10**1.25, "high": 100.0}
"""Factors on the equilibrium norm √(η/λ): three decades, about where a first run found the least loss."""
WIDTHS = (16, 32, 48, 64, 96, 128)


def _experiment(settings: Mapping[str, Any] | None = None, **more: Any) -> Experiment:
    base: dict[str, Any] = {"threshold": 0.02, "steps": (6, 40, 120), "seeds": (2, 3, 6), "sizes": SIZES}
    return Experiment(**{"family": "llama", **base, **more, "settings": {**SETTINGS, **(settings or {})}})


def _far(rescaled: str, variants: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every variant with each equilibrium norm of `FAR`."""
    return {
        f"{name}-{place}": {**changes, "rescaled": rescaled, "rescale": factor}
        for name, changes in variants.items()
        for place, factor in FAR.items()
    }


def _far_contrasts(variants: Mapping[str, Mapping[str, Any]]) -> tuple[Contrast, ...]:
    """What each end costs each variant, and what multipliers save there."""
    ends = ("low", "high")
    cost = partial(difference, within=FLAT)
    found = [cost(f"{v}-{end}", f"{v}-{end}", f"{v}-middle") for v in variants for end in ends]
    bare, *free = variants
    for v in free:
        for end in ends:
            weights = {f"{bare}-{end}": 1.0, f"{bare}-middle": -1.0, f"{v}-{end}": -1.0, f"{v}-middle": 1.0}
            found.append(Contrast(f"{v}-saves-{end}", weights))
    return tuple(found)


PROJECTOR: Mapping[str, Mapping[str, Any]] = {
    "none": {"design": "none"},
    "scalar": {"design": "none", "multipliers": "scalar", "multipliers_on": "head", "scale_lr": 30.0},
    "vector": {"scales": "none", "scale_lr": 30.0},
}
MLP: Mapping[str, Mapping[str, Any]] = {
    "none": {"design": "none"},
    "scalar": {"design": "none", "multipliers": "scalar", "multipliers_on": "feed_forward", "scale_lr": 30.0},
    "vector": {"design": "none", "multipliers": "row", "multipliers_on": "feed_forward", "scale_lr": 30.0},
}

MECHANISMS = (
    _experiment(
        id="norms",
        question="Do matrices have the sizes that noise and decay alone give, and scales and multipliers others?",
        source=PAPER_B,
        arms={
            "adamw": {},
            "light-decay": {"weight_decay": 0.1},
            "heavy-decay": {"weight_decay": 5.0},
            "muon": {"optimizer": "muon"},
            "vector": {"multipliers": "row+column"},
        },
        contrasts=(
            ratio("size", "adamw", "abm.size", ALIKE),
            ratio("size-light-decay", "light-decay", "abm.size", ALIKE),
            ratio("size-heavy-decay", "heavy-decay", "abm.size", ALIKE),
            ratio("size-muon", "muon", "abm.size", ALIKE),
            ratio("scales-moved", "adamw", "abm.scales", ALIKE),
            ratio("multipliers-moved", "vector", "abm.multipliers", ALIKE),
            ratio("query-value", "adamw", "branches.query_value", ALIKE),
            ratio("key-value", "adamw", "branches.key_value", ALIKE),
            ratio("gate-up", "adamw", "branches.gate_up", ALIKE),
            ratio("signal-of-scales", "adamw", "signal.scales_to_matrices", ABOVE),
            ratio("signal-of-multipliers", "vector", "signal.multipliers_to_matrices", ABOVE),
            mean("signal-and-moved", "vector", "signal.rank", ABOVE),
            mean("crossover-tells", "vector", "signal.agree", (0.9, 1.0)),
            ratio("crossover-moved", "vector", "signal.departure", (-0.15, 0.15)),
        ),
        seeds=(2, 3, 8),
        first_seed=AGAIN,
        shown=("signal.above_", "signal.moved_"),
        settings={"measures": ("abm", "branches", "signal")},
    ),
    _experiment(
        id="projector",
        question="What does a forced equilibrium norm of the head cost, without a multiplier, with a scalar, with a "
        "vector (the final norm's scale)?",
        source=PAPER_B,
        arms=_far("head", PROJECTOR),
        contrasts=_far_contrasts(PROJECTOR),
        seeds=(2, 3, 12),
        first_seed=2 * AGAIN,
        settings={"weight_decay": 4.0},
    ),
    _experiment(
        id="mlp",
        question="What does a forced equilibrium norm of feed-forward matrices cost under AdamW, norm scales frozen?",
        source=PAPER_B,
        arms=_far("feed_forward", MLP),
        contrasts=_far_contrasts(MLP),
        seeds=(2, 3, 8),
        first_seed=AGAIN,
        settings={"weight_decay": 4.0},
    ),
    _experiment(
        id="mlp-muon",
        question="What does a forced equilibrium norm of feed-forward matrices cost under Muon, norm scales frozen?",
        source=PAPER_B,
        arms=_far("feed_forward", MLP),
        contrasts=_far_contrasts(MLP),
        seeds=(2, 3, 5),
        first_seed=AGAIN,
        settings={"weight_decay": 4.0, "optimizer": "muon"},
    ),
    _experiment(
        id="width",
        question="How do learned scalar multipliers, sizes and the alignment of features with weights go with width?",
        source=PAPER_B,
        arms={f"width-{w}": {"sizes": {"width": w, "heads": w // 16, "hidden": 11 * w // 4}} for w in WIDTHS},
        contrasts=tuple(
            slope(name, {f"width-{w}": w for w in WIDTHS}, metric, within)
            for name, metric, within in (
                ("head", "sizes.head", (-1.2, -0.8)),
                ("query-key", "sizes.query_key", (-2.4, -1.6)),
                ("matrices", "sizes.matrices", ALIKE),
                ("alignment-head", "alignment.head", (0.4, 0.6)),
                ("alignment-hidden", "alignment.hidden", (0.4, 0.6)),
            )
        ),
        seeds=(2, 3, 12),
        first_seed=2 * AGAIN,
        settings={
            "design": "none",
            "multipliers": "scalar",
            "multipliers_on": f"{INNER}|head",
            "scale_lr": 5.0,
            "measures": ("sizes", "alignment"),
        },
    ),
    _experiment(
        id="diversity",
        question="Do multipliers spread the sizes of blocks over depth, and those of rows?",
        source=PAPER_B,
        arms={"none": {}, "scalar": {"multipliers": "scalar"}, "vector": {"multipliers": "row+column"}},
        contrasts=(
            difference("blocks-scalar", "scalar", "none", metric="diversity.blocks", logarithm=True),
            difference("blocks-vector", "vector", "none", metric="diversity.blocks", logarithm=True),
            difference("rows-vector", "vector", "none", metric="diversity.rows", logarithm=True),
        ),
        seeds=(2, 3, 24),
        first_seed=2 * AGAIN,
        shown=("diversity.attention_", "diversity.feed_forward_"),
        sizes={**SIZES, "layers": 4},
        settings={"measures": ("diversity",)},
    ),
    _experiment(
        id="clipping",
        question="Should multipliers be left out of the global norm at which gradients are clipped?",
        source=PAPER_B,
        arms={
            "counted": {"multipliers": "row+column", "clip_multipliers": True},
            "left-out": {"multipliers": "row+column"},
            "none": {},
        },
        contrasts=(
            difference("left-out", "counted", "left-out"),
            difference("multipliers", "none", "left-out"),
            mean("share-early", "counted", "clipping.share", (0.1, 1.0), evaluation=0),
            mean("share-late", "counted", "clipping.share", (0.0, 0.1)),
        ),
        settings={"measures": ("clipping",), "evaluations": 20},
    ),
    _experiment(
        id="head",
        question="Does a row multiplier on the head do harm?",
        source=PAPER_B,
        arms={
            "without": {"multipliers_on": INNER},
            "with": {"multipliers_on": f"{INNER}|head"},
        },
        contrasts=(difference("row", "with", "without"),),
        threshold=0.005,
        steps=(6, 100, 400),
        seeds=(2, 4, 24),
        first_seed=AGAIN,
        settings={"multipliers": "row", "lr": 3e-3, "weight_decay": 0.1, "batch": 16},
    ),
    _experiment(
        id="start",
        question="Does it matter whether scalar multipliers start at 1 or by a rule like µP's?",
        source=PAPER_B,
        arms={"ones": {}, "mup": {"multiplier_start": "mup"}, "fixed": {"multipliers": "none"}},
        contrasts=(
            difference("start", "ones", "mup", within=FLAT),
            difference("learned", "fixed", "ones"),
        ),
        seeds=(2, 3, 24),
        first_seed=AGAIN,
        settings={"multipliers": "scalar", "multipliers_on": f"{INNER}|head", "design": "none", "scale_lr": 5.0},
    ),
    _experiment(
        id="symmetry",
        question="Do multipliers drift along directions that do not change the function, and does light decay stop it?",
        source=PAPER_B,
        family="qwen3",
        arms={
            "no-decay": {"multiplier_decay": 0.0},
            "paper-decay": {"multiplier_decay": 2e-3},
            "long-run-decay": {"multiplier_decay": 0.5},
        },
        contrasts=(
            ratio("growth", "no-decay", "orbits.query", (0.01, math.inf)),
            difference("paper-decay", "no-decay", "paper-decay", metric="orbits.query", logarithm=True),
            difference("long-run-decay", "no-decay", "long-run-decay", metric="orbits.query", logarithm=True),
            mean("product", "no-decay", "orbits.up_down", (-1e-3, 1e-3)),
        ),
        settings={"multipliers": "row+column", "scale_lr": 3.0, "measures": ("orbits",)},
    ),
    _experiment(
        id="conserved",
        question="What becomes of the conserved quantity of norms and their consumers in real training without decay?",
        source=PAPER_A,
        arms={
            "sgd": {"optimizer": "sgd", "lr": 0.2},
            "sgd-half-lr": {"optimizer": "sgd", "lr": 0.1, "stretch": 2},
            "sgd-double-lr": {"optimizer": "sgd", "lr": 0.4, "stretch": 0.5},
            "momentum": {"optimizer": "momentum", "lr": 0.02},
            "adamw": {"lr": 3e-3},
        },
        contrasts=(
            slope(
                "drift-with-step", {"sgd-half-lr": 0.1, "sgd": 0.2, "sgd-double-lr": 0.4}, "conserved.drift", (0.8, 1.2)
            ),
            difference("momentum", "momentum", "sgd", metric="conserved.drift", logarithm=True, within=ALIKE),
            difference("adamw", "adamw", "sgd", metric="conserved.share", logarithm=True),
            ratio("sgd-share", "sgd-half-lr", "conserved.share", (-math.inf, math.log(0.1))),
            ratio("adamw-share", "adamw", "conserved.share", (-math.inf, math.log(0.1))),
        ),
        settings={"weight_decay": 0.0, "clip": 0.0, "schedule": "constant", "measures": ("conserved",)},
    ),
    _experiment(
        id="curvature",
        question="Does decay on norm scales lower the curvature along training, and allow larger steps?",
        source=PAPER_A,
        arms={"without": {"scales": "none"}, "with": {"scales": "all"}},
        contrasts=(
            difference("eigenvalue", "without", "with", metric="sharpness.eigenvalue", logarithm=True),
            difference("step", "with", "without", metric="sharpness.step", logarithm=True),
            difference("loss", "without", "with"),
        ),
        seeds=(2, 3, 16),
        first_seed=AGAIN,
        settings={"measures": ("sharpness",), "evaluations": 6},
    ),
)
