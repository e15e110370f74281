"""Conservation and absorption of norm scales in unmodified models of `transformers`, at toy size and in float64.

Source: arXiv 2605.26895 (conservation law, absorption), stated there for one linear layer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec

import numpy as np
from torch import Tensor, nn

from scalevec_theory.claim import Claim, Counterexample, Evidence, NotRun, Scope, Setting, measured
from simulations.models.conserved import conserved, increment, parts
from simulations.models.folding import absorb, effective_scale, move_scale, untie
from simulations.models.roles import Norm
from simulations.models.toys import build, gradient_flow, loss_gradient, norms_of, random_tokens, relative_change

DRIFT = 1e-8
"""Most that a conserved quantity may move along the integrated flow."""

ROUNDING = 1e-13
"""Relative float64 rounding of a sum of some hundred squares, and of a toy model's logits."""

ALIVE = 1e-4
"""Least that the two parts of a conserved quantity must move, and logits without the scale, for a check to count."""

STEP = 0.1
"""Step of gradient descent; the identity holds for every step."""

Variant = Callable[[Sequence[Norm]], list[Norm]]


def _absorbable(norms: Sequence[Norm]) -> list[Norm]:
    return [n for n in norms if n.absorbable]


def _one_consumer_left_out(norms: Sequence[Norm]) -> list[Norm]:
    return [replace(n, consumers=n.consumers[1:]) for n in _absorbable(norms) if len(n.consumers) > 1]


def _router_left_out(norms: Sequence[Norm]) -> list[Norm]:
    """Of a norm that feeds stacks of experts, keep these only."""
    stacks = [replace(n, consumers=tuple(c for c in n.consumers if len(c.shape) == 3)) for n in _absorbable(norms)]
    return [n for n in stacks if n.consumers]


def _offset_ignored(norms: Sequence[Norm]) -> list[Norm]:
    return [replace(n, offset=0.0) for n in _absorbable(norms) if n.offset]


def _tied_head(norms: Sequence[Norm]) -> list[Norm]:
    return [n for n in norms if n.role == "input" and not n.absorbable]


VARIANTS: Mapping[str, Variant] = {
    "as-traced": _absorbable,
    "one-consumer-left-out": _one_consumer_left_out,
    "router-left-out": _router_left_out,
    "offset-ignored": _offset_ignored,
    "tied-head": _tied_head,
}
"""Which norms a check is about, and (but for the first) what is planted wrong in what is known of them."""


@cache
def toy_model(family: str, seed: int) -> tuple[nn.Module, tuple[Norm, ...], Tensor]:
    """A toy model, its norms, and a sequence of tokens."""
    if find_spec("transformers") is None:
        raise NotRun("transformers is not installed; it comes with pip install 'scalevec[hf]'")
    model = build(family, seed)
    return model, tuple(norms_of(model)), random_tokens(model, batch=1, length=8, seed=seed)


@cache
def _flow(family: str, seed: int, horizon: float) -> list[dict[str, Tensor]]:
    model, _, tokens = toy_model(family, seed)
    return gradient_flow(copy.deepcopy(model), tokens, np.linspace(0.0, horizon, 5), tolerance=DRIFT / 100)


def flow_drift(family: str, variant: str, seed: int, horizon: float) -> tuple[float, float]:
    """Along gradient flow to time ``horizon``: the largest change of any Q_j, and how far Q's parts moved.

    The second is the least, over the norms, of the largest change over its channels of either part of Q.
    """
    norms, states = VARIANTS[variant](toy_model(family, seed)[1]), _flow(family, seed, horizon)
    drift = max(float((conserved(n, s) - conserved(n, states[0])).abs().max()) for n in norms for s in states)
    ends = [zip(parts(n, states[0]), parts(n, states[-1]), strict=True) for n in norms]
    return drift, min(float((after - before).abs().max()) for end in ends for before, after in end)


def descent_error(family: str, variant: str, seed: int) -> tuple[float, float]:
    """One step of gradient descent: error of the predicted increment of Q_j, and the increment, largest over norms.

    Both are relative to the sum of the squares in Q_j.
    """
    model, norms, tokens = toy_model(family, seed)
    gradient = loss_gradient(model, tokens)
    before = {name: p.detach() for name, p in model.named_parameters()}
    after = {name: p - STEP * gradient[name] for name, p in before.items()}
    errors, sizes = [], []
    for norm in VARIANTS[variant](norms):
        total = sum(parts(norm, before))
        predicted = increment(norm, gradient, STEP)
        error = conserved(norm, after) - conserved(norm, before) - predicted
        errors.append(float((error.abs() / total).max()))
        sizes.append(float((predicted.abs() / total).max()))
    return max(errors), min(sizes)


