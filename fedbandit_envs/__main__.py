"""`python -m fedbandit_envs` is the command `fedbandit`."""

import sys

from fedbandit_envs.cli.main import main

sys.exit(main())
