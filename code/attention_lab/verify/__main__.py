"""Let ``python -m attention_lab.verify`` be the command `attention-lab`."""

import sys

from attention_lab.verify.command_line.command import main

if __name__ == "__main__":
    sys.exit(main())
