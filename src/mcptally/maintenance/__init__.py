"""Owns operations on existing stores and installations: doctor, merge, forget.

May import every folder except `cli`.
"""
