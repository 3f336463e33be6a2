"""The exchange method of the present world: chosen when a world forms, and reviewed from time to time."""

from collections.abc import Callable

from dragoman.distributed import choose_exchange
from dragoman.distributed.cluster import Cluster
from dragoman.events import Event, ExchangeChosen
from dragoman.settings import ExchangeSettings
from dragoman.step_model import PLAIN, ExchangeChoice, ExchangeMethod, RingLink
from dragoman.telemetry.step_timing import StepTimer
from dragoman.training.replica import Replica


class ExchangeSelection:
    """Gives a replica its exchange. All workers call each method together, and get the same one."""

    def __init__(
        self,
        settings: ExchangeSettings,
        cluster: Cluster,
        replica: Replica,
        timer: StepTimer,
        time_step: Callable[[], float],
        record: Callable[[Event], None],
    ) -> None:
        """`time_step` runs a step, for its compute time."""
        self._settings, self._cluster, self._replica = settings, cluster, replica
        self._timer, self._time_step, self._record = timer, time_step, record
        self.choice = ExchangeChoice(PLAIN)

    def choose(self) -> None:
        """Choose the method of a new world. A link that was measured before is not measured again."""
        self._use(self._decide(self.choice.link))

    def review(self) -> None:
        """Measure the link again. The exchange stays, with what rounding has lost so far, unless another is better."""
        choice = self._decide(None, self.choice.method)
        if choice.method == self.choice.method:
            self.choice = choice
        else:
            self._use(choice)

    def _decide(self, known_link: RingLink | None, present: ExchangeMethod | None = None) -> ExchangeChoice:
        parameters, compute_s = self._replica.model.trainable_parameters, self._timer.compute_s
        return choose_exchange.decide(
            self._settings, self._cluster, parameters, compute_s, self._time_step, known_link, present
        )

    def _use(self, choice: ExchangeChoice) -> None:
        """Build the exchange, and report a change."""
        replica, parameters = self._replica, self._replica.model.trainable_parameters
        state = replica.exchange.state_dict()
        replica.exchange = choose_exchange.build(choice, self._settings, self._cluster, parameters)
        replica.exchange.load_state_dict(state)
        if choice.method != self.choice.method and self._cluster.world_size > 1:
            self._record(describe_exchange(choice, replica.state.step))
        self.choice = choice


def describe_exchange(choice: ExchangeChoice, step: int) -> ExchangeChosen:
    method, link = choice.method, choice.link or RingLink(0.0)
    return ExchangeChosen(
        step=step,
        method=method.name,
        every=method.interval,
        wire_format=method.wire_format,
        overlap=method.overlap,
        bits_per_s=link.bits_per_s,
        latency_s=link.latency_s,
        reason=choice.reason,
    )
