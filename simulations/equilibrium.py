"""``scalevec equilibrium``: the size that noise and weight decay give to weights over a training run."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from scalevec_theory.equilibrium import Equilibrium, Prediction
    from scalevec_theory.optimizers import Optimizer

OPTIMIZERS = ("adam", "adamw", "lion", "muon", "rmsprop", "sgd", "signsgd")
SCHEDULES = ("constant", "cosine", "wsd")
ROWS = 13
"""Steps that are printed."""

path = click.Path(dir_okay=False, path_type=Path)


def numbers(text: str, option: str, separator: str = ",", kind: type = float) -> tuple[Any, ...]:
    """The numbers of ``0.9,0.95`` or ``1024x4096``.

    Raises
    ------
    ValueError : something else.
    """
    try:
        return tuple(kind(part) for part in text.split(separator))
    except ValueError:
        raise ValueError(f"{option}={text!r}: expected {kind.__name__}s joined by {separator!r}") from None


def build(name: str, **options: Any) -> Optimizer:
    """The optimizer of that name with the options that are not None.

    Raises
    ------
    ValueError : an option this optimizer lacks, or a value it refuses.
    """
    from scalevec_theory.optimizers import OPTIMIZERS

    given = {key: value for key, value in options.items() if value is not None}
    known = [f.name for f in fields(OPTIMIZERS[name])]
    for key in given:
        if key not in known:
            raise ValueError(f"{key}={given[key]}: {name} has {', '.join(known)}")
    return OPTIMIZERS[name](**given)


@click.command(
    epilog="\b\nExample:\n"
    "  scalevec equilibrium --optimizer adamw --lr 3e-3 --weight-decay 0.1 --betas 0.9,0.95 \\\n"
    "      --steps 20000 --schedule wsd --shape 1024x4096 --figure rms.svg"
)
@click.option("--optimizer", "name", type=click.Choice(OPTIMIZERS), required=True, help="The update rule.")
@click.option("--lr", type=float, required=True, help="Peak learning rate η.")
@click.option("--weight-decay", type=float, required=True, help="Weight decay λ, as the optimizer takes it.")
@click.option("--betas", metavar="B1,B2", help="Momenta of Adam, AdamW, Lion.")
@click.option("--eps", type=float, help="ε of Adam, AdamW, RMSProp.")
@click.option("--momentum", type=float, help="Momentum of SGD, SignSGD, Muon.")
@click.option("--nesterov/--no-nesterov", default=None, help="Nesterov momentum of SGD and Muon.")
@click.option("--alpha", type=float, help="Memory of RMSProp.")
@click.option("--steps", type=int, required=True, help="Steps of training.")
@click.option("--schedule", type=click.Choice(SCHEDULES), default="constant", show_default=True, help="Of η.")
@click.option("--warmup", type=int, default=0, show_default=True, help="Steps of linear warm-up.")
@click.option("--shape", metavar="CxD", help="Of the matrix: prints its norm; needed for Muon.")
@click.option("--init", type=float, default=0.0, show_default=True, help="Standard deviation of w at the start.")
@click.option("--noise", type=float, default=1.0, show_default=True, help="Standard deviation of a gradient's entry.")
@click.option("--scale-invariant", is_flag=True, help="The loss depends on w/‖w‖ only; noise is that at ‖w‖ = 1.")
@click.option("--figure", type=path, metavar="FILE", help="Draw the rms over training as FILE, in SVG and PNG.")
@click.option("--json", "json_file", type=path, metavar="FILE", help="Write every step as JSON.")
def equilibrium(
    name: str,
    lr: float,
    weight_decay: float,
    betas: str | None,
    eps: float | None,
    momentum: float | None,
    nesterov: bool | None,
    alpha: float | None,
    steps: int,
    schedule: str,
    warmup: int,
    shape: str | None,
    init: float,
    noise: float,
    scale_invariant: bool,
    figure: Path | None,
    json_file: Path | None,
) -> None:
    """Predict the rms of a weight over training if its gradients were noise.

    What the optimizer, its weight decay and its schedule alone do: a weight that follows this curve has learned nothing
    that shows in its size.
    """
    from scalevec_theory.equilibrium import equilibrium as at_rest
    from scalevec_theory.equilibrium import predict
    from scalevec_theory.schedules import SCHEDULES
    from simulations.store import check_writable, write_json
    from simulations.tables import console

    for file in (json_file, figure):
        if file is not None:
            check_writable(file)
    optimizer = build(
        name,
        lr=lr,
        weight_decay=weight_decay,
        betas=None if betas is None else numbers(betas, "betas"),
        eps=eps,
        momentum=momentum,
        nesterov=nesterov,
        alpha=alpha,
    )
    sizes = None if shape is None else numbers(shape, "shape", "x", int)
    if sizes is None and (name == "muon" or scale_invariant):
        raise ValueError(
            "shape is not given: Muon and scale-invariant weights need it; expected --shape, such as 64x64"
        )
    law: dict[str, Any] = {"noise": noise, "shape": sizes, "scale_invariant": scale_invariant}
    rest = at_rest(optimizer, **law)
    prediction = predict(optimizer, steps, init=init, lr_schedule=SCHEDULES[schedule](steps, warmup), **law)
    out = console()
    out.print(summary(optimizer, rest))
    out.print(table(prediction, sizes))
    for line in limits(optimizer, prediction.outside):
        out.print(line)
    if json_file is not None:
        write_json(json_file, as_json(optimizer, rest, prediction))
    if figure is not None:
        # Figures stand above this package; the command line is the one place that reaches up to them, by name only.
        draw = importlib.import_module("figures.equilibrium").draw_prediction
        for file in draw(figure, prediction, rest):
            out.print(str(file))


def summary(optimizer: Optimizer, rest: Equilibrium) -> str:
    """The optimizer and its equilibrium at the peak learning rate in two lines."""
    if rest.rms == float("inf"):
        return f"{optimizer}\nno weight decay: w grows without bound"
    return f"{optimizer}\nat rest at this learning rate: rms {rest.rms:.5g}, angle per step {rest.angular_update:.3g}"


def limits(optimizer: Optimizer, outside: tuple[str, ...]) -> list[str]:
    """What a prediction is for, and what lies ``outside`` of the limits it has been tested in, as it says itself."""
    from scalevec_theory.equilibrium import SMALLEST_MATRIX
    from scalevec_theory.optimizers import Adam, Muon, RMSProp

    lines = ["for gradients that are independent noise"]
    if isinstance(optimizer, Adam | RMSProp):
        lines[0] += "; the first 20 steps can be off by up to 10%"
    if isinstance(optimizer, Muon):
        lines[0] += f"; large matrices: within 3% from {SMALLEST_MATRIX} x {SMALLEST_MATRIX} on"
    return lines + [f"warning: {line}" for line in outside]


def table(prediction: Prediction, shape: tuple[int, ...] | None) -> Table:
    """Some steps of the prediction, evenly spaced, the first and the last among them."""
    import math

    import numpy as np
    from rich.table import Table

    columns = Table(box=None, pad_edge=False)
    for heading in ("step", "rms", "angle of the step", *(["norm", "±"] if shape else [])):
        columns.add_column(heading, justify="right")
    T = len(prediction.lr)
    for t in np.unique(np.linspace(0, T, ROWS).round().astype(int)):
        row = [f"{t:,}", f"{prediction.rms[t]:.5g}"]
        row.append(f"{prediction.angular_update[t - 1]:.3g}" if t > 0 else "")
        if shape:
            row += [f"{x[t]:.5g}" for x in prediction.norm(math.prod(shape))]
        columns.add_row(*row)
    return columns


def as_json(optimizer: Optimizer, rest: Equilibrium, prediction: Prediction) -> dict[str, object]:
    return {
        "optimizer": type(optimizer).__name__.lower(),
        "settings": {f.name: getattr(optimizer, f.name) for f in fields(optimizer)},
        "at_rest": {"rms": rest.rms, "angular_update": rest.angular_update},
        "rms": prediction.rms.tolist(),
        "angular_update": prediction.angular_update.tolist(),
        "lr": prediction.lr.tolist(),
        "outside": list(prediction.outside),
    }
