"""The validation-logic document: normalised errors and argument rules."""
