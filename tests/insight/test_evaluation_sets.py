from dragoman.insight.evaluation_sets import compare_sets


def scores(loss: float | None, bleu: float | None) -> dict:
    return {"loss": loss, "bleu": bleu, "chrf": bleu}


def evaluation(step: int, valid: dict, **sets: dict) -> dict:
    return {"step": step, "elapsed_s": 1.0, **valid, "evaluation_s": 1.0, "sets": sets, "gains": {}}


def test_one_set_is_not_compared():
    assert compare_sets([evaluation(10, scores(3.0, 20.0))]) == []


def test_the_first_best_and_last_scores_of_each_set_are_listed():
    done = [
        evaluation(10, scores(3.0, 20.0)),
        evaluation(20, scores(2.5, 26.0), news=scores(2.0, 30.0)),
        evaluation(30, scores(2.6, 25.0), news=scores(2.4, 27.0)),
    ]
    rows = [(row["name"], row["evaluation"], row["step"], row["bleu"]) for row in compare_sets(done)]
    assert rows == [
        ("validation", "first", 10, 20.0), ("validation", "best", 20, 26.0), ("validation", "last", 30, 25.0),
        ("news", "first", 20, 30.0), ("news", "best", 20, 30.0), ("news", "last", 30, 27.0),
    ]  # fmt: skip


def test_without_bleu_the_lowest_known_loss_is_the_best():
    losses = [3.0, None, 2.0, 2.5]
    done = [evaluation(step, scores(loss, None), news=scores(loss, None)) for step, loss in enumerate(losses)]
    assert [row["step"] for row in compare_sets(done) if row["evaluation"] == "best"] == [2, 2]


def test_a_run_that_began_with_a_model_has_its_gains_beside_the_scores():
    start, last = evaluation(0, scores(3.0, 20.0)), evaluation(10, scores(2.5, 24.0))
    last["gains"] = {"valid": {"bleu": 4.0, "low": 3.1, "high": 4.9}}
    assert [row["gain"] for row in compare_sets([start, last])] == [None, "+4.0 (+3.1 to +4.9)", "+4.0 (+3.1 to +4.9)"]
