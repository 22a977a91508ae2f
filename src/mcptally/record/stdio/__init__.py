"""Records a stdio server: relays its pipes and supervises its process.

May import `record.server_label`, `wire` and `transcript`.
"""
