"""Optimizer groups by individual weight decay, in which every trainable parameter stands exactly once.

Sources: arXiv 2605.26895 (individual weight decay), arXiv 2601.04890 (light decay of multipliers).
"""

from __future__ import annotations

import io
import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from simulations.models.decay import SCALES, decays, scale_decays, scale_roles
from simulations.models.roles import Role, Trace, Use
from simulations.models.running import Example, copied
from simulations.models.scales import Exponential, Multiply, OutputNorm, multipliers, plain_name, strip
from simulations.models.trace import trace

MULTIPLIER_DECAY = 2e-3
"""Stops the drift of multipliers along their symmetries (arXiv 2601.04890)."""


@dataclass(frozen=True)
class Member:
    """Where a parameter stands and why.

    Attributes
    ----------
    group : the name of its group.
    kind : what the model uses it for (`Use.kind`), or what was attached.
    weight_decay : λ.
    target : the effective value to which the decay pulls; empty where there is none.
    hidden_matrix : a single matrix that is neither looked up row by row nor the output head.
    """

    group: str
    kind: str
    shape: tuple[int, ...]
    weight_decay: float
    target: str
    hidden_matrix: bool = False


class ParamGroups(Sequence[dict[str, Any]]):
    """Groups as torch's optimizers take them, with ``name`` and ``param_names``; ``str()`` is a table.

    Each access makes the groups anew, since optimizers write into what they are given.

    Parameters
    ----------
    members : of every parameter that stands in a group, by its name in the model.
    model : whose parameters they are.

    Attributes
    ----------
    model : as given.
    members : as given.
    frozen : names of the model's parameters that take no gradient; they stand in no group.
    """

    def __init__(self, members: Mapping[str, Member], model: nn.Module) -> None:
        named = dict(model.named_parameters())
        for name, member in members.items():
            if name not in named or tuple(named[name].shape) != member.shape:
                found = f"has shape {tuple(named[name].shape)}" if name in named else "is not there"
                raise ValueError(f"model: {name} {found}; expected a parameter of shape {member.shape}")
        self.members, self.model = dict(members), model
        self.frozen = tuple(name for name, p in named.items() if not p.requires_grad)
        self._parameters = {name: named[name] for name in members}
        sorted_in: dict[tuple[str, float, str], list[str]] = defaultdict(list)
        for name, m in members.items():
            sorted_in[m.group, m.weight_decay, m.target].append(name)
        self._groups = list(sorted_in.items())

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        (group, weight_decay, _), names = self._groups[index]
        parameters = [self._parameters[name] for name in names]
        return {"params": parameters, "weight_decay": weight_decay, "name": group, "param_names": list(names)}

    def rebind(self, model: nn.Module) -> ParamGroups:
        """The same groups of the parameters of ``model``: this model wrapped or sharded, such as by `fully_shard`.

        A wrapper may put one prefix before all names (DistributedDataParallel: ``module.``).  Bind after sharding and
        before the first forward pass: `fully_shard` replaces the parameters, and shows whole ones after a pass.

        Raises
        ------
        ValueError : the names or shapes of the parameters differ otherwise, or others take gradients.
        """
        names = {name for name, p in model.named_parameters() if p.requires_grad}
        first = next(iter(self.members), "")
        prefixes = [name.removesuffix(first) for name in names if name.endswith(first)]
        prefix = next((p for p in prefixes if names == {p + name for name in self.members}), "")
        bound = ParamGroups({prefix + name: member for name, member in self.members.items()}, model)
        check_each_once(bound, model)
        return bound

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for heading in ("group", "kinds", "parameters", "entries", "decay", "target"):
            table.add_column(heading, justify="right" if heading in ("parameters", "entries", "decay") else "left")
        for (group, weight_decay, target), names in self._groups:
            kinds = ", ".join(dict.fromkeys(self.members[name].kind for name in names))
            entries = sum(math.prod(self.members[name].shape) for name in names)
            table.add_row(group, kinds, f"{len(names):,}", f"{entries:,}", f"{weight_decay:g}", target or "–")
        text = io.StringIO()
        Console(file=text, width=100, markup=False, highlight=False).print(table)
        lines = [line.rstrip() for line in text.getvalue().splitlines()]
        if self.frozen:
            lines.append(f"frozen, in no group: {', '.join(self.frozen)}")
        return "\n".join(lines)


