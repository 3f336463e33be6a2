"""Folders of MarianMT, M2M100 and NLLB compute the same here as in transformers; others give one message."""

import contextlib
import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.fine_tuning import compare_logits, compare_translations
from benchmarks.foreign_models import make_m2m100, make_marian, make_nllb
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from dragoman.corpus.huggingface_folder import UnusableFolderError
from dragoman.corpus.sources import Languages
from dragoman.errors import DragomanError
from dragoman.model.huggingface_model import import_model
from dragoman.model.model_folder import load_model

from ..models import LINES, PAIRS, save_random_model, small_architecture, train_tokenizer
from ..shared_folder import shared_folder

MAKERS = {"marian": make_marian, "m2m100": make_m2m100, "nllb": make_nllb}
DIRECTION = Languages("en", "de")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        for name, maker in MAKERS.items():
            maker(folder / name, PAIRS)

    return shared_folder(tmp_path_factory, "foreign-models", make)


@pytest.fixture
def copy(folders: Path, tmp_path: Path) -> Callable[[str], Path]:
    def copy_folder(name: str) -> Path:
        return Path(shutil.copytree(folders / name, tmp_path / name, copy_function=shutil.copyfile))

    return copy_folder


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def problems_of(folder: Path, languages: Languages | None = DIRECTION) -> str:
    before = sorted(file.name for file in folder.iterdir())
    with pytest.raises(UnusableFolderError) as error:
        import_model(folder, languages)
    assert sorted(file.name for file in folder.iterdir()) == before
    return str(error.value)


@pytest.mark.parametrize("name", MAKERS)
def test_logits_are_those_of_transformers(folders: Path, name: str) -> None:
    assert compare_logits(folders / name, LINES) <= 1e-5


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", MAKERS)
def test_greedy_and_beam_translations_are_those_of_transformers(folders: Path, name: str, beam: int) -> None:
    equal, _ = compare_translations(folders / name, LINES, beam)
    assert equal == len(LINES)


@pytest.mark.parametrize("options", [{"activation_function": "relu"}, {"scale_embedding": False}])
@pytest.mark.parametrize("maker", [make_marian, make_m2m100])
def test_options_of_the_architecture_are_followed(maker: Callable[..., Path], options: dict, tmp_path: Path) -> None:
    assert compare_logits(maker(tmp_path / "model", PAIRS, **options), LINES[:4]) <= 1e-5


def test_the_sentencepiece_model_is_rebuilt_from_the_fast_tokenizer(copy: Callable[[str], Path]) -> None:
    folder = copy("nllb")
    before = import_model(folder, DIRECTION).tokenizer
    if (folder / "sentencepiece.bpe.model").exists():
        (folder / "sentencepiece.bpe.model").unlink()
    after = import_model(folder, DIRECTION).tokenizer
    assert [after.encode(line) for line in LINES] == [before.encode(line) for line in LINES]


def test_the_codes_of_nllb_may_be_listed_without_a_fast_tokenizer(copy: Callable[[str], Path]) -> None:
    folder = copy("nllb")
    before = import_model(folder, DIRECTION).tokenizer
    (folder / "tokenizer.json").unlink()
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": ["deu_Latn", "eng_Latn"]}))
    after = import_model(folder, DIRECTION).tokenizer
    assert [after.encode(line) for line in LINES] == [before.encode(line) for line in LINES]
    assert [after.pieces[prefix[0]] for prefix in (after.source_prefix, after.target_prefix)] == [
        "eng_Latn",
        "deu_Latn",
    ]


