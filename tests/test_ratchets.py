"""The package does not grow or become untidy unnoticed: measures of its sources are compared with a record.

Where a change needs more room, ``python tests/tools/house.py --record`` raises a number, and the commit says why.
"""

import json

import pytest
from house import RECORD, House, measures

# A folder may grow by this fraction before its recorded size is raised.
ROOM = 1.03

RECORDED = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def house():
    return House()


@pytest.mark.parametrize("name", sorted(set(RECORDED) - {"lines of code", "lines of kernels", "functions", "classes"}))
def test_order_is_kept(house, name):
    number, counted = measures(house)[name]
    assert number <= RECORDED[name], f"{name}: {number}, recorded {RECORDED[name]}; now counted: {counted}"


@pytest.mark.parametrize("unit", sorted(RECORDED["lines of code"]))
def test_folders_keep_their_size(house, unit):
    assert house.code_lines[unit] <= ROOM * RECORDED["lines of code"][unit]


def test_new_folders_are_recorded(house):
    assert set(house.code_lines) <= set(RECORDED["lines of code"])


def test_kernels_keep_their_size(house):
    assert house.kernel_lines <= ROOM * RECORDED["lines of kernels"]
