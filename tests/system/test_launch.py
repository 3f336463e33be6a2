"""Runs on several hosts, started by ssh, mpirun and Slurm: stopped, moved to other hosts, and lost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.errors import EXIT_RESUMABLE
from dragoman.events import CheckpointSaved, PeakMeasured, RunEnded, RunStarted, StepDone
from dragoman.run_folder import RunFolder

from ..processes import losses, train
from ..small import TINY
from .hosts import HOME, Host, Hosts, missing_programs, missing_requirements

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(missing_requirements() is not None, reason=str(missing_requirements())),
]

EXAMPLES = Path(__file__).parents[2] / "examples" / "machines"
ENDLESS = ("training.steps=100000", "evaluation.every=100000", "checkpoint.every=100000")
QUIET = ("evaluation.bleu=false", "model.dropout=0.1", "exchange.method=plain")


def needs_programs(*programs: str) -> pytest.MarkDecorator:
    missing = missing_programs(*programs)
    return pytest.mark.skipif(
        bool(missing), reason=f"there is no {', '.join(missing)}: .ci/system-packages installs it"
    )


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(["a", "b", "c"]) as made:
        yield made


@pytest.fixture
def homes(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose home folders hold nothing but their ssh configuration."""
    yield hosts
    for host in hosts:
        for path in host.folder.iterdir():
            if path.name != ".ssh":
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def command(names: str, data: Path | str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    launch = [sys.executable, "-m", "dragoman", "launch", "--hosts", names, *options]
    return [*launch, "--", "train", "tiny", "--data", str(data), "--out", f"{HOME}/run", *TINY, *arguments]


def start(hosts: Hosts, names: str, data: Path | str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Launch from this machine, which is not one of the hosts."""
    given = command(names, data, *arguments, options=("--ssh-config", str(hosts.ssh_config)))
    return subprocess.Popen(
        given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **options
    )


def finish(process: "subprocess.Popen[str]", code: int = 0) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == code, output
    return output


def wait_for_step(run: Path, step: int, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and max(losses(run), default=0) < step:
        time.sleep(0.05)


def workers_of(host: Host) -> list[int]:
    """Process IDs of the workers on a host."""
    return host.find_processes("train")


def wait_for_no_worker(hosts: Hosts) -> None:
    deadline = time.monotonic() + 20
    while any(workers_of(host) for host in hosts) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [workers_of(host) for host in hosts] == [[]] * len(hosts)


def test_without_a_shared_disk_a_killed_worker_is_restarted_and_losses_equal_those_of_one_machine(
    homes, data, tmp_path
):
    train(data.path, tmp_path / "whole", *QUIET, workers=1)
    shutil.copytree(data.path, tmp_path / "home" / "data")
    options = ("--push", "--ssh-config", str(homes.ssh_config))
    here = {"env": {**os.environ, "HOME": str(tmp_path / "home")}, "cwd": tmp_path / "home"}
    process = subprocess.Popen(
        command("a,b", "data", *QUIET, "checkpoint.every=2", options=options),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **here,
    )  # fmt: skip
    wait_for_step(homes["a"].folder / "run", 4, process)
    for number in workers_of(homes["b"])[:1]:
        os.kill(number, signal.SIGKILL)
    output = finish(process)
    assert "Copying data to b" in output
    assert "Worker 1 on b failed (SIGKILL): restarting all workers from the newest checkpoint (1 of 3)." in output
    assert "Finished after 12 steps" in output
    assert losses(homes["a"].folder / "run") == pytest.approx(losses(tmp_path / "whole"), rel=1e-4)
    assert (homes["b"].folder / "data" / "manifest.json").exists()
    for host, other in (("a", 1), ("b", 0)):
        synced = RunFolder(homes[host].folder / "run").events(other)
        assert any(isinstance(event, PeakMeasured) for event in synced), f"{host} has the events of worker {other}"


def test_ctrl_c_saves_and_the_run_resumes_on_a_host_that_does_not_have_it(homes, data):
    process = start(homes, "a,b", data.path, *QUIET, *ENDLESS)
    wait_for_step(homes["a"].folder / "run", 5, process)
    os.killpg(process.pid, signal.SIGINT)
    output = finish(process, code=EXIT_RESUMABLE)
    assert "Run the same command again to resume." in output
    run = RunFolder(homes["a"].folder / "run")
    saved = [event.step for event in run.events() if isinstance(event, CheckpointSaved)]
    assert saved[-1] == max(losses(run.path))
    done = homes["c"].run(command("c,a", data.path, *QUIET, f"training.steps={saved[-1] + 2}"), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Copying the run from a, which has the newest checkpoint, to c." in done.stdout
    started = [event for event in RunFolder(homes["c"].folder / "run").events() if isinstance(event, RunStarted)]
    assert started[-1].resumed_step == saved[-1]
    assert started[-1].host == "c"


def test_a_killed_launcher_leaves_a_checkpoint_and_no_workers(homes, data):
    process = start(homes, "a,b:2", data.path, *QUIET, *ENDLESS)
    wait_for_step(homes["a"].folder / "run", 5, process)
    assert [len(workers_of(host)) for host in homes] == [1, 2, 0]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    wait_for_no_worker(homes)
    run = RunFolder(homes["a"].folder / "run")
    steps = [event.step for event in run.events() if isinstance(event, StepDone)]
    assert (run.checkpoints / "last").resolve().name == f"step-{steps[-1]:08d}"


def test_all_problems_of_all_hosts_are_reported_before_anything_starts(homes, data):
    shutil.copytree(data.path, homes["a"].folder / "data")
    shutil.copytree(data.path, homes["b"].folder / "data")
    next((homes["b"].folder / "data" / "train").iterdir()).unlink()
    homes["c"].run(["pkill", "-o", "sshd"])
    output = finish(start(homes, "a,b,c", f"{HOME}/data"), code=2)
    homes["c"].kill()
    homes["c"].restart()
    assert "The hosts are not ready, and nothing was started:" in output
    assert "  b  /srv/data is incomplete" in output
    assert "  c  cannot be used: ssh: connect to host" in output
    assert "check that it is up" in output
    assert "  a  " not in output
    assert not (homes["a"].folder / "run").exists()


def test_a_lost_host_ends_the_run_with_an_error_message(homes, data):
    process = start(homes, "a,b", data.path, *QUIET, *ENDLESS)
    wait_for_step(homes["a"].folder / "run", 5, process)
    homes["b"].run(["pkill", "sshd"])
    output = finish(process, code=2)
    homes["b"].kill()
    homes["b"].restart()
    assert "b was lost" in output
    assert "Traceback" not in output
    wait_for_no_worker(homes)


@pytest.fixture
def slurm(homes: Hosts) -> dict[str, str]:
    """A Slurm cluster of two hosts, and the environment in which its commands find it."""
    nodes = ("a", "b")
    (homes.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = homes.folder / "munge.key"
    key.unlink(missing_ok=True)
    key.write_bytes(os.urandom(64))
    key.chmod(0o400)
    config = homes.folder / "slurm.conf"
    settings = {
        "ClusterName": "test", "SlurmctldHost": nodes[0], "SlurmUser": "root", "SlurmdUser": "root",
        "StateSaveLocation": f"{HOME}/state", "SlurmdSpoolDir": f"{HOME}/spool", "SlurmctldPidFile": "/run/ctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid", "SlurmctldLogFile": f"{HOME}/ctld.log", "SlurmdLogFile": f"{HOME}/d.log",
        "ProctrackType": "proctrack/pgid", "TaskPlugin": "task/none", "MpiDefault": "none", "ReturnToService": "2",
    }  # fmt: skip
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [f"NodeName={','.join(nodes)} CPUs=2", "PartitionName=all Nodes=ALL Default=YES State=UP"]
    config.write_text("\n".join(lines) + "\n")
    for name in nodes:
        homes[name].run(["mkdir", "-p", "/run/munge", "state", "spool"])
        files = [f"--{kind}-file={HOME}/munge.{kind}" for kind in ("log", "seed")]
        homes[name].run(["munged", "--force", f"--key-file={key}", "--pid-file=/run/munge/pid", *files])
    homes[nodes[0]].run(["slurmctld", "-f", str(config)])
    for name in nodes:
        homes[name].run(["slurmd", "-f", str(config), "-N", name])
    return {**os.environ, "SLURM_CONF": str(config), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


@needs_programs("munged", "slurmctld", "slurmd", "sbatch")
def test_the_slurm_example_trains_on_two_nodes(homes, slurm, data):
    launch = command("", data.path, *QUIET)
    job = ["sbatch", "--wait", str(EXAMPLES / "slurm.sh"), *launch[launch.index("train") + 1 :]]
    done = homes["a"].run(job, env=slurm, check=False)
    log = "".join(path.read_text() for path in homes["a"].folder.glob("dragoman-*.log"))
    for name in ("a", "b"):  # Ends all processes that were started there.
        homes[name].kill()
        homes[name].restart()
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert "Finished after 12 steps" in log
    started = [event for event in RunFolder(homes["a"].folder / "run").events() if isinstance(event, RunStarted)]
    assert started[-1].world_size == 2
    assert (homes["b"].folder / "run" / "events-1.jsonl").exists()


@needs_programs("munged", "slurmctld", "slurmd", "sbatch")
def test_the_slurm_example_saves_and_goes_back_into_the_queue_when_its_time_is_up(homes, slurm, data):
    launch = command("", data.path, *QUIET, *ENDLESS)
    job = ["sbatch", "--parsable", str(EXAMPLES / "slurm.sh"), *launch[launch.index("train") + 1 :]]
    number = homes["a"].run(job, env=slurm).stdout.strip()
    run = RunFolder(homes["a"].folder / "run")
    try:
        while max(losses(run.path), default=0) < 4:
            time.sleep(0.1)
        homes["a"].run(["scancel", "--signal=TERM", number], env=slurm)  # As `--signal=TERM@120` does.
        while "PENDING" not in homes["a"].run(["squeue", "-h", "-o", "%T", "-j", number], env=slurm).stdout:
            time.sleep(0.2)
    finally:
        for name in ("a", "b"):  # Ends all processes that were started there.
            homes[name].kill()
            homes[name].restart()
    events = run.events()
    assert [event.reason for event in events if isinstance(event, RunEnded)] == ["interrupted"]
    saved = [event.step for event in events if isinstance(event, CheckpointSaved)]
    assert saved[-1] == max(losses(run.path))


@needs_programs("mpirun")
def test_train_joins_a_world_of_mpirun(homes, data):
    launch = command("", data.path, *QUIET)
    train_arguments = launch[launch.index("--") + 1 :]
    mpirun = ["mpirun", "--allow-run-as-root", "--mca", "btl", "self,tcp", "-H", "a:1,b:2"]
    environment = [option for name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS") for option in ("-x", name)]
    done = homes["a"].run([*mpirun, *environment, sys.executable, "-m", "dragoman", *train_arguments], check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    started = [event for event in RunFolder(homes["a"].folder / "run").events() if isinstance(event, RunStarted)]
    assert started[-1].world_size == 3
    assert (homes["b"].folder / "run" / "events-2.jsonl").exists()
