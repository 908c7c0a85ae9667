"""SLO gates and load tests for LLM inference servers, as a pytest plugin."""

__version__ = "0.1.0"
