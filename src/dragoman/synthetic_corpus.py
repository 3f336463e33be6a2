"""The part of the Python API that makes synthetic corpora. Heavy modules are imported only when it runs."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.extras import explain_missing_extra
from dragoman.progress_callback import Progress

if TYPE_CHECKING:
    from dragoman.synthesis.corpus_assembly import Keep
    from dragoman.synthesis.synthesis_folder import SynthesisDescription


@dataclass(frozen=True)
class SyntheticCorpus:
    """Two aligned files of a text and its translation, and how they were made."""

    path: Path
    description: "SynthesisDescription"
    """The content of `synthesis.json`: model, settings, texts, counts, machines."""

    @property
    def files(self) -> tuple[Path, Path]:
        """The source and the target side, for `prepare`."""
        made = self.description.corpus
        return self.path / f"corpus.{made['source']}", self.path / f"corpus.{made['target']}"


@explain_missing_extra
def synthesize(
    model: str | Path,
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    back: bool = False,
    tag: str = "",
    n_best: int = 1,
    sampling: Mapping[str, Any] | None = None,
    score_back_with: str | Path | None = None,
    keep: "Keep | None" = None,
    device: str | None = None,
    hosts: Sequence[str] = (),
    ssh_config: str | Path | None = None,
    python: str | None = None,
    shard_lines: int | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    progress: Progress | None = None,
    **decoding: Any,
) -> SyntheticCorpus:
    """Translate texts of any size into a corpus at `out`, every line once. The same call resumes if interrupted.

    With `back`, the translation is the source side of the corpus; `tag` is a word in front of each translation.
    `sampling` draws translations instead of searching: `{"temperature": 1.0, "top_k": 10, "seed": 1}`, each with a
    default. `score_back_with` is a model of the other direction: translations on which both disagree are dropped.
    `decoding` changes settings such as `beam=8`, and `settings` the rules that drop pairs, and prices:
    `{"cleaning.max_copied": 0.5, "money.price_per_hour": [2.1]}`. `keep` is a rule of your own: it returns a name for a
    text, translation and score to drop, or None. The other arguments are the options of `dragoman synthesize`.
    """
    from dragoman.launch.ssh import SshClient, parse_hosts
    from dragoman.recipe import resolve
    from dragoman.synthesis.corpus_assembly import CorpusOptions
    from dragoman.synthesis.synthesizer import SynthesisRequest, check_device, check_sampling
    from dragoman.synthesis.synthesizer import synthesize as synthesize_corpus
    from dragoman.terminal import showing_progress

    paths = [Path(text) for text in ([texts] if isinstance(texts, str | Path) else texts)]
    client = SshClient(None if ssh_config is None else Path(ssh_config), python or sys.executable)
    resolved = resolve(None, settings).settings
    request = SynthesisRequest(
        Path(model), paths, Path(out), CorpusOptions(back, tag, resolved.cleaning, keep),
        {name: value for name, value in decoding.items() if value is not None}, n_best,
        check_sampling(sampling), check_device(device), parse_hosts(",".join(hosts) or "localhost"), client,
        shard_lines, resolved.money, None if score_back_with is None else Path(score_back_with),
    )  # fmt: skip
    with showing_progress(progress) as show:
        return SyntheticCorpus(Path(out), synthesize_corpus(request, show))
