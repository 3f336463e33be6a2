"""What would make a teacher better: more steps, by the forecast of its own run, and more pairs."""

from pathlib import Path

from dragoman.insight.loss_forecast import DECAYING_POLICIES, forecast_loss
from dragoman.insight.run_history import RunHistory, read_history
from dragoman.insight.time_and_cost import find_hourly_cost
from dragoman.insight.validation_curve import MIN_FORECAST_POINTS
from dragoman.number_format import count, percent, span
from dragoman.run_folder import RunFolder

MORE_STEPS = 1.5
"""Times as many steps that the forecast is for."""
MORE_PAIRS = "more pairs: `dragoman learning-curve` forecasts what they bring"


def describe_better_teacher(teacher: Path) -> str:
    """What longer training would bring to a teacher and cost, where its run is known, and where to learn the rest."""
    run = find_run(teacher)
    longer = "longer training: not known, the teacher is not in the folder of its run"
    if run is not None:
        longer = describe_longer_training(read_history(run))
    return f"{longer}; {MORE_PAIRS}"


def find_run(model: Path) -> Path | None:
    """The folder of the run that a model is, or is a checkpoint of."""
    return next((folder for folder in (model, model.parent.parent) if RunFolder(folder).event_logs()), None)


def describe_longer_training(history: RunHistory) -> str:
    """The validation loss after more steps, with the range of the forecast, the time and the cost."""
    done = history.trained_evaluations
    if len(done) < MIN_FORECAST_POINTS:
        return (
            f"longer training: not known, a forecast needs {MIN_FORECAST_POINTS} evaluations, its run has {len(done)}"
        )
    last = done[-1]
    forecast = forecast_loss(history, round(MORE_STEPS * last.step))
    decays = history.setting("schedule", "policy") in DECAYING_POLICIES
    # A learning rate that has decayed cannot go on: the whole training is paid again.
    seconds = history.elapsed_s * (MORE_STEPS if decays else MORE_STEPS - 1)
    cost = find_hourly_cost(history)
    price = span(seconds) + ("" if cost is None else f", {cost.format(seconds)}")
    how = f"a new run of {count(forecast.step)} steps" if decays else f"{percent(MORE_STEPS - 1)} more steps"
    return (
        f"{how} ({price}): validation loss {last.nll:.3f} to about {forecast.value:.3f} "
        f"({forecast.low:.3f} to {forecast.high:.3f})"
    )
