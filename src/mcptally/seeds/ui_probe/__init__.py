"""The UI probe document: response envelopes and test runs."""
