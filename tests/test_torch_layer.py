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
    alone, field = (float(figure) for figure in re.findall(r"\d\.\d+", capsys.readouterr().out))
    page = (HOW_TO / "torch_layer.rst").read_text(encoding="utf-8")
    assert [alone, field] == pytest.approx([float(figure) for figure in re.findall(r"\*\*(.+?)\*\*", page)], abs=0.01)
    assert field > alone + 0.02  # three standard errors of an accuracy over 4,500 steps

    rng = np.random.default_rng(0)
    unary, table = (torch.tensor(rng.normal(size=(n, 3)), requires_grad=True) for n in (30, 3))
    for labels in (rng.integers(3, size=30), np.where(np.arange(30) % 2, -1, rng.integers(3, size=30))):
        assert torch.autograd.gradcheck(lambda u, t, y=labels: layer.apply(u, t, y), (unary, table))


def test_behind_a_wider_convolution(capsys, tmp_path):
    pytest.importorskip("torch", reason="the page puts a field behind a network of PyTorch")
    code = (HOW_TO / "torch_layer.py").read_text(encoding="utf-8")
    wide = code.replace("Conv1d(1, 16, 5, padding=2)", "Conv1d(1, 16, 9, padding=4)")
    assert wide != code
    (tmp_path / "wide.py").write_text(wide, encoding="utf-8")
    runpy.run_path(str(tmp_path / "wide.py"))
    printed = [float(figure) for figure in re.findall(r"\d\.\d+", capsys.readouterr().out)]
    page = (HOW_TO / "torch_layer.rst").read_text(encoding="utf-8")
    stated = re.search(r"prints (\d\.\d+) and (\d\.\d+)", page).groups()
    assert printed == pytest.approx([float(figure) for figure in stated], abs=0.01)
