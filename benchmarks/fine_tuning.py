"""Models of transformers, imported, trained and exported; models adapted to other texts; and learning curves.

    python -m benchmarks.fine_tuning --only import export [--device cuda]
    python -m benchmarks.fine_tuning --only adapt forget curve --work FOLDER [--corpora ../shared/data] [--base RUN]

The models of the first two sections have random weights and are made by transformers, in the formats of OPUS-MT, M2M100
and NLLB. On a GPU we translate them in bfloat16, and transformers in float32 on the CPU, so some translations differ
there; further rows count those that differ if transformers itself computes in bfloat16. The other sections train a
europarl model, or begin with one, and need a GPU to mean something.
"""

import argparse
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import dragoman
from benchmarks.command_line import make_parser
from benchmarks.corpora import CORPORA
from benchmarks.foreign_models import make_m2m100, make_marian, make_nllb
from benchmarks.reporting import Figure, print_figures
from dragoman.batching.packed_batch import pack_sentences
from dragoman.corpus import demo
from dragoman.corpus.catalog import Corpus
from dragoman.corpus.dataset import DataSet
from dragoman.corpus.preparation import prepare
from dragoman.corpus.sources import Languages, Source
from dragoman.decoding.length_rules import max_length
from dragoman.decoding.model_choice import find_tokenizer
from dragoman.decoding.special_tokens import SpecialTokens
from dragoman.decoding.validation_scorer import make_scorer
from dragoman.launch import local_launcher
from dragoman.model.model_folder import load_model
from dragoman.recipe import resolve
from dragoman.training.start_model import StartModel
from dragoman.training.worker import TrainingJob

MAKERS: dict[str, Callable[..., Path]] = {
    "MarianMT": partial(make_marian, end_bias=1.3, sharpness=2.0),
    "M2M100": partial(make_m2m100, end_bias=2.0, sharpness=2.0),
    "NLLB": partial(make_nllb, end_bias=1.0, sharpness=2.0),
}
"""Models whose translations differ from sentence to sentence, and of which some end before their limit."""
DIRECTION = "en-de"
LENGTH_RATIO = 0.5
"""Of the longest translation to its source, next to `EXTRA_LENGTH`: random weights seldom end one."""
LIMITS = {"length_penalty": 0.0, "max_length_ratio": LENGTH_RATIO}
STEPS = 20
MODEL_SECTIONS = ("import", "export")
ADAPTATION_SECTIONS = ("adapt", "forget", "curve")
CURVE_CORPORA = ("europarl", "multi30k")
SETTINGS = [
    f"training.steps={STEPS}", "batch.tokens=1024", "evaluation.bleu=false", f"checkpoint.every={STEPS}",
    "training.precision=fp32", "fine_tuning.learning_rate=0.002",
]  # fmt: skip


