"""Synthesis on a GPU: our own search, sampling and scores, the same bytes each time."""

from pathlib import Path

import pytest

from dragoman.pipeline import synthesize
from dragoman.progress_callback import no_progress
from dragoman.synthesis.synthesis_folder import SynthesisFolder
from dragoman.synthesis.translation_job import count_local_gpus

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("sampling", [None, {"top_k": 10}])
def test_two_syntheses_on_a_gpu_have_the_same_bytes(
    models: Path, text: Path, tmp_path: Path, sampling: dict[str, int] | None
) -> None:
    made = [
        synthesize(
            models / "torch", text, tmp_path / name, device="cuda", sampling=sampling, shard_lines=30,
            score_back_with=models / "backward", settings={"cleaning.rules": []}, progress=no_progress,
        )
        for name in ("first", "second")
    ]  # fmt: skip
    first, second = ([path.read_bytes() for path in corpus.files] for corpus in made)
    assert first == second
    stored = [SynthesisFolder(corpus.path).shards for corpus in made]
    for number in range(3):
        (header, lines), (other_header, other_lines) = (shards.read(number) for shards in stored)
        assert list(lines) == list(other_lines)
        assert header.mismatched_scores == other_header.mismatched_scores
    assert all("torch" in machine for machine in made[0].description.corpus["machines"])


def test_gpus_are_counted_without_torch() -> None:
    import torch

    assert count_local_gpus() == torch.cuda.device_count()
