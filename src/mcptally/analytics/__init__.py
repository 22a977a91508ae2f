"""Open stores and answer questions about them: queries, comparisons, explanations, dry runs."""
