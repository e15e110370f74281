"""The code of the tutorial pages runs, from the top of each page to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def test_there_are_pages() -> None:
    assert [page.name for page in PAGES] == ["real_models.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert blocks and len(blocks) == text.count("```") // 2
    names: dict[str, object] = {"__name__": page.stem}
    with torch.random.fork_rng(devices=[]):
        for block in blocks:
            above = text.count("\n", 0, block.start(1))  # so that errors name the line of the page
            exec(compile("\n" * above + block[1], str(page), "exec"), names)
