"""Where .venv-docs, the environment that builds the site, keeps what is not Python (requirements/install)."""

from __future__ import annotations

import sys
from pathlib import Path

MERMAID = Path(sys.prefix, "mermaid/node_modules/@mermaid-js/tiny/dist")