def compare_logits(folder: Path, lines: Sequence[str], targets: int = 24) -> float:
    """The largest difference between our logits and those of transformers, in float32, for random targets."""
    stored = load_model(Path(f"{DIRECTION}={folder}"))
    model, tokenizer = stored.model, stored.description.tokenizer
    peer, pieces = load_peer(folder)
    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for line in lines:
        source = [*tokenizer.source_prefix, *tokenizer.encode(line), tokenizer.eos_id]
        assert source == pieces(line).input_ids
        random = torch.randint(tokenizer.vocab_size, (targets,), generator=generator).tolist()
        # M2M100 gives padding no position of its own.
        random = [token for token in random if token != tokenizer.pad_id]
        target = [tokenizer.decoder_start_id, *tokenizer.target_prefix, *random]
        packed, given = pack_sentences([source]), pack_sentences([target])
        with torch.inference_mode():
            ours = model.logits(model.decode(model.encode(packed), packed.layout, given))
            theirs = peer(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        worst = max(worst, float((ours - theirs).abs().max()))
    return worst


def compare_translations(folder: Path, lines: Sequence[str], beam: int, device: str = "cpu") -> tuple[int, int]:
    """The number of lines with the same translation as by transformers, and of different texts that are not empty."""
    ours = dragoman.load(f"{DIRECTION}={folder}", device, beam=beam, **LIMITS).translate(lines)
    return count_same(ours, translate_by_peer(folder, lines, beam)), len({*ours} - {""})


def translate_by_peer(folder: Path, lines: Sequence[str], beam: int, dtype: torch.dtype = torch.float32) -> list[str]:
    """The translations of transformers, on the CPU."""
    tokenizer = find_tokenizer(folder, Languages(*DIRECTION.split("-")))
    forbidden = SpecialTokens.from_tokenizer(tokenizer, tokenizer.padded_vocab_size).forbidden
    peer, pieces = load_peer(folder)
    peer, prefix = peer.to(dtype), tokenizer.target_prefix
    by_length: dict[int, list[str]] = {}
    for line in lines:
        length = len(tokenizer.source_prefix) + len(tokenizer.encode(line)) + 1
        by_length.setdefault(length, []).append(line)
    found: dict[str, str] = {}
    for length, same_length in by_length.items():  # The limit of a translation depends on the length of its source.
        limit = max_length(length, LENGTH_RATIO) + len(prefix)
        made = peer.generate(
            **pieces(same_length, return_tensors="pt"), num_beams=beam, do_sample=False, max_new_tokens=limit,
            logits_processor=[partial(_end_at, limit, tokenizer.eos_id)],
            bad_words_ids=[[token] for token in forbidden], forced_bos_token_id=prefix[0] if prefix else None,
            **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {}),
        )  # fmt: skip
        found |= zip(same_length, map(tokenizer.decode, made.tolist()), strict=True)
    return [found[line] for line in lines]