def absorption_error(family: str, variant: str, seed: int, untied: bool = False) -> tuple[float, float]:
    """Relative change of the logits when every norm's scale is absorbed, and when it is dropped instead (liveness)."""
    model, norms, tokens = toy_model(family, seed)
    if untied:
        model = copy.deepcopy(model)
        untie(model)
        norms = tuple(norms_of(model))
    folded, dropped = copy.deepcopy(model), copy.deepcopy(model)
    for norm in VARIANTS[variant](norms):
        absorb(folded, norm)
        scale = effective_scale(norm, dict(dropped.named_parameters())).detach()
        move_scale(dropped, replace(norm, consumers=()), scale)
    return relative_change(model, folded, tokens), relative_change(model, dropped, tokens)


def flow_margin(family: str, variant: str, seed: int, horizon: float) -> float:
    """1e-8 minus the drift of any Q_j along gradient flow; NaN if nothing moved that could have hidden it."""
    drift, moved = flow_drift(family, variant, seed, horizon)
    return DRIFT - drift if moved > ALIVE else math.nan


def descent_margin(family: str, variant: str, seed: int) -> float:
    """1e-13 minus the relative error of the predicted increment of any Q_j; NaN if that is itself no larger."""
    error, size = descent_error(family, variant, seed)
    return ROUNDING - error if size > 1e3 * ROUNDING else math.nan


def absorption_margin(family: str, variant: str, seed: int, untied: bool = False) -> float:
    """1e-13 minus the relative change of the logits on absorption; NaN if dropping the scales changes them no more."""
    error, dropped = absorption_error(family, variant, seed, untied)
    return ROUNDING - error if dropped > ALIVE else math.nan


def evidence(setting: Setting, margin: Callable[..., float], detail: str, **arguments: object) -> Evidence:
    """What ``margin(**arguments, seed=…)`` says, and where it is negative the code that shows it."""
    value = margin(**arguments, seed=setting.seed)
    example = None
    if value < 0:
        name, fields = margin.__name__, {**arguments, "seed": setting.seed}
        call = f"{name}({', '.join(f'{k}={v!r}' for k, v in fields.items())})"
        code = f"from {margin.__module__} import {name}\n\nmargin = {call}\nassert margin < 0, margin\n"
        example = Counterexample(fields, value, code)
    return measured("simulation", value, detail, seed=setting.seed, counterexample=example)


def _conservation(family: str, variant: str = "as-traced") -> Callable[[Setting], list[Evidence]]:
    def measure(setting: Setting) -> list[Evidence]:
        horizon = setting.choose(quick=1, standard=20, full=100) / 100
        flow = f"gradient flow to t = {horizon:g}: no Q_j moves by {DRIFT:g}, each part of Q by more than {ALIVE:g}"
        step = f"one gradient step of {STEP:g}: the increment of Q_j is eta^2 times Q's quadratic form on the gradient"
        return [
            evidence(setting, flow_margin, flow, family=family, variant=variant, horizon=horizon),
            evidence(setting, descent_margin, step, family=family, variant=variant),
        ]

    return measure


def _absorption(family: str, variant: str = "as-traced", **options: bool) -> Callable[[Setting], list[Evidence]]:
    def measure(setting: Setting) -> list[Evidence]:
        detail = (
            f"logits unchanged to {ROUNDING:g} of their size, and changed by more than {ALIVE:g} without the scales"
        )
        return [evidence(setting, absorption_margin, detail, family=family, variant=variant, **options)]

    return measure


