"""A module cut down to the few instructions that still show one copy. Knows the engine and `replay`, nothing of Django."""
from .reproducer import NoReproducer, Reproducer
from .search import reproduce

__all__ = ["NoReproducer", "Reproducer", "reproduce"]
