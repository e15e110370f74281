"""Mathematics on web pages: what browsers are given, and what is refused."""

import base64
import io
import re

import pytest
from fontTools.ttLib import TTFont

from scalevec_theory.registry import installed_claims
from simulations.mathematics import font_face, mathml, with_indices


def test_every_claim_has_a_formula_that_is_set() -> None:
    for claim in installed_claims().values():
        assert mathml(claim.formula, claim.id).startswith("<math"), claim.id


@pytest.mark.parametrize(
    "formula",
    [r"\foo x", r"\frac{a}", "x_{", "a & b", r"\text{<script>x</script>}", r"\begin{aligned}a &= b\end{aligned}", " "],
)
def test_what_cannot_be_set_is_refused_with_its_name(formula: str) -> None:
    with pytest.raises(ValueError, match="formula of mine"):
        mathml(formula, "mine")


def test_norms_do_not_stretch_and_functions_keep_their_distance() -> None:
    assert '<mo stretchy="false" lspace="0" rspace="0">‖</mo>' in mathml(r"\lVert x \rVert", "x")
    assert '<mo lspace="0.17em" rspace="0.17em">ln</mo>' in mathml(r"\ln x", "x")
    assert '<mo lspace="0.17em" rspace="0">diag</mo>' in mathml(r"\operatorname{diag}(v)", "x")


def test_the_font_has_roots_italics_and_what_the_formula_says_and_no_more() -> None:
    rule = font_face("mine", [mathml(r"\sum_j \lVert w_j \rVert \odot \infty", "x")])
    assert rule == font_face("mine", [mathml(r"\sum_j \lVert w_j \rVert \odot \infty", "x")])
    data = re.search(r"base64,([^\"]+)", rule)
    assert data is not None
    font = TTFont(io.BytesIO(base64.b64decode(data[1])))
    signs = set(font["cmap"].getBestCmap())
    assert {ord(sign) for sign in "√∑‖⊙∞𝑤"} <= signs and ord("∮") not in signs
    assert "MATH" in font


def test_indices_and_exponents_in_text() -> None:
    assert with_indices("2λ_v v_j² ≤ e^{−2λt}") == "2λ<sub>v</sub> v<sub>j</sub>² ≤ e<sup>−2λt</sup>"
    assert with_indices("a_long_name < up_proj") == "a<sub>long</sub>_name &lt; up_proj"
