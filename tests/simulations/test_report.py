"""The web pages: complete, escaped, the same bytes each time; in a browser they filter, copy and are accessible."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner, Result
from links import broken_links
from playwright.sync_api import Browser, Page, expect, sync_playwright
from toy import TOY

from simulations import cli
from simulations.api_reference import write_api
from simulations.drawing import describe
from simulations.report import COST, TRAINING

HOSTILE = r"""
hostile = Claim(
    "hostile",
    "x_j < 1 & <script>alert(1)</script>",
    "<img src=x onerror=alert(2)> e^{-t}",
    "arXiv 2605.26895, <b>bold</b>",
    (Scope("all", "</p><script>alert(3)</script>", True, SPACE, lambda p, a: Margin(p["x"] ** 2, 0 * p["x"])),),
    formula=r"x_j \le \sqrt{2}",
)
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="400pt" height="100pt"><rect width="9" height="9"/></svg>'
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
QUIET += ("--disable-sync", "--no-first-run")


def scalevec(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, arguments, catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The report on a claim file and one installed claim in ``results/report``; pictures are stand-ins but for one."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "toy.py").write_text(TOY.replace('figures=("conservation",)', 'figures=("curvature",)') + HOSTILE)
    (folder / "pictures").mkdir()
    for name in ("curvature", "absorption", *TRAINING[1:], *COST[1:]):
        (folder / "pictures" / f"{name}.svg").write_text(SVG)
        (folder / "pictures" / f"{name}.png").write_bytes(b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = scalevec("report", "toy.py", "absorption", "--jobs", "1", "--figures", "pictures")
        assert (result.exit_code, result.stdout) == (0, "results/report/index.html\n"), result.output
        yield folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> Path:
    return folder / "results" / "report"


def test_every_page_is_there_and_every_link_leads_somewhere(pages: Path) -> None:
    found = {str(p.relative_to(pages)) for p in pages.rglob("*.html")}
    claims = {f"claims/{name}.html" for name in ("toy", "hostile", "absorption")}
    assert found == {"index.html", "training.html", "phase.html", "cost.html", *claims}
    assert broken_links(pages) == []
    (pages / "figures" / "curvature.svg").rename(pages / "away")
    assert len(broken_links(pages)) == 4  # link and picture, on two pages
    (pages / "away").rename(pages / "figures" / "curvature.svg")


def test_given_pictures_are_copied_and_the_others_drawn(folder: Path, pages: Path) -> None:
    assert (pages / "figures" / "curvature.svg").read_text() == SVG
    assert b"matplotlib" in (pages / "figures" / "training-effects.svg").read_bytes()
    assert not (folder / "pictures" / "training-effects.svg").exists()


def test_text_of_claims_is_escaped(pages: Path) -> None:
    for page in pages.rglob("*.html"):
        text = page.read_text()
        assert "<script>" not in text and "<img src=x" not in text and "<b>bold" not in text, page
    assert "x<sub>j</sub> &lt; 1 &amp; &lt;script&gt;" in (pages / "claims" / "hostile.html").read_text()


def test_the_page_of_a_claim_says_all(pages: Path) -> None:
    text = (pages / "claims" / "toy.html").read_text()
    for part in (
        "Squares are positive",
        "scalevec check toy.py:toy:sign",
        "Expected: fails. Verdict: refuted",
        "x=-1,",
    ):
        assert part in text
    assert "That is all." in text and "simulation of 1,000 instances" in text
    assert f'alt="{describe(["curvature"])["curvature"]}"' in text
    assert 'href="https://arxiv.org/abs/2605.26895"' in (pages / "claims" / "absorption.html").read_text()


def test_same_code_and_seed_same_bytes(folder: Path, pages: Path) -> None:
    scalevec("report", "toy.py", "absorption", "--jobs", "1", "--figures", "results/report/figures", "--out", "again")
    first, second = (
        {p.relative_to(root): p.read_bytes() for p in root.rglob("*") if p.is_file()} for root in (pages, Path("again"))
    )
    assert first == second
    seconds = re.findall(r": ([\d.]+)", (pages / "times.js").read_text())
    assert len(seconds) == 14
    shutil.rmtree("again")


def test_a_formula_that_cannot_be_parsed_is_one_line_before_anything_is_checked(folder: Path) -> None:
    text = (folder / "toy.py").read_text()
    Path("bad.py").write_text(text.replace(r"x_j \le", r"x_j \nonsense"))
    result = scalevec("report", "bad.py", "--out", "bad", "--jobs", "1")
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert "formula of claim hostile: 'x_j" in result.stderr and "nonsense" in result.stderr
    assert not Path("bad").exists()


def test_claims_of_one_name_have_pages_of_their_own(folder: Path, pages: Path) -> None:
    Path("other.py").write_text(TOY.replace("A toy", "Another toy").replace("conservation", "curvature"))
    names = "toy.py:toy:sign", "other.py:toy:exact"
    scalevec("report", *names, "--jobs", "1", "--figures", str(pages / "figures"), "--out", "twice")
    text = Path("twice/claims/toy--2.html").read_text()
    assert "Another toy" in text and "scalevec check other.py:toy<" in text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("KeyError('y')", []),
        ("MemoryError('full')", ["scalevec: error: out of memory: fails.py:16: MemoryError: full"]),
    ],
)
def test_a_claim_whose_code_raises_has_its_page_and_status_2(
    folder: Path, pages: Path, error: str, said: list[str]
) -> None:
    Path("fails.py").write_text((folder / "toy.py").read_text().replace("mean = float", f"raise {error}; mean = float"))
    names = "fails.py:toy:mean", "fails.py:toy:sign"
    result = scalevec("report", *names, "--jobs", "1", "--figures", str(pages / "figures"), "--out", "failed")
    assert result.exit_code == 2 and result.stderr.splitlines()[-1:] == said
    assert "its code raised, " in Path("failed/claims/toy.html").read_text()


