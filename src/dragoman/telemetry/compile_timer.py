"""Time that torch spends compiling. Compiling again and again means that shapes change that should be static."""

import sys

from dragoman.telemetry.step_timing import StepTimer


def time_compilation(timer: StepTimer) -> None:
    """Count the time in which this process compiles as such. Call it after the calls to `torch.compile`."""
    if "torch._dynamo" in sys.modules:  # Otherwise nothing compiles here, and the import takes seconds.
        from torch._dynamo.callback import callback_handler

        callback_handler.register_start_callback(lambda _: timer.start_compiling())
        callback_handler.register_end_callback(lambda _: timer.stop_compiling())
