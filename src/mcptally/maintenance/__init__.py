"""Owns operations on existing stores and installations: doctor and merge.

May import every folder except `cli`.
"""
