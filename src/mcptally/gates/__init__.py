"""Limits on a store's rates, and the reports that CI systems read."""
