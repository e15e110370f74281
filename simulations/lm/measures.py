"""What can be measured of a model while it trains, beside its losses.

A measure is a function of the laboratory and the number of steps taken that returns numbers by name; it neither changes
the model nor draws from any random state.  The quantities it gives are named ``measure.number``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from scalevec_theory.crossover import departure, threshold_after
from scalevec_theory.equilibrium import predict
from scalevec_theory.optimizers import AdamW, Muon, Optimizer
from simulations.lm.run import Laboratory, Run, set_up
from simulations.models import multipliers
from simulations.models.conserved import parts
from simulations.models.decay import WEIGHTS
from simulations.models.roles import Norm
from simulations.models.trace import trace

Measure = Callable[[Laboratory, int], dict[str, float]]

BATCHES = 16
"""Batches on which gradients are compared."""
STABLE_STEPS = 20
"""Steps of gradient descent after which the loss must not be above where it began, for the step to be stable."""


def measure(lab: Laboratory, step: int) -> dict[str, float]:
    """Everything that the run of ``lab`` asks for, by ``measure.number``."""
    found = {}
    for name in lab.run.measures:
        found.update({f"{name}.{number}": x for number, x in MEASURES[name](lab, step).items()})
    return found


def abm(lab: Laboratory, step: int) -> dict[str, float]:
    """Sizes and displacements over those of noise and weight decay alone (Adam Brownian motion, or Muon's).

    The displacement is w(t) − w(0) Π(1 − ηλ), the part of w(t) that updates have made.

    Returns
    -------
    size : geometric mean over hidden matrices of rms(w) over its prediction.
    matrices, scales, multipliers : of rms(displacement) over its prediction, by kind, where there are any.
    """
    start = _noise_alone(lab.run)
    sizes, moved = [], _displacements(lab, step)
    for name, p in _trained(lab).items():
        if lab.groups.members[name].hidden_matrix:
            alone = start[name]
            expected = math.hypot(alone.moved[step], alone.retained[step] * _rms(alone.first))
            sizes.append(math.log(_rms(p) / expected))
    return {"size": math.exp(np.mean(sizes))} | _by_kind(lab, moved)


def branches(lab: Laboratory, step: int) -> dict[str, float]:
    """Geometric means over layers of ratios of Frobenius norms of matrices that read the same norm."""
    named = dict(lab.model.named_modules())

    def ratio(first: str, second: str) -> float:
        pairs = [(n, n.removesuffix(first) + second) for n in named if n.endswith(f".{first}")]
        return math.exp(np.mean([math.log(_rms(_weight(named[a])) / _rms(_weight(named[b]))) for a, b in pairs]))

    return {"query_value": ratio("query", "value"), "key_value": ratio("key", "value"), "gate_up": ratio("gate", "up")}


def sizes(lab: Laboratory, step: int) -> dict[str, float]:
    """Multipliers, and the norms of matrices without them.

    Returns
    -------
    head, hidden : size of the head's multiplier, and geometric mean of those of hidden matrices.
    query_key : geometric mean over layers of the product of the multipliers of queries and keys.
    matrices : geometric mean of the rms of hidden matrices, multipliers left out.
    """
    named = dict(lab.model.named_parameters())
    logs = {m.parameter: 0.0 for m in multipliers(lab.model).values()}
    if not any(".query." in parameter or ".key." in parameter for parameter in logs):
        raise ValueError("measures='sizes': expected multipliers on queries and keys")
    for name, m in multipliers(lab.model).items():
        logs[m.parameter] += math.log(_rms(named[name]))
    inner = [x for parameter, x in logs.items() if not parameter.startswith("head.")]
    product = [x for parameter, x in logs.items() if ".query." in parameter or ".key." in parameter]
    matrices = [math.log(_rms(p)) for n, p in _trained(lab).items() if lab.groups.members[n].hidden_matrix]
    found = {k: float(np.mean(x)) for k, x in (("matrices", matrices), ("hidden", inner), ("query_key", product))}
    found["query_key"] *= 2
    if "head.weight" in logs:
        found["head"] = logs["head.weight"]
    return {name: math.exp(x) for name, x in found.items()}


def alignment(lab: Laboratory, step: int) -> dict[str, float]:
    """rms(Wx) over rms(W) rms(x) √d on held-out text: 1 for random directions, √d for full alignment."""
    found: dict[str, float] = {}

    def record(name: str, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        weight = _weight(module)
        found[name] = math.log(_rms(out) / (_rms(weight) * _rms(args[0]) * math.sqrt(weight.shape[1])))

    with _watching(lab.model, nn.Linear, record):
        _loss(lab, *_held_out(lab))
    hidden = [x for name, x in found.items() if name != "head"]
    return {"head": math.exp(found["head"]), "hidden": math.exp(np.mean(hidden))}


def diversity(lab: Laboratory, step: int) -> dict[str, float]:
    """How unlike sizes are.

    Returns
    -------
    attention_K, feed_forward_K : rms of what the sub-modules of layer K add to the stream.
    blocks : standard deviation over all these of the logarithm.
    rows : mean over hidden matrices, multipliers included, of the standard deviation of the logarithm of row norms.
    """
    added: dict[str, float] = {}

    def record(name: str, module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
        if name.endswith((".attention.out", ".feed_forward.down")):
            _, layer, kind, _ = name.split(".")
            added[f"{kind}_{layer}"] = _rms(out)

    with _watching(lab.model, nn.Linear, record):
        _loss(lab, *_held_out(lab))
    linear = [m for n, m in lab.model.named_modules() if isinstance(m, nn.Linear) and n != "head"]
    rows = [float(_weight(m).norm(dim=1).log().std()) for m in linear]
    blocks = float(np.std(np.log(list(added.values()))))
    return added | {"blocks": blocks, "rows": float(np.mean(rows))}


def orbits(lab: Laboratory, step: int) -> dict[str, float]:
    """How far multipliers have moved along directions that do not change the function; all start at 1.

    Returns
    -------
    up_down : rms over channels of log|row of the up-projection / column of the down-projection| (the product acts).
    query : geometric mean over heads of the rms of the head's row multipliers, where a norm behind takes it out.
    """
    named = dict(lab.model.named_parameters())
    by_place = {(m.parameter, m.kind): named[n] for n, m in multipliers(lab.model).items()}
    ratio, scale = [], []
    for (parameter, kind), row in by_place.items():
        if parameter.endswith(".up.weight") and kind == "row":
            column = by_place[parameter.replace(".up.", ".down."), "column"]
            ratio.append((row / column).abs().log())
        if parameter.endswith(".query.weight") and kind == "row":
            heads = row.unflatten(0, (lab.run.architecture.heads, -1))
            scale.append(heads.detach().square().mean(1).sqrt().log())
    if not ratio or not scale:
        raise ValueError("measures='orbits': expected multipliers='row+column' on a model with an up-projection")
    found = {"up_down": _rms(torch.cat(ratio))}
    return found | (
        {"query": math.exp(float(torch.cat(scale).mean()))} if lab.run.architecture.qk_norm == "head" else {}
    )


def conserved(lab: Laboratory, step: int) -> dict[str, float]:
    """Q_j = (offset + w_j)² + b_j² − Σ ‖consumer columns‖² of every norm that could be folded, against the start.

    Returns
    -------
    drift : rms over channels of Q_j(t) − Q_j(0).
    share : that over the rms of the change of the part of the scale alone.
    """
    if lab.run.design == "none":
        raise ValueError("measures='conserved': expected a design whose norm scales are learned")
    norms, first = _foldable(lab.run)
    now = {n: p.detach().cpu() for n, p in lab.model.named_parameters()}
    pairs = [(parts(norm, now), parts(norm, first)) for norm in norms]
    scale = torch.cat([a[0] - b[0] for a, b in pairs])
    consumer = torch.cat([a[1] - b[1] for a, b in pairs])
    return {"drift": _rms(scale - consumer), "share": _rms(scale - consumer) / _rms(scale)}


def signal(lab: Laboratory, step: int) -> dict[str, float]:
    """Signal-to-noise of gradients over K = `BATCHES` batches, and whether it tells what leaves its noise equilibrium.

    Of a parameter whose gradient has mean μ and covariance C, ρ² is ‖μ‖² / tr C, without bias from its mean over
    batches; ρ* is its crossover at this step (`threshold_after`); and how far it has moved is its displacement over
    that of noise alone (see `abm`), of which `departure` expects √((1 + ρ²/ρ*²) / (1 + ρ²)).

    Returns
    -------
    matrices, scales, multipliers : geometric means over the parameters of a kind of 1 + K ρ², which is 1 for noise.
    scales_to_matrices, multipliers_to_matrices : their ratios.
    rank : Spearman's correlation over parameters of 1 + K ρ² with how far they have moved.
    agree : the share of parameters that have moved as far as at ρ*, or further, if and only if ρ is ρ* or more.
    departure : geometric mean over parameters of how far they have moved, over what is expected.
    above_R, moved_R : mean of ρ²/ρ*², and geometric mean of how far they have moved, over the parameters of role R.
    """
    alone, moved = _noise_alone(lab.run), _displacements(lab, step)
    snr2 = _signal_to_noise(lab)
    crossover = {n: alone[n].crossover[step] for n in snr2}
    expected = {n: float(departure(torch.tensor(max(x, 0.0)).sqrt(), crossover[n]).sqrt()) for n, x in snr2.items()}
    at_crossover = {n: float(departure(torch.tensor(c), c).sqrt()) for n, c in crossover.items()}
    excess = {n: 1 + BATCHES * x for n, x in snr2.items()}
    found = _by_kind(lab, excess)
    found |= {f"{kind}_to_matrices": x / found["matrices"] for kind, x in found.items() if kind != "matrices"}
    from scipy.stats import spearmanr  # takes longer to import than all else that a run without measures needs

    found["rank"] = float(spearmanr(list(excess.values()), [moved[n] for n in excess]).statistic)
    agree = [(moved[n] >= at_crossover[n]) == (x >= crossover[n] ** 2) for n, x in snr2.items()]
    found["agree"] = float(np.mean(agree))
    found["departure"] = math.exp(np.mean([math.log(moved[n] / expected[n]) for n in snr2]))
    roles: dict[str, list[str]] = {}
    for name in snr2:
        roles.setdefault(_role(lab, name), []).append(name)
    for role, members in roles.items():
        found[f"above_{role}"] = float(np.mean([snr2[n] / crossover[n] ** 2 for n in members]))
        found[f"moved_{role}"] = math.exp(np.mean([math.log(moved[n]) for n in members]))
    return found


def _signal_to_noise(lab: Laboratory) -> dict[str, float]:
    """‖μ‖² / tr C of every trained parameter's gradient, below 0 where the estimate of ‖μ‖² is."""
    total = {n: torch.zeros_like(p) for n, p in _trained(lab).items()}
    squares = dict.fromkeys(total, 0.0)
    for k in range(BATCHES):
        for name, g in _gradient(lab, *_batch(lab, k)).items():
            total[name] += g
            squares[name] += float(g.square().sum())
    power = {n: float((t / BATCHES).square().sum()) for n, t in total.items()}
    noise = {n: (squares[n] - BATCHES * power[n]) / (BATCHES - 1) for n in total}
    return {n: power[n] / noise[n] - 1 / BATCHES for n in total}


def clipping(lab: Laboratory, step: int) -> dict[str, float]:
    """The share of multipliers in the squared norm of the gradient of one batch."""
    squares = {n: float(g.square().sum()) for n, g in _gradient(lab, *_batch(lab, 0)).items()}
    return {"share": sum(x for n, x in squares.items() if _kind(lab, n) == "multipliers") / sum(squares.values())}


def sharpness(lab: Laboratory, step: int) -> dict[str, float]:
    """The Hessian's top eigenvalue on one batch, and the largest stable step of gradient descent from here.

    The step is found on a grid of factors 2^(1/4); it is stable if `STABLE_STEPS` steps end no higher than they began.
    """
    tokens, targets = _batch(lab, 0)
    return {"eigenvalue": _top_eigenvalue(lab, tokens, targets), "step": _largest_stable_step(lab, tokens, targets)}


MEASURES: Mapping[str, Measure] = {
    f.__name__: f for f in (abm, alignment, branches, clipping, conserved, diversity, orbits, sharpness, signal, sizes)
}
"""Every measure by its name."""


@dataclass(frozen=True, eq=False)
class _Alone:
    """What noise alone would do to a parameter: rms of its displacement, what is left of its start, the crossover ρ*
    above which a signal moves it further (infinite before the first step), all ``(T + 1,)``, and its first value."""

    moved: np.ndarray
    retained: np.ndarray
    crossover: np.ndarray
    first: Tensor


@lru_cache(maxsize=2)
def _noise_alone(run: Run) -> dict[str, _Alone]:
    lab = set_up(run)
    named = _trained(lab)
    found = {}
    for optimizer in lab.optimizers:
        for group in optimizer.param_groups:
            rule = _rule(run, optimizer, group)
            for name in group["param_names"]:
                shape = tuple(named[name].shape) if isinstance(rule, Muon) else None
                course = predict(rule, run.steps, shape=shape, lr_schedule=lab.factors)
                retained = np.append(1.0, np.cumprod(course.retain))
                crossover = threshold_after(torch.from_numpy(course.lr), torch.from_numpy(course.retain))
                first = named[name].detach().clone()
                found[name] = _Alone(course.rms, retained, np.append(math.inf, crossover), first)
    return found


def _rule(run: Run, optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Optimizer:
    lr, decay = run.lr * group["lr_factor"], group["weight_decay"]
    if isinstance(optimizer, torch.optim.AdamW):
        return AdamW(lr, decay, betas=run.betas)
    if isinstance(optimizer, torch.optim.Muon):
        return Muon(lr, decay, adjust_lr="match_rms_adamw")
    raise ValueError(f"optimizer={run.optimizer!r}: displacements by noise alone are known for adamw and muon")


def _displacements(lab: Laboratory, step: int) -> dict[str, float]:
    """rms(w(t) − w(0) Π(1 − ηλ)) over that of noise alone, of every trained parameter."""
    alone = _noise_alone(lab.run)
    return {
        name: _rms(p.cpu() - alone[name].retained[step] * alone[name].first) / float(alone[name].moved[step])
        for name, p in _trained(lab).items()
    }


@lru_cache(maxsize=2)
def _foldable(run: Run) -> tuple[list[Norm], dict[str, Tensor]]:
    """The norms of a run's model that could be folded, and its first parameters."""
    lab = set_up(run)
    example = lab.source.batch(run.seed, 0, 2, min(run.length, 16))[0]
    norms = [n for n in trace(lab.model, example).norms if n.absorbable]
    return norms, {n: p.detach().clone() for n, p in lab.model.named_parameters()}


def _top_eigenvalue(lab: Laboratory, tokens: Tensor, targets: Tensor) -> float:
    """By Lanczos on products of the Hessian with vectors."""
    weights = list(_trained(lab).values())
    with sdpa_kernel(SDPBackend.MATH):  # the only one that can be differentiated twice
        gradient = torch.autograd.grad(_loss(lab, tokens, targets), weights, create_graph=True)

        def product(v: np.ndarray) -> np.ndarray:
            pieces = torch.from_numpy(v).float().to(weights[0].device).split([w.numel() for w in weights])
            vectors = [piece.view_as(w) for piece, w in zip(pieces, weights, strict=True)]
            found = torch.autograd.grad(gradient, weights, vectors, retain_graph=True)
            return torch.cat([f.flatten() for f in found]).double().cpu().numpy()

        n = sum(w.numel() for w in weights)
        start = np.random.default_rng(0).standard_normal(n)
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        return float(eigsh(operator, k=1, which="LA", tol=1e-2, v0=start, return_eigenvectors=False)[0])


def _largest_stable_step(lab: Laboratory, tokens: Tensor, targets: Tensor) -> float:
    """By bisection over exponents of 2^(1/4) from 2^-6 to 2^6."""
    weights = list(_trained(lab).values())
    kept = [w.detach().clone() for w in weights]
    begun = float(_loss(lab, tokens, targets).detach())

    def stable(lr: float) -> bool:
        for _ in range(STABLE_STEPS):
            gradient = torch.autograd.grad(_loss(lab, tokens, targets), weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradient, alpha=-lr)
        ended = float(_loss(lab, tokens, targets).detach())
        with torch.no_grad():
            torch._foreach_copy_(weights, kept)
        return ended <= begun

    low, high = -24, 24
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if stable(2 ** (middle / 4)) else (low, middle)
    return float(2 ** (low / 4))


def _kind(lab: Laboratory, name: str) -> str:
    """``matrices`` (hidden ones), ``scales``, ``multipliers``, or another kind."""
    member = lab.groups.members[name]
    if name in multipliers(lab.model):
        return "multipliers"
    if member.kind in WEIGHTS:
        return "matrices" if member.hidden_matrix else "other weights"
    return "scales" if member.kind == "scale" else "other vectors"


def _role(lab: Laboratory, name: str) -> str:
    """What a parameter is in every layer: ``query``, ``attention_norm``, ``head``, …, ``query_row`` of a multiplier."""
    multiplier = multipliers(lab.model).get(name)
    if multiplier is not None:
        return f"{multiplier.parameter.split('.')[-2]}_{multiplier.kind}"
    return name.replace(".parametrizations.weight.original", ".weight").split(".")[-2]


def _by_kind(lab: Laboratory, numbers: Mapping[str, float]) -> dict[str, float]:
    """Geometric means over the parameters of each kind, of those there are."""
    kinds = ("matrices", "scales", "multipliers")
    found = {kind: [math.log(x) for n, x in numbers.items() if _kind(lab, n) == kind] for kind in kinds}
    return {kind: math.exp(np.mean(x)) for kind, x in found.items() if x}


def _trained(lab: Laboratory) -> dict[str, Tensor]:
    return {name: p for name, p in lab.model.named_parameters() if p.requires_grad}


def _weight(module: nn.Module) -> Tensor:
    """A module's effective weight, multipliers included."""
    weight: Tensor = module.weight.detach()  # type: ignore[operator, assignment, union-attr]
    return weight


def _rms(x: Tensor) -> float:
    return float(x.detach().double().square().mean().sqrt())


def _held_out(lab: Laboratory) -> tuple[Tensor, Tensor]:
    return _on_device(lab, lab.source.batch(0, 0, lab.run.batch, lab.run.length, held_out=True))


def _batch(lab: Laboratory, k: int) -> tuple[Tensor, Tensor]:
    """Batch k of those of training text that the run itself does not read, the same at every evaluation."""
    return _on_device(lab, lab.source.batch(lab.run.seed, lab.run.steps + k, lab.run.batch, lab.run.length))


def _on_device(lab: Laboratory, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    device = next(lab.model.parameters()).device
    return batch[0].to(device), batch[1].to(device)


def _loss(lab: Laboratory, tokens: Tensor, targets: Tensor) -> Tensor:
    """What training minimises."""
    return lab.model.loss(tokens, targets)[1]  # type: ignore[no-any-return, operator]


def _gradient(lab: Laboratory, tokens: Tensor, targets: Tensor) -> dict[str, Tensor]:
    named = _trained(lab)
    return dict(zip(named, torch.autograd.grad(_loss(lab, tokens, targets), list(named.values())), strict=True))


@contextmanager
def _watching(model: nn.Module, kind: type[nn.Module], record: Callable[..., None]) -> Iterator[None]:
    """Call ``record`` with name, module, arguments and output of every module of a kind that a forward pass runs."""
    chosen = [(n, m) for n, m in model.named_modules() if isinstance(m, kind)]
    hooks = [module.register_forward_hook(partial(record, name)) for name, module in chosen]
    try:
        with torch.no_grad():
            yield
    finally:
        for hook in hooks:
            hook.remove()
