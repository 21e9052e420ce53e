"""Tests of the shell language's syntax."""
