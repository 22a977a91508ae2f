"""Answers questions about stores: predefined ones, SQL, comparisons, explanations and dry runs.

May import `statistics`, `store`, `seeds`, `verdict` and lower layers, but no folder that writes
stores or formats answers.
"""
