"""Training one small language model: steps, held-out loss, norms, checkpoints and exact resumption."""

from __future__ import annotations

import io
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import xarray
from torch import Tensor, nn

from simulations.lm.measures import measure
from simulations.lm.run import PRECISIONS, Laboratory, Run, set_up
from simulations.memory import out_of_memory
from simulations.runs import RunStore, label
from simulations.store import seal, set_aside, unseal, write_bytes

logger = logging.getLogger("scalevec")
Report = Callable[[int, int], None]
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
CHECKPOINT_EVERY = 60.0
"""Seconds between checkpoints."""
COMPILED_AT_ONCE = 8
"""torch compiles one function for so many models, and says no more than a warning when it takes the slow path after."""
ZIP = b"PK"
"""How a checkpoint begins that was written before they were sealed."""


class Diverged(ArithmeticError):
    """The loss or a gradient is not finite; the message says at which step and where."""


def train(
    run: Run,
    folder: Path | None = None,
    *,
    device: torch.device | str = "cpu",
    report: Report | None = None,
    stop_after: int | None = None,
    until: float | None = None,
) -> xarray.Dataset | None:
    """Train, and return the course of the run.

    With ``folder``, a finished run of the same key is read from there instead, a checkpoint is written there now and
    then, and a run that was stopped goes on from the last one with the same numbers; if that is damaged, a warning is
    logged and training starts over.  Under torchrun each process takes its part of every batch.

    Parameters
    ----------
    folder : for ``KEY.nc`` and ``KEY.checkpoint``; made if missing.
    report : called after every step with the number of steps done and of all.
    stop_after : stop after so many steps, with a checkpoint; the result is then None.
    until : stop before the first step after this time (that of `time.time`) likewise.

    Returns
    -------
    loss ``(step)`` : training loss in nats per token of each step's batch, before the step.
    held_out_loss ``(evaluation)`` : at steps ``evaluated``, from 0 (the start) to the last.
    gradient_norm ``(step)`` : before clipping, of the parameters that count in it.
    rms ``(evaluation, parameter)`` : of every trainable parameter, beside its ``kind`` and number of ``entries``.
    measured ``(later, quantity)`` : what the run's measures give at every evaluation but the first, if it has any.
    The attributes hold its parameter counts and what `label` says of a run.

    Raises
    ------
    Diverged : the loss or a gradient is not finite.
    """
    if folder is not None and (done := RunStore(folder).get(run.key)) is not None:
        return done
    if until is not None and time.time() >= until:
        return None
    began = time.monotonic()
    with _processes(device) as (rank, world):
        lab = set_up(run, device)
        course = _Course(lab, folder if rank == 0 else None)
        if folder is not None and not course.resume(folder):
            lab = set_up(run, device)
            course = _Course(lab, folder if rank == 0 else None)
        loss_of = _loss_function(lab)
        parts = _parts(run, rank, world)
        saved = time.monotonic()
        for step in range(course.step, run.steps):
            if (stop_after is not None and step >= stop_after) or (until is not None and time.time() >= until):
                course.save()
                return None
            course.evaluate_if_due()
            course.take(step, _step(lab, loss_of, step, parts, world))
            if report is not None:
                report(step + 1, run.steps)
            if time.monotonic() - saved > CHECKPOINT_EVERY:
                course.save()
                saved = time.monotonic()
        course.evaluate_if_due()
    dataset = course.dataset(time.monotonic() - began)
    if folder is not None and rank == 0:
        dataset = RunStore(folder).put(dataset)
        course.forget()
    return dataset


