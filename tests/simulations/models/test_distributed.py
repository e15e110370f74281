"""Optimizer groups under data-parallel and sharded training, by two processes on the CPU."""

from __future__ import annotations

import json

import pytest
import torch
from distributed_worker import compare
from workers import in_two_processes

ROUNDING = 1e-12


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What the first of the two processes found."""
    folder = tmp_path_factory.mktemp("distributed")
    in_two_processes(compare, folder)
    return json.loads((folder / "0.json").read_text())


def test_data_parallel_training_is_that_of_one_process(found: dict) -> None:
    assert found["plain"][-1] < found["plain"][0]
    assert found["parallel"] == pytest.approx(found["plain"], rel=ROUNDING)


def test_sharded_training_is_that_of_one_process(found: dict) -> None:
    """Every parameter is sharded, the scalar multiplier of shape (1,) among them; the old parameters are gone."""
    assert found["sharded"] == pytest.approx(found["plain"], rel=ROUNDING)
    assert found["local"]["multiplier"] == [1] and found["local"]["embed.weight"] == [7, 6]
    assert found["stale"] == []


def test_muon_orthogonalises_whole_matrices_also_where_they_are_sharded(found: dict) -> None:
    """To the rounding of the 15 matrix products in bfloat16 of its iteration."""
    assert set(found["muon"]) == {"branch.0.weight", "branch.2.weight"}
    assert max(found["muon"].values()) < 15 * torch.finfo(torch.bfloat16).eps


def test_shape_of_a_scalar_is_why_multipliers_have_shape_1(found: dict) -> None:
    """PyTorch #132934."""
    assert "scalar" in found["scalar"]
