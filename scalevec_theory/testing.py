"""The kit for property tests of new claims: Hypothesis strategies, and assertions that print a counterexample to paste.

from scalevec_theory.testing import assert_dominates
from scalevec_theory.parametrizations import INPUT_SCALE, PLAIN

def test_scaling_helps():
    assert_dominates(INPUT_SCALE, PLAIN, inputs="uncorrelated")
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from scalevec_theory import parametrizations as built_in
from scalevec_theory import scopes
from scalevec_theory.check import Source, check_scope, describe, installed_source
from scalevec_theory.claim import Claim, Result, Scope, Verdict
from scalevec_theory.losses import CrossEntropy, LeastSquares
from scalevec_theory.parametrizations import Parametrization
from scalevec_theory.problems import Diagonal, Identity, PositiveDefinite, Probabilities, Problems, ProblemSpace, Real
from scalevec_theory.registry import scope as find_scope

_LATENTS = st.floats(-3, 3, allow_subnormal=False).map(lambda x: round(x, 3))


@st.composite
def problems(draw: st.DrawFn, space: ProblemSpace) -> Problems:
    """One problem (a batch of 1) of a problem space; it shrinks to small sizes and round latents."""
    dims = {letter: draw(st.sampled_from(sorted(sizes))) for letter, sizes in space.dims.items()}
    fields = {
        name: kind.decode(draw(hnp.arrays(np.float64, (1, *kind.latent_shape(dims)), elements=_LATENTS)), dims)
        for name, kind in space.fields.items()
    }
    return space.batch(fields, dims)


def parametrizations() -> st.SearchStrategy[Parametrization]:
    """One of the built-in parametrisations."""
    return st.sampled_from(list(built_in.BUILT_IN.values()))


@st.composite
def starts(draw: st.DrawFn, parametrization: Parametrization, c: int, d: int) -> dict[str, Tensor]:
    """Standard initialisation (a batch of 1) at some W(0), with blocks that make θ of c rows and d columns."""
    dims = {"c": c, "d": d}
    for letter in parametrization.theta_rows.replace("c", ""):
        dims[letter] = draw(st.sampled_from([size for size in range(1, dims["c"] + 1) if dims["c"] % size == 0]))
        dims["c"] //= dims[letter]
    shape = (1, *parametrization.shapes(**dims)["W"])
    return parametrization.init(torch.from_numpy(draw(hnp.arrays(np.float64, shape, elements=_LATENTS))))


def least_squares(c: int, d: int) -> st.SearchStrategy[LeastSquares]:
    """Squared losses (a batch of 1): whitened, uncorrelated or correlated inputs."""
    kinds = [Identity("dd"), Diagonal("dd"), PositiveDefinite("dd")]
    spaces = [ProblemSpace("any inputs", {"c": (c,), "d": (d,)}, {"H": kind, "T": Real("cd")}) for kind in kinds]
    return st.one_of([problems(space) for space in spaces]).map(lambda p: LeastSquares(p["H"], p["T"]))


def cross_entropies(c: int, d: int, n: int = 5) -> st.SearchStrategy[CrossEntropy]:
    """Softmax cross-entropies of n samples (a batch of 1)."""
    fields = {"X": Real("nd"), "Y": Probabilities("nc")}
    space = ProblemSpace("softmax cross-entropy", {"c": (c,), "d": (d,), "n": (n,)}, fields)
    return problems(space).map(lambda p: CrossEntropy(p["X"], p["Y"]))


def losses(c: int, d: int) -> st.SearchStrategy[LeastSquares | CrossEntropy]:
    """Any built-in loss (a batch of 1) for c outputs and d inputs."""
    return st.one_of(least_squares(c, d), cross_entropies(c, d))


def assert_holds(scope: Scope | str, *, effort: str = "quick", seed: int = 0, budget: int | None = None) -> None:
    """Fail unless the scope (or ``"claim:scope"``) is proved or confirmed; the failure shows a counterexample."""
    scope, source = _resolve(scope)
    result = _check(scope, effort, seed, budget)
    if result.verdict not in (Verdict.PROVED, Verdict.CONFIRMED):
        raise AssertionError(_explain(scope, source, result, "expected it to hold"))


def assert_refuted(scope: Scope | str, *, effort: str = "quick", seed: int = 0, budget: int | None = None) -> None:
    """Fail unless a verified counterexample to the scope (or ``"claim:scope"``) is found."""
    scope, source = _resolve(scope)
    result = _check(scope, effort, seed, budget)
    if result.verdict != Verdict.REFUTED:
        raise AssertionError(_explain(scope, source, result, "expected a counterexample"))


def assert_conserved(
    parametrization: Parametrization,
    quantity: Callable[[Mapping[str, Tensor]], Tensor],
    *,
    dims: Mapping[str, tuple[int, ...]] | None = None,
    accuracy: float = 1e-8,
    seed: int = 0,
    budget: int = 300,
) -> None:
    """Fail unless ``quantity(blocks)`` stays constant along gradient flow of squared losses from any start.

    ``quantity`` maps blocks ``(B, S, *block)`` by name to values ``(B, S, ...)``.
    """
    scope = scopes.conserved(parametrization, quantity, accuracy=accuracy, dims=dims)
    lines, names = _references(parametrization, quantity)
    call = f"conserved({', '.join([*names, *_changed(scopes.conserved, dims=dims, accuracy=accuracy)])})"
    _assert_no_violation(scope, (["from scalevec_theory.scopes import conserved", *lines], call), seed, budget)


def assert_dominates(
    faster: Parametrization,
    slower: Parametrization,
    *,
    inputs: str = "correlated",
    zero_start: bool = True,
    dims: Mapping[str, tuple[int, ...]] | None = None,
    accuracy: float = 1e-8,
    seed: int = 0,
    budget: int = 2000,
) -> None:
    """Fail unless gradient flow of ``faster`` never has the larger squared loss, from the same W(0).

    ``inputs`` is whitened, uncorrelated or correlated; ``zero_start`` asks for W(0) = 0.
    """
    scope = scopes.dominates(faster, slower, inputs=inputs, zero_start=zero_start, accuracy=accuracy, dims=dims)
    lines, names = _references(faster, slower)
    given = [f"inputs={inputs!r}", f"zero_start={zero_start}"]
    call = f"dominates({', '.join([*names, *given, *_changed(scopes.dominates, dims=dims, accuracy=accuracy)])})"
    _assert_no_violation(scope, (["from scalevec_theory.scopes import dominates", *lines], call), seed, budget)


def assert_exponent(
    function: Callable[[Tensor], Tensor],
    exponent: float,
    *,
    low: float,
    high: float,
    tolerance: float = 0.05,
    seed: int = 0,
    budget: int = 200,
) -> None:
    """Fail unless every local log-log slope of ``function`` on [low, high] is ``exponent`` to within ``tolerance``."""
    scope = scopes.grows_like(function, exponent, low=low, high=high, tolerance=tolerance)
    lines, names = _references(function)
    call = f"grows_like({names[0]}, {exponent}, low={low}, high={high}, tolerance={tolerance})"
    _assert_no_violation(scope, (["from scalevec_theory.scopes import grows_like", *lines], call), seed, budget)


def _check(scope: Scope, effort: str, seed: int, budget: int | None) -> Result:
    claim = Claim("test", scope.statement, scope.statement, "a test", (scope,))
    return check_scope(claim, scope, effort=effort, seed=seed, budget=budget)


def _changed(function: Callable[..., Scope], **arguments: Any) -> list[str]:
    """Those arguments, as code, that are not the function's defaults."""
    defaults = {name: p.default for name, p in inspect.signature(function).parameters.items()}
    return [f"{name}={value!r}" for name, value in arguments.items() if value != defaults[name]]


