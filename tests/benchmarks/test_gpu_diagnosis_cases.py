from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.gpu_diagnosis_cases import (
    NOT_POSSIBLE,
    TUNED_CASES,
    UNSEEN_CASES,
    judge_case,
    make_run,
    measure_gpu_diagnoses,
)
from benchmarks.gpu_faults import changing_sizes, locked_clocks, slow_reads

from dragoman.batching.data_loader import SIZE_MULTIPLE, DataLoader
from dragoman.corpus.shards import Pairs
from dragoman.recipe import resolve

from ..insight.synthetic_runs import H200_STEPS, gpu_run, write_run

KINDS = {
    "", "input", "launches", "checkpoint-stalls", "evaluation", "small-batch", "shared-gpu", "throttled", "straggler",
    "compiling",
}  # fmt: skip


@pytest.mark.parametrize("cases", [TUNED_CASES, UNSEEN_CASES], ids=["tuned", "unseen"])
def test_each_set_has_every_kind_and_three_healthy_runs(cases):
    kinds = [case.kind for case in cases]
    assert set(kinds) == KINDS
    assert kinds.count("") == 3
    assert len({case.folder for case in cases}) == len(cases)
    for case in cases:
        resolve(case.recipe, case.settings)


def test_no_run_is_in_both_sets():
    tuned = {(case.recipe, case.settings) for case in TUNED_CASES}
    assert not tuned & {(case.recipe, case.settings) for case in UNSEEN_CASES}


def test_kept_runs_are_judged_again_without_a_gpu(tmp_path):
    for case, step in ((TUNED_CASES[0], "transformer-base"), (TUNED_CASES[1], "tiny")):
        (tmp_path / "set" / case.folder).mkdir(parents=True)
        write_run(tmp_path / "set" / case.folder / "run", gpu_run(H200_STEPS[step]))
    (tmp_path / "set" / TUNED_CASES[3].folder).mkdir()
    (tmp_path / "set" / TUNED_CASES[3].folder / NOT_POSSIBLE).write_text("refused")
    options = Namespace(cases=None, keep=None, rejudge=tmp_path)
    figures = {figure.name: figure for figure in measure_gpu_diagnoses("set", TUNED_CASES, options, Path("nowhere"))}
    assert figures["diagnosis, GPU, tuned set: healthy, small"].value is True
    assert figures["diagnosis, GPU, tuned set: healthy, transformer-base"].measured == "launches: WRONG"
    assert figures["diagnoses that are right, GPU, tuned set"].measured == "1 of 2"
    assert figures["slow disk: not possible here"].measured == "refused"


def test_a_fault_that_the_machine_refuses_is_not_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    case = next(case for case in TUNED_CASES if case.kind == "throttled")
    folder = make_run(case, tmp_path / "data", tmp_path / "case")
    assert judge_case(case, folder) is None
    with pytest.raises(Exception, match="no nvidia-smi"), locked_clocks(600):
        pass


def test_changing_sizes_are_multiples_of_a_tile_that_hold_the_tokens(monkeypatch):
    monkeypatch.setattr(DataLoader, "_fixed_size", DataLoader._fixed_size)  # Restored after the test.
    changing_sizes(8)()
    sizes = {DataLoader._fixed_size(None, 300, 4096) for _ in range(100)}
    assert len(sizes) == 9
    assert all(size >= 300 and size % SIZE_MULTIPLE == 0 for size in sizes)


def test_slow_reads_return_the_same(monkeypatch):
    monkeypatch.setattr(Pairs, "gather", lambda pairs, numbers: numbers)
    slow_reads(0.0)()
    assert Pairs.gather(None, 7) == 7
