"""``scalevec train`` and ``scalevec experiment``: the training lab."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import xarray
    from rich.table import Table

    from simulations.lm.experiment import Experiment, Outcome

EFFORTS = ("quick", "standard", "full")
DEVICES = ("cpu", "cuda")
runs_folder = click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results/runs"),
    show_default=True,
    help="Folder of finished runs and checkpoints.",
)
on_jobs = click.option(
    "--jobs", type=int, default=None, metavar="N", help="Runs at a time (default: one for each core; one on a GPU)."
)
on_scheduler = click.option(
    "--scheduler", metavar="ADDRESS", help="Of a Dask cluster to run on, such as tcp://host:8786; see docs/cluster.md."
)
on_device = click.option(
    "--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Where to train."
)


@click.command(
    epilog="\b\nExample:\n"
    "  scalevec train llama --set steps=200 --set design=HG+OR\n"
    "  scalevec train hybrid --set width=48 --set data=markov:16 --set optimizer=muon\n"
    "  torchrun --nproc-per-node 2 -m simulations.cli train llama"
)
@click.argument("family")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A size or setting; see below.")
@runs_folder
@on_device
def train(family: str, settings: tuple[str, ...], runs: Path, device: str) -> None:
    """Train one small language model: llama, gemma, gpt2, qwen3, olmo2, moe or hybrid.

    A run that was stopped goes on when the same command is given again, from its last checkpoint (one is written every
    minute), and ends with the same numbers; a finished one is read.  --set
    takes any field of Run and Architecture (simulations/lm): width, layers, hidden, steps, lr, weight_decay, optimizer
    (adamw, muon, sgd, momentum), schedule (cosine, wsd, constant), design (none, standard, or parts such as
    HG+DNP+OR), multipliers (none, scalar, row, column, row+column), scales that decay (iwd, none, all, output), data,
    seed, and so on.  The last step of a schedule that decays has a learning rate of 0.
    """
    from scalevec_theory.flow import check_device
    from simulations.lm.run import make_run, set_up
    from simulations.lm.training import Diverged
    from simulations.lm.training import train as run_training
    from simulations.settings import parse_settings
    from simulations.tables import console, progress

    check_device(device)
    sizes, others = split_settings(parse_settings(settings))
    run = make_run(family, sizes, **others)
    out = console()
    out.quiet = os.environ.get("RANK", "0") != "0"  # of torchrun's processes one speaks
    out.print(str(set_up(run).groups))
    try:
        with progress("steps") as tell:
            found = run_training(run, runs, device=device, report=None if out.quiet else tell)
    except Diverged as error:
        raise ValueError(f"the run diverged at {error}") from error
    assert found is not None
    out.print()
    out.print(course_table(found))
    if (least := found.attrs.get("least_loss", math.nan)) == least:
        excess = float(found["held_out_loss"][-1]) - least
        out.print(f"\nthe least possible loss is {least:.4f} nats per token; the last is {excess:.4f} above it")
    out.print(f"\n{runs / (run.key + '.nc')}")


@click.command(
    epilog="\b\nExample:\n"
    "  scalevec experiment --list\n"
    "  scalevec experiment my_training.py:mine --effort full --json mine.json\n"
    "  scalevec experiment removal --effort standard\n"
    "  scalevec experiment large --effort full --device cuda --minutes 9 --figure results/large.svg"
)
@click.argument("names", nargs=-1, metavar="[NAME | FILE.py[:NAME]]...")
@click.option("--list", "listed", is_flag=True, help="Tell what they ask and how long ours took, and run nothing.")
@click.option("--effort", type=click.Choice(EFFORTS), default="quick", show_default=True, help="Steps and seeds.")
@on_jobs
@on_scheduler
@click.option(
    "--minutes", type=float, default=None, metavar="N", help="Stop after so long, and take the seeds all arms have."
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the results of one experiment, which scopes of claims can read.",
)
@click.option(
    "--figure", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw the losses (SVG and PNG)."
)
@runs_folder
@on_device
def experiment(
    names: tuple[str, ...],
    listed: bool,
    effort: str,
    jobs: int | None,
    scheduler: str | None,
    minutes: float | None,
    json_file: Path | None,
    figure: Path | None,
    runs: Path,
    device: str,
) -> None:
    """Run experiments, all or those named or declared in a file, and print every contrast with its interval.

    Quick effort takes seconds and says nothing about the question; standard takes minutes, full hours.  It can be
    stopped at any time: finished runs are stored, and the same command goes on.  Experiments too large for processors
    are run only when they are named.
    """
    from scalevec_theory.flow import check_device
    from simulations.lm.experiment import perform, store
    from simulations.lm.experiments import EXPERIMENTS
    from simulations.lm.scaling import compute_multiplier
    from simulations.parallel import cores
    from simulations.store import check_writable
    from simulations.tables import console, progress

    chosen = find_experiments(names)
    if listed:
        console().print(listing_table(chosen if names else list(EXPERIMENTS.values())))
        return
    if scheduler is None:
        check_device(device)
    for option, file in (("json", json_file), ("figure", figure)):
        if file is not None:
            if len(chosen) != 1:
                raise ValueError(f"{option}={file}: expected one experiment, {len(chosen)} are chosen")
            file.parent.mkdir(parents=True, exist_ok=True)
            check_writable(file)
    if jobs is None:
        jobs = 1 if device == "cuda" else cores()
    out = console()
    for e in chosen:
        out.print(f"{e.id}: {e.question}")
        with progress(e.id) as tell:
            outcome = perform(
                e, effort, runs, jobs=jobs, scheduler=scheduler, device=device, minutes=minutes, report=tell
            )
        seeds, planned = len(outcome.seeds), e.seeds[EFFORTS.index(effort)]
        if seeds < planned:
            out.print(f"{seeds} of {planned} seeds are finished in all arms; the same command goes on with the others")
        out.print(outcome_table(e, outcome))
        if e.scaling is not None:
            found = compute_multiplier(e, outcome)
            out.print(
                f"compute multiplier {found.value:.3f}, bootstrap interval {found.low:.3f} to {found.high:.3f}; law of "
                f"exponent {found.exponent:.3f}, departures up to {found.residual:.4f} nats per token"
                + ("" if e.scaling.paper is None else f"; the paper has {e.scaling.paper:g}")
            )
        out.print()
        if json_file is not None:
            store(outcome, json_file)
        if figure is not None:
            # Figures stand above this package; the command line is the one place that reaches up to them, by name only.
            for file in importlib.import_module("figures.training_curves").draw_outcome(figure, e, outcome):
                out.print(str(file))


def find_experiments(names: tuple[str, ...]) -> list[Experiment]:
    """Those named, or all but the ones that are run on request only; ``FILE.py`` or ``FILE.py:ID`` are of one's own.

    Raises
    ------
    UnknownName : no such experiment, with the nearest.
    BrokenClaimFile : a file is missing, raises, or declares no experiment.
    """
    from scalevec_theory.registry import UnknownName, split_address
    from simulations.lm.experiments import EXPERIMENTS

    found: list[Experiment] = []
    for name in names:
        file, address = split_address(name)
        known = EXPERIMENTS if file is None else experiments_in_file(file)
        if address and address not in known:
            raise UnknownName("experiment", address, list(known))
        found += [known[address]] if address else known.values()
    return found or [e for e in EXPERIMENTS.values() if not e.on_request]


def experiments_in_file(path: str) -> dict[str, Experiment]:
    """The experiments that a Python file declares by module-level names, by id.

    Raises
    ------
    BrokenClaimFile : the file is missing, raises, or declares none, or two of one id.
    """
    from scalevec_theory.registry import BrokenClaimFile, module_in_file
    from simulations.lm.experiment import Experiment

    found: dict[str, Experiment] = {}
    for e in vars(module_in_file(path)).values():
        if isinstance(e, Experiment) and found.setdefault(e.id, e) is not e:
            raise BrokenClaimFile(f"{path}: declares the experiment {e.id!r} twice")
    if not found:
        raise BrokenClaimFile(
            f"{path}: declares no experiment (a module-level name bound to simulations.lm.experiment.Experiment)"
        )
    return found


def split_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizes of the architecture and settings of the run; lists become tuples.

    Raises
    ------
    ValueError : neither a size nor a setting.
    """
    from simulations.lm.architecture import SIZE_NAMES
    from simulations.lm.run import SETTING_NAMES

    # A sequence's length is a setting of the run; the architecture's counts learned positions.
    sizes_known = SIZE_NAMES - {"length"}
    sizes: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for key, value in given.items():
        if key not in sizes_known | SETTING_NAMES:
            known = ", ".join(sorted(sizes_known | SETTING_NAMES))
            raise ValueError(f"{key}={value!r}: no such size or setting; expected one of {known}")
        (sizes if key in sizes_known else settings)[key] = tuple(value) if isinstance(value, list) else value
    if "length" in settings:
        sizes["length"] = settings["length"]
    return sizes, settings


