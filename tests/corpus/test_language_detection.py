import pytest

from dragoman.corpus.language_detection import detect, is_in_another_language


def test_the_language_of_a_sentence_is_detected():
    assert detect("Das Schiff verlässt am Morgen den Hafen.")[0].language == "de"
    assert detect("12!") == []


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("Das Schiff verlässt am Morgen den Hafen.", "de", False),
        ("Das Schiff verlässt am Morgen den Hafen.", "de-AT", False),
        ("Das Schiff verlässt am Morgen den Hafen.", "en", True),
        ("El barco sale del puerto por la mañana.", "de", True),
        ("El barco sale del puerto por la mañana.", "tlh", False),
        ("Kosovo!", "de", False),
    ],
)
def test_a_text_is_in_another_language_only_if_that_is_almost_certain(text, language, expected):
    assert is_in_another_language(text, language) is expected


def test_a_long_text_is_judged_by_its_first_characters():
    assert is_in_another_language("Das Schiff verlässt am Morgen den Hafen. " * 10**5, "de") is False
