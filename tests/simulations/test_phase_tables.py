"""Phase diagrams as tables: every cell that a check measures finds its place."""

import numpy as np
import pytest

from scalevec_theory import phase
from scalevec_theory.claim import Result, Setting, Verdict
from scalevec_theory.growth import Growth
from scalevec_theory.registry import installed_claims
from scalevec_theory.theorems import optimizer_curvature
from simulations.phase_tables import Cell, diagrams

GROWTH = Growth(-0.25, 0.125)


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """Every measured scope of the two claims, its simulations replaced by one answer."""
    means = np.ones((16, 3))
    monkeypatch.setattr(phase, "simulate", lambda *a, **k: phase.Cell(np.ones(3), means, GROWTH))
    monkeypatch.setattr(
        optimizer_curvature, "trace_growth", lambda name, c, starts, **k: (np.ones(3), dict.fromkeys(starts, means))
    )
    monkeypatch.setattr(optimizer_curvature, "growth", lambda *a: GROWTH)
    found = []
    for claim in (installed_claims()[name] for name in ("curvature", "optimizer-curvature")):
        for scope in claim.scopes:
            if scope.measure is not None and scope.name != "stationary-moments":
                evidence = scope.measure(Setting("quick", 0, np.random.default_rng(0)))
                found.append(Result(claim.id, scope.name, "", Verdict.CONFIRMED, True, 0.0, tuple(evidence)))
    return found


def test_what_was_measured_stands_in_its_cell(results: list[Result]) -> None:
    isotropic, minibatch, label, optimizers = diagrams(results)
    assert isotropic.rows["c = 1"] == [Cell(theory, GROWTH) for theory in ("t/ln t", "t/ln t", "t/ln t", "bounded")]
    assert [cell.measured for cell in isotropic.rows["c = 2"]] == [None] * 4
    assert all(cell.theory == "bounded" for table in (minibatch, label) for row in table.rows.values() for cell in row)
    assert list(optimizers.rows)[:2] == ["SGD, c = 1", "SGD, c = 4"]
    assert all(cell == Cell("", GROWTH) for row in optimizers.rows.values() for cell in row)
    cells = [cell for table in (isotropic, minibatch, label) for row in table.rows.values() for cell in row]
    measured = [e for r in results if r.scope.endswith("-measured") for e in r.evidence]
    assert sum(cell.measured is not None for cell in cells) == len(measured)


def test_theory_needs_no_measurement() -> None:
    assert [table.title for table in diagrams([])] == [
        "Independent noise",
        "Minibatch noise",
        "Label noise, correlated inputs",
    ]
    assert Cell("√t", None).answer == "growing" and Cell("", GROWTH).answer == "undecided"
    assert Cell("", Growth(-0.25, 0.01)).answer == "bounded"
