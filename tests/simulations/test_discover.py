"""``scalevec discover``: a user's file in, laws out, and one line for whatever is wrong."""

from __future__ import annotations

import pytest

from simulations.discover import discover

SOURCE = """
import numpy as np
from scalevec_theory.parametrizations import DUAL_SCALE as dual

def two_layer(U=(2, 1), V=(1, 2)):
    return U @ V

def torches(v=2, W=(3, 2)):
    import torch
    return W @ torch.diag(v)

def wave(x=2):
    return np.sin(x)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_function_in_a_file(file):
    assert discover(f"{file}:two_layer", 2, None, 0).splitlines() == [
        f"{file}:two_layer",
        "parameters 4, rank of the Lie algebra 3 at two rational points (0 brackets)",
        "polynomial laws up to degree 2: 1, independent 1",
        "  U[0,0]**2 + U[1,0]**2 - V[0,0]**2 - V[0,1]**2",
        "complete: 1 independent laws + rank 3 = 4 parameters",
    ]
    assert "incomplete: 0 of at most 1" in discover(f"{file}:two_layer", 1)


def test_a_parametrization_in_a_file_by_name_and_in_the_package_itself(file):
    dims = {"c": 1, "d": 2}
    results = [discover(t, 2, dims, 0).splitlines() for t in (f"{file}:dual", "dual-scale")]
    from scalevec_theory import parametrizations

    results.append(discover(f"{parametrizations.__file__}:DUAL_SCALE", 2, dims, 0).splitlines())
    assert results[1][0] == "dual-scale (c=1, d=2)"
    assert results[0][1:] == results[1][1:] == results[2][1:]
    assert results[0][-1] == "complete: 3 independent laws + rank 2 = 5 parameters"


@pytest.mark.parametrize(
    "name, message",
    [
        ("two_leyer", "'two_leyer'; nearest: two_layer"),
        ("wave", "sin"),
        ("np", "expected a Parametrization or a function"),
        ("dual", "dims: nothing; .* has the axes c, d: expected a size for each of them"),
        ("torches", "expected numpy's functions, not torch's"),
        ("", "expected FILE.py:NAME"),
    ],
)
def test_a_bad_name_is_one_line(file, name, message):
    with pytest.raises(ValueError, match=message) as error:
        discover(f"{file}:{name}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("dims", [{"c": 1}, {"c": 1, "d": 2, "q": 3}, {"q": 2}])
def test_sizes_of_other_axes_are_refused(dims):
    with pytest.raises(ValueError, match="dual-scale has the axes c, d"):
        discover("dual-scale", 2, dims)


def test_a_bad_file_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        discover(f"{tmp_path / 'none.py'}:f")
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\nraise KeyError('gone')\n")
    with pytest.raises(ValueError, match=r"broken\.py:2: KeyError: 'gone'"):
        discover(f"{broken}:f")
    with pytest.raises(ValueError, match=r"expected FILE\.py:NAME or one of plain, input-scale"):
        discover("inputscale")
