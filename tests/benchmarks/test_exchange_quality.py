"""The cells of the benchmark of local steps, and those that it finds finished."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.exchange_quality import DEFAULT_CELLS, QualityResult, expand_cells

from benchmarks import exchange_quality


def test_commas_stand_for_all_combinations() -> None:
    assert expand_cells(["sync", "2,8/128/int4,int2"]) == [
        "sync",
        "2/128/int4",
        "2/128/int2",
        "8/128/int4",
        "8/128/int2",
    ]
    assert len(expand_cells(DEFAULT_CELLS)) == 1 + 3 * 3 * 3


def test_a_cell_is_repeated_with_other_data_or_other_sets(
    data, old_data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = []
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("a house\n")
        files.append(str(tmp_path / name))
    more = ["--also-evaluate", f"more={','.join(files)}"]
    trained = []

    def train(*arguments: object) -> QualityResult:
        trained.append(arguments)
        return QualityResult(3.0, 10.0, 0.0, 0.0, 1.0, 0.1, 1.0, {})

    monkeypatch.setattr(exchange_quality, "call_forked", train)
    out = tmp_path / "cells.jsonl"
    for arguments in ([data], [old_data], [data, *more], [data]):
        words = ["exchange_quality", "--cells", "sync", "--out", str(out), "--data", str(arguments[0].path)]
        monkeypatch.setattr(sys, "argv", [*words, *arguments[1:]])
        exchange_quality.main()
    assert len(trained) == len({json.dumps(json.loads(line)) for line in out.read_text().splitlines()}) == 3
