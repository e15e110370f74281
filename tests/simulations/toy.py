"""A claim file for the tests of the command line and the runner: every kind of evidence, nothing slow."""

TOY = """\
from sympy import Eq, symbols

from scalevec_theory.claim import Claim, Margin, Scope, measured
from scalevec_theory.problems import ProblemSpace, Real
from scalevec_theory.proof import Lemma, Proof

x, y = symbols("x y", real=True)
SPACE = ProblemSpace("x real", {}, {"x": Real("")})


def prove():
    return Proof((Lemma("x = y", Eq(x, y), {"y = x": Eq(y, x)}),), "That is all.")


def simulate(setting):
    mean = float(setting.rng.standard_normal(1000).mean())
    return [measured("simulation", 0.3 + mean, "0.3 + a mean", stderr=0.03, instances=1000, seed=setting.seed)]


claim = Claim(
    "toy",
    "A toy",
    "Squares are positive, numbers are not.",
    "nowhere",
    (
        Scope("square", "x² ≥ 0", True, SPACE, lambda p, accuracy: Margin(p["x"] ** 2, 0 * p["x"])),
        Scope("sign", "x ≥ 0", False, SPACE, lambda p, accuracy: Margin(p["x"], 0 * p["x"])),
        Scope("exact", "x = y", True, proof=prove),
        Scope("mean", "The mean is positive.", True, measure=simulate),
    ),
    figures=("conservation",),
)
"""

COUNTED = """\
from pathlib import Path

from scalevec_theory.claim import Claim, Scope, measured


def simulate(setting):
    with Path("calls").open("a") as calls:
        calls.write("x")
    return [measured("simulation", 1.0, "one")]


claim = Claim("counted", "t", "s", "nowhere", (Scope("one", "1 ≥ 0", True, measure=simulate),))
"""
"""Its scope leaves a mark in the file ``calls`` each time it is checked."""
