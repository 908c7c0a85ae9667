"""The simulator: a discrete continuous-batching engine behind an OpenAI-compatible server.

    profile -> engine (pure, simulated time) -> pace (wall time) -> streams (bytes) -> server (HTTP)

`engine` knows no clock, so the same code runs experiments in virtual time (`experiment`) and serves real
clients. Everything that it tells a client about itself says "simulated".
"""