def test_a_missing_package_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    monkeypatch.delitem(sys.modules, "simulations.mathematics", raising=False)
    monkeypatch.delitem(sys.modules, "simulations.report", raising=False)
    result = scalevec("report", "toy.py")
    assert result.exit_code == 2 and "pip install 'scalevec[report]'" in result.stderr


def test_the_reference_is_written_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    write_api(tmp_path, ["scalevec_theory.claim", "scalevec_theory.problems", "simulations.models.folding"])
    text = (tmp_path / "scalevec_theory" / "claim.html").read_text()
    assert "The vocabulary: a claim is a number" in text
    assert broken_links(tmp_path) == []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium or google-chrome on the path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def front(browser: Browser, pages: Path) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.goto((pages / "index.html").as_uri())
    yield page
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1200)])
def test_pages_are_accessible_fit_and_raise_no_error(browser: Browser, pages: Path, scheme: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
    for name in ("index.html", "training.html", "phase.html", "cost.html", "claims/hostile.html", "claims/toy.html"):
        page.goto((pages / name).as_uri())
        for details in page.locator("details > summary").all():
            details.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        report = Axe().run(page, options={"preload": False})
        assert report.violations_count == 0, (name, report.generate_report())
    assert complaints == []
    context.close()


def test_filters_leave_what_was_asked_for(front: Page) -> None:
    def shown() -> tuple[list[str], set[str | None]]:
        claims = front.locator("table.claims tbody tr:visible th .quiet").all_inner_texts()
        verdicts = {chip.get_attribute("data-verdict") for chip in front.locator("table.claims li:visible").all()}
        return claims, verdicts

    assert shown() == (["toy", "hostile", "absorption"], {"proved", "confirmed", "refuted"})
    front.get_by_label("Verdict").select_option("refuted")
    assert shown() == (["toy", "absorption"], {"refuted"})
    front.get_by_label("Kind").select_option("simulation")
    assert shown() == ([], set()) and front.locator("#count").inner_text() == "0 claims, 0 scopes"
    front.get_by_role("button", name="Show all").click()
    expect(front.locator("#count")).to_have_text("3 claims, 14 scopes")
    front.get_by_label("Paper").select_option("other")
    assert shown()[0] == ["toy"]
    front.get_by_label("Paper").select_option("")
    front.get_by_label("Text").fill("ABSORB")
    assert shown()[0] == ["absorption"]


def test_links_lead_to_the_scope_and_the_counterexample_that_is_copied_runs(front: Page) -> None:
    front.get_by_role("link", name=re.compile("^sign ?: refuted")).click()
    assert front.url.endswith("claims/toy.html#sign")
    front.get_by_role("button", name="Copy: counterexample of sign").click()
    expect(front.locator("#status")).to_have_text("Copied")
    front.evaluate("document.body.append(document.createElement('textarea'))")
    area = front.locator("textarea")
    area.press("Control+V")
    found: dict[str, float] = {}
    exec(area.input_value(), found)
    assert found["margin"] < 0


def test_the_keyboard_reaches_the_content_first(front: Page) -> None:
    front.keyboard.press("Tab")
    front.keyboard.press("Enter")
    front.keyboard.press("Tab")
    assert front.evaluate("document.activeElement.name") == "paper"


def test_formulas_are_set_in_the_font_that_comes_along(front: Page, pages: Path) -> None:
    front.goto((pages / "claims" / "hostile.html").as_uri())
    assert front.evaluate("document.fonts.check('16px report-math') && document.fonts.size") == 1
    root, inside = (front.locator(f"math {tag}").bounding_box() for tag in ("msqrt", "msqrt mn"))
    assert root is not None and inside is not None and root["width"] > inside["width"] + 5


def test_times_are_shown(front: Page) -> None:
    assert all(re.fullmatch(r"Checked in .* s\.", t.strip()) for t in front.locator(".time").all_inner_texts())
    front.get_by_role("link", name="Cost").click()
    times = front.locator("td.time").all_inner_texts()
    assert len(times) == 3 and all(re.fullmatch(r"(less than )?\d+\.\d s", t) for t in times)
