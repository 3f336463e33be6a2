import pytest

from dragoman.errors import DragomanError
from dragoman.files import write_json
from dragoman.model.model_folder import load_model
from dragoman.training.run_inspection import describe

from ..small import tiny
from .recorded_run import RecordedRun


def test_a_run_has_checkpoints_and_links(data, tmp_path):
    run = RecordedRun(tiny("evaluation.bleu=false"), data, tmp_path)
    run.train()
    write_json(run.run.config, {"settings": tiny().model_dump(mode="json")})
    content = describe(tmp_path)
    assert content["links"]["last"] == "step-00000012"
    assert [checkpoint["step"] for checkpoint in content["checkpoints"]] == [12, 10, 8]
    assert content["checkpoints"][0]["damage"] is None
    model = load_model(tmp_path / "checkpoints" / "last").model
    parameters = content["checkpoints"][0]["parameters"]
    assert sum(parameters.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert describe(tmp_path / "checkpoints" / "step-00000012") == content["checkpoints"][0]


def test_a_folder_that_is_neither_run_nor_checkpoint_is_an_error(tmp_path):
    with pytest.raises(DragomanError, match="is not a data set, run, checkpoint or export: check the path"):
        describe(tmp_path)
