"""The vocabulary: a claim is a number that must not be negative, stated on a problem space."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scalevec_theory.problems import Problems, ProblemSpace
from scalevec_theory.proof import Proof

Z_SCORE = 3.0
"""A statistical margin decides only when it is this many standard errors from zero (two-sided 0.3%)."""


@dataclass(frozen=True)
class Margin:
    """Margins of B problems and the numerical uncertainty of each: the true margin lies within ``value ± error``.

    A problem whose computation failed has the value NaN; it is counted and reported, and decides nothing.
    """

    value: Tensor
    error: Tensor

    def __post_init__(self) -> None:
        if self.value.ndim != 1 or self.value.shape != self.error.shape:
            raise ValueError(
                f"value has shape {tuple(self.value.shape)}, error {tuple(self.error.shape)}: expected (B,), (B,)"
            )
        if bool((self.error < 0).any()):
            raise ValueError(f"error={self.error.min().item()}: expected >= 0")

    @staticmethod
    def at_least(larger: Tensor, smaller: Tensor, error: Tensor | float) -> Margin:
        """Margin of ``larger >= smaller``: the least difference over all trailing dimensions, error broadcast alike.

        Of several times or components, the one whose difference is worst beyond its error counts; ``larger`` infinite
        leaves a component out.
        """
        difference = (larger - smaller).flatten(1) if larger.ndim > 1 else (larger - smaller)[:, None]
        e = torch.as_tensor(error, dtype=difference.dtype, device=difference.device)
        if e.ndim and e.ndim < larger.ndim:
            e = e.reshape(*e.shape, *([1] * (larger.ndim - e.ndim)))
        e = e.expand(larger.shape).reshape(difference.shape) if e.ndim else e.expand(difference.shape)
        score = torch.where(difference.isnan(), -torch.inf, difference + e)
        worst = score.argmin(-1, keepdim=True)
        value = difference.gather(-1, worst)[:, 0]
        return Margin(torch.where(torch.isfinite(value), value, torch.nan), e.gather(-1, worst)[:, 0])

    @staticmethod
    def equal(left: Tensor, right: Tensor, accuracy: float, scale: Tensor | None = None) -> Margin:
        """Margin of ``left == right``: ``accuracy − max|left − right| / scale`` over all trailing dimensions.

        ``scale`` ``(B,)`` is the size of the terms that are compared (default: the largest |left| or |right|); give it
        where both sides may cancel to zero.  ``accuracy`` is relative and far above float64 rounding of the expression.
        """
        left, right = torch.broadcast_tensors(left, right)
        difference = (left - right).abs().reshape(len(left), -1).amax(-1)
        if scale is None:
            scale = torch.maximum(left.abs(), right.abs()).reshape(len(left), -1).amax(-1)
        relative = torch.where(difference == 0, difference, difference / scale)
        return Margin(accuracy - relative, torch.zeros_like(relative))


@dataclass(frozen=True)
class Counterexample:
    """A verified problem with a negative margin: its fields as nested lists, its margin, and code that shows it.

    A dimension that no field has stands among the fields.
    """

    fields: Mapping[str, object]
    margin: float
    code: str


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence for or against a scope.

    ``kind`` is proof, search, simulation or training; ``margin`` the smallest (search) or mean (simulation, training)
    margin with its statistical standard error; ``error`` its numerical uncertainty; ``instances`` how many problems,
    paths or runs it rests on, ``invalid`` how many of them failed to compute and ``undecided`` how many margins lie
    within their own error.  ``supports`` says what it shows: True (for), False (against), None (neither).
    """

    kind: str
    supports: bool | None
    detail: str
    margin: float | None = None
    stderr: float | None = None
    error: float = 0.0
    instances: int = 0
    invalid: int = 0
    undecided: int = 0
    seed: int | None = None
    counterexample: Counterexample | None = None


def measured(
    kind: str,
    margin: float,
    detail: str,
    *,
    stderr: float = 0.0,
    error: float = 0.0,
    instances: int = 1,
    seed: int | None = None,
    counterexample: Counterexample | None = None,
) -> Evidence:
    """Evidence from a measurement; it decides if ``margin`` is beyond ``Z_SCORE`` standard errors plus ``error``."""
    if kind not in ("simulation", "training"):
        raise ValueError(f"kind={kind!r}: expected 'simulation' or 'training'")
    if stderr < 0 or error < 0:
        raise ValueError(f"stderr={stderr}, error={error}: expected both >= 0")
    band = Z_SCORE * stderr + error
    supports = None
    if np.isfinite(margin) and np.isfinite(band):
        supports = True if margin >= band else False if margin < -band else None
    return Evidence(kind, supports, detail, margin, stderr, error, instances, seed=seed, counterexample=counterexample)


