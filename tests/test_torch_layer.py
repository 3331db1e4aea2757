"""The torch layer of the how-to page: its gradient is the derivative of its loss, and it improves a network."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

HOW_TO = Path(__file__).resolve().parents[1] / "docs" / "how_to"


def test_layer_behind_a_network(capsys):
    torch = pytest.importorskip("torch", reason="the page puts a field behind a network of PyTorch")
    layer = runpy.run_path(str(HOW_TO / "torch_layer.py"))["FieldLoss"]
    alone, after, through = (float(figure) for figure in re.findall(r"\d\.\d+", capsys.readouterr().out))
    page = (HOW_TO / "torch_layer.rst").read_text(encoding="utf-8")
    stated = [float(figure) for figure in re.findall(r"\*\*(.+?)\*\*", page)]
    assert [alone, after, through] == pytest.approx(stated, abs=0.02)
    # The standard error of an accuracy over 1,200 digits is at most 0.0145.
    assert after > alone + 0.1
    assert through > after

    rng = np.random.default_rng(0)
    unary, table = (torch.tensor(rng.normal(size=(n, 3)), requires_grad=True) for n in (30, 3))
    for labels in (rng.integers(3, size=30), np.where(np.arange(30) % 2, -1, rng.integers(3, size=30))):
        assert torch.autograd.gradcheck(lambda u, t, y=labels: layer.apply(u, t, y), (unary, table))
