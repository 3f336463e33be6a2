from dragoman.errors import EXIT_USER_ERROR

from ..command_line import run_command


def test_data_sets_that_cannot_be_mixed_are_refused_before_anything_is_written(data, tmp_path):
    done = run_command("train", "tiny", "--data", str(data.path), "--data", "none@0.3", "--out", str(tmp_path / "run"))
    assert done.returncode == EXIT_USER_ERROR
    assert done.stderr.startswith("error: The data cannot be mixed, and nothing was written:\n  none is not a prepared")
    assert not (tmp_path / "run").exists()


def test_evaluation_sets_that_cannot_be_read_are_refused_before_anything_is_written(data, tmp_path):
    wrong = ("--also-evaluate", "news=none.en,none.de", "--also-evaluate", "old")
    done = run_command("train", "tiny", "--data", str(data.path), *wrong, "--out", str(tmp_path / "run"))
    assert done.returncode == EXIT_USER_ERROR
    assert "--also-evaluate news: none.en cannot be read" in done.stderr
    assert "--also-evaluate old is not understood" in done.stderr
    assert not (tmp_path / "run").exists()
