"""`python -m winnow.collect`: the same as `winnow collect train`."""

import sys

from winnow.collect import main
from winnow.errors import BadInput

try:
    main()
except BadInput as error:
    print(f"winnow.collect: {error}", file=sys.stderr)
    sys.exit(2)
