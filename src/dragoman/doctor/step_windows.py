"""Steps of a training run in windows of about a second, and what they show: a typical time, and how far it varies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median

from dragoman.doctor.machine_load import CpuTimes, CpuUse
from dragoman.events import StepDone

WINDOW_S = 0.7
MIN_WINDOWS = 5
MAX_SPREAD = 0.06
"""Windows that differ by less than this part agree, and no more are needed."""
MIN_UNCERTAINTY = 0.05
"""Two runs of the same settings may differ by this part, however well the windows of one of them agree."""


@dataclass(frozen=True)
class StepWindow:
    """Successive steps."""

    steps: int
    tokens: int
    """Source and target tokens."""
    step_s: float
    compute_s: float
    alone_s: float
    """Time that the steps would have taken without other processes; known on CPUs only, elsewhere `step_s`."""
    cpu: CpuUse

    @property
    def token_s(self) -> float:
        """Batches differ in size, so windows are compared by their time for a token."""
        return self.step_s / self.tokens


@dataclass(frozen=True)
class StepEstimate:
    """A typical step, and the range of its time."""

    tokens: float
    """Source and target tokens of a step, on average."""
    compute_s: float
    update_s: float
    """All else: the optimizer, waiting for data, Python."""
    fastest: float
    slowest: float
    """Factors on the time of the step: the range in which it lies."""
    other_cores: float
    """Cores that other processes used, if the steps had to wait for them; otherwise 0."""

    @property
    def step_s(self) -> float:
        return self.compute_s + self.update_s


class StepWindows:
    """Collects windows of steps. Steps in which something is compiled or captured belong to none."""

    def __init__(self, *, on_gpu: bool, cores: float, read_times: Callable[[], CpuTimes] = CpuTimes.now) -> None:
        self._on_gpu, self._cores, self._read_times = on_gpu, cores, read_times
        self._warm_up_windows = 1 if on_gpu else 0
        """A GPU raises its clocks meanwhile."""
        self.windows: list[StepWindow] = []
        self._steps: list[StepDone] = []
        self._began = read_times()
        self._is_first = True

    def add(self, step: StepDone) -> None:
        """Add a step that has just ended. The first one allocates memory and fills caches, and does not count."""
        if step.compile_s or self._is_first:
            self._is_first = False
            self._steps, self._began = [], self._read_times()
            return
        self._steps.append(step)
        if sum(step.step_s for step in self._steps) < WINDOW_S:
            return
        now = self._read_times()  # Only here: many cores take milliseconds, as long as the steps of a GPU.
        if self._warm_up_windows:
            self._warm_up_windows -= 1
        else:
            self.windows.append(self._make_window(now))
        self._steps, self._began = [], now

    def _make_window(self, now: CpuTimes) -> StepWindow:
        step_s = sum(step.step_s for step in self._steps)
        # The thread that trains takes part in all work, so its CPU time is what a step takes if nothing interrupts it.
        thread_s, process_s = now.thread_s - self._began.thread_s, now.process_s - self._began.process_s
        return StepWindow(
            steps=len(self._steps),
            tokens=sum(step.source_tokens + step.target_tokens for step in self._steps),
            step_s=step_s,
            compute_s=sum(step.compute_s for step in self._steps),
            alone_s=step_s if self._on_gpu else min(step_s, max(thread_s, process_s / self._cores)),
            cpu=CpuUse.between(self._began, now),
        )

    @property
    def elapsed_s(self) -> float:
        return sum(window.step_s for window in self.windows)

    @property
    def agree(self) -> bool:
        """Whether there are enough windows, and no need for more."""
        times_s = [window.token_s for window in self.windows]
        return len(times_s) >= MIN_WINDOWS and max(times_s) <= (1 + MAX_SPREAD) * min(times_s)


def summarize(windows: Sequence[StepWindow]) -> StepEstimate:
    """The median of the windows; or, where other processes disturb a CPU, the time that a step takes alone."""
    contended = [window.cpu.others for window in windows if window.cpu.is_contended]
    is_busy = 2 * len(contended) > len(windows)
    times_s = [window.token_s for window in windows]
    slow_s = sorted(times_s)[-ceil(len(times_s) / 3) :]  # Not the slowest one, which may have been stopped for long.
    typical_s = median(window.alone_s / window.tokens for window in windows) if is_busy else median(times_s)
    tokens, steps = sum(window.tokens for window in windows), sum(window.steps for window in windows)
    step_s, compute_s = (sum(getattr(window, name) for window in windows) for name in ("step_s", "compute_s"))
    scale = typical_s * tokens / step_s
    return StepEstimate(
        tokens=tokens / steps,
        compute_s=scale * compute_s / steps,
        update_s=scale * (step_s - compute_s) / steps,
        fastest=min(1 - MIN_UNCERTAINTY, min(times_s) / typical_s),
        slowest=max(1 + MIN_UNCERTAINTY, fmean(slow_s) / typical_s),
        other_cores=median(contended) if is_busy else 0.0,
    )
