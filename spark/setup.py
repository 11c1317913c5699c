"""What the data source needs; everything else stands in pyproject.toml.

`gantrymq` comes from the folder beside this one where there is one: in a clone, `pip install ./spark` is all that it
takes, and no package index is asked for a distribution of that name.  An sdist, and a wheel made from it
(`python -m build`), names it as any other.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import setup

BROKER = Path(__file__).resolve().parent.with_name("broker")
IS_BESIDE = (BROKER / "src/gantry/client").is_dir() and "sdist" not in sys.argv

setup(
    install_requires=[
        f"gantrymq @ {BROKER.as_uri()}" if IS_BESIDE else "gantrymq",
        "pyspark>=4.2,<5",
        # pyspark does not name it, and a Python data source needs it.  numpy: what decodes and packs rows.
        "pyarrow>=18",
        "numpy>=1.26",
    ]
)
