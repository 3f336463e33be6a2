from dragoman.training.due_work import due_after

from ..small import tiny


def test_evaluations_checkpoints_and_reviews_are_due_at_multiples_of_their_intervals():
    due = {step: due_after(step, tiny(), review_every=7) for step in range(1, 13)}
    assert [step for step, work in due.items() if work.evaluation] == [5, 10, 12]
    assert [step for step, work in due.items() if work.checkpoint] == [4, 5, 8, 10, 12]
    assert [step for step, work in due.items() if work.exchange_review] == [7]
    assert [step for step, work in due.items() if work.needs_equal_weights] == [4, 5, 7, 8, 10, 12]
    assert [step for step, work in due.items() if work.last] == [12]


def test_a_method_that_is_never_reviewed_needs_no_equal_weights():
    assert not due_after(7, tiny(), review_every=0).needs_equal_weights


def test_the_starting_model_is_evaluated_and_saved_with_the_exchange_just_chosen():
    due = due_after(0, tiny(), review_every=7)
    assert (due.evaluation, due.checkpoint, due.exchange_review, due.last) == (True, True, False, False)
