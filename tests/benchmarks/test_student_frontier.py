"""The rows that the benchmark of small models keeps."""

from pathlib import Path

import pytest
from benchmarks.student_frontier import BASE, FrontierCell, read_rows, write_rows

ROWS = [FrontierCell(BASE, 60_000_000, 62_000_000, 1.0, 2.5), FrontierCell("6-1-256-1536-8k", 9, 10, 4.9, 12.4, 21.5)]


def test_rows_are_kept(tmp_path: Path) -> None:
    write_rows(tmp_path / "out", ROWS)
    assert read_rows(tmp_path / "out", None) == read_rows(tmp_path / "out", ["6-1-256-1536-8k"]) == ROWS
    assert read_rows(tmp_path, None) == read_rows(None, None) == []


def test_a_cell_without_a_row_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    with pytest.raises(SystemExit, match="has no row of 8-1-256-1536-8k: choose another --out"):
        read_rows(tmp_path, ["6-1-256-1536-8k", "8-1-256-1536-8k"])
