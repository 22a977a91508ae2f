"""How property tests run everywhere: the same examples each time, and never against a clock.

A loaded machine is no reason to fail, and a change is judged by what it changed, not by luck.
`HYPOTHESIS_PROFILE=explore` looks for new examples instead.
"""

import gc
import os

from hypothesis import HealthCheck, settings

# Polars loads with its default threads, as in a user's script. A command that loads it first gives
# it one (memory.settle), and columns then come in fewer chunks.
os.environ.pop("POLARS_MAX_THREADS", None)
import polars  # noqa: F401

settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_unconfigure() -> None:
    """Take Hypothesis's callback from the garbage collector.

    The interpreter keeps it, and with it modules, until after DuckDB's binding has counted what
    is left of its objects: it would print that they leaked.
    """
    ours = [each for each in gc.callbacks if not each.__module__.startswith("hypothesis")]
    gc.callbacks[:] = ours