LAW = "Q_j = v_j² − Σ_b ‖w_bj‖²"
CONSERVED = {
    "gpt2": f"GPT-2 (LayerNorm, tied head): gradient flow keeps {LAW} with b_j² added, of every norm but the last.",
    "llama": f"Llama (untied head): gradient flow keeps {LAW} of every norm.",
    "qwen2": f"Qwen2 (biases on q, k and v, tied head): gradient flow keeps {LAW} of every norm but the last.",
    "qwen3": f"Qwen3 (q/k-norm, tied head): gradient flow keeps {LAW} of every pre-norm.",
    "gemma2": f"Gemma-2 (tied head): gradient flow keeps {LAW} of every pre-norm, with v = 1 + w.",
    "olmo2": f"OLMo-2 (norms on sub-module outputs): gradient flow keeps {LAW} of the last norm, its only input norm.",
    "mixtral": f"Mixtral: gradient flow keeps {LAW}, the sum running over router and all experts.",
    "falcon-h1-rms": f"Falcon-H1 (attention and Mamba side by side): gradient flow keeps {LAW} of every norm.",
    "mamba2": f"Mamba-2 (gated norm before the output projection): gradient flow keeps {LAW} of every norm.",
    "phi3": f"Phi-3 (fused q/k/v and gate/up): gradient flow keeps {LAW} of every norm.",
    "cohere": f"Cohere (parallel blocks, tied head): gradient flow keeps {LAW} of every norm but the last.",
    "stablelm": f"StableLM (LayerNorm with bias): gradient flow keeps {LAW}, b_j² added, of every norm.",
}

conservation = Claim(
    id="real-conservation",
    title="Gradient flow conserves v_j² − Σ_b ‖w_bj‖² in real models",
    statement="Gradient flow of an unmodified model's loss in all its parameters keeps Q_j of every norm whose output "
    "only parameter products read; a gradient step adds η² times Q's quadratic form on the gradient.",
    formula=r"Q_j = v_j^2 - \sum_b \lVert w_{bj} \rVert^2, \qquad \dot Q_j = 0, \qquad Q_j(\varphi - \eta \nabla L) = "
    r"Q_j(\varphi) + \eta^2 Q_j(\nabla L)",
    source="arXiv 2605.26895, conservation law",
    figures=("real-conservation",),
    scopes=(
        *(Scope(f, statement, holds=True, measure=_conservation(f)) for f, statement in CONSERVED.items()),
        Scope(
            "consumer-left-out",
            "Llama: gradient flow keeps v_j² − Σ_b ‖w_bj‖² with one of the consumers left out of the sum.",
            holds=False,
            measure=_conservation("llama", "one-consumer-left-out"),
        ),
        Scope(
            "tied-head",
            f"Llama with a tied head: gradient flow keeps {LAW} of the last norm, which feeds the shared weight.",
            holds=False,
            measure=_conservation("llama-tied", "tied-head"),
        ),
        Scope(
            "offset-ignored",
            f"Gemma-2: gradient flow keeps {LAW} with v = w, where the norms multiply by 1 + w.",
            holds=False,
            measure=_conservation("gemma2", "offset-ignored"),
        ),
    ),
)

absorption = Claim(
    id="real-absorption",
    title="Norm scales are absorbed exactly in real models",
    statement="The scale of every norm of an unmodified model that only parameter products read can be set to 1 "
    "and multiplied into these parameters: the logits stay the same.",
    formula=r"f(x; v, W_1, \dots, W_B) = f(x; 1, W_1 \operatorname{diag} v, \dots, W_B \operatorname{diag} v)",
    source="arXiv 2605.26895, absorption",
    figures=("real-absorption",),
    scopes=(
        *(
            Scope(
                family,
                f"{family}: absorbing every input norm's scale and bias into its consumers leaves the logits the same.",
                holds=True,
                measure=_absorption(family),
            )
            for family in (*CONSERVED, "qwen3-moe", "deepseek-v3", "gpt-oss")
        ),
        Scope(
            "untied-head",
            "Llama with a tied head: once the head has its own copy of the weight, the last norm's scale is absorbed.",
            holds=True,
            measure=_absorption("llama-tied", untied=True),
        ),
        Scope(
            "tied-head",
            "Llama with a tied head: the last norm's scale is absorbed into the shared weight in place.",
            holds=False,
            measure=_absorption("llama-tied", "tied-head"),
        ),
        Scope(
            "router-left-out",
            "Mixtral: a norm's scale is absorbed into the experts alone, without the router.",
            holds=False,
            measure=_absorption("mixtral", "router-left-out"),
        ),
        Scope(
            "offset-ignored",
            "Gemma-2: the norm's parameter w is absorbed as if it were the scale, which is 1 + w.",
            holds=False,
            measure=_absorption("gemma2", "offset-ignored"),
        ),
    ),
)
