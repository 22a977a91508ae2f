"""The recorder: bytes pass unchanged, a copy is kept. Imports nothing columnar."""
