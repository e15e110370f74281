import os
import sys
from pathlib import Path

import pytest

import figures
from scalevec_theory.registry import UnknownName
from simulations.drawing import copy_drawn, describe, draw_all
from simulations.parallel import Raised

MODULE = """
def draw(out, seed):
    path = out / f"{__name__}-{seed}.svg"
    path.write_text("<svg/>")
    return [path]
"""


@pytest.fixture(autouse=True)
def two_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(figures, "available", lambda: {"first-one": "figure_one", "second": "figure_two"})
    for module in ("figure_one", "figure_two"):
        monkeypatch.delitem(sys.modules, module, raising=False)
        (tmp_path / f"{module}.py").write_text(MODULE)


def test_all_or_those_named_in_the_order_named(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    reports: list[tuple[int, int]] = []
    assert draw_all([], out, 0, 1, lambda *x: reports.append(x)) == [out / "figure_one-0.svg", out / "figure_two-0.svg"]
    assert reports == [(0, 2), (1, 2), (2, 2)]
    assert draw_all(["second", "first-one", "second"], out, 1, 1) == [
        out / "figure_two-1.svg",
        out / "figure_one-1.svg",
    ]
    assert sorted(os.listdir(out)) == [f"figure_{n}-{s}.svg" for n in ("one", "two") for s in (0, 1)]


def test_unknown_figures_and_bad_numbers(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no figure named 'secnod'; nearest: second"):
        draw_all(["secnod"], tmp_path / "out", 0, 1)
    with pytest.raises(ValueError, match="seed=-1: expected >= 0"):
        draw_all([], tmp_path / "out", -1, 1)
    with pytest.raises(ValueError, match="jobs=0: expected >= 1"):
        draw_all([], tmp_path / "out", 0, 0)
    assert not (tmp_path / "out").exists() or not os.listdir(tmp_path / "out")


def test_a_figure_that_raises_is_named(tmp_path: Path) -> None:
    (tmp_path / "figure_two.py").write_text("def draw(out, seed):\n    return 1 / 0\n")
    with pytest.raises(Raised, match=r"figure_two.py:2: ZeroDivisionError: division by zero"):
        draw_all(["second"], tmp_path, 0, 1)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        draw_all([], tmp_path / "file" / "out", 0, 1)


def test_only_figures_drawn_in_both_formats_are_copied(tmp_path: Path) -> None:
    for name in ("first.svg", "first.png", "half.svg"):
        (tmp_path / name).write_text(name)
    assert copy_drawn(["half", "first"], tmp_path, tmp_path / "out") == ["half"]
    assert sorted(os.listdir(tmp_path / "out")) == ["first.png", "first.svg"]


def test_a_figure_is_described_by_the_first_paragraph_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "figure_two.py").write_text('"""What is\nseen.\n\nSource: a paper.\n"""\n' + MODULE)
    assert describe(["second"]) == {"second": "What is seen."}
