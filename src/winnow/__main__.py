"""The command line as `python -m winnow`, for where no script `winnow` is on the path."""

import sys

from winnow.cli import main

if __name__ == "__main__":
    sys.exit(main())
