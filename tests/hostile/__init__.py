"""Tests of the promises in docs/explanation/threat-model.md: hostile archives, texts and bytes."""