def course_table(found: xarray.Dataset) -> Table:
    """The held-out loss along a run, the training loss of the steps since the last, and the rms of all entries of
    matrices (no embeddings, multipliers or scales among them)."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("step", "held-out loss", "training loss (mean since)", "rms of matrices"):
        table.add_column(column, justify="right")
    before = 0
    # Runs from before kinds were stored show none.
    share = found["entries"].where(found["kind"] == "matrix", 0) if "kind" in found.coords else None
    for k, step in enumerate(int(s) for s in found["evaluated"]):
        since = f"{float(found['loss'][before:step].mean()):.4f}" if step > before else ""
        rms = "" if share is None else f"{float((found['rms'][k] ** 2).weighted(share).mean() ** 0.5):.4f}"
        table.add_row(f"{step:,}", f"{float(found['held_out_loss'][k]):.4f}", since, rms)
        before = step
    return table


def listing_table(chosen: Sequence[Experiment]) -> Table:
    """Experiments with their questions and, of full effort, the runs and the minutes of one process that they took for
    the outcome that comes with the code."""
    from rich.table import Table

    from simulations.lm.experiment import committed

    table = Table(box=None, pad_edge=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("question")
    for column in ("runs\n(full effort)", "minutes of\none process"):
        table.add_column(column, justify="right")
    total = 0.0
    for e in chosen:
        outcome = committed(e)
        minutes = 0.0 if outcome is None else outcome.seconds / 60
        total += minutes
        told = f"{minutes:.0f}" if minutes else "on request" if e.on_request else "not run"
        table.add_row(e.id, e.question, str(len(e.runs("full"))), told)
    if total:
        table.add_row("", "all", "", f"{total:.0f}")
    return table


def outcome_table(e: Experiment, outcome: Outcome) -> Table:
    """Every contrast with its interval, beside what is asked of it and the paper's number; and with what chance a loss
    lower by the experiment's threshold is seen, at the scatter that was found."""
    from rich.table import Table

    from simulations.lm.contrast import power

    asked = [c.name for c in e.contrasts if c.pair is not None and c.within == (0, math.inf)]
    powers = [f"power at {e.threshold:g}"] if asked else []
    table = Table(box=None, pad_edge=False)
    for column in ("contrast", "of"):
        table.add_column(column)
    for column in ("value", "95% interval", "asked", "seeds", *powers, "tokens to match", "paper"):
        table.add_column(column, justify="right")
    for c in e.contrasts:
        found = outcome.estimate(c)
        chance = power(e.threshold, found.stderr * found.seeds**0.5, found.seeds)
        share = "never" if found.efficiency != found.efficiency else f"{found.efficiency:.0%}"
        table.add_row(
            c.name,
            c.formula,
            f"{found.value:+.4f}",
            f"[{found.low:+.4f}, {found.high:+.4f}]",
            c.question,
            str(found.seeds),
            *(f"{chance:.2f}" if c.name in asked else "" for _ in powers),
            "" if c.pair is None else share,
            "" if c.paper is None else f"{c.paper:+.3f}",
        )
    return table
