"""Answers questions about stores: predefined questions, SQL, comparisons, explanations, dry runs.

It imports statistics, store, seeds, verdict and the folders below them, and no folder that writes
stores or shows answers.
"""
