"""One exposition of several workers' ones."""

from __future__ import annotations

from gantry.cli.workersdoor import merged


def test_each_family_is_there_once_and_each_series_has_its_worker() -> None:
    first = "# HELP a One.\n# TYPE a gauge\na 1\n# HELP b Two.\n# TYPE b counter\nb{rpc=\"x y\"} 2\n"
    second = "# HELP a One.\n# TYPE a gauge\na 3\n# HELP c Three.\n# TYPE c gauge\nc 4\n"
    assert merged([first, second]).splitlines() == [
        "# HELP a One.",
        "# TYPE a gauge",
        'a{worker="0"} 1',
        'a{worker="1"} 3',
        "# HELP b Two.",
        "# TYPE b counter",
        'b{worker="0",rpc="x y"} 2',
        "# HELP c Three.",
        "# TYPE c gauge",
        'c{worker="1"} 4',
    ]