def test_weights_may_be_pickled_sharded_in_half_precision_or_under_a_tied_name(copy: Callable[[str], Path]) -> None:
    folder = copy("m2m100")
    expected = import_model(folder, DIRECTION).weights
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    renamed = {name.replace("model.shared", "lm_head"): tensor for name, tensor in weights.items()}
    torch.save(renamed, folder / "pytorch_model.bin")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in import_model(folder, DIRECTION).weights.items())
    (folder / "pytorch_model.bin").unlink()
    names = list(weights)
    shards = {"a.safetensors": names[:5], "b.safetensors": names[5:]}
    for file, part in shards.items():
        save_file({name: weights[name].half() for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    halved = import_model(folder, DIRECTION).weights
    assert all(torch.equal(halved[name], tensor.half().float()) for name, tensor in expected.items())


def test_a_direction_may_stand_before_the_folder(folders: Path) -> None:
    tokenizer = load_model(Path(f"eng_Latn-fra_Latn={folders / 'nllb'}")).description.tokenizer
    assert tokenizer.pieces[tokenizer.target_prefix[0]] == "fra_Latn"


@pytest.mark.parametrize("wanted", ["de-en", "en-fr", "fr-zh", "deu-eng"])
def test_a_model_of_one_direction_is_refused_for_another(folders: Path, wanted: str) -> None:
    with pytest.raises(UnusableFolderError, match=f"the model translates en-de, not {wanted}: use one of that"):
        load_model(Path(f"{wanted}={folders / 'marian'}"))


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [(("en", "de"), "eng-deu"), (("eng", "deu"), "en-de"), (("ROMANCE", "en"), "fr-en"), ((None, None), "fr-zh")],
)
def test_a_direction_that_fits_what_the_folder_states_is_used(
    copy: Callable[[str], Path], stated: tuple[str | None, str | None], wanted: str
) -> None:
    folder = copy("marian")
    edit(folder / "tokenizer_config.json", source_lang=stated[0], target_lang=stated[1])
    assert load_model(Path(f"{wanted}={folder}")).description.languages.direction == wanted


def test_marian_with_several_target_languages_begins_the_source_with_a_code(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    unused = next(piece for piece, token in vocabulary.items() if token == 400)
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, ">>deu<<": vocabulary.pop(unused)}))
    (folder / "vocab.json").write_text(json.dumps({**vocabulary, ">>deu<<": 400}))
    assert import_model(folder, DIRECTION).tokenizer.source_prefix == (400,)
    assert "does not know fr, but deu" in problems_of(folder, Languages("en", "fr"))


def test_all_problems_of_a_folder_are_listed_at_once(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    edit(folder / "config.json", activation_function="gelu", encoder_ffn_dim=256, d_model="wide")
    (folder / "vocab.json").unlink()
    (folder / "target.spm").write_bytes(b"no model")
    (folder / "tokenizer_config.json").unlink()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    message = problems_of(folder, None)
    for part in (
        "'gelu' is not supported",
        "encoder_ffn_dim is 256, decoder_ffn_dim 128",
        "d_model is wide",
        "vocab.json is missing",
        "target.spm is not a SentencePiece model",
        "model.safetensors is damaged",
        "does not state a direction: put it",
    ):
        assert part in message, part


def test_weights_that_do_not_fit_the_configuration_are_named(copy: Callable[[str], Path]) -> None:
    folder = copy("m2m100")
    weights = load_file(folder / "model.safetensors")
    del weights["model.encoder.layers.0.fc1.bias"]
    weights["model.decoder.layers.1.fc2.weight"] = torch.zeros(3, 3)
    weights["model.encoder.layers.7.fc1.bias"] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors")
    message = problems_of(folder)
    assert "missing (model.encoder.layers.0.fc1.bias)" in message
    assert "unknown tensors (model.encoder.layers.7.fc1.bias)" in message
    assert "model.decoder.layers.1.fc2.weight is [3, 3], not [64, 128]" in message


NUMBERS_THAT_ARE_NONE = [float("nan"), float("inf"), float("-inf")]


@pytest.mark.parametrize("number", NUMBERS_THAT_ARE_NONE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_are_not_finite_are_named(copy: Callable[[str], Path], number: float, dtype: torch.dtype) -> None:
    folder = copy("m2m100")
    weights = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    weights["model.decoder.layers.1.fc2.weight"][3, 5] = number
    save_file(weights, folder / "model.safetensors")
    assert "NaN or infinity (model.decoder.layers.1.fc2.weight): take an earlier checkpoint" in problems_of(folder)


@pytest.mark.parametrize("number", NUMBERS_THAT_ARE_NONE)
def test_our_own_weights_that_are_not_finite_are_named(tmp_path: Path, number: float) -> None:
    folder = save_random_model(tmp_path / "model", small_architecture("small"), train_tokenizer(tmp_path))
    weights = load_file(folder / "weights.safetensors")
    weights["decoder_norm.bias"][7] = number
    save_file(weights, folder / "weights.safetensors")
    with pytest.raises(DragomanError, match=r"cannot be used \(decoder_norm.bias has NaN or infinity\): take another"):
        load_model(folder)


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=30, **sizes)).save_pretrained(tmp_path)
    assert "model_type 'bert' cannot be imported: use a model of marian" in problems_of(tmp_path)


