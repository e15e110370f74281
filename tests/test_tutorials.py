"""The code of the tutorial pages runs, from the top of each page to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("name", ["new_claim", "real_models", "training_claim", "weight_norms"])
def test_the_code_of_a_tutorial_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.md"
    text = page.read_text()
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert blocks and len(blocks) == text.count("```") // 2
    names: dict[str, object] = {"__name__": page.stem}
    with torch.random.fork_rng(devices=[]):
        for block in blocks:
            above = text.count("\n", 0, block.start(1))  # so that errors name the line of the page
            exec(compile("\n" * above + block[1], str(page), "exec"), names)
