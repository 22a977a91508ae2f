"""Implements `doctor`, which checks an installation, and `merge`, which combines stores.

May import every folder except `cli`.
"""
