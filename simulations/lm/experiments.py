"""The experiments, each settled before it was run.

Sizes come from a first look (six million bytes of the default text, one setting, three seeds), in which paired
differences scattered by about 0.003 nats between seeds: with eight seeds a difference of 0.005 shows beyond three
standard errors with a chance of 0.95.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from simulations.lm.experiment import Contrast, Experiment

SIZES = {"width": 64, "layers": 4, "heads": 4, "hidden": 176}
SETTINGS = {"lr": 3e-3, "weight_decay": 0.1, "batch": 16, "length": 128, "held_out": 16, "compile": True}
PAPER_A, PAPER_B = "arXiv 2605.26895", "arXiv 2601.04890"
UNIFIED = "HG+DNP+OR"

_experiment = partial(Experiment, threshold=0.005, steps=(6, 100, 400), seeds=(2, 4, 8), sizes=SIZES, settings=SETTINGS)
_ALL = (
    _experiment(
        "removal",
        "Do learned norm scales lower the final loss, at a shared learning rate and at each model's own best?",
        PAPER_A,
        "llama",
        {
            "with": {"scales": "none"},
            "without": {"design": "none"},
            "with-half-lr": {"scales": "none", "lr": 1.5e-3},
            "without-half-lr": {"design": "none", "lr": 1.5e-3},
            "with-double-lr": {"scales": "none", "lr": 6e-3},
            "without-double-lr": {"design": "none", "lr": 6e-3},
        },
        (
            Contrast("shared-lr", "without", "with", 0.028),
            Contrast("half-lr", "without-half-lr", "with-half-lr"),
            Contrast("double-lr", "without-double-lr", "with-double-lr"),
        ),
    ),
    _experiment(
        "iwd",
        "On a model with input and output norms, which norm scales should decay?",
        PAPER_A,
        "gemma",
        {
            "input": {"scales": "iwd"},
            "none": {"scales": "none"},
            "all": {"scales": "all"},
            "output": {"scales": "output"},
        },
        (
            Contrast("input-decay", "none", "input"),
            Contrast("output-decay", "output", "none"),
            Contrast("iwd-against-all", "all", "input"),
            Contrast("iwd-against-opposite", "output", "input"),
        ),
    ),
    _experiment(
        "ladder",
        "What does each design of the scale vectors add: one per branch, on both sides, reparametrised, decayed?",
        PAPER_A,
        "llama",
        {
            "standard": {"scales": "none"},
            "hg": {"scales": "none", "design": "HG"},
            "hg-dp": {"scales": "none", "design": "HG+DP"},
            "hg-dnp": {"scales": "none", "design": "HG+DNP"},
            "hg-dnp-or": {"scales": "none", "design": "HG+DNP+OR"},
            "hg-dnp-er": {"scales": "none", "design": "HG+DNP+ER"},
            "unified": {"design": UNIFIED},
            "wider": {"widened": "unified", "scales": "none"},
        },
        (
            Contrast("hg", "standard", "hg"),
            Contrast("dp", "hg", "hg-dp"),
            Contrast("dnp", "hg", "hg-dnp"),
            Contrast("or", "hg-dnp", "hg-dnp-or"),
            Contrast("er", "hg-dnp", "hg-dnp-er"),
            Contrast("iwd", "hg-dnp-or", "unified"),
            Contrast("unified", "standard", "unified"),
            Contrast("equal-parameters", "wider", "unified", 0.033),
        ),
    ),
    _experiment(
        "multipliers",
        "Do learned multipliers lower the loss, under AdamW and under Muon?",
        PAPER_B,
        "llama",
        {
            "adamw": {},
            "adamw-scalar": {"multipliers": "scalar"},
            "adamw-vector": {"multipliers": "row+column"},
            "muon": {"optimizer": "muon"},
            "muon-scalar": {"optimizer": "muon", "multipliers": "scalar"},
            "muon-vector": {"optimizer": "muon", "multipliers": "row+column"},
        },
        (
            Contrast("adamw-scalar", "adamw", "adamw-scalar"),
            Contrast("adamw-vector", "adamw", "adamw-vector"),
            Contrast("muon-scalar", "muon", "muon-scalar"),
            Contrast("muon-vector", "muon", "muon-vector"),
        ),
        settings={**SETTINGS, "clip_multipliers": False},
    ),
)

EXPERIMENTS: Mapping[str, Experiment] = {e.id: e for e in _ALL}
