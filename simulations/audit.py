"""``scalevec audit``: every norm scale of a real model, on one page."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from simulations.models.audit import Audit, Row
    from simulations.models.targets import Subject

SIZES = ("auto", "tiny", "given")
RULES = ("dim_rule", "trainer", "all", "iwd")
STEPS = {
    "untie_lm_head": "untie first",
    "handle_norm_bias": "with biases",
    "rescale router and every expert": "all experts",
}

LEGEND = """\
ppm: parts in a million of all parameters.  Q: range over channels of v² + b² − Σ‖w‖², which gradient flow keeps; given:
its mean at the given sizes, if entries start with the spread they have here.  d T a I: decayed by the dimension rule
(two axes or more), by Trainer's name patterns, by one group for all, by individual weight decay; to: the effective
value that decay pulls to."""

path = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="\b\nExample:\n"
    "  scalevec audit LlamaConfig\n"
    "  scalevec audit gemma2 --set num_hidden_layers=26 --json gemma2.json\n"
    "  scalevec audit my_model.py:build"
)
@click.argument("target", metavar="CLASS | TYPE | config.json | FOLDER | FILE.py:FUNCTION")
@click.option(
    "--sizes",
    type=click.Choice(SIZES),
    default="auto",
    show_default=True,
    help="Of a configuration: as given, or shrunk; auto: as given up to 20 million parameters.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A field of the configuration, as JSON.")
@click.option("--json", "json_file", type=path, metavar="FILE", help="Write the rows as JSON.")
def audit(target: str, sizes: str, settings: tuple[str, ...], json_file: Path | None) -> None:
    """Audit the norm scales of a model: what reads them, whether they fold, what decays them.

    TARGET is a configuration class of transformers or its model type, built with random weights; a config.json; a
    folder with a saved model; or a function without arguments that returns a torch module and an example input.
    Nothing is downloaded.  Counts and shares are those of the given sizes, also where the model is built smaller.
    """
    from simulations.models.audit import audit as run_audit
    from simulations.models.targets import find_subject
    from simulations.settings import parse_settings
    from simulations.store import check_writable, write_json
    from simulations.tables import console, progress

    if json_file is not None:
        check_writable(json_file)
    overrides = parse_settings(settings)
    with progress("building, tracing") as tell:
        tell(0, 2)
        subject = find_subject(target, sizes=sizes, overrides=overrides)  # type: ignore[arg-type]
        tell(1, 2)
        found = run_audit(subject.model, subject.example, counts=subject.given)
        tell(2, 2)
    if json_file is not None:
        write_json(json_file, found.as_json()["rows"])
    out = console()
    out.print(heading(subject))
    out.print(table(found))
    out.print(LEGEND)
    out.print(summary(found))


def heading(subject: Subject) -> str:
    built = f"{type(subject.model).__name__}, {sum(p.numel() for p in subject.model.parameters()):,} parameters"
    if subject.given is None:
        return f"{subject.name}: {built}"
    return f"{subject.name}: traced as a tiny {built}; counts and shares are those of the given sizes"


def table(found: Audit) -> Table:
    """One line for all rows that differ in layer numbers only."""
    from rich.table import Table

    alike: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in found.rows:
        alike[_key(row)].append(row)
    columns = Table(box=None, pad_edge=False, collapse_padding=True)
    columns.add_column("norm parameter", overflow="fold", min_width=26)
    columns.add_column("×", justify="right")
    for name in ("role", "scale"):
        columns.add_column(name)
    columns.add_column("read by :axis", overflow="fold", min_width=22)
    columns.add_column("folds", max_width=12)
    for name in ("ppm", "Q", "given"):
        columns.add_column(name, justify="right")
    columns.add_column("d T a I")
    columns.add_column("to", justify="right")
    prefix = _common_prefix([row.template for row in found.rows])
    for group in alike.values():
        row = group[0]
        copies = sum(found.copies[row.param or row.norm] for row in group)
        q = [r.q for r in group if r.q is not None]
        given = [x.given for x in q if x.given is not None]
        columns.add_row(
            row.template.removeprefix(prefix),
            str(copies),
            row.role,
            row.effective,
            ", ".join(_read_by(row)),
            _folds(row),
            "" if row.share is None else f"{1e6 * copies * row.share:.2g}",
            f"{min(x.min for x in q):.2g}…{max(x.max for x in q):.2g}" if q else "",
            f"{sum(given) / len(given):.2g}" if given else "",
            " ".join(_mark(row.decay[key]) for key in RULES),
            "" if row.decay_target is None else f"{row.decay_target:g}",
        )
    return columns


def _key(row: Row) -> tuple[object, ...]:
    return (row.template, row.role, row.effective, tuple(_read_by(row)), row.reason, tuple(row.decay.values()))


def _common_prefix(names: list[str]) -> str:
    """The first components that all names begin with, as ``model.``; never a whole name."""
    components = zip(*(name.split(".")[:-1] for name in names), strict=False)
    common = takewhile(lambda column: len(set(column)) == 1, components)
    return "".join(f"{column[0]}." for column in common) if len(names) > 1 else ""


def _read_by(row: Row) -> list[str]:
    """Consumers without what their names share with the norm's, each with its input axis; then what else reads it."""
    from simulations.models.roles import template

    prefix = template(row.norm).rpartition(".")[0] + "."
    alike: Counter[str] = Counter()
    for consumer in row.consumers:
        plain = template(consumer.partition(" ")[0]).removesuffix(".weight")
        axis = f":{row.input_axes[consumer]}" if consumer in row.input_axes else ""
        alike[plain.removeprefix(prefix) + axis] += 1
    names = [name if n == 1 else f"{n} × {name}" for name, n in alike.items()]
    return [*names, *(re.sub(r"_scaled_dot_product.*", "attention", other) for other in row.others)]


def _folds(row: Row) -> str:
    if row.fold_exact is None:
        return ""
    steps = ", ".join(STEPS[step] for step in row.requires)
    return (f"yes{', ' if steps else ''}" if row.fold_exact else "no" if row.role != "input" else "") + steps or "no"


def _mark(decays: bool | None) -> str:
    return " " if decays is None else "✓" if decays else "–"


def summary(found: Audit) -> str:
    """Totals, what the signs of Q mean, and the warnings."""
    from simulations.models.pitfalls import listed

    t = found.totals
    roles = ", ".join(f"{role} {n:,}" for role, n in t.by_role.items()) or "none"
    lines = ["", f"norm scales: {t.scales:,} of {t.parameters:,} parameters ({t.scales / t.parameters:.4%}): {roles}"]
    if t.biases:
        lines.append(f"norm biases: {t.biases:,}")
    notes: dict[str, list[str]] = defaultdict(list)
    for row in found.rows:
        if row.q is not None:
            notes[row.q.sign_note].append(row.template)
    lines += [f"{note} ({listed(names)})" for note, names in notes.items()]
    return "\n".join(lines + [f"warning: {w}" for w in found.warnings])
