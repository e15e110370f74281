"""The command ``scalevec``.  Nothing slow is imported before a command needs it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from simulations.audit import audit
from simulations.equilibrium import equilibrium
from simulations.lm.commands import experiment, train
from simulations.memory import SAID, check_limit, out_of_memory
from simulations.runs_command import runs
from simulations.sweep_command import sweep

if TYPE_CHECKING:
    from scalevec_theory.claim import Result

EFFORTS = ("quick", "standard", "full")
INTERRUPTED = 130
GRACE = 5.0
"""Seconds that an interrupted command has to end in order; then it is ended."""


class OneLineErrors(click.Group):
    """A command group that reports bad input in one line and status 2, and an interrupt with status 130."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        # To be told to end is an interrupt, too, so that worker processes are ended.
        before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        _said.clear()
        try:
            status = super().main(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            status = 2
        except click.Abort:
            _say_interrupted()
            status = INTERRUPTED
        except click.ClickException as error:
            status = _complain(error.format_message())
        except Exception as error:
            if out_of_memory(error):
                status = _complain(SAID + (str(error).strip() or "nothing more can be allocated"))
            elif isinstance(error, OSError):
                status = _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            elif isinstance(error, ValueError):
                status = _complain(str(error))
            else:
                raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        sys.exit(status or 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Whether help is asked for is kept as the context's object: the group's function sees no arguments."""
        ctx.obj = "--help" in ctx.args
        return super().invoke(ctx)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt, and see to it that the end comes: a claim's code may swallow the exception, a library may wait."""
    timer = threading.Timer(GRACE, _end)
    timer.daemon = True
    timer.start()
    raise KeyboardInterrupt


def _end() -> None:
    for process in multiprocessing.active_children():
        process.kill()
    _say_interrupted()
    os._exit(INTERRUPTED)


_said = threading.Event()


def _say_interrupted() -> None:
    """Once: the time of grace may run out while the command is ending by itself."""
    if not _said.is_set():
        _said.set()
        click.echo("scalevec: interrupted; what was finished is stored", err=True)


def _complain(message: str) -> int:
    click.echo(f"scalevec: error: {' '.join(message.split())}", err=True)
    return 2


def _example(*lines: str) -> str:
    """Help text that click leaves unwrapped."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


effort = click.option(
    "--effort", type=click.Choice(EFFORTS), default="quick", show_default=True, help="How much to spend on each scope."
)
seed = click.option("--seed", type=int, default=0, show_default=True, help="Seed of every random number.")
device = click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where margins are computed."
)
jobs = click.option("--jobs", type=int, default=None, metavar="N", help="Processes (default: one for each core).")
path = click.Path(dir_okay=False, path_type=Path)


@click.group(cls=OneLineErrors, epilog=_example("scalevec check loss-dominance"))
@click.version_option(package_name="scalevec")
@click.pass_context
def main(context: click.Context) -> None:
    """Prove, attack, simulate and draw claims about scale vectors and learnable multipliers."""
    if context.invoked_subcommand != new_claim.name and not context.obj:  # these load no library
        check_limit()


@main.command(epilog=_example("scalevec claims", "scalevec claims loss-dominance"))
@click.argument("names", nargs=-1, metavar="[CLAIM[:SCOPE] | FILE.py[:CLAIM[:SCOPE]]]...")
def claims(names: tuple[str, ...]) -> None:
    """List every claim with its scopes and figures; of those named, what every scope says."""
    from scalevec_theory.registry import installed_claims
    from simulations.checks import find_targets
    from simulations.tables import claims_table, console, scopes_table

    console().print(scopes_table(find_targets(names)) if names else claims_table(installed_claims().values()))


@main.command(
    epilog=_example("scalevec check conservation loss-dominance:correlated-inputs", "scalevec check my_claims.py")
)
@click.argument("names", nargs=-1, metavar="[CLAIM[:SCOPE] | FILE.py[:CLAIM[:SCOPE]]]...")
@effort
@seed
@device
@jobs
@click.option("--json", "json_file", type=path, metavar="FILE", help="Write the results as JSON.")
@click.option("--report", type=path, metavar="FILE", help="Write the results as a page of Markdown.")
@click.option("--evidence", type=path, metavar="FILE", help="Write the results with their provenance, to be kept.")
@click.option("--fresh", is_flag=True, help="Check again what is stored in results/checks.")
def check(
    names: tuple[str, ...],
    effort: str,
    seed: int,
    device: str,
    jobs: int | None,
    json_file: Path | None,
    report: Path | None,
    evidence: Path | None,
    fresh: bool,
) -> int:
    """Check claims: all of them, or those named.

    Exit status 0 if every verdict is the expected one, 1 if not, 2 for bad input or a claim's code that raises.  A
    finished scope is stored in results/checks of the current folder and is not checked again until code or versions
    change; of what a claim file of your own imports, changes are not seen: use --fresh.
    """
    from simulations.checks import as_evidence, as_json, check_all, find_targets
    from simulations.paper_checks import render, summary
    from simulations.parallel import cores
    from simulations.store import check_writable, write_json, write_text
    from simulations.tables import console, describe_result, progress, verdicts_table

    for file in (json_file, report, evidence):
        if file is not None:
            check_writable(file)
    targets = find_targets(names)
    with progress("scopes") as tell:
        results = check_all(
            targets,
            effort=effort,
            seed=seed,
            device=device,
            jobs=cores() if jobs is None else jobs,
            fresh=fresh,
            report=tell,
        )
    if json_file is not None:
        write_json(json_file, [as_json(r) for r in results])
    if report is not None:
        write_text(report, render(targets, results, effort, seed))
    if evidence is not None:
        write_json(evidence, as_evidence(results, effort, seed))
    out = console()
    out.print(verdicts_table(targets, results))
    for target, result in zip(targets, results, strict=True):
        if not result.ok or (names and result.counterexample is not None):
            out.print(f"\n{describe_result(target, result)}")
    out.print(f"\n{summary(results)}")
    return _raised(results) or (0 if all(r.ok for r in results) else 1)


def _raised(results: Sequence[Result]) -> int:
    """Exit status 2 if a claim's code raised, else 0.

    Raises
    ------
    MemoryError : what it raised says that memory ran out.
    """
    from simulations.checks import RAISED

    reasons = [r.reason.removeprefix(RAISED) for r in results if r.reason.startswith(RAISED)]
    for reason in reasons:
        if reason.startswith(SAID):
            raise MemoryError(reason.removeprefix(SAID))
    return 2 if reasons else 0


@main.command(epilog=_example("scalevec falsify loss-dominance --scope correlated-inputs --budget 100000"))
@click.argument("claim", metavar="CLAIM | FILE.py[:CLAIM]")
@click.option("--scope", required=True, help="The scope to attack.")
@click.option("--budget", type=int, required=True, metavar="N", help="Problems to try.")
@seed
@device
def falsify(claim: str, scope: str, budget: int, seed: int, device: str) -> int:
    """Search one scope for a counterexample, and shrink what is found.

    Exit status 0 if the outcome is the expected one: a counterexample exactly where the scope is said to fail.
    """
    from simulations.checks import falsify_one, find_target
    from simulations.tables import console, describe_evidence

    target = find_target(claim, scope)
    evidence = falsify_one(target, budget, seed=seed, device=device)
    out = console()
    out.print(f"{target.address}: {target.scope.statement}")
    out.print(describe_evidence(evidence))
    if evidence.counterexample is not None:
        out.print(f"counterexample, margin {evidence.counterexample.margin:.3g}:\n\n{evidence.counterexample.code}")
    return 0 if evidence.supports is target.scope.holds else 1


@main.command(epilog=_example("scalevec figures early-gap conservation --out pictures"))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results/figures"),
    show_default=True,
    help="Folder for the pictures.",
)
@seed
@jobs
def figures(names: tuple[str, ...], out: Path, seed: int, jobs: int | None) -> None:
    """Draw figures, all or those named, as SVG and PNG."""
    from simulations.drawing import draw_all
    from simulations.parallel import cores
    from simulations.tables import progress

    with progress("figures") as report:
        files = draw_all(names, out, seed, cores() if jobs is None else jobs, report)
    for file in files:
        click.echo(file)


@main.command(epilog=_example("scalevec report", "scalevec report my_claims.py --out results/mine"))
@click.argument("names", nargs=-1, metavar="[CLAIM[:SCOPE] | FILE.py[:CLAIM[:SCOPE]]]...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("results/report"),
    show_default=True,
    help="Folder for the pages.",
)
@effort
@seed
@jobs
@click.option(
    "--figures",
    "drawn",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Take the figures that are there instead of drawing them.",
)
@click.option("--api", is_flag=True, help="Add the reference of the Python packages.")
def report(
    names: tuple[str, ...], out: Path, effort: str, seed: int, jobs: int | None, drawn: Path | None, api: bool
) -> int:
    """Write claims, verdicts and figures as web pages, for all claims or those named.

    The pages need no network; open index.html.  What is stored in results/checks is not checked again.  Exit status 0
    whatever the verdicts, 2 for bad input or a claim's code that raises.
    """
    from simulations.checks import check_all, find_targets
    from simulations.drawing import copy_drawn, describe, draw_all
    from simulations.paper_checks import options
    from simulations.parallel import cores
    from simulations.store import check_writable
    from simulations.tables import progress

    try:
        from simulations.api_reference import write_api
        from simulations.report import check_formulas, figures_needed, write_report
    except ModuleNotFoundError as missing:
        raise ValueError(f"a report needs the package {missing.name}: pip install 'scalevec[report]'") from missing
    targets = find_targets(names)
    check_formulas(targets)
    shown = figures_needed(targets)
    descriptions = describe(shown)
    out.mkdir(parents=True, exist_ok=True)
    check_writable(out / "index.html")
    processes = cores() if jobs is None else jobs
    with progress("scopes") as tell:
        results = check_all(targets, effort=effort, seed=seed, jobs=processes, report=tell)
    if waiting := shown if drawn is None else copy_drawn(shown, drawn, out / "figures"):
        with progress("figures") as tell:
            draw_all(waiting, out / "figures", seed, processes, tell)
    if api:
        write_api(out / "api")
    command = f"scalevec report{options(effort, seed)} {' '.join(names)}".rstrip()
    click.echo(write_report(targets, results, descriptions, out, effort=effort, seed=seed, command=command, api=api))
    return _raised(results)


@main.command(epilog=_example("scalevec discover dual-scale --dims c=2,d=3", "scalevec discover my_model.py:forward"))
@click.argument("parametrization", metavar="FILE.py:NAME | BUILT-IN")
@click.option("--degree", type=int, default=2, show_default=True, help="Largest degree of a law.")
@click.option("--dims", default="", metavar="c=2,d=3", help="Sizes of the named axes.")
@seed
def discover(parametrization: str, degree: int, dims: str, seed: int) -> None:
    """Find what gradient flow conserves for every loss, and say whether that is all.

    A function of your own takes the blocks of one matrix, their shapes as default values, and returns the matrix:
    def forward(v=(2,), W=(3, 2)): return W * v
    """
    from simulations.discover import discover

    click.echo(discover(parametrization, degree=degree, dims=_dims(dims), seed=seed))


def _dims(text: str) -> dict[str, int] | None:
    """Sizes from ``c=2,d=3``; None for an empty text.

    Raises
    ------
    ValueError : not of this form, or a size below 1.
    """
    sizes = {}
    for part in filter(None, text.split(",")):
        name, _, size = (x.strip() for x in part.partition("="))
        if not name or not size.isdecimal() or int(size) < 1:
            raise ValueError(f"dims={text!r}: expected sizes >= 1 such as c=2,d=3")
        sizes[name] = int(size)
    return sizes or None


@main.command("new-claim", epilog=_example("scalevec new-claim my-idea", "scalevec check my_idea.py"))
@click.argument("name")
def new_claim(name: str) -> None:
    """Write a claim file and its test here; both run at once, and are yours to edit."""
    from simulations.new_claim import write_claim

    file, test = write_claim(name, Path())
    click.echo(f"wrote {file} and {test}; now run\n  scalevec check {file}\n  pytest {test}")


main.add_command(equilibrium)
main.add_command(audit)
main.add_command(train)
main.add_command(experiment)
main.add_command(sweep)
main.add_command(runs)

if __name__ == "__main__":
    main()
