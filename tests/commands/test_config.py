"""Conversion of OpenSeq2Seq configurations on the command line; `tests/openseq2seq` tests the conversion itself."""

import json

import pytest

from ..command_line import run_command
from ..openseq2seq.configurations import TRANSFORMER


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(TRANSFORMER)
    return path


def test_the_recipe_of_an_openseq2seq_configuration_is_printed_and_works(config, tmp_path):
    done = run_command("config", "--from-openseq2seq", str(config))
    assert done.returncode == 0
    (tmp_path / "small.toml").write_text(done.stdout)
    shown = json.loads(run_command("config", str(tmp_path / "small.toml"), "--json").stdout)
    assert shown["model.d_model"] == {"value": 64, "origin": "recipe small"}


def test_scripts_get_json(config):
    content = json.loads(run_command("config", "--from-openseq2seq", str(config), "--json").stdout)
    assert content["settings"]["training.steps"] == 3000
    assert content["mapped"]["base_params.max_steps"] == ["training.steps"]
    assert content["without_counterpart"]["base_params.loss_scaling"]["value"] == "'Backoff'"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tiny", "--from-openseq2seq", "small.py"], "leave out tiny"),
        (["--from-openseq2seq", "absent.py"], "absent.py cannot be used"),
        (["--from-openseq2seq", "."], "cannot be used"),
    ],
)
def test_mistakes_get_one_sentence(config, words, sentence):
    done = run_command("config", *words, cwd=config.parent)
    assert done.returncode == 2
    assert sentence in done.stderr