@dataclass(frozen=True)
class Setting:
    """What a measurement is given: how much to spend, its own random generator, and where to compute."""

    effort: str
    seed: int
    rng: np.random.Generator
    device: str = "cpu"

    def choose(self, quick: int, standard: int, full: int) -> int:
        """The size for this effort."""
        return {"quick": quick, "standard": standard, "full": full}[self.effort]


@dataclass(frozen=True)
class Scope:
    """A statement with every assumption written out, and what theory expects of it there.

    Parameters
    ----------
    name : short, lower case with hyphens; a scope is addressed as ``claim:name``.
    statement : one sentence that can be true or false.
    holds : what theory expects.  A scope with ``holds=False`` must come out refuted, with a counterexample.
    space, margin : problems and their margins; ``margin(problems, accuracy)`` computes to that relative accuracy.
    accuracy : the accuracy asked of ``margin`` in a search; a counterexample is verified at a hundredth of it.
    proof : builds the symbolic proof.
    measure : evidence from a simulation or a training run.
    cost : problems searched are divided by this; for margins that are slow to compute.
    reads : files that ``measure`` takes its evidence from; a result that is kept is of these files as they were.
    """

    name: str
    statement: str
    holds: bool
    space: ProblemSpace | None = None
    margin: Callable[[Problems, float], Margin] | None = None
    accuracy: float = 1e-8
    proof: Callable[[], Proof] | None = None
    measure: Callable[[Setting], Sequence[Evidence]] | None = None
    cost: float = 1.0
    reads: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        _check_name("scope", self.name)
        if not isinstance(self.holds, bool):
            raise ValueError(f"scope {self.name!r}: holds={self.holds!r}, expected True or False")
        if (self.space is None) != (self.margin is None):
            raise ValueError(f"scope {self.name!r}: give space and margin together, or neither")
        if self.margin is None and self.proof is None and self.measure is None:
            raise ValueError(
                f"scope {self.name!r} has no evidence: give a margin with its space, a proof, or a measure"
            )
        if not self.accuracy > 0:
            raise ValueError(f"scope {self.name!r}: accuracy={self.accuracy}, expected > 0")
        if not self.cost > 0:
            raise ValueError(f"scope {self.name!r}: cost={self.cost}, expected > 0")

    def evaluate(self, **fields: object) -> float:
        """The margin of one problem given as numbers and nested lists, at a hundredth of the search accuracy."""
        if self.space is None or self.margin is None:
            raise ValueError(f"scope {self.name!r} is not stated on a problem space")
        return float(self.margin(self.space.problem(fields), self.accuracy / 100).value[0])


@dataclass(frozen=True)
class Claim:
    """A named statement of a paper (or of a user) and the scopes in which it is claimed to hold or to fail.

    ``formula`` is the statement as mathematics, in LaTeX, if it can be written so.
    """

    id: str
    title: str
    statement: str
    source: str
    scopes: tuple[Scope, ...]
    figures: tuple[str, ...] = ()
    formula: str = ""

    def __post_init__(self) -> None:
        _check_name("claim", self.id)
        if not isinstance(self.scopes, tuple) or not all(isinstance(s, Scope) for s in self.scopes):
            shown = type(self.scopes).__name__
            raise ValueError(f"claim {self.id!r}: scopes is a {shown}, expected a tuple of Scopes, such as (scope,)")
        names = [s.name for s in self.scopes]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"claim {self.id!r} has scopes {names}: expected at least one, all with different names")


def _check_name(what: str, name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError(f"{what} name {name!r}: expected lower-case words joined by hyphens")


class NotRun(Exception):
    """Raised by a scope's ``measure`` when it cannot run here; the message says why (a missing package)."""


class Verdict(StrEnum):
    """What the evidence says about a scope."""

    PROVED = "proved"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Result:
    """A scope's verdict, with its evidence.  ``ok`` is whether the verdict is the expected one."""

    claim: str
    scope: str
    expected: str
    verdict: Verdict
    ok: bool
    seconds: float
    evidence: tuple[Evidence, ...] = field(default_factory=tuple)
    counterexample: Counterexample | None = None
    reason: str = ""


def judge(evidence: Sequence[Evidence]) -> Verdict:
    """The verdict on a scope: anything against it refutes it; a proof outranks a search; doubt is never dressed up."""
    if not evidence:
        return Verdict.NOT_RUN
    if any(e.supports is False for e in evidence):
        return Verdict.REFUTED
    if any(e.kind == "proof" and e.supports for e in evidence):
        return Verdict.PROVED
    return Verdict.CONFIRMED if all(e.supports for e in evidence) else Verdict.INCONCLUSIVE