def check_each_once(groups: Iterable[Mapping[str, Any]], model: nn.Module) -> None:
    """Check that every parameter of ``model`` that takes a gradient stands in exactly one group, and nothing else does.

    Raises
    ------
    ValueError : otherwise, with the names.
    """
    count = Counter(p for group in groups for p in group["params"])
    expected = {p: name for name, p in model.named_parameters() if p.requires_grad}
    none = [name for p, name in expected.items() if count[p] == 0]
    several = [expected.get(p, "a parameter that takes no gradient") for p, n in count.items() if n > 1]
    foreign = sum(p not in expected for p in count)
    if none or several or foreign:
        raise ValueError(
            f"groups: in none {', '.join(none) or '–'}; in several {', '.join(several) or '–'}; {foreign} that the "
            "model does not train; expected every trainable parameter exactly once"
        )


def iwd_param_groups(
    model: nn.Module,
    example_input: Example | None = None,
    *,
    weight_decay: float,
    scales: str = "iwd",
    multiplier_decay: float = MULTIPLIER_DECAY,
) -> ParamGroups:
    """Optimizer groups of a model by what its data flow does with each parameter (arXiv 2605.26895).

    Decayed: matrices, convolutions, embeddings, and the scales of input norms.  Not decayed: scales of output norms, of
    norms read by something else as well (they cannot be folded), and all other vectors.  Call it on the model itself;
    for a wrapped or sharded one see `ParamGroups.rebind`.

    Of what is attached, a scale on the input of a parameter that an input norm feeds (HG) is an input norm's scale, a
    norm behind a product (DNP) an output norm, and everything else a multiplier with its own light decay (arXiv
    2601.04890).  Of a vector β α / rms(α) or exp(β + α − mean α), β decays as the vector would: it pulls the vector to
    0, or its geometric mean to 1.  α does not: its decay would leave the first vector as it is while shrinking α, and
    even out the second.

    Parameters
    ----------
    example_input : as for `trace`; None for a language model of `transformers`.
    weight_decay : λ of what decays.
    scales : the norm scales that decay: those of input norms (``"iwd"``), ``"none"``, ``"all"``, or those of all other
        norms (``"output"``).
    multiplier_decay : λ of attached scalar, row and column multipliers.

    Raises
    ------
    ValueError : a decay that is negative or not finite, another ``scales``, or a model that does not run.

    Warns
    -----
    UserWarning : the example does not reach some parameters; they get a group of their own without decay.
    """
    for argument, value in (("weight_decay", weight_decay), ("multiplier_decay", multiplier_decay)):
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{argument}={value}: expected a finite number >= 0")
    if scales not in SCALES:
        raise ValueError(f"scales={scales!r}: expected one of {', '.join(SCALES)}")
    members = members_of(model, trace(plain(model), example_input), weight_decay, scales, multiplier_decay)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    members = {name: m for name, m in members.items() if name in trainable}
    if unread := [name for name, m in members.items() if m.kind == "unread"]:
        warnings.warn(f"the example does not reach {', '.join(unread)}: they get no weight decay", stacklevel=2)
    groups = ParamGroups(members, model)
    check_each_once(groups, model)
    return groups


def plain(model: nn.Module) -> nn.Module:
    """The model, or a copy without what is attached to it: the same data flow, in which norms have their scales."""
    if not multipliers(model):
        return model
    stripped = copied(model)
    strip(stripped)
    return stripped


