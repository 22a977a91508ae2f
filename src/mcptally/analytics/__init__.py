"""Answers questions about stores: predefined questions, SQL, comparisons, explanations, dry runs.

May import `statistics`, `store`, `seeds`, `verdict` and lower layers, but no folder that writes
stores or formats answers.
"""