def _end_at(limit: int, eos_id: int, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Let translations end at a limit, at the probability of the end, as our search does. `forced_eos_token_id` would
    take the end as certain there."""
    if tokens.shape[1] < limit:
        return scores
    ended = torch.full_like(scores, -torch.inf)
    ended[:, eos_id] = scores[:, eos_id]
    return ended


def train_and_export(folder: Path, lines: Sequence[str], work: Path) -> dict[str, int]:
    """Lines with the same translation after 20 steps of training, by format of the export: greedy, in float32."""
    from dragoman.exporting.exporter import export  # Needs CTranslate2, which the sections for a GPU do not.

    data = _prepare_data(folder, work)
    settings = resolve("tiny", SETTINGS).settings
    start = StartModel(folder, tuple(setting.partition("=")[0] for setting in SETTINGS))
    local_launcher.train(TrainingJob(settings, data.path, work / "run", 1, start), 1, make_scorer)
    trained = dragoman.load(work / "run", "cpu", beam=1)
    ours = trained.translate(lines)
    quantized = export(work / "run", work / "ctranslate2", "ctranslate2", "float32")
    by_ctranslate2 = dragoman.load(quantized, "cpu", beam=1).translate(lines)
    model, pieces = load_peer(export(work / "run", work / "huggingface", "huggingface"))
    by_transformers = []
    for line in lines:  # Each with the limit of its source, at which our search ends a translation.
        inputs = pieces(line, return_tensors="pt")
        limit = 2 * inputs.input_ids.shape[1] + 20 + len(trained.tokenizer.target_prefix)
        made = model.generate(**inputs, num_beams=1, max_new_tokens=limit, forced_eos_token_id=pieces.eos_token_id)
        by_transformers.append(pieces.decode(made[0], skip_special_tokens=True))
    return {
        name: count_same(ours, texts)
        for name, texts in (("CTranslate2", by_ctranslate2), ("Hugging Face", by_transformers))
    }


def load_peer(folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer, as transformers loads them."""
    import transformers
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def _prepare_data(model: Path, work: Path) -> DataSet:
    generated = demo.generate(600, seed=2, valid=20, test=1)
    for name, pairs in (("train", generated.train), ("valid", generated.valid)):
        (work / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train, valid = (Source(name, (work / f"{name}.tsv",), "tsv") for name in ("train", "valid"))
    languages = Languages(*DIRECTION.split("-"))
    corpus = Corpus("demo", languages, (train,), (valid,), ())
    prepare(corpus, work / "data", resolve().settings, workers=1, tokenizer=find_tokenizer(model, languages))
    return DataSet(work / "data")


def count_same(ours: Sequence[str], theirs: Sequence[str]) -> int:
    return sum(text == other for text, other in zip(ours, theirs, strict=True))


def compare_models(parts: Sequence[str], device: str) -> Iterator[Figure]:
    """Models of transformers here and there: imported, and exported after some steps."""
    pairs = demo.generate(300, seed=5, valid=1, test=1).train
    lines = [source for source, _ in pairs[:100]]
    same = f"{len(lines)} of {len(lines)}"
    with tempfile.TemporaryDirectory() as name:
        for family, make in MAKERS.items():
            folder = make(Path(name) / family, pairs)
            if "import" in parts:
                difference = compare_logits(folder, lines)
                yield Figure(f"{family}: largest difference of logits", f"{difference:.1e}", "1e-5", difference)
                for beam in (1, 4):
                    count, different = compare_translations(folder, lines, beam, device)
                    found = f"{count} of {len(lines)}, {different} different texts"
                    yield Figure(f"{family}: same translations with beam {beam}", found, same, [count, different])
                    if device != "cpu":
                        types = (torch.float32, torch.bfloat16)
                        rounded = count_same(*(translate_by_peer(folder, lines, beam, dtype) for dtype in types))
                        kind = f"{family}: transformers in bfloat16 and in float32, same translations with beam {beam}"
                        yield Figure(kind, f"{rounded} of {len(lines)}", "", rounded)
            if "export" in parts:
                work = Path(name) / f"{family}-work"
                work.mkdir()
                for to, count in train_and_export(folder, lines, work).items():
                    found = f"{count} of {len(lines)}"
                    yield Figure(f"{family}: {STEPS} steps, same translations in {to}", found, same, count)


def main() -> None:
    parser = make_parser(__doc__, [*MODEL_SECTIONS, *ADAPTATION_SECTIONS], MODEL_SECTIONS)
    parser.add_argument("--device", default="cpu", help="device on which imported models translate")
    parser.add_argument("--corpora", type=Path, default=CORPORA, help="folder of the corpora")
    parser.add_argument("--work", type=Path, help="folder for data sets and runs, which resume (default: a new one)")
    parser.add_argument("--base", type=Path, help="europarl model to begin with (default: train one)")
    parser.add_argument("--base-recipe", default="modern", help="recipe of the europarl model and of both data sets")
    parser.add_argument("--base-steps", type=int, default=4000, help="steps of the europarl model")
    parser.add_argument("--recipe", default="small", help="recipe of all other runs")
    parser.add_argument("--steps", type=int, default=500, help="steps of each adaptation")
    parser.add_argument(
        "--curve-corpora", nargs="+", choices=CURVE_CORPORA, default=CURVE_CORPORA, help="corpora of learning curves"
    )
    parser.add_argument("--curve-steps", type=int, default=1500, help="steps of each run of a learning curve")
    parser.add_argument("--curve-tokens", type=int, default=25600, help="tokens of a batch of europarl's curve")
    parser.add_argument(
        "--old-weights", type=float, nargs="*", default=[0.05, 0.1, 0.3], help="weights of europarl beside Multi30k"
    )
    parser.add_argument("--pairs", type=int, default=0, help="pairs of each corpus to train on (default: all)")
    parser.add_argument("--parallel", type=int, default=6, help="commands that share the device at the same time")
    options = parser.parse_args()
    print_figures("fine_tuning", figures(options))


def figures(options: argparse.Namespace) -> Iterator[Figure]:
    if set(options.only) & set(MODEL_SECTIONS):
        yield from compare_models(options.only, options.device)
    if sections := [each for each in options.only if each in ADAPTATION_SECTIONS]:
        from benchmarks import domain_adaptation  # Loads the compiler, for commands that are forked from this process.

        with tempfile.TemporaryDirectory() as name:
            work = options.work or Path(name)
            work.mkdir(parents=True, exist_ok=True)
            settings = {key: value for key, value in vars(options).items() if key not in ("only", "work", "device")}
            bench = domain_adaptation.Adaptation(work=work, **settings)
            for section in sections:
                yield from domain_adaptation.SECTIONS[section](bench)


if __name__ == "__main__":
    main()