def members_of(
    model: nn.Module,
    traced: Trace,
    weight_decay: float,
    scales: str = "iwd",
    multiplier_decay: float = MULTIPLIER_DECAY,
) -> dict[str, Member]:
    """Every parameter's place by its name; ``traced`` is of `plain` (model), the rest as for `iwd_param_groups`."""
    roles = scale_roles(traced)
    offsets = {n.scale: math.nan if n.unclear else n.offset for n in traced.norms if n.scale is not None}
    fed = {c.parameter for n in traced.norms if n.role == "input" for c in n.consumers}
    uses = {name: use for use in traced.uses.values() for name in use.names}
    attached = multipliers(model)
    members = {}
    for name, p in model.named_parameters():
        if name in attached:
            on = uses[attached[name].parameter]
            role = _attached_role(model, name, on, roles.get(on.parameter), on.parameter in fed)
            decay = multiplier_decay
            if role is not None:
                decay = weight_decay if scale_decays(role, scales) else 0.0
            members[name] = _attached_member(model, name, attached[name].kind, role, tuple(p.shape), decay)
        else:
            use = uses.get(name) or uses[plain_name(name)]  # what others parametrized keeps its name
            role = roles.get(use.parameter)
            decay = weight_decay if decays(use, role, scales) else 0.0
            members[name] = _plain_member(use, role, offsets.get(use.parameter, 0.0), tuple(p.shape), decay)
    return members


def _plain_member(use: Use, role: Role | None, offset: float, shape: tuple[int, ...], decay: float) -> Member:
    hidden = use.kind == "matrix" and len(shape) == 2 and "embedding" not in use.operations and not use.returned
    form, at = ("f(w)", "f(0)") if math.isnan(offset) else (f"{offset:g} + w", f"{offset:g}")
    target = f"{at} (w itself to 0)" if offset else "0"
    group = {
        "matrix": "hidden matrices" if hidden else "embeddings and head" if len(shape) == 2 else "stacks of matrices",
        "embedding": "embeddings and head",
        "convolution": "convolutions",
        "scale": f"{role} scales" + (f" ({form})" if offset else ""),
        "bias": "vectors",
        "vector": "vectors",
        "unread": "not reached",
    }[use.kind]
    return Member(group, use.kind, shape, decay, target if decay else "", hidden)


def _attached_role(model: nn.Module, name: str, on: Use, role: Role | None, fed: bool) -> Role | None:
    """The role of the norm scale that an attached parameter is, or is a part of; None for a multiplier.

    ``on`` is the use of the parameter it acts on, ``role`` that one's role if it is a scale, ``fed`` whether an input
    norm feeds it.
    """
    owner = name.rpartition(".")[0]
    if isinstance(model.get_submodule(owner), OutputNorm):
        return "output"
    if on.kind == "scale":
        return role
    attachment = model.get_submodule(owner.rpartition(".")[0])
    return "input" if fed and isinstance(attachment, Multiply) and attachment.kind == "column" else None


def _attached_member(
    model: nn.Module, name: str, kind: str, role: Role | None, shape: tuple[int, ...], decay: float
) -> Member:
    if kind == "direction":
        return Member("directions", kind, shape, 0.0, "")
    by_logarithm = isinstance(model.get_submodule(name.rpartition(".")[0]), Exponential)
    target = "1 (geometric mean)" if by_logarithm else "0"
    return Member("multipliers" if role is None else f"{role} scales", kind, shape, decay, target if decay else "")


def split_for_muon(groups: ParamGroups) -> tuple[ParamGroups, ParamGroups]:
    """The hidden matrices, which torch's Muon takes, and everything else, for AdamW: vectors, stacks, embeddings, head.

    Bind the groups to a wrapped or sharded model before, not after.
    """
    first, second = (
        ParamGroups({name: m for name, m in groups.members.items() if m.hidden_matrix is hidden}, groups.model)
        for hidden in (True, False)
    )
    check_each_once([*first, *second], groups.model)
    return first, second
