"""Evaluation: AST to Python closures, scopes, calls, control flow, tasks (chapter 30)."""
