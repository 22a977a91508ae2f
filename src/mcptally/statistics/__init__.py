"""Intervals of rates and quantiles with sessions as clusters."""