@contextmanager
def _processes(device: torch.device | str) -> Iterator[tuple[int, int]]:
    """The process group of torchrun, if there is one: ``(rank, number of processes)``."""
    ours = "WORLD_SIZE" in os.environ and not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if torch.device(device).type == "cuda" else "gloo")
    try:
        yield (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    finally:
        if ours:
            dist.destroy_process_group()


def _parts(run: Run, rank: int, world: int) -> list[slice]:
    """The rows of a batch that this process takes, part by part."""
    rows = run.batch // run.accumulate
    if rows % world:
        raise ValueError(f"batch={run.batch}: {rows} sequences at a time; expected a multiple of {world} processes")
    share = rows // world
    return [slice(first + rank * share, first + (rank + 1) * share) for first in range(0, run.batch, rows)]


def _loss_function(lab: Laboratory) -> Loss:
    """The laboratory's loss.  One that is compiled is shared by all seeds, whose model is then the first one's with the
    parameters of ``lab``: attached designs are of classes of their own, for each of which torch would compile again."""
    if not lab.run.compile:
        return _loss_of(lab.model, lab.run.precision)
    key = (replace(lab.run, seed=0), next(lab.model.parameters()).device)
    if key not in _compiled:
        if len(_compiled) == COMPILED_AT_ONCE:
            _compiled.clear()
            torch.compiler.reset()
        _compiled[key] = lab.model, torch.compile(_loss_of(lab.model, lab.run.precision))
    model, loss_of = _compiled[key]
    if model is not lab.model:
        model.load_state_dict(lab.model.state_dict(keep_vars=True), assign=True)
        lab.model = model
    return loss_of


_compiled: dict[tuple[Run, torch.device], tuple[nn.Module, Loss]] = {}


def _loss_of(model: nn.Module, precision: str) -> Loss:
    dtype = PRECISIONS[precision]

    def loss_of(tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(tokens.device.type, dtype, enabled=dtype != torch.float32):
            return model.loss(tokens, targets)  # type: ignore[no-any-return, operator]

    return loss_of


def _step(lab: Laboratory, loss_of: Loss, step: int, parts: list[slice], world: int) -> tuple[float, float]:
    """One step of the optimizers: the loss before it, and the gradient's norm."""
    run, device = lab.run, next(lab.model.parameters()).device
    tokens, targets = (t.to(device, non_blocking=True) for t in lab.source.batch(run.seed, step, run.batch, run.length))
    total = torch.zeros((), device=device)
    for part in parts:
        loss, minimised = loss_of(tokens[part], targets[part])
        (minimised / len(parts)).backward()
        total += loss.detach() / len(parts)
    if world > 1:
        for t in [total, *(p.grad for p in lab.model.parameters() if p.grad is not None)]:
            dist.all_reduce(t)
            t /= world
    norm = torch.nn.utils.clip_grad_norm_(lab.clipped(), run.clip or math.inf)
    measured, size = torch.stack([total, norm]).tolist()  # together: each look makes a GPU wait
    if not math.isfinite(measured + size):
        raise Diverged(f"step {step}: {_where_not_finite(lab.model, total)}")
    for optimizer in lab.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = run.lr * group.get("lr_factor", 1.0) * float(lab.factors[step])
        optimizer.step()
        optimizer.zero_grad()
    return measured, size


def _where_not_finite(model: nn.Module, loss: Tensor) -> str:
    bad = [n for n, p in model.named_parameters() if p.grad is not None and not bool(p.grad.isfinite().all())]
    shown = ", ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
    return f"loss {float(loss):g}; gradients that are not finite: {shown or 'none, but their norm is'}"


class _Course:
    """What is recorded of a run, and its checkpoint."""

    def __init__(self, lab: Laboratory, folder: Path | None) -> None:
        self.lab, self.step = lab, 0
        self.path = folder / f"{lab.run.key}.checkpoint" if folder is not None else None
        run = lab.run
        self.due = sorted({round(k * run.steps / run.evaluations) for k in range(run.evaluations + 1)})
        self.names = [n for n, p in lab.model.named_parameters() if p.requires_grad]
        self.loss: list[float] = []
        self.norm: list[float] = []
        self.held_out: list[float] = []
        self.rms: list[list[float]] = []
        self.measured: list[dict[str, float]] = []

    def evaluate_if_due(self) -> None:
        """The mean loss on the run's held-out batches, which are the same at every time, and every parameter's rms."""
        if self.step not in self.due or len(self.held_out) == self.due.index(self.step) + 1:
            return
        run, named = self.lab.run, dict(self.lab.model.named_parameters())
        device = next(self.lab.model.parameters()).device
        losses = []
        with torch.no_grad():
            for k in range(run.held_out):
                tokens, targets = self.lab.source.batch(0, k, run.batch, run.length, held_out=True)
                losses.append(self.lab.model.loss(tokens.to(device), targets.to(device))[0])  # type: ignore[operator]
            self.rms.append([float(named[n].square().mean().sqrt()) for n in self.names])
        self.held_out.append(float(torch.stack(losses).mean()))
        if run.measures and self.step > 0:
            self.measured.append(measure(self.lab, self.step))

    def take(self, step: int, measured: tuple[float, float]) -> None:
        self.loss.append(measured[0])
        self.norm.append(measured[1])
        self.step = step + 1

    def save(self) -> None:
        if self.path is None:
            return
        buffer = io.BytesIO()
        optimizers = [o.state_dict() for o in self.lab.optimizers]
        state = {"model": self.lab.model.state_dict(), "optimizers": optimizers, "text": self.lab.source.fingerprint}
        torch.save({**state, **self._record()}, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path, seal(buffer.getvalue()))

    def resume(self, folder: Path) -> bool:
        """Go on from the checkpoint, if there is one; False if it is damaged, and the laboratory with it."""
        path = folder / f"{self.lab.run.key}.checkpoint"
        content = None
        try:
            content = path.read_bytes()
            inner = content if content.startswith(ZIP) else unseal(content)
            device = next(self.lab.model.parameters()).device
            stored = torch.load(io.BytesIO(inner), weights_only=True, map_location=device)
            if stored.get("text", self.lab.source.fingerprint) != self.lab.source.fingerprint:
                raise ValueError(f"data={self.lab.run.data} is another text now")
            self.lab.model.load_state_dict(stored["model"])
            for optimizer, state in zip(self.lab.optimizers, stored["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            for name in self._record():
                setattr(self, name, stored[name])
        except FileNotFoundError:
            return True
        except Exception as error:  # whatever a damaged file makes torch raise
            if out_of_memory(error) and not (content or b"").startswith(ZIP):  # what is sealed is not damaged
                raise
            reason = " ".join(str(error).split())[:200]
            moved = set_aside(path, content)
            logger.warning(f"{path}: not a checkpoint of this run ({reason}); {moved}; training starts over")
            return False
        return True

    def _record(self) -> dict[str, Any]:
        names = ("step", "loss", "norm", "held_out", "rms", *(("measured",) if self.lab.run.measures else ()))
        return {name: getattr(self, name) for name in names}

    def forget(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def dataset(self, seconds: float) -> xarray.Dataset:
        run, model = self.lab.run, self.lab.model
        entries = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
        kinds = [self.lab.groups.members[name].kind for name in self.names]
        least = self.lab.source.least_loss(run.length)
        found = xarray.Dataset(
            {
                "loss": ("step", self.loss, {"units": "nats/token"}),
                "gradient_norm": ("step", self.norm),
                "held_out_loss": ("evaluation", self.held_out, {"units": "nats/token"}),
                "rms": (("evaluation", "parameter"), self.rms),
            },
            {
                "evaluated": ("evaluation", self.due),
                "parameter": self.names,
                "kind": ("parameter", kinds),
                "entries": ("parameter", [entries[name] for name in self.names]),
            },
            {
                "data_fingerprint": self.lab.source.fingerprint,
                "entropy": math.nan if self.lab.source.entropy is None else self.lab.source.entropy,
                "least_loss": math.nan if least is None else least,
                "parameters": sum(p.numel() for p in model.parameters()),
                "trained_parameters": sum(entries.values()),
            },
        )
        if self.measured:
            quantities = list(self.measured[0])
            found["measured"] = (("later", "quantity"), [[m[q] for q in quantities] for m in self.measured])
            found = found.assign_coords(later=self.due[1:], quantity=quantities)
        return label(found, key=run.key, task="train", settings=asdict(run), seconds=seconds, result="held_out_loss")
