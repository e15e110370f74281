"""Every figure draws itself, the same for the same seed, and is the one that the claims name."""

from __future__ import annotations

import importlib
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import figures
from figures import bands, style, training_effects
from scalevec_theory.registry import installed_claims
from simulations.lm.contrast import Estimate, difference
from simulations.lm.experiments import EXPERIMENTS
from simulations.report import TRAINING

NAMES = sorted(figures.available())
BUDGET = 150.0
"""CPU seconds for one drawing of all figures."""


COARSE = {
    "curvature": {"END": 16.0, "PATHS": 4},
    "decay-pumping": {"SAVED": np.array([50, 100])},
    "equilibrium": {"STEPS": 120},
    "growth-test": {"TRIALS": 8},
    "law-of-balance": {"TIMES": np.linspace(0, 2, 20)},
    "norm-spread": {"RATES": (0.02, 0.05)},
    "predicted-norms": {"STEPS": 120},
}
"""Sizes at which the slowest figures are drawn here: the same code, to shorter runs."""


@pytest.fixture(scope="module", autouse=True)
def few_pixels():
    """At the resolution of the SVG both pictures of a figure are laid out and set in type alike, and that once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(style.SETTINGS, "savefig.dpi", 72)
        yield


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Every figure drawn once: its files by name, and the CPU seconds of all."""
    out = tmp_path_factory.mktemp("figures")
    modules = {name: importlib.import_module(module) for name, module in figures.available().items()}
    settings = dict(matplotlib.rcParams)
    started = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        for name, sizes in COARSE.items():
            for size, value in sizes.items():
                patch.setattr(modules[name], size, value)
        files = {name: module.draw(out, 0) for name, module in modules.items()}
    seconds = time.process_time() - started
    assert dict(matplotlib.rcParams) == settings
    return out, files, seconds


@pytest.mark.parametrize("name", NAMES)
def test_draws_a_vector_and_a_pixel_image(drawn, name):
    out, files, _ = drawn
    assert files[name] == [out / f"{name}.svg", out / f"{name}.png"]
    svg, png = (path.read_bytes() for path in files[name])
    assert ElementTree.fromstring(svg).tag.endswith("svg") and b"<dc:date>" not in svg
    assert png.startswith(b"\x89PNG") and len(png) > 5_000


def test_leaves_nothing_else_behind_and_is_quick(drawn):
    out, files, seconds = drawn
    assert {p.name for p in out.iterdir()} == {p.name for paths in files.values() for p in paths}
    assert seconds < BUDGET


@pytest.mark.parametrize("name", ["dual-placement", "absorption"])
def test_same_seed_same_bytes_and_another_seed_another_picture(drawn, tmp_path, name):
    module = importlib.import_module(figures.available()[name])
    first = drawn[1][name][0].read_bytes()
    assert module.draw(tmp_path / "again", 0)[0].read_bytes() == first
    assert module.draw(tmp_path / "other", 1)[0].read_bytes() != first


@pytest.mark.parametrize("name", [n for n in TRAINING if n not in ("training-effects", "training-mechanisms")])
def test_an_outcome_that_is_not_there_is_left_out(tmp_path, monkeypatch, name):
    monkeypatch.setattr(bands, "committed", lambda experiment: None)
    svg, png = importlib.import_module(figures.available()[name]).draw(tmp_path, 0)
    assert svg.exists() and png.exists()


def test_every_quantity_of_the_training_effects_has_its_words():
    quantities = {c.quantity for e in EXPERIMENTS.values() for c in e.contrasts}
    assert set(training_effects.WORDS) == quantities


def test_an_axis_that_is_logarithmic_at_its_ends_names_a_number_near_the_middle_effect():
    rows = [
        ("e", difference(f"c{k}", "a", "b"), Estimate(x, 0.0, x, x, 2, 0.0)) for k, x in enumerate((0.075, 2.0, 0.02))
    ]
    ax = Figure().add_subplot()
    training_effects.forest(ax, "difference of held-out losses", rows)
    assert ax.get_xscale() == "symlog" and 0.1 in ax.get_xticks()


def test_every_figure_a_claim_names_exists_and_every_claim_names_one():
    for claim in installed_claims().values():
        assert claim.figures, claim.id
        assert set(claim.figures) <= set(NAMES), claim.id


def test_a_failed_write_leaves_no_file(tmp_path, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    with style.context():
        figure, (ax,) = style.panels(1, 1, 1.0)
        ax.plot(np.arange(3))
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError):
            style.save(figure, tmp_path, "line")
    assert list(tmp_path.iterdir()) == []