def _assert_no_violation(scope: Scope, source: Source, seed: int, budget: int) -> None:
    result = _check(scope, "quick", seed, budget)
    if result.verdict != Verdict.CONFIRMED:
        raise AssertionError(_explain(scope, source, result, "expected no violation"))


def _explain(scope: Scope, source: Source, result: Result, expectation: str) -> str:
    lines = [f"{scope.statement}", f"verdict: {result.verdict} ({expectation})"]
    lines += [
        f"{e.kind}: {e.detail}" + ("" if e.margin is None else f"; margin {e.margin:.6g}") for e in result.evidence
    ]
    found = result.counterexample
    if found is not None and scope.space is not None:
        code = describe(scope, scope.space.problem(found.fields), source).code
        bound = "" if not any(line.startswith("# ") for line in source[0]) else ", once what is a comment is bound"
        lines += [f"counterexample of margin {found.margin:.6g}{bound}, to paste and run:", "", code]
    return "\n".join(lines)


def _resolve(scope: Scope | str) -> tuple[Scope, Source]:
    """The scope and how to name it in code: by its address, in the file that defines it where not installed."""
    if isinstance(scope, str):
        return find_scope(scope), installed_source(scope)
    for module in list(sys.modules.values()):
        # type(x), not isinstance: that would ask modules' deprecated attributes for their class, and they warn
        for claim in [x for x in list(vars(module).values()) if type(x) is Claim] if module is not None else []:
            if any(s is scope for s in claim.scopes):
                installed = module.__name__.startswith(("scalevec_theory.", "simulations."))
                return scope, installed_source(f"{claim.id}:{scope.name}", None if installed else module.__file__)
    return scope, (["# scope: the object this test checked"], "scope")