def test_code_in_a_pickle_is_not_run(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    (folder / "model.safetensors").unlink()
    trap = folder.parent / "trap"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (trap,)  # type: ignore[return-value]

    for save in (lambda path: torch.save({"a": Trap()}, path), lambda path: path.write_bytes(pickle.dumps(Trap()))):
        save(folder / "pytorch_model.bin")
        assert "none of its code is run" in problems_of(folder)
        assert not trap.exists()


def pickled(folder: Path, content: object) -> Path:
    """A folder whose weights are this object."""
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    return folder


def test_a_weight_file_of_any_bytes_gets_a_sentence(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    (folder / "model.safetensors").unlink()
    for content in (b"", *(bytes([byte]) for byte in range(256))):
        (folder / "pytorch_model.bin").write_bytes(content)
        assert "pytorch_model.bin" in problems_of(folder)


def test_a_pickle_in_the_old_format_with_any_changed_byte_gets_a_sentence(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save({"a": torch.zeros(2)}, path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        problems_of(folder)


@pytest.mark.parametrize("save", [torch.save, save_file])
def test_a_file_without_tensors_says_so(copy: Callable[[str], Path], save: Callable[..., None]) -> None:
    folder = copy("marian")
    (folder / "model.safetensors").unlink()
    name = "pytorch_model.bin" if save is torch.save else "model.safetensors"
    save({}, folder / name)
    assert problems_of(folder).splitlines()[1:] == [f"  {name} holds no tensors: copy or download it again"]


@pytest.mark.parametrize("change", [torch.Tensor.to_sparse, torch.Tensor.int, torch.Tensor.cfloat])
def test_tensors_that_are_sparse_or_no_numbers_with_a_point_are_named(
    copy: Callable[[str], Path], change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    folder = copy("marian")
    name = "model.encoder.layers.0.fc1.weight"
    weights = load_file(folder / "model.safetensors")
    message = problems_of(pickled(folder, {**weights, name: change(weights[name])}))
    assert f"tensors are no floating-point numbers, or sparse ({name})" in message


OTHER_VALUES = [None, True, -1, 0, 1.5, float("nan"), 10**30, "abc", "\ud800", [1], [], {"a": [1]}, {}]


def json_paths(content: object, most: int, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of values in a JSON document: in each object or list, of this many at most."""
    members = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in islice(members, most):
        yield (*path, key)
        yield from json_paths(value, most, (*path, key))


def with_value(content: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy of a JSON document with another value at a path."""
    if not path:
        return value
    changed = content.copy()
    changed[path[0]] = with_value(content[path[0]], path[1:], value)
    return changed


CONFIGURATIONS = ["config.json", "tokenizer_config.json", "generation_config.json"]


@pytest.mark.parametrize(("name", "file"), [*product(MAKERS, CONFIGURATIONS), ("nllb", "tokenizer.json")])
def test_values_of_other_types_give_a_message_and_never_a_traceback(
    copy: Callable[[str], Path], name: str, file: str
) -> None:
    path = copy(name) / file
    most = 100
    if file == "tokenizer.json":  # Thousands of pieces and merges are alike.
        most = 4
        (path.parent / "sentencepiece.bpe.model").unlink(missing_ok=True)  # So that it is made from this file.
    content = json.loads(path.read_text())
    for place in json_paths(content, most):
        for value in OTHER_VALUES:
            path.write_text(json.dumps(with_value(content, place, value)))
            for languages in (DIRECTION, None):
                with contextlib.suppress(UnusableFolderError):  # A change may be harmless.
                    import_model(path.parent, languages)


def test_pieces_that_are_no_text_get_a_sentence(copy: Callable[[str], Path]) -> None:
    folder = copy("marian")
    vocabulary = json.loads((folder / "vocab.json").read_text())
    (folder / "vocab.json").write_text(json.dumps({f"{piece}\ud800": token for piece, token in vocabulary.items()}))
    assert "vocab.json: a piece is no valid Unicode text" in problems_of(folder)


KEYS = [
    "vocab_size", "model_type", "d_model", "pad_token_id", "decoder_start_token_id", "model", "added_tokens", "dropout",
    "src_lang", "encoder_layers", "tie_word_embeddings", "<unk>", "extra_special_tokens", "num_beams", "language_codes",
]  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=2), values, max_size=2),
    max_leaves=3,
)


@given(data=st.data())
@settings(max_examples=60)
def test_damaged_files_give_a_message_and_never_a_traceback(
    folders: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(MAKERS)))
    target = tmp_path_factory.mktemp("damaged") / name
    folder = Path(shutil.copytree(folders / name, target, copy_function=shutil.copyfile))
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = bytearray(file.read_bytes())
    position = data.draw(st.integers(0, min(len(content), 3000) - 1))
    damage = data.draw(st.sampled_from(["cut", "flip", "missing", "values"]))
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[:position])
    elif damage == "flip" or file.suffix != ".json":
        content[position] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
    else:
        edit(file, **data.draw(st.dictionaries(st.sampled_from(KEYS), JSON_VALUES, max_size=3)))
    with contextlib.suppress(UnusableFolderError):  # A change may be harmless.
        import_model(folder, DIRECTION)
