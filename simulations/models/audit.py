"""What a model does with its norm scales: their roles, whether they fold, what decays them, what gradient flow keeps.

Source: arXiv 2605.26895 (roles, absorption, individual weight decay).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from simulations.models.conserved import conserved, parts
from simulations.models.decay import all_rule, dim_rule, iwd_rule, trainer_rule
from simulations.models.folding import check_plain, refusal
from simulations.models.roles import Consumer, Norm, Role, template
from simulations.models.running import Example
from simulations.models.trace import trace

Rules = Mapping[str, Mapping[str, bool]]

UNTIE, BIAS, EXPERTS = "untie_lm_head", "handle_norm_bias", "rescale router and every expert"


@dataclass(frozen=True)
class Conserved:
    """Q_j = v_j² + b_j² − Σ ‖w_j‖² of an input norm at its present parameters (at initialisation, of a new model).

    Attributes
    ----------
    min, max : over the norm's channels.
    given : the mean over channels at the given sizes, if the model has smaller ones, taking the spread of an entry of
        each consumer and the scale to be those of the model; None otherwise.
    sign_note : what follows from its sign.
    """

    min: float
    max: float
    given: float | None
    sign_note: str


@dataclass(frozen=True)
class Row:
    """One parameter of a norm, or a norm that has none.

    Attributes
    ----------
    param, norm, norm_class : names of the parameter (None: the norm has none), of the module and of its class.
    effective : ``w``, ``1+w``, ``f(w)`` (another function of w), ``bias``, ``none``, or ``unclear`` where parameters
        of a module that normalises are no scale and bias of its channels.
    consumers : parameters multiplied with the norm's output, with the name that they are tied to.
    input_axes : of each consumer, the axis that the norm's channels run along, if there is one.
    fold_exact, reason : whether rescaling the norm against its consumers leaves the function as it is, and why not.
    requires : what has to be done for folding it.
    others : everything else that reads the output.
    flags : ``rope``: channels are rotated into one another before they are read, so that only scales that are equal on
        each rotary pair pass.
    decay : whether each recipe decays the parameter.
    decay_target : the effective value that weight decay pulls it to.
    init : its mean value; effective_init : that of the effective scale.
    share : of all parameters of the model (of the given sizes, if they are known).
    """

    param: str | None
    role: Role
    effective: str
    consumers: tuple[str, ...]
    fold_exact: bool | None
    reason: str
    decay: Mapping[str, bool | None]
    norm: str
    norm_class: str
    shape: tuple[int, ...]
    input_axes: Mapping[str, int]
    requires: tuple[str, ...]
    others: tuple[str, ...]
    flags: tuple[str, ...]
    share: float | None
    q: Conserved | None
    decay_target: float | None
    init: float | None
    effective_init: float | None

    @property
    def template(self) -> str:
        return template(self.param or self.norm)


@dataclass(frozen=True)
class Totals:
    """Numbers of parameters: of the model, of its norm scales by role, of its norms' biases."""

    parameters: int
    scales: int
    by_role: Mapping[str, int]
    biases: int


@dataclass(frozen=True)
class Audit:
    """What `audit` found.

    Attributes
    ----------
    warnings : one line each.
    totals, copies : counts, and how many norm parameters are like each row's (a norm's name if it has none) but for
        layer numbers; those of the given sizes where the model has smaller ones.
    unread : parameters that the example did not reach.
    """

    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    totals: Totals
    copies: Mapping[str, int]
    unread: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def audit(model: nn.Module, example: Example | None = None, *, counts: nn.Module | None = None) -> Audit:
    """Find every norm of ``model``, what reads it, whether it folds and what decays it.

    Parameters
    ----------
    example : what the model is called with, as for `trace`; it must reach every parameter that is to be seen.
    counts : the same model at other sizes, of which shares and totals are told; its parameters may be on the meta
        device.

    Raises
    ------
    ValueError : the model does not run on the example, or has no norm.
    """
    from simulations.models.pitfalls import pitfalls

    traced = trace(model, example)
    if not traced.norms:
        raise ValueError(f"{type(model).__name__}: no module of it normalises; there is nothing to audit")
    check_plain(model, traced.norms)
    rules: Rules = {
        "dim_rule": dim_rule(model),
        "trainer": trainer_rule(model),
        "all": all_rule(model),
        "iwd": iwd_rule(traced),
    }
    rows = tuple(row for norm in traced.norms for row in _rows(model, norm, rules, counts))
    sized = model if counts is None else counts
    kinds = {row.param: kind(model, row.param) for row in rows if row.param is not None}
    copies = Counter(row.param or row.norm for row in rows) if counts is None else _copies(model, rows, counts)
    warnings = pitfalls(rows, traced, rules)
    return Audit(rows, warnings, totals(rows, kinds, sized), copies, tuple(traced.unread))


