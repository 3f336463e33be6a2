"""Files to start from: what cannot be run here is at least parsed, and its commands are ones that exist."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dragoman.errors import EXIT_RESUMABLE, EXIT_USER_ERROR
from dragoman.recipe import recipe_names, resolve

from .command_line import parse_command as parse

ROOT = Path(__file__).parents[1]
MACHINES = ROOT / "examples" / "machines"


def test_every_example_is_listed():
    listing = (ROOT / "examples" / "README.md").read_text()
    for path in (ROOT / "examples").rglob("*"):
        if path.is_file() and path.name != "README.md":
            assert f"({path.relative_to(ROOT / 'examples')})" in listing


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*recipe*.toml")), ids=lambda path: path.name)
def test_recipes_can_be_read(path):
    assert resolve(str(path)).settings


def test_the_script_for_slurm_is_sound():
    script = (MACHINES / "slurm.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    options = re.findall(r"^#SBATCH --([a-z-]+)=?", script, re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "time", "signal"} <= set(options)
    assert 'dragoman train "$@"' in script
    assert f'"$code" = {EXIT_RESUMABLE}' in script


def test_the_job_for_kubeflow_is_sound():
    runtime, job = yaml.safe_load_all((MACHINES / "kubeflow.yaml").read_text())
    assert {runtime["apiVersion"], job["apiVersion"]} == {"trainer.kubeflow.org/v1alpha1"}
    assert (runtime["kind"], job["kind"]) == ("TrainingRuntime", "TrainJob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    [nodes] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert nodes["name"] == "node"
    assert nodes["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    pod = nodes["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert runtime["spec"]["template"]["spec"]["failurePolicy"]["maxRestarts"] > 0
    assert (nodes["template"]["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never")
    trainer = job["spec"]["trainer"]
    assert trainer["command"][0] == "torchrun"
    assert trainer["command"][-2:] == ["-m", "dragoman"]
    assert parse(trainer["args"])["recipe"] in recipe_names()
    assert parse(trainer["args"])["out"].is_relative_to("/work")


def test_the_job_for_skypilot_is_sound():
    job = yaml.safe_load((MACHINES / "skypilot.yaml").read_text())
    assert set(job) <= {"name", "num_nodes", "resources", "workdir", "file_mounts", "setup", "run"}
    assert job["resources"]["use_spot"]
    assert job["resources"]["job_recovery"]["recover_on_exit_codes"] == [EXIT_RESUMABLE]
    for script in (job["setup"], job["run"]):
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert (ROOT / re.search(r"--constraint (\S+)", job["setup"])[1]).exists()
    assert shlex.split(job["setup"])[-1] == ".[train]", "torchrun comes with torch"
    words = shlex.split(job["run"])
    given = parse(words[words.index("dragoman") + 1 :])
    [mount] = job["file_mounts"]
    assert given["recipe"] in recipe_names()
    assert given["out"].is_relative_to(mount)
    assert all(Path(data).is_relative_to(mount) for data in given["data"])


def test_the_script_for_spot_machines_is_sound():
    """Its behaviour is tested in `system/test_preemption.py`."""
    script = MACHINES / "spot.sh"
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    assert os.access(script, os.X_OK)
    assert f'"$code" = {EXIT_RESUMABLE}' in script.read_text()


@pytest.mark.parametrize("unit", [ROOT / "examples" / "dragoman.service", MACHINES / "train.service"])
def test_units_of_systemd_are_sound(unit, tmp_path):
    lines = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and line[0] != "#")
    program, *words = shlex.split(lines["ExecStart"])
    assert Path(program).name == "dragoman"
    assert parse(words)
    if words[0] == "train":
        assert str(EXIT_RESUMABLE) in lines["RestartForceExitStatus"].split()
        assert str(EXIT_USER_ERROR) in lines["RestartPreventExitStatus"].split()
    if shutil.which("systemd-analyze"):  # It also checks that the program exists.
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace(program, shutil.which("true")))
        checked = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
        assert unit.name not in checked.stderr


def test_the_two_hosts_of_compose_are_sound():
    text = (MACHINES / "compose.yaml").read_text()
    content = yaml.safe_load(text)
    assert set(content["services"]) == {"a", "b"}
    for name, service in content["services"].items():
        assert service["hostname"] == name
        assert (MACHINES / service["build"]["context"] / service["build"]["dockerfile"]).resolve().exists()
        assert set(service["secrets"]) <= set(content["secrets"])
        assert set(service["networks"]) <= set(content["networks"])
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(content["volumes"])
        [script] = service["command"]
        assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    launch = re.search(r"exec a dragoman (launch .*?)\n(?!# {7})", text, re.DOTALL)
    given = parse(shlex.split(launch[1].replace("\\\n#", "")))
    assert given["hosts"] == "a,b"
    assert parse(given["command"])["recipe"] == "tiny"
