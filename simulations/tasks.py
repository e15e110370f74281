"""The theory's simulations as functions of keyword arguments to a labelled dataset, for sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor

from scalevec_theory import abm
from scalevec_theory.equilibrium import predict
from scalevec_theory.flow import OK, gradient_flow
from scalevec_theory.losses import LeastSquares
from scalevec_theory.noise import Isotropic, LabelNoise, Minibatch, ensemble
from scalevec_theory.optimizers import OPTIMIZERS
from scalevec_theory.parametrizations import BUILT_IN, Parametrization
from scalevec_theory.problems import Diagonal, Field, Identity, PositiveDefinite, Real
from scalevec_theory.schedules import SCHEDULES

INPUTS: dict[str, Field] = {
    "whitened": Identity("dd"),
    "uncorrelated": Diagonal("dd"),
    "correlated": PositiveDefinite("dd"),
}
NOISES = {"isotropic": Isotropic, "minibatch": Minibatch, "label": LabelNoise}


def flow(
    parametrization: str = "input-scale",
    inputs: str = "whitened",
    c: int = 2,
    d: int = 4,
    init: float = 0.0,
    time: float = 5.0,
    points: int = 21,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> xarray.Dataset:
    """Gradient flow of one random least-squares problem.

    Parameters
    ----------
    parametrization, inputs : a built-in parametrisation; ``whitened``, ``uncorrelated`` or ``correlated``.
    c, d : outputs and inputs.
    init : standard deviation of W(0).
    time, points : how long, and at how many times the loss is kept.
    weight_decay : λ of all blocks.

    Returns
    -------
    loss ``(time)``, and the largest drift of a conserved quantity.

    Raises
    ------
    ValueError : an unknown name, a number out of range, or a flow that did not reach its end.
    """
    parametrized, loss, start = _problem(parametrization, inputs, c, d, init, seed)
    decay = dict.fromkeys(start, weight_decay)
    found = gradient_flow(parametrized, loss, start, _times(time, points), weight_decay=decay)
    if int(found.status[0]) != OK:
        raise ValueError(f"flow of {parametrization} did not reach time={time} (status {int(found.status[0])})")
    drift = max((float(change.max()) for change in found.drift().values()), default=0.0)
    return xarray.Dataset({"loss": ("time", found.loss[0].numpy()), "drift": drift}, {"time": found.times.numpy()})


def noise(
    parametrization: str = "input-scale",
    inputs: str = "whitened",
    kind: str = "label",
    sigma: float = 0.3,
    c: int = 1,
    d: int = 4,
    init: float = 0.0,
    time: float = 5.0,
    points: int = 21,
    dt: float = 1e-2,
    paths: int = 256,
    weight_decay: float = 0.0,
    seed: int = 0,
) -> xarray.Dataset:
    """Stochastic gradient flow of one random least-squares problem.

    Parameters
    ----------
    kind, sigma : ``isotropic``, ``minibatch`` or ``label`` noise and its size.
    dt, paths : step of Euler's scheme and number of paths; the rest as in `flow`.

    Returns
    -------
    loss, loss_stderr ``(time)`` : mean over paths, and its standard error; NaN where a path was lost.

    Raises
    ------
    ValueError : an unknown name, or a number out of range.
    """
    parametrized, loss, start = _problem(parametrization, inputs, c, d, init, seed)

    def value(**blocks: Tensor) -> Tensor:
        error = parametrized.forward(**blocks) - loss.T[:, None]
        return 0.5 * ((error @ loss.H[:, None]) * error).sum((-2, -1))

    found = ensemble(
        parametrized,
        loss,
        start,
        _named("kind", kind, NOISES)(sigma),
        _times(time, points),
        dt=dt,
        paths=paths,
        seed=seed,
        observe={"loss": value},
        weight_decay=dict.fromkeys(start, weight_decay),
    )
    data = {"loss": ("time", found.mean_of_all("loss")[0].numpy()), "loss_stderr": ("time", found.stderr["loss"][0])}
    return xarray.Dataset(data, {"time": found.times.numpy()})


def equilibrium(
    optimizer: str = "adamw",
    lr: float = 3e-3,
    weight_decay: float = 0.1,
    steps: int = 2000,
    schedule: str = "constant",
    warmup: int = 0,
    init: float = 0.0,
    noise: float = 1.0,
    n: int = 4096,
    points: int = 21,
    seed: int = 0,
) -> xarray.Dataset:
    """The rms of weights that noise and weight decay alone move: predicted, and simulated.

    Parameters
    ----------
    optimizer : any but Muon, with its own defaults for what is not given here.
    n : independent weights.
    points : at how many steps the rms is kept.

    Returns
    -------
    predicted, simulated, simulated_stderr ``(step)`` : rms.

    Raises
    ------
    ValueError : an unknown name, or a number out of range.
    """
    known = {name: kind for name, kind in OPTIMIZERS.items() if name != "muon"}
    rule = _named("optimizer", optimizer, known)(lr=lr, weight_decay=weight_decay)
    factors = _named("schedule", schedule, SCHEDULES)(steps, warmup)
    kept = np.unique(np.linspace(0, steps, points).round().astype(int))
    walk = abm.run(
        rule, n, steps, gradients=abm.Gradients(noise), seed=seed, init=init, lr_schedule=factors, record=kept.tolist()
    )
    expected = predict(rule, steps, init=init, noise=noise, lr_schedule=factors)
    rms = np.sqrt(walk.mean_square)
    with np.errstate(invalid="ignore", divide="ignore"):  # at the start all weights may be 0
        stderr = np.where(rms > 0, walk.stderr / (2 * rms), 0.0)
    data = {"predicted": ("step", expected.rms[kept]), "simulated": ("step", rms), "simulated_stderr": ("step", stderr)}
    return xarray.Dataset(data, {"step": kept})


def _problem(
    parametrization: str, inputs: str, c: int, d: int, init: float, seed: int
) -> tuple[Parametrization, LeastSquares, dict[str, Tensor]]:
    """Target and W(0) of one seed are the same for all parametrisations and inputs."""
    for name, value in (("c", c), ("d", d)):
        if value < 1:
            raise ValueError(f"{name}={value}: expected >= 1")
    if seed < 0:
        raise ValueError(f"seed={seed}: expected >= 0")
    known = {name: p for name, p in BUILT_IN.items() if p.axes["W"] == p.theta_rows + "d" == "cd"}
    parametrized = _named("parametrization", parametrization, known)
    field, dims = _named("inputs", inputs, INPUTS), {"c": c, "d": d}
    target, first, latent = (np.random.default_rng([seed, k]) for k in range(3))
    H = field.decode(latent.standard_normal((1, *field.latent_shape(dims))), dims)
    T = Real("cd").decode(target.standard_normal((1, c, d)), dims)
    W0 = torch.from_numpy(init * first.standard_normal((1, c, d)))
    return parametrized, LeastSquares(torch.from_numpy(H), torch.from_numpy(T)), parametrized.init(W0)


def _times(time: float, points: int) -> Sequence[float]:
    if points < 2 or not time > 0:
        raise ValueError(f"time={time}, points={points}: expected time > 0 and at least 2 points")
    return [float(t) for t in np.linspace(0, time, points)]


def _named(argument: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise ValueError(f"{argument}={name!r}: expected one of {', '.join(known)}")
    return known[name]
