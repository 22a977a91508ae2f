"""Secrets in texts: which they are, and how copies hide them."""
