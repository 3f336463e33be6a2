"""Tokenizers in folders of transformers: those of MarianMT, M2M100 and NLLB."""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sentencepiece import sentencepiece_model_pb2

from dragoman.corpus.foreign_tokenizer import REBUILT_MODEL, ForeignTokenizer, ForeignVocabulary, make_tokenizer
from dragoman.corpus.huggingface_folder import HuggingFaceFolder
from dragoman.corpus.model_languages import M2M100_LANGUAGES, match_languages, other_direction
from dragoman.corpus.sources import Languages
from dragoman.corpus.tokenizer import load_processor
from dragoman.errors import DragomanError

MAX_ROWS = 10**7
_SPM_FILE = "sentencepiece.bpe.model"
_FILES = (
    "vocab.json", "source.spm", "target.spm", _SPM_FILE, "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
"""Files of a tokenizer, as far as there are any."""
_NLLB_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
_MARIAN_LANGUAGE = re.compile(r">>(.+)<<")
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON may state by itself, and UTF-8 cannot."""
_NLLB_FIRST = ["<s>", "<pad>", "</s>", "<unk>"]


@dataclass(frozen=True)
class NumberedPieces:
    """The ids of pieces, and of the tokens that stand for languages, as a folder states them."""

    ids: Mapping[str, int]
    languages: Mapping[str, int]
    """Ids by the model's codes; empty for a model of one direction."""
    special: Sequence[str] = ()
    """Further pieces that stand for no text."""


def read_tokenizer(folder: HuggingFaceFolder, languages: Languages | None) -> tuple[ForeignTokenizer, Languages] | None:
    """The tokenizer for one direction, by default that of the folder; None with problems in the folder."""
    if folder.family is None:
        return None
    known = len(folder.problems)
    files = {name: content for name in _FILES if (content := folder.read_bytes(name, needed=False)) is not None}
    numbered = _read_marian(folder) if folder.family == "marian" else _read_multilingual(folder, files)
    models = ("source.spm", "target.spm") if folder.family == "marian" else (_spm_name(files),) * 2
    _check_models(folder, models, files)
    stated = _stated_languages(folder)
    languages = languages or stated
    if languages is None:
        folder.problems.append(f"the folder does not state a direction: put it in front, as in en-de={folder.path}")
    elif stated is not None and not numbered.languages and other_direction(languages, stated):
        folder.problems.append(
            f"the model translates {stated.direction}, not {languages.direction}: use one of that direction, or "
            "correct tokenizer_config.json if it states the wrong languages"
        )
    prefixes = _prefixes(folder, numbered, languages) if languages is not None else None
    rows, pad_id, eos_id, start_id = (
        folder.integer(key, least, MAX_ROWS)
        for key, least in (("vocab_size", 1), ("pad_token_id", 0), ("eos_token_id", 0), ("decoder_start_token_id", 0))
    )
    if rows is not None:
        _check_rows(folder, rows, [*numbered.ids.values(), pad_id, eos_id, start_id])
    if languages is None or prefixes is None or len(folder.problems) > known:
        return None
    # None of them is missing, or there would be a problem.
    assert rows is not None
    assert pad_id is not None
    assert eos_id is not None
    assert start_id is not None
    pieces = {token: piece for piece, token in numbered.ids.items()}
    size, unk_id = max(pieces) + 1, numbered.ids["<unk>"]
    special = {pad_id, eos_id, start_id, unk_id, *numbered.languages.values()}
    special |= {numbered.ids[piece] for piece in numbered.special} | {id_ for id_ in range(size) if id_ not in pieces}
    vocabulary = ForeignVocabulary(
        [pieces.get(token, f"<unused {token}>") for token in range(size)],
        rows, pad_id, unk_id, eos_id, start_id, *prefixes, sorted(special), *models,
    )  # fmt: skip
    return make_tokenizer(vocabulary, files), languages


def _check_rows(folder: HuggingFaceFolder, rows: int, tokens: Sequence[int | None]) -> None:
    outside = [token for token in tokens if token is not None and token >= rows]
    if outside:
        folder.problems.append(
            f"{len(outside)} tokens are beyond the {rows:,} rows of the model, such as {outside[0]}: take the "
            "tokenizer that belongs to the weights"
        )


def _read_marian(folder: HuggingFaceFolder) -> NumberedPieces:
    if folder.tokenizer_config.get("separate_vocabs"):
        folder.problems.append("tokenizer_config.json: separate_vocabs is true: use a model with one vocabulary")
    ids = _valid_ids(folder, "vocab.json", folder.read_json("vocab.json"))
    codes = {match[1]: token for piece, token in ids.items() if (match := _MARIAN_LANGUAGE.fullmatch(piece))}
    return NumberedPieces(ids, codes)


def _read_multilingual(folder: HuggingFaceFolder, files: dict[str, bytes]) -> NumberedPieces:
    """M2M100 or NLLB. A SentencePiece model that is missing is rebuilt from `tokenizer.json` and added to the files."""
    if folder.tokenizer_config.get("legacy_behaviour"):
        folder.problems.append("tokenizer_config.json: legacy_behaviour is true: set it to false, and train on")
    tokenizer_class = str(folder.tokenizer_config.get("tokenizer_class", ""))
    if "vocab.json" in files and not tokenizer_class.startswith("Nllb"):
        ids = _valid_ids(folder, "vocab.json", folder.read_json("vocab.json"))
        found = folder.tokenizer_config.get("language_codes", "m2m100")
        kind = found if isinstance(found, str) else ""
        if kind not in M2M100_LANGUAGES:
            folder.problems.append(f"tokenizer_config.json: language_codes {found!r} is not known: use m2m100 or wmt21")
        codes = {code: len(ids) + number for number, code in enumerate(M2M100_LANGUAGES.get(kind, ()))}
        return NumberedPieces(
            {**ids, **{f"__{code}__": token for code, token in codes.items()}}, codes, _present(ids, "<s>")
        )
    if "tokenizer.json" in files:
        content = folder.read_json("tokenizer.json")
        ids = _valid_ids(folder, "tokenizer.json", _vocabulary_of(content))
        if _SPM_FILE not in files and ids and (rebuilt := _rebuild_model(folder, content)) is not None:
            files[REBUILT_MODEL] = rebuilt
    elif _SPM_FILE in files:
        ids = _numbers_of_fairseq(folder, files[_SPM_FILE])
    else:
        folder.problems.append(f"{_SPM_FILE} is missing: copy or download the whole folder")
        ids = {}
    codes = {piece: token for piece, token in ids.items() if _NLLB_LANGUAGE.fullmatch(piece)}
    if ids and not codes:
        folder.problems.append("no file lists the codes of languages: add tokenizer.json or special_tokens_map.json")
    return NumberedPieces(ids, codes, _present(ids, "<s>", "<mask>"))


def _present(ids: Mapping[str, int], *pieces: str) -> list[str]:
    return [piece for piece in pieces if piece in ids]


def _valid_ids(folder: HuggingFaceFolder, name: str, found: Any) -> dict[str, int]:
    """Ids of pieces: whole numbers, each once, and with an unknown token."""
    if not isinstance(found, dict) or not found:
        if (folder.path / name).is_file():
            folder.problems.append(f"{name} has no vocabulary: copy it again")
        return {}
    wrong = [piece for piece, token in found.items() if type(token) is not int or not 0 <= token < MAX_ROWS]
    if wrong:
        folder.problems.append(f"{name}: the id of {wrong[0]!r} is not a whole number: copy it again")
    elif len(set(found.values())) < len(found):
        folder.problems.append(f"{name}: several pieces have the same id: copy it again")
    elif _SURROGATE.search("".join(found)):
        folder.problems.append(f"{name}: a piece is no valid Unicode text: copy it again")
    elif "<unk>" not in found:
        folder.problems.append(f"{name} has no <unk>: take the vocabulary that belongs to the model")
    else:
        return dict(found)
    return {}


def _vocabulary_of(content: Mapping[str, Any]) -> Any:
    """The ids that `tokenizer.json` states: of the pieces, and of tokens that were added."""
    model, added = content.get("model"), content.get("added_tokens")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        return None
    tokens = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return {**vocabulary, **{str(token.get("content")): token.get("id") for token in tokens}}


def _numbers_of_fairseq(folder: HuggingFaceFolder, model: bytes) -> dict[str, int]:
    """NLLB's numbering: four special tokens, the pieces, the languages, and the mask."""
    try:
        processor = load_processor(model)
    except DragomanError:
        return {}  # Reported with the models.
    special = folder.read_json("special_tokens_map.json", needed=False)
    lists = [
        source.get(key)
        for key in ("additional_special_tokens", "extra_special_tokens")
        for source in (special, folder.tokenizer_config)
    ]
    codes = next((found for found in lists if isinstance(found, list) and found), [])
    names = [
        code if isinstance(code, str) else str(code.get("content")) for code in codes if isinstance(code, str | dict)
    ]
    pieces = [str(processor.id_to_piece(token)) for token in range(3, processor.vocab_size())]
    return {piece: token for token, piece in enumerate([*_NLLB_FIRST, *pieces, *names, "<mask>"])}


def _rebuild_model(folder: HuggingFaceFolder, content: Mapping[str, Any]) -> bytes | None:
    """The SentencePiece model that `tokenizer.json` was converted from: pieces are merged in the order of its list."""
    try:
        return _convert_to_sentencepiece(folder, content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:80]
        folder.problems.append(f"tokenizer.json is damaged ({reason}): copy it again, or copy {_SPM_FILE}, too")
        return None


def _convert_to_sentencepiece(folder: HuggingFaceFolder, content: Mapping[str, Any]) -> bytes | None:
    model = content["model"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model.get("merges") or []]
    if model.get("type") != "BPE" or not all(len(merge) == 2 for merge in merges):
        folder.problems.append(f"tokenizer.json is not BPE, and {_SPM_FILE} is missing: copy that file, too")
        return None
    ranks: dict[str, int] = {}
    for rank, (first, second) in enumerate(merges):
        ranks.setdefault(f"{first}{second}", rank)
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    control = {"<unk>": 2, "<s>": 3, "</s>": 3}  # SentencePiece's types of pieces
    proto.pieces.extend(proto.SentencePiece(piece=piece, score=0.0, type=kind) for piece, kind in control.items())
    added = {token.get("content") for token in content.get("added_tokens") or [] if isinstance(token, dict)}
    for piece in sorted(model["vocab"], key=model["vocab"].__getitem__):
        if piece not in added and piece not in control:
            proto.pieces.add(piece=piece, score=-float(ranks.get(piece, len(merges))), type=1)
    proto.trainer_spec.model_type = 2  # BPE
    proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = 0, 1, 2
    proto.trainer_spec.pad_id = -1
    proto.normalizer_spec.name = "nmt_nfkc"
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(_charsmap(content.get("normalizer")))
    return bytes(proto.SerializeToString(deterministic=True))


def _charsmap(normalizer: Any) -> str:
    """The normalization of characters in `tokenizer.json`; empty if there is none."""
    if not isinstance(normalizer, dict):
        return ""
    steps = normalizer.get("normalizers") or [normalizer]
    return next((str(step["precompiled_charsmap"]) for step in steps if "precompiled_charsmap" in step), "")


def _spm_name(files: Mapping[str, bytes]) -> str:
    return _SPM_FILE if _SPM_FILE in files or REBUILT_MODEL not in files else REBUILT_MODEL


def _check_models(folder: HuggingFaceFolder, names: Sequence[str], files: Mapping[str, bytes]) -> None:
    for name in dict.fromkeys(names):
        if name not in files:
            if folder.family == "marian":
                folder.problems.append(f"{name} is missing: copy or download the whole folder")
            continue
        try:
            load_processor(files[name])
        except DragomanError:
            folder.problems.append(f"{name} is not a SentencePiece model: copy it again")


def _stated_languages(folder: HuggingFaceFolder) -> Languages | None:
    keys = ("source_lang", "target_lang") if folder.family == "marian" else ("src_lang", "tgt_lang")
    source, target = (folder.tokenizer_config.get(key) for key in keys)
    if isinstance(source, str) and isinstance(target, str) and source and target:
        return Languages(source, target)
    return None


def _prefixes(
    folder: HuggingFaceFolder, numbered: NumberedPieces, languages: Languages
) -> tuple[list[int], list[int]] | None:
    """The tokens before a source sentence, and before its translation."""
    if not numbered.languages:
        return [], []
    if folder.family == "marian":  # The source begins with the code of the language to translate to.
        target = _find_code(folder, numbered.languages, languages.target)
        return None if target is None else ([target], [])
    codes = [_find_code(folder, numbered.languages, code) for code in (languages.source, languages.target)]
    return None if codes[0] is None or codes[1] is None else ([codes[0]], [codes[1]])


def _find_code(folder: HuggingFaceFolder, codes: Mapping[str, int], language: str) -> int | None:
    found = match_languages(language, codes)
    if len(found) == 1:
        return codes[found[0]]
    shown = ", ".join(sorted(found or codes)[:8]) + (", ..." if len(found or codes) > 8 else "")
    state = f"has several forms of {language} ({shown})" if found else f"does not know {language}, but {shown}"
    folder.problems.append(f"the model {state}: name both of its codes, as in SOURCE-TARGET={folder.path}")
    return None
