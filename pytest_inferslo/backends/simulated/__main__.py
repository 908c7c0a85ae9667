import sys

from pytest_inferslo.backends.simulated.cli import main

sys.exit(main())
