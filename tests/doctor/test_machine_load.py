import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragoman.doctor import machine_load
from dragoman.doctor.machine_load import CpuTimes, CpuUse, available_cores, read_gpu_use

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/jobs/a", {"jobs/a/cpu.max": "50000 100000"}, 0.5),
        ("0::/", {"cpu.max": "25000 100000"}, 0.25),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("4:memory:/x\n1:cpu:/a", {"cpu/a/cpu.cfs_quota_us": "30000", "cpu/a/cpu.cfs_period_us": "100000"}, 0.3),
        ("2:cpu,cpuacct:/", {"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, None),
        ("", {}, None),
    ],
)
def test_a_quota_limits_the_cores(tmp_path, monkeypatch, membership, files, quota):
    for name, content in {**files, "membership": membership}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    read = machine_load._read
    monkeypatch.setattr(machine_load, "CGROUPS", tmp_path)
    monkeypatch.setattr(
        machine_load, "_read", lambda path: read(tmp_path / "membership" if path.name == "cgroup" else path)
    )
    assert available_cores() == (quota or CORES)


def test_this_machine_has_cores():
    assert 0 < available_cores() <= CORES


def test_cpu_times_only_grow():
    before = CpuTimes.now()
    sum(range(300_000))
    after = CpuTimes.now()
    assert after.thread_s > before.thread_s
    assert after.process_s > before.process_s
    assert after.machine_s >= before.machine_s


@given(own=st.floats(0, 8), others=st.floats(0, 8))
def test_a_process_waits_for_others_only_where_they_use_what_it_leaves(own, others):
    use = CpuUse(8, own, others)
    if use.is_contended:
        assert others > 0.5
        assert own + others > 6
    if own + others >= 8 and others > 1:
        assert use.is_contended


def test_use_is_that_of_the_span_between_two_readings():
    use = CpuUse.between(CpuTimes(10.0, 1.0, 2.0, 50.0), CpuTimes(14.0, 2.0, 6.0, 57.0))
    assert (use.own, use.others) == (1.0, 0.75)
    assert CpuUse.between(CpuTimes(10.0, 1.0, 2.0, 50.0), CpuTimes(11.0, 2.0, 3.0, 50.5)).others == 0, "coarse clock"


def test_a_machine_without_a_gpu_has_none_in_use():
    assert read_gpu_use(torch.device("cpu")) == 0
