"""``scalevec report``: claims, verdicts and figures as a folder of web pages that need no network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from scalevec_theory.claim import Claim, Evidence, Result, Scope, Verdict
from scalevec_theory.growth import LEAST_SLOPE
from simulations.checks import Target
from simulations.lm.experiment import committed
from simulations.lm.experiments import EXPERIMENTS
from simulations.mathematics import font_face, mathml, with_indices
from simulations.paper_checks import in_words, options, shown, summary
from simulations.phase_tables import diagrams
from simulations.store import write_text

SIGNS = {
    Verdict.PROVED: "∎",
    Verdict.CONFIRMED: "✓",
    Verdict.REFUTED: "✗",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NOT_RUN: "–",
}
PAPER = re.compile(r"arXiv (\d{4}\.\d{5})")
TRAINING = (
    "training-effects",
    "training-mechanisms",
    "training-curves",
    "scaling-law",
    "size-sweeps",
    "measured-norms",
    "measured-crossover",
    "block-outputs",
    "curvature-training",
    "width-scaling",
    "conserved-drift",
)
COST = ("cost-of-problems", "cost-of-dimensions", "cost-of-paths", "cost-of-workers")
PHASE = ("curvature", "optimizer-curvature")
"""Figures of the pages Training, Cost and Phase diagrams; the last has only those of the claims that are shown."""


@dataclass(frozen=True)
class Figure:
    """A picture in the folder ``figures`` of the report, and one sentence that says what is seen."""

    name: str
    description: str


@dataclass(frozen=True)
class Page:
    """The page of one claim: where it is, its scopes with their results, its formula as MathML."""

    file: str
    claim: Claim
    scopes: Sequence[tuple[Target, Result]]
    figures: Sequence[Figure]
    formula: Markup

    @property
    def papers(self) -> list[str]:
        """The papers that the source names, or "other"."""
        return list(dict.fromkeys(m.group() for m in PAPER.finditer(self.claim.source))) or ["other"]

    @property
    def arguments(self) -> list[str]:
        return [target.argument for target, _ in self.scopes]

    @property
    def command(self) -> str:
        """What names the whole claim on the command line."""
        return self.arguments[0].removesuffix(f":{self.scopes[0][0].scope.name}")


@dataclass(frozen=True)
class Link:
    file: str
    title: str


def check_formulas(targets: Sequence[Target]) -> None:
    """Raise ValueError if a claim's formula cannot be parsed: before a long check rather than after it."""
    for claim in {t.claim.id: t.claim for t in targets}.values():
        _formula(claim)


def _formula(claim: Claim) -> Markup:
    return mathml(claim.formula, f"claim {claim.id}") if claim.formula else Markup()


def figures_needed(targets: Sequence[Target]) -> list[str]:
    """The figures that the report on these targets shows, each once."""
    return list(dict.fromkeys([name for t in targets for name in t.claim.figures] + [*TRAINING, *COST]))