def kind(model: nn.Module, name: str) -> tuple[str, str]:
    """What parameters that are alike in all layers have in common: the name but for numbers, and the holder's class.

    In an `nn.Sequential` of norms and linear layers names alone do not tell them apart.
    """
    return template(name), type(model.get_submodule(name.rpartition(".")[0])).__name__


def _copies(model: nn.Module, rows: Iterable[Row], sized: nn.Module) -> Counter[str]:
    """For each row the number of parameters of ``sized`` that are like it.

    Of the rows that are alike but for layers a parameter is counted for the one whose consumers ``sized`` has there,
    too; of several for the one with most, and then for the one of its own name.
    """
    alike: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        alike[kind(model, row.param or row.norm)].append(row)
    there = {name for name, _ in sized.named_parameters(remove_duplicate=False)}
    found: Counter[str] = Counter()
    for name, _ in (*sized.named_parameters(), *sized.named_modules()):
        if known := alike.get(kind(sized, name)):
            fits = [row for row in known if there.issuperset(_renumbered(row, name))]
            best = max(fits or known, key=lambda row: (len(row.consumers), name in (row.param, row.norm)))
            found[best.param or best.norm] += 1
    return found


def _renumbered(row: Row, name: str) -> Iterator[str]:
    """The consumers of a row where its norm has another name: their layers are as far from its own as they were."""
    number = re.compile(r"(.*?\.|^)(\d+)(\..*)")
    own, other = (number.fullmatch(n) for n in (row.param or row.norm, name))
    for consumer in (c.partition(" ")[0] for c in row.consumers):
        its = number.fullmatch(consumer)
        if own and other and its and its[1] == own[1]:
            yield f"{its[1]}{int(its[2]) + int(other[2]) - int(own[2])}{its[3]}"
        else:
            yield consumer


def _rows(model: nn.Module, norm: Norm, rules: Rules, counts: nn.Module | None) -> Iterator[Row]:
    reason = refusal(model, norm)
    consumers = sorted(norm.consumers, key=_label)
    shared = {
        "role": norm.role,
        "consumers": (*map(_label, consumers), *norm.indirect),
        "fold_exact": reason is None if norm.scale or norm.unclear else None,
        "reason": reason or "",
        "norm": norm.module,
        "norm_class": norm.class_name,
        "input_axes": {_label(c): c.axis for c in consumers},
        "requires": _requires(norm),
        "others": norm.others,
        "flags": ("rope",) if norm.role == "output" and norm.blended else (),
    }
    state = {name: p.detach() for name, p in model.named_parameters()}
    sized = dict((counts or model).named_parameters())
    total = sum(p.numel() for p in sized.values())
    for name in (norm.scale, norm.bias) if norm.scale or norm.bias else (None,):
        if name is None and (norm.scale or norm.bias):
            continue
        value = state[name].double() if name in state else None
        is_scale = name is not None and name == norm.scale
        offset = norm.offset if is_scale else 0.0
        init = None if value is None else float(value.mean())
        yield Row(
            param=name,
            effective=_effective(norm, name),
            decay={key: rule.get(name) if name else None for key, rule in rules.items()},
            shape=() if value is None else tuple(value.shape),
            share=sized[name].numel() / total if name in sized else None,
            q=_conserved(norm, state, counts) if is_scale and name in state else None,
            decay_target=None if name is None or (is_scale and norm.unclear) else offset,
            init=init,
            effective_init=None if init is None or (is_scale and norm.unclear) else init + offset,
            **shared,  # type: ignore[arg-type]
        )


def _effective(norm: Norm, name: str | None) -> str:
    if name is None:
        return "unclear" if norm.unclear else "none"
    if name != norm.scale:
        return "bias"
    if norm.unclear:
        return "f(w)"
    return f"{norm.offset:g}+w" if norm.offset else "w"


