"""brobust: measure, explain, detect and repair TCP BBR's collapse when the sender's CPU is taken away."""

from importlib.metadata import version

__version__ = version("brobust")
