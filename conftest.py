"""Settings for everything that runs from this checkout: the scenarios and the package's own tests."""

pytest_plugins = ["pytester"]
