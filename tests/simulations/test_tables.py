"""What the command line says about a result: its numbers, and their signs."""

from scalevec_theory.claim import Claim, Counterexample, Evidence, Result, Scope, Verdict
from simulations.checks import Target
from simulations.tables import describe_evidence, describe_result, verdicts_table


def test_every_number_of_a_piece_of_evidence_is_told() -> None:
    search = Evidence("search", None, "so", margin=-1e-9, error=1e-8, instances=2000, invalid=3, undecided=1200)
    assert describe_evidence(search) == (
        "search: so (2,000 instances; 3 failed to compute, 1,200 within their numerical error; "
        "margin -1e-09; numerical error 1e-08)"
    )
    simulation = Evidence("simulation", True, "so", margin=0.3, stderr=0.03, instances=10)
    assert describe_evidence(simulation) == "simulation: so (10 instances; margin 0.3; standard error 0.03)"


def test_the_least_margin_is_shown_and_the_counterexample_s_in_full() -> None:
    scope = Scope("one", "1 ≥ 0", True, measure=lambda setting: [])
    target = Target(Claim("toy", "t", "s", "nowhere", (scope,)), scope)
    evidence = tuple(Evidence("simulation", None, "so", margin=margin, error=0.2) for margin in (0.5, -0.1))
    result = Result("toy", "one", "holds", Verdict.INCONCLUSIVE, False, 0.0, evidence)
    assert list(verdicts_table([target], [result]).columns[5].cells) == ["-0.1"]
    found = Counterexample({"x": -1}, -0.25, "code")
    refuted = Result("toy", "one", "holds", Verdict.REFUTED, False, 0.0, (), found)
    assert "counterexample, margin -0.25:\n\ncode" in describe_result(target, refuted)
