"""What strangers may do to us: archives, contents, and random bytes.

docs/explanation/threat-model.md says what is promised; here it is tried.
"""