def write_report(
    targets: Sequence[Target],
    results: Sequence[Result],
    descriptions: Mapping[str, str],
    out: Path,
    *,
    effort: str = "quick",
    seed: int = 0,
    command: str = "scalevec report",
    api: bool = False,
) -> Path:
    """Write the pages on these targets and their results, and return the first.

    Same targets and results, same bytes.  How long a check took stands in ``times.js`` only.

    Parameters
    ----------
    descriptions : by name, what is seen in every figure of `figures_needed`; the pictures are in ``out/figures``.
    command : what wrote the report, for its foot.
    api : link to the reference of the Python packages in ``out/api``.

    Raises
    ------
    ValueError : a claim's formula cannot be parsed.
    OSError : ``out`` cannot be written.
    """
    claims = _pages(targets, results, descriptions)
    pictures = {name: Figure(name, text) for name, text in descriptions.items()}
    phase = [pictures[name] for name in PHASE if name in pictures]
    links = [Link("index.html", "Claims"), Link("training.html", "Training")]
    links += [Link("phase.html", "Phase diagrams")] if phase else []
    links += [Link("cost.html", "Cost")]
    links += [Link("api/index.html", "Python reference")] if api else []
    render = _renderer(effort, {"pages": links, "command": command, "settings": options(effort, seed)})

    (out / "claims").mkdir(parents=True, exist_ok=True)
    for before, page, after in zip([None, *claims], claims, [*claims[1:], None], strict=False):
        write_text(out / page.file, render("claim.html", page.file, page=page, before=before, after=after))
    experiments = [(e, committed(e)) for e in EXPERIMENTS.values()]
    effects, *others = (pictures[name] for name in TRAINING)
    write_text(
        out / "training.html",
        render("training.html", "training.html", effects=effects, others=others, experiments=experiments),
    )
    write_text(
        out / "cost.html",
        render("cost.html", "cost.html", claims=claims, figures=[pictures[name] for name in COST]),
    )
    if phase:
        write_text(
            out / "phase.html",
            render("phase.html", "phase.html", diagrams=diagrams(results), figures=phase, least=LEAST_SLOPE),
        )
    for name in ("style.css", "report.js"):
        write_text(out / name, (files("simulations") / "templates" / "report" / name).read_text(encoding="utf-8"))
    write_text(out / "math.css", font_face("report-math", [p.formula for p in claims]))
    times = {t.argument: round(r.seconds, 2) for t, r in zip(targets, results, strict=True)}
    write_text(out / "times.js", f"const TIMES = {json.dumps(times, ensure_ascii=False, indent=1)};\n")
    filters = {
        "paper": sorted({paper for page in claims for paper in page.papers}),
        "verdict": [v for v in SIGNS if any(r.verdict == v for r in results)],
        "kind": sorted({kind for r in results for kind in kinds(r)}),
    }
    front = {"claims": claims, "filters": filters, "summary": summary(results), "verdicts": list(SIGNS)}
    write_text(out / "index.html", render("index.html", "index.html", **front))
    return out / "index.html"


def _pages(targets: Sequence[Target], results: Sequence[Result], descriptions: Mapping[str, str]) -> list[Page]:
    """One page for each claim; claims of the same name in several files get numbers."""
    pages: list[Page] = []
    taken: dict[str, int] = {}
    for _, group in groupby(zip(targets, results, strict=True), key=lambda pair: (pair[0].claim.id, pair[0].file)):
        scopes = list(group)
        claim = scopes[0][0].claim
        taken[claim.id] = taken.get(claim.id, 0) + 1
        number = f"--{taken[claim.id]}" if taken[claim.id] > 1 else ""
        figures = [Figure(name, descriptions[name]) for name in claim.figures]
        pages.append(Page(f"claims/{claim.id}{number}.html", claim, scopes, figures, _formula(claim)))
    return pages


def kinds(result: Result) -> list[str]:
    """The kinds of evidence behind a result, each once."""
    return list(dict.fromkeys(e.kind for e in result.evidence))


def _linked(source: str) -> Markup:
    """A source in which papers are links."""
    return Markup(PAPER.sub(r'<a href="https://arxiv.org/abs/\1">\g<0></a>', str(escape(source))))


def _renderer(effort: str, shared: Mapping[str, Any]) -> Callable[..., str]:
    """A function of a template's name, the page's file and what else the template shows."""
    environment = Environment(
        loader=PackageLoader("simulations", "templates/report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

    def words(evidence: Evidence, scope: Scope) -> str:
        return in_words(scope, evidence, effort)

    environment.filters |= {
        "sign": SIGNS.__getitem__,
        "css": lambda verdict: str(verdict).replace(" ", "-"),
        "kinds": kinds,
        "shown": shown,
        "linked": _linked,
        "indices": with_indices,
        "in_words": words,
        "signed": lambda x, digits: f"{x:+.{digits}f}".replace("-", "−"),
    }

    def render(template: str, file: str, **content: Any) -> str:
        root = "../" * file.count("/")
        return environment.get_template(template).render(here=file, root=root, **shared, **content)

    return render
