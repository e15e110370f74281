"""A training run as data, and the model, data and optimizers that it asks for."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scalevec_theory.schedules import SCHEDULES
from simulations.lm.architecture import Architecture, architecture
from simulations.lm.data import Source, find_source, is_path
from simulations.lm.model import Decoder, count_parameters
from simulations.models import attach, iwd_param_groups, multipliers, split_for_muon
from simulations.models.decay import WEIGHTS
from simulations.models.groups import ParamGroups
from simulations.models.outline import check_memory, outline
from simulations.runs import key_of
from simulations.settings import check_types

OPTIMIZERS = ("adamw", "muon", "sgd", "momentum")
STARTS = ("ones", "mup")
LATER = ("measures", "scale_lr", "multipliers_on", "multiplier_start", "rescaled", "rescale")
"""Fields of a run that came later: at their defaults they are not part of its key, so that older runs keep theirs."""
COPIES = 4
"""Of the parameters: themselves, their gradients, and two moments of Adam."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes
    ----------
    architecture : of the model; its vocabulary is that of the data.
    data : a name that `find_source` knows.
    design : of the scale vectors: ``none`` (scales stay where they start, at 1), ``standard``, or what `attach` takes,
        such as ``HG+DNP+OR``.
    multipliers : ``none`` or what `attach` takes: ``scalar``, ``row``, ``column``, ``row+column``.
    optimizer, lr, betas, weight_decay : ``adamw``, or ``muon`` for hidden matrices with AdamW on the rest; ``sgd``, and
        ``momentum`` (heavy ball, of the first of ``betas``), both with the decay as part of the gradient.
    scales : which norm scales decay: ``iwd`` (those of input norms), ``none``, ``all``, or ``output`` (the others).
    multiplier_decay : weight decay of multipliers.
    schedule, warmup, steps : factors of the learning rate; warm-up steps; steps in all.
    batch, accumulate, length : sequences of a step, in how many parts they are taken, tokens of a sequence.
    clip, clip_multipliers : largest global norm of the gradient (0: none), and whether multipliers count in it.
    evaluations, held_out : how often the held-out loss is measured along the run, and on how many batches.
    precision : of the forward pass, ``float32`` or ``bfloat16`` (autocast).
    compile : whether torch compiles the model.
    seed : of the initial weights and of the order of the data.
    measures : names in `measures.MEASURES` of what is measured at every evaluation after the start.
    scale_lr : factor on the learning rate of norm scales and multipliers.
    multipliers_on : regular expression of the parameters that get multipliers; empty: as `attach` chooses.
    multiplier_start : ``ones``, or ``mup``: such that a matrix of fan-in d at its noise–decay equilibrium has effective
        entries of rms 1/√d, the head 1/d.
    rescaled, rescale : regular expression of matrices and a factor k: their learning rate is k times the run's and
        their decay 1/k times, so that their equilibrium size √(η/2λ) is k times as large and as fast to reach.
    """

    architecture: Architecture
    data: str = "stdlib"
    design: str = "standard"
    multipliers: str = "none"
    optimizer: str = "adamw"
    lr: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    scales: str = "iwd"
    multiplier_decay: float = 2e-3
    schedule: str = "cosine"
    warmup: int = 20
    steps: int = 200
    batch: int = 16
    accumulate: int = 1
    length: int = 128
    clip: float = 1.0
    clip_multipliers: bool = True
    evaluations: int = 10
    held_out: int = 8
    precision: str = "float32"
    compile: bool = False
    seed: int = 0
    measures: tuple[str, ...] = ()
    scale_lr: float = 1.0
    multipliers_on: str = ""
    multiplier_start: str = "ones"
    rescaled: str = ""
    rescale: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a name that is not known or a number out of range."""
        check_types(self)
        for name, known in (
            ("optimizer", OPTIMIZERS),
            ("precision", tuple(PRECISIONS)),
            ("schedule", tuple(SCHEDULES)),
            ("multiplier_start", STARTS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(known)}")
        for name in ("steps", "batch", "accumulate", "length", "evaluations", "held_out"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected >= 1")
        for name in ("lr", "scale_lr", "rescale"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected > 0")
        for name in ("weight_decay", "multiplier_decay", "clip", "seed"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)}: expected >= 0")
        if self.seed >= 2**63:
            raise ValueError(f"seed={self.seed}: expected < 2^63")
        if len(self.betas) != 2 or not all(isinstance(beta, int | float) and 0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: expected two numbers in [0, 1)")
        if self.measures:
            from simulations.lm.measures import MEASURES  # it imports this module

            for name in self.measures:
                if name not in MEASURES:
                    raise ValueError(f"measures={name!r}: expected names among {', '.join(MEASURES)}")
        for name in ("multipliers_on", "rescaled"):
            try:
                re.compile(getattr(self, name))
            except re.error as error:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected a regular expression ({error})") from None
        if self.multiplier_start == "mup" and not self.weight_decay > 0:
            raise ValueError(f"weight_decay={self.weight_decay}: expected > 0 with multiplier_start='mup'")
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate}: expected a divisor of batch={self.batch}")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup={self.warmup}: expected from 0 to steps={self.steps}")
        if self.architecture.positions == "learned" and self.length > self.architecture.length:
            raise ValueError(f"length={self.length}: expected at most the {self.architecture.length} learned positions")

    @property
    def key(self) -> str:
        """A hash of everything above, and of the text where ``data`` is a path: runs of one key do the same."""
        defaults = {f.name: f.default for f in fields(self) if f.default is not MISSING}
        content = {n: x for n, x in asdict(self).items() if n not in LATER or x != defaults[n]}
        if is_path(self.data):
            content["text"] = find_source(self.data).fingerprint
        return key_of(content)

    @property
    def tokens(self) -> int:
        """Tokens of training."""
        return self.steps * self.batch * self.length


SETTING_NAMES = {f.name for f in fields(Run)} - {"architecture"}


def make_run(family: str, sizes: Mapping[str, Any] | None = None, **settings: Any) -> Run:
    """A run of a family's architecture; the vocabulary is taken from the data, and the default warm-up is at most half.

    Raises
    ------
    ValueError : an unknown family, size or setting, or a value that does not fit.
    """
    if unknown := sorted(set(settings) - SETTING_NAMES):
        known = ", ".join(sorted(SETTING_NAMES))
        raise ValueError(f"{unknown[0]}={settings[unknown[0]]!r}: no such setting; expected one of {known}")
    data = settings.get("data", "stdlib")
    if not isinstance(data, str):
        raise ValueError(f"data={data!r}: expected a name or a path")
    source = find_source(data)
    if isinstance(given := (sizes or {}).get("vocabulary"), int) and given < source.vocabulary:
        raise ValueError(f"vocabulary={given}: expected at least the {source.vocabulary} tokens of data={data!r}")
    if isinstance(steps := settings.get("steps"), int) and steps < 2 * Run.warmup:
        settings.setdefault("warmup", max(steps, 0) // 2)
    return Run(architecture(family, **{"vocabulary": source.vocabulary, **(sizes or {})}), **settings)


@dataclass
class Laboratory:
    """What a run needs: the model, its data, its optimizers and their factors."""

    run: Run
    model: nn.Module
    source: Source
    groups: ParamGroups
    optimizers: list[torch.optim.Optimizer]
    factors: np.ndarray

    def clipped(self) -> list[Tensor]:
        """The parameters whose gradients count in clipping."""
        left_out = set() if self.run.clip_multipliers else set(multipliers(self.model))
        return [p for name, p in self.model.named_parameters() if p.requires_grad and name not in left_out]


def set_up(run: Run, device: torch.device | str = "cpu") -> Laboratory:
    """Build the model of a run with its design attached, its data and its optimizers.

    The model is traced on the processor, and moved to the device before there are optimizers.

    Raises
    ------
    ValueError : the machine's memory does not hold it.
    """
    check_memory(outline(partial(Decoder, run.architecture)), COPIES, "smaller sizes")
    source = find_source(run.data)
    model: nn.Module = Decoder(run.architecture, run.seed)
    example = source.batch(run.seed, 0, 2, min(run.length, 16))[0]
    design = [part for part in (run.design, run.multipliers) if part not in ("none", "standard")]
    if design:
        chosen = partial(_matches, run.multipliers_on) if run.multipliers_on else None
        attach(model, "+".join(design), example, where=chosen, changes_function="dnp" in run.design.lower())
    if run.design == "none":
        freeze_norms(model, example)
    groups = iwd_param_groups(
        model, example, weight_decay=run.weight_decay, scales=run.scales, multiplier_decay=run.multiplier_decay
    )
    if run.multiplier_start == "mup":
        start_like_mup(run, model)
    model.to(device)
    return Laboratory(
        run, model, source, groups, make_optimizers(run, groups), SCHEDULES[run.schedule](run.steps, run.warmup)
    )


def _matches(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


def start_like_mup(run: Run, model: nn.Module) -> None:
    """Start scalar multipliers so that effective matrices have µP's sizes once their entries are at equilibrium."""
    at_rest = math.sqrt(run.lr / (2 * run.weight_decay))
    named = dict(model.named_parameters())
    for name, multiplier in multipliers(model).items():
        if multiplier.kind != "scalar":
            raise ValueError(f"multiplier_start='mup' with a {multiplier.kind} multiplier: expected scalar ones only")
        fan_in = named[name.replace(".0.vector.value", ".original")].shape[-1]
        size = 1 / fan_in if multiplier.parameter.startswith("head.") else 1 / math.sqrt(fan_in)
        with torch.no_grad():
            named[name].fill_(size / at_rest)


def freeze_norms(model: nn.Module, example: Tensor) -> None:
    """Keep the scales (not the biases) of all norms where they are."""
    from simulations.models.trace import trace

    named = dict(model.named_parameters())
    for norm in trace(model, example).norms:
        if norm.scale is not None:
            named[norm.scale].requires_grad_(False)


def make_optimizers(run: Run, groups: ParamGroups) -> list[torch.optim.Optimizer]:
    """The run's optimizers; ``lr_factor`` of a group multiplies the learning rate at every step.

    Muon moves hidden matrices, its steps scaled to AdamW's rms, and AdamW the rest.
    """
    if run.rescaled and not any(_matches(run.rescaled, n) for n, m in groups.members.items() if m.kind in WEIGHTS):
        raise ValueError(f"rescaled={run.rescaled!r}: expected to match the name of a matrix")
    options: dict[str, Any] = {"lr": run.lr, "betas": run.betas, "weight_decay": 0.0}
    if run.optimizer == "adamw":
        return [torch.optim.AdamW(_adjusted(run, groups), fused=True, **options)]
    if run.optimizer in ("sgd", "momentum"):
        momentum = run.betas[0] if run.optimizer == "momentum" else 0.0
        return [torch.optim.SGD(_adjusted(run, groups), lr=run.lr, momentum=momentum)]
    hidden, rest = split_for_muon(groups)
    muon = torch.optim.Muon(_adjusted(run, hidden), lr=run.lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    return [muon, torch.optim.AdamW(_adjusted(run, rest), fused=True, **options)]


def _adjusted(run: Run, groups: ParamGroups) -> list[dict[str, Any]]:
    """The groups, those parameters apart whose learning rate or decay a run changes."""
    found: list[dict[str, Any]] = []
    for group in groups:
        apart: dict[tuple[float, float], dict[str, Any]] = {}
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            factor, share = 1.0, 1.0
            if groups.members[name].kind not in WEIGHTS:
                factor = run.scale_lr
            elif run.rescaled and _matches(run.rescaled, name):
                factor, share = run.rescale, 1 / run.rescale
            decay = group["weight_decay"] * share
            adjusted = {**group, "params": [], "param_names": [], "weight_decay": decay, "lr_factor": factor}
            into = apart.setdefault((factor, share), adjusted)
            into["params"].append(parameter)
            into["param_names"].append(name)
        found += apart.values()
    return found


@cache  # it takes a second, and every question about the design of an experiment asks it
def widened(run: Run) -> Run:
    """The standard design with at least as many parameters as this run's, by the narrowest wider feed-forward."""
    target = sum(p.numel() for p in set_up(run).model.parameters() if p.requires_grad)
    a = run.architecture
    while count_parameters(a) < target:
        a = replace(a, hidden=a.hidden + 1)
    return replace(run, architecture=a, design="standard", multipliers="none")
