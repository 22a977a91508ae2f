"""Quantiles of Student's t equal SciPy's, whether or not the build computed them."""

import numpy as np
import pytest
from hatch_build import MAX_FREEDOM
from scipy.special import ndtri, stdtrit

from mcptally.statistics import quantiles
from mcptally.statistics.quantiles import LEVEL, t_quantile


def test_quantiles_of_the_build_are_scipys():
    freedom = np.arange(1.0, MAX_FREEDOM + 1)
    # SciPy 1.15 and 1.17, one of which built the file, differ by 4e-11.
    assert t_quantile(LEVEL, freedom) == pytest.approx(stdtrit(freedom, LEVEL), rel=1e-9)
    assert t_quantile(LEVEL, np.inf) == pytest.approx(ndtri(LEVEL), rel=1e-9)


@pytest.mark.parametrize(
    ("p", "freedom"),
    [
        (0.9, 5.0),
        (LEVEL, 1.5),
        (LEVEL, MAX_FREEDOM + 1.0),
        (LEVEL, 0.0),
        (LEVEL, -1.0),
        (0.9, np.inf),
    ],
)
def test_other_quantiles_are_scipys(p, freedom):
    expected = ndtri(p) if np.isinf(freedom) else stdtrit(freedom, p)
    assert t_quantile(p, [freedom, freedom]) == pytest.approx([expected] * 2, nan_ok=True)


def test_without_degrees_of_freedom_there_is_no_quantile():
    assert t_quantile(LEVEL, [np.nan, 3.0]) == pytest.approx(
        [np.nan, stdtrit(3.0, LEVEL)], nan_ok=True
    )


def test_without_a_build_scipy_computes_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quantiles, "_compiled", lambda: np.empty(0))
    assert t_quantile(LEVEL, 5.0) == pytest.approx(2.5705818356363146)
