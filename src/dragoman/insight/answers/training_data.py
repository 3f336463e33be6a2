"""Size of the training data before and after cleaning."""

from dragoman.insight.answer import Answer, unknown
from dragoman.insight.run_history import RunHistory
from dragoman.number_format import count, size


def answer_data_size(history: RunHistory) -> Answer:
    question = "How big is the training set?"
    data = history.data
    if data is None:
        return unknown("corpus", question, "this run did not record its data")
    return Answer(
        "corpus",
        question,
        f"{count(data.pairs)} sentence pairs, {size(data.text_bytes)} of text, {count(data.source_tokens)} source and "
        f"{count(data.target_tokens)} target tokens.",
        [
            f"{data.name}, {data.languages}",
            f"before cleaning {count(data.pairs_before)} pairs, {size(data.bytes_before)} of text",
            f"vocabulary of {count(data.vocabulary)} tokens; {count(data.valid_pairs)} validation pairs",
        ],
    )