def _references(*objects: Any) -> tuple[list[str], list[str]]:
    """Lines that bind each object to a name, and the names: an import where possible, else the object's source."""
    lines: list[str] = []
    names: list[str] = []
    for x in objects:
        module = next(
            (m for m in [built_in, *sys.modules.values()] if m is not None and _global_name(m, x) is not None), None
        )
        if module is not None:
            name = _global_name(module, x)
            assert name is not None
            source, importable = getattr(module, "__file__", None), module.__name__
            if source and importable.partition(".")[0] not in packages_distributions():
                lines += ["import sys", f"sys.path.insert(0, {str(Path(source).parent)!r})"]
                importable = Path(source).stem
            lines.append(f"from {importable} import {name}")
        else:
            binding, name = _binding(x)
            if name in names:
                before, name = name, f"{name}_{len(names) + 1}"
                binding = binding.replace(f"{before} =", f"{name} =", 1)
            lines.append(binding)
        names.append(name)
    return lines, names


def _binding(x: Any) -> tuple[str, str]:
    """Source that binds an object local to a test to a name, as a comment where it cannot stand alone."""
    try:
        source = textwrap.dedent(inspect.getsource(x)).strip()
    except (OSError, TypeError):
        return f"# value = {x!r}", "value"
    captured = _captured(x)
    with contextlib.suppress(SyntaxError):
        nodes = list(ast.walk(ast.parse(source)))
        lambdas = [n for n in nodes if isinstance(n, ast.Lambda)]
        if captured is not None and x.__name__ == "<lambda>" and len(lambdas) == 1:
            return "\n".join([*captured, f"function = {ast.get_source_segment(source, lambdas[0])}"]), "function"
        if captured is not None and x.__name__ != "<lambda>":
            return "\n".join([*captured, source]), x.__name__
    return "# function is local to the test:\n# function = " + source.replace("\n", "\n# "), "function"


def _captured(function: Any) -> list[str] | None:
    """Lines that bind the numbers, texts and modules a function takes from around it; None if it takes more."""
    around = inspect.getclosurevars(function)
    lines = []
    for name, value in {**around.globals, **around.nonlocals}.items():
        if isinstance(value, ModuleType):
            lines.append(f"import {value.__name__} as {name}")
        elif isinstance(value, int | float | str):
            lines.append(f"{name} = {value!r}")
        else:
            return None
    return lines


def _global_name(module: Any, x: Any) -> str | None:
    if not hasattr(module, "__dict__"):
        return None
    return next((k for k, value in list(vars(module).items()) if value is x and not k.startswith("_")), None)
