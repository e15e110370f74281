"""The size of every matrix of a real model along a planned run, if its gradients were noise.

Source: arXiv 2601.04890 (noise–weight-decay equilibrium, which matrices follow and learnable multipliers do not); the
curves are those of `scalevec_theory.equilibrium`.
"""

from __future__ import annotations

import importlib
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from scalevec_theory.counts import check_count
from scalevec_theory.equilibrium import Prediction, checked_schedule, has_invariant_law, predict
from scalevec_theory.optimizers import SGD, Muon, Optimizer, check_optimizer
from scalevec_theory.schedules import SCHEDULES
from simulations.models.decay import WEIGHTS
from simulations.models.groups import ParamGroups, members_of, plain
from simulations.models.invariance import scale_invariant
from simulations.models.roles import template
from simulations.models.running import Example
from simulations.models.scales import plain_name
from simulations.models.trace import trace


@dataclass(frozen=True, eq=False)
class MatrixPrediction:
    """What is expected of one matrix.

    Attributes
    ----------
    shape : of the parameter.
    optimizer : the update rule with this matrix's weight decay.
    scale_invariant : whether the model does not see the matrix's size (`invariance.scale_invariant`).
    course : E[w²] at steps 0 … T and more.
    """

    shape: tuple[int, ...]
    optimizer: Optimizer
    scale_invariant: bool
    course: Prediction

    @property
    def rms(self) -> np.ndarray:
        """√E[w²] of an entry, ``(T + 1,)``."""
        return self.course.rms

    @property
    def norm(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of ‖W‖_F over draws of noise and start, see `Prediction.norm`; ``(T + 1,)``."""
        return self.course.norm(math.prod(self.shape))


@dataclass(frozen=True, eq=False)
class NormPrediction:
    """Predictions by parameter name, and why the other trainable parameters have none."""

    steps: int
    matrices: Mapping[str, MatrixPrediction]
    not_predicted: Mapping[str, str]

    def table(self) -> str:
        """The rms at the start, a half and the end of the run, matrix by matrix; then what has no prediction and why.

        Layers that differ by numbers in their names only share a line, with the range of each value.  What lies outside
        of the limits within which predictions have been tested is a warning.
        """
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in (
            "matrix",
            "number",
            "shape",
            "decay",
            "rms at 0",
            "at half",
            "at the end",
            "‖W‖ at the end",
            "±",
        ):
            table.add_column(heading, justify="left" if heading in ("matrix", "shape") else "right", overflow="fold")
        alike: dict[tuple[str, tuple[int, ...], float], list[MatrixPrediction]] = {}
        for name, m in self.matrices.items():
            alike.setdefault((template(plain_name(name)), m.shape, m.optimizer.weight_decay), []).append(m)
        for (name, shape, decay), members in alike.items():
            mark = " *" if members[0].scale_invariant else ""
            columns = [[m.rms[t] for m in members] for t in (0, self.steps // 2, self.steps)]
            columns += [[m.norm[i][-1] for m in members] for i in (0, 1)]
            size = "×".join(map(str, shape))
            table.add_row(name + mark, str(len(members)), size, f"{decay:g}", *map(_range, columns))
        text = io.StringIO()
        Console(file=text, width=200, markup=False, highlight=False).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        if any(m.scale_invariant for m in self.matrices.values()):
            lines.append("* scale-invariant: the model does not see the size of the matrix")
        for line in dict.fromkeys(line for m in self.matrices.values() for line in m.course.outside):
            names = dict.fromkeys(template(plain_name(k)) for k, m in self.matrices.items() if line in m.course.outside)
            lines.append(f"warning: {line}: {', '.join(names)}")
        for reason in dict.fromkeys(self.not_predicted.values()):
            names = dict.fromkeys(
                template(plain_name(name)) for name, why in self.not_predicted.items() if why == reason
            )
            lines.append(f"not predicted, {reason}: {', '.join(names)}")
        return "\n".join(lines)

    def draw(self, file: str | Path) -> list[Path]:
        """Draw the rms of every matrix over the run as ``file``, in SVG and PNG, and return the two files."""
        # Figures stand above this package; they are reached by name only.
        files: list[Path] = importlib.import_module("figures.predicted_norms").draw_prediction(Path(file), self)
        return files


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.4g}", f"{max(values):.4g}"
    return low if low == high else f"{low}–{high}"


def predict_norms(
    model: nn.Module,
    optimizer: Optimizer | tuple[Muon, Optimizer],
    steps: int,
    *,
    schedule: str | np.ndarray = "constant",
    warmup: int = 0,
    weight_decay_schedule: np.ndarray | None = None,
    example: Example | None = None,
    groups: ParamGroups | None = None,
    noise: float = 1.0,
) -> NormPrediction:
    """The rms of every trainable matrix, convolution and embedding over ``steps`` steps, if gradients were noise.

    Gradients are taken to be independent in time, of mean 0 and equal size all over a matrix; each starts from its own
    rms.  A matrix that leaves its curve has learned something that shows in its size, and an embedding does whose rows
    get few gradients.  Scales, multipliers and other vectors do not follow such curves (arXiv 2601.04890) and get none.

    A matrix that is scale-invariant as a whole follows SGD's own law for such matrices, and under AdamW, Lion and sign
    descent that of the others, which holds at rest (as the claim `rotational-equilibrium` finds); under other rules it
    is not predicted.

    Parameters
    ----------
    optimizer : the update rule and its settings; a pair (Muon, another) moves the hidden matrices by Muon.
    schedule : factors on the learning rate ``(steps,)``, or a name in `scalevec_theory.schedules` used with ``warmup``.
    weight_decay_schedule : factors on the weight decay ``(steps,)``.
    example : as for `trace`.
    groups : what decays by how much, as from `iwd_param_groups` of this model; None: individual weight decay with the
        optimizers' own ``weight_decay``.
    noise : standard deviation of the entries of gradients at the start; only SGD and ε feel it.

    Raises
    ------
    ValueError : another optimizer, an unknown schedule, Muon alone, groups of another model, or what `predict` refuses.
    """
    if isinstance(optimizer, Muon):
        raise ValueError(f"optimizer={optimizer}: Muon moves hidden matrices only; expected a pair (Muon, another)")
    check_count("steps", steps)
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule={schedule!r}: expected an array or one of {', '.join(SCHEDULES)}")
        schedule = SCHEDULES[schedule](steps, warmup)
    factors = checked_schedule("schedule", schedule, steps)
    muon, other = optimizer if isinstance(optimizer, tuple) else (optimizer, optimizer)
    for rule in (muon, other):
        check_optimizer(rule)
    unadorned = plain(model)
    traced = trace(unadorned, example)
    invariant = scale_invariant(unadorned, traced, example)
    given = groups.rebind(model) if groups is not None else None
    members = given.members if given else members_of(model, traced, weight_decay=1.0)

    @cache
    def course(rule: Optimizer, shape: tuple[int, ...] | None, rms: float, noise: float, invariant: bool) -> Prediction:
        return predict(
            rule, steps, init=rms, noise=noise, shape=shape, scale_invariant=invariant, lr_schedule=factors,
            weight_decay_schedule=weight_decay_schedule,
        )  # fmt: skip

    def expected(rule: Optimizer, p: Tensor, invariant: bool) -> Prediction:
        rms, shape = _rms(p), tuple(p.shape)
        if invariant and isinstance(rule, SGD):
            return course(rule, shape, rms, noise * rms * math.sqrt(p.numel()), True)
        needed = shape if isinstance(rule, Muon) else None
        if rule.coupled:
            return course(rule, needed, rms, noise, False)
        return _started(course(rule, needed, 0.0, noise, False), rms)

    matrices, not_predicted = {}, {}
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        member = members[name]
        rule = muon if member.hidden_matrix else other
        decay = member.weight_decay * (1.0 if given else rule.weight_decay)
        rule = replace(rule, weight_decay=decay)
        if reason := _no_prediction(member.kind, rule, plain_name(name) in invariant, p):
            not_predicted[name] = reason
            continue
        seen = expected(rule, p, plain_name(name) in invariant)
        matrices[name] = MatrixPrediction(tuple(p.shape), rule, plain_name(name) in invariant, seen)
    return NormPrediction(steps, matrices, not_predicted)


def move_by_noise(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    schedule: np.ndarray,
    generator: torch.Generator,
    record: Sequence[int],
) -> dict[str, np.ndarray]:
    """Step ``optimizers`` through a schedule on independent normal gradients; what `predict_norms` speaks of.

    Parameters
    ----------
    schedule : factors on the learning rates that the optimizers have, ``(steps,)``.
    record : steps, from 0, at which to measure.

    Returns
    -------
    The rms of each trainable parameter, by name, at the steps of ``record``.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    peak = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    measured: dict[str, list[float]] = {name: [] for name in trained}
    for t in range(len(schedule) + 1):
        if t > 0:
            for p in trained.values():
                p.grad = torch.empty_like(p).normal_(generator=generator)
            for optimizer, rates in zip(optimizers, peak, strict=True):
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * schedule[t - 1]
                optimizer.step()
        if t in record:
            for name, p in trained.items():
                measured[name].append(_rms(p))
    return {name: np.array(values) for name, values in measured.items()}


def _started(course: Prediction, rms: float) -> Prediction:
    """A course that began at 0, begun at ``rms`` instead: decoupled decay shrinks the start apart from the updates."""
    left = np.append(1.0, np.cumprod(course.retain**2))
    return replace(course, mean_square=course.mean_square + rms**2 * left)


def _rms(parameter: Tensor) -> float:
    return float(parameter.detach().double().square().mean().sqrt())


def _no_prediction(kind: str, rule: Optimizer, invariant: bool, parameter: Tensor) -> str:
    """Why the law of noise and decay says nothing of a parameter; empty if it does."""
    if kind == "unread":
        return "the example does not reach it"
    if kind not in WEIGHTS:
        return "a scale, a multiplier or another vector"
    if invariant and not has_invariant_law(rule):
        return f"scale-invariant under {type(rule).__name__}"
    return ""
