"""Owns operations on existing stores and installations: doctor, merge, forget.

`forget` removes data from transcripts with `erase_transcripts`. May import every folder except
`cli`.
"""
