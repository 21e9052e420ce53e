"""Runs folders of language cases against a bare evaluator: `python -m tests.conformance DIR`."""
