"""Recompiling a dumped module with one thing changed. Knows the engine, and nothing of Django."""
