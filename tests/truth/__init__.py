"""Truth by construction: servers whose every failure has a known cause, and their recordings.

`python -m tests.truth` records the servers of `servers/` again. `labels.jsonl` has one labelled
call per line, `recordings/` the transcripts, with what the servers wrote on stderr.
"""
