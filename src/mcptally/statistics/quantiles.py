"""Computes quantiles of Student's t-distribution.

Importing SciPy takes longer than most questions do. The build (`hatch_build.py`) therefore writes
the quantiles for 95 % intervals, as SciPy computes them, to `compiled.json`.
"""

import functools
from importlib import resources
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL: Final = 0.975
"""The probability that a value is below the upper bound of a two-sided 95 % interval."""

NORMAL: Final = 1.959963984540054
"""The quantile `LEVEL` of the normal distribution."""


def t_quantile(p: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return the quantile `p` of Student's t; infinite degrees of freedom mean normal."""
    degrees = np.asarray(freedom, np.float64)
    known = _compiled()
    finite = np.isfinite(degrees)
    place = np.where(finite, degrees, 0)
    is_known = (place == np.floor(place)) & (place >= finite) & (place < len(known))
    if np.all(p == LEVEL) and is_known.all():
        return np.where(np.isnan(degrees), np.nan, known[place.astype(np.intp)])
    from scipy.special import ndtri, stdtrit  # noqa: PLC0415  (takes 0.2 s)

    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(np.isinf(degrees), ndtri(p), stdtrit(degrees, p)), np.float64)


@functools.cache
def _compiled() -> Floats:
    """Return the quantile `LEVEL` for each degree of freedom from 1; element 0 is the normal one.

    The result is empty if the package was not built.
    """
    file = resources.files("mcptally.statistics") / "compiled.json"
    if not file.is_file():
        return np.empty(0)
    return np.array(msgspec.json.decode(file.read_bytes())["t_quantiles"])
