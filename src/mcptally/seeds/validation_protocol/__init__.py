"""The validation protocol document: checks of calls before they are made."""