def _label(consumer: Consumer) -> str:
    """A weight that is tied to one used otherwise goes by its last name, as an output head does, and by its first."""
    first, *more = consumer.names
    return f"{more[-1]} (tied to {first})" if more and consumer.also_used_by else first


def _requires(norm: Norm) -> tuple[str, ...]:
    if norm.role != "input" or norm.unclear or norm.indirect:
        return ()
    tied = any(c.also_used_by and len(c.names) > 1 for c in norm.consumers)
    experts = any(c.routed or len(c.shape) > 2 for c in norm.consumers)
    needed = {UNTIE: tied, BIAS: norm.bias is not None, EXPERTS: experts and len(norm.consumers) > 1}
    return tuple(what for what, needs in needed.items() if needs)


def _conserved(norm: Norm, state: Mapping[str, Tensor], counts: nn.Module | None) -> Conserved | None:
    """None where no law holds: a role other than input, or a weight that is also used elsewhere."""
    if not norm.absorbable:
        return None
    exact = {
        name: state[name].double() for name in (norm.scale, norm.bias, *(c.parameter for c in norm.consumers)) if name
    }
    q = conserved(norm, exact)
    given = None if counts is None else _conserved_given(norm, exact, counts)
    low, high = (float(q.min()), float(q.max())) if given is None else (given, given)
    return Conserved(float(q.min()), float(q.max()), given, sign_note(low, high))


def _conserved_given(norm: Norm, state: Mapping[str, Tensor], counts: nn.Module) -> float | None:
    """The mean of Q at the sizes of ``counts``, from the spread of entries in ``state``."""
    scale_part, _ = parts(norm, state)
    total = float(scale_part.mean())
    sized = dict(counts.named_parameters())
    for alike in _alike(norm.consumers):
        pattern = _in_any_number([c.parameter for c in alike])
        shapes = [p.shape for name, p in sized.items() if pattern.fullmatch(name)]
        if not shapes:
            return None
        square = float(torch.cat([state[c.parameter].flatten() for c in alike]).pow(2).mean())
        total -= sum(square * shape.numel() / shape[alike[0].axis] for shape in shapes)
    return total


def _alike(consumers: Iterable[Consumer]) -> list[list[Consumer]]:
    """Consumers whose names differ in numbers only, as those of experts."""
    groups: dict[str, list[Consumer]] = defaultdict(list)
    for consumer in consumers:
        groups[template(consumer.parameter)].append(consumer)
    return list(groups.values())


def _in_any_number(names: Sequence[str]) -> re.Pattern[str]:
    """Matches the names, which differ in numbers only, with any number where theirs differ."""
    parts = [re.split(r"(\d+)", name) for name in names]
    columns = [set(column) for column in zip(*parts, strict=True)]
    return re.compile("".join(re.escape(c.pop()) if len(c) == 1 else r"\d+" for c in columns))


def sign_note(low: float, high: float) -> str:
    """What theory says of a norm whose Q lies between ``low`` and ``high``, under gradient flow."""
    if low > 0:
        bound = "P_j ≥ v_j² ≥ Q_j" + (" ≥ 1" if low >= 1 else "")
        return f"Q > 0: v keeps its sign and {bound}"
    if high < 0:
        return "Q < 0: v may pass through 0; v² ≥ 1, λ_min ≥ 1 and loss dominance are not guaranteed"
    return "Q > 0 for some channels only: there v keeps its sign, elsewhere nothing is guaranteed"


def totals(rows: tuple[Row, ...], kinds: Mapping[str, tuple[str, str]], model: nn.Module) -> Totals:
    """Counts over the parameters of ``model`` that are of the `kind` of a row's.

    A scale whose role is not the same in all layers counts as the role ``varies``.
    """
    roles: dict[tuple[str, str], str] = {}
    biases = set()
    for row in rows:
        if row.effective == "bias":
            biases.add(kinds[str(row.param)])
        elif row.param is not None:
            alike = kinds[row.param]
            roles[alike] = row.role if roles.get(alike, row.role) == row.role else "varies"
    by_role: dict[str, int] = {}
    bias_count = parameters = 0
    for name, p in model.named_parameters():
        parameters += p.numel()
        alike = kind(model, name)
        if alike in roles:
            by_role[roles[alike]] = by_role.get(roles[alike], 0) + p.numel()
        bias_count += p.numel() if alike in biases else 0
    return Totals(parameters, sum(by_role.values()), by_role, bias_count)
