"""Gets other people's clients and servers ready, once: `python tests/interop/prepare.py`.

Everything lands in one cache folder ($GANTRY_CACHE/interop, else .cache/interop of the checkout) and is made again only
when what it is made from has changed: each part has a stamp with a digest of its inputs.  A part is built under the
name it will have, and its stamp is written last, so an interrupted build is started afresh.

    node            ali-ons by `npm ci` from ali_ons/package-lock.json
    cpp-2.1.8       PyPI rocketmq 0.4.4, its library included
    cpp-2.1.11      PyPI rocketmq-client-python 2.0.0, which has no library, and the one out of rocketmq-python-cvs
    java-4.9.7, -5.x  Apache's client, broker and name server by Maven, and the drivers compiled against them
    sdk-python      RocketMQ 5's client for Python, which speaks gRPC: PyPI rocketmq-python-client
    sdk-node        the one for Node.js by `npm ci` from sdks/node/package-lock.json
    sdk-java        the one for Java by Maven, and the driver compiled against it
    mns-sdk, -old   MNS's clients for Python: PyPI aliyun-mns-sdk, and aliyun-mns, which is built from source
    mns-node        the one for Node.js by `npm ci` from mns/node/package-lock.json
    mns-java        the one for Java by Maven, and the driver compiled against it
    conformance     Apache's integration tests by Maven, and the base classes compiled against them

The hashes in cpp/*.txt, mns/*.txt and sdks/python/requirements.txt come from `uv pip compile --generate-hashes
--no-emit-index-url`, with --no-deps for the former two.  All the Python packages of a kind install one module,
`rocketmq` or `mns`, hence an environment each.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
JAVA_VERSIONS = ("4.9.7", "5.x")
NEEDS = {"node": ("node", "npm"), "java": ("java", "javac", "mvn"), "cpp": ("python3",)}
APT = {"node": "nodejs", "npm": "npm", "java": "default-jdk-headless", "javac": "default-jdk-headless", "mvn": "maven"}
# A JVM of a test lives for seconds; the second compiler would only burn the machine.
TEST_FLAGS = ("-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JAVA_FLAGS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)


class MissingToolError(Exception):
    """A program of the system is not there; the text names it and the package that has it."""


def cache() -> Path:
    root = os.environ.get("GANTRY_CACHE")
    return (Path(root) if root else CHECKOUT / ".cache") / "interop"


def require(kind: str) -> None:
    for tool in NEEDS[kind]:
        if shutil.which(tool) is None:
            raise MissingToolError(f"{tool} is not installed; apt-get install {APT.get(tool, tool)}")


def run(args: Sequence[str], cwd: Path) -> None:
    """One preparation step; its output only when it fails."""
    done = subprocess.run([*args], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(args)} ended with {done.returncode}:\n{done.stdout.decode('utf-8', 'replace')[-4000:]}"
        )


def part(name: str, inputs: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder of one part, built if its inputs are not those of its stamp."""
    folder = cache() / name
    digest = hashlib.sha256(sys.version.encode() + b"".join(path.read_bytes() for path in inputs)).hexdigest()
    stamp = folder / "stamp"
    folder.mkdir(parents=True, exist_ok=True)
    with (cache() / f"{name}.lock").open("w") as lock:  # two test runs at once must not build into each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            shutil.rmtree(folder)
            folder.mkdir()
            build(folder)
            stamp.write_text(digest)
    return folder


def ali_ons() -> Path:
    """A folder whose node_modules has ali-ons."""
    return node_modules("node", HERE / "ali_ons")


def sdk_node() -> Path:
    """A folder whose node_modules has RocketMQ 5's client."""
    return node_modules("sdk-node", HERE / "sdks" / "node")


def node_modules(name: str, source: Path) -> Path:
    """A folder whose node_modules has what the package of `source` asks for, by its lock file."""
    require("node")
    inputs = [source / "package.json", source / "package-lock.json"]

    def build(folder: Path) -> None:
        for path in inputs:
            shutil.copy(path, folder)
        run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], folder)

    return part(name, inputs, build)


def install(pip: str, requirements: Path, *more: str) -> None:
    flags = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    run([pip, "install", *flags, *more, "-r", str(requirements)], HERE)


def cpp_2_1_8() -> Path:
    """The interpreter that has PyPI `rocketmq` 0.4.4."""
    return environment("cpp-2.1.8", HERE / "cpp" / "v218.txt")


def sdk_python() -> Path:
    """The interpreter that has RocketMQ 5's client."""
    return environment("sdk-python", HERE / "sdks" / "python" / "requirements.txt")


def mns_sdk() -> Path:
    """The interpreter that has `aliyun-mns-sdk`."""
    return environment("mns-sdk", HERE / "mns" / "sdk.txt")


def mns_old() -> Path:
    """The interpreter that has `aliyun-mns`, which is built with the tools of cpp/build.txt."""
    require("cpp")
    build_tools, package = HERE / "cpp" / "build.txt", HERE / "mns" / "old.txt"

    def build(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)], HERE)
        pip = str(folder / "bin" / "pip")
        install(pip, build_tools)
        install(pip, package, "--no-build-isolation")

    return part("mns-old", [build_tools, package], build) / "bin" / "python"


def mns_node() -> Path:
    """A folder whose node_modules has MNS's client."""
    return node_modules("mns-node", HERE / "mns" / "node")


def mns_java() -> str:
    """The class path of MNS's client and our compiled driver."""
    source = HERE / "mns" / "java"
    return compiled("mns-java", "mns-java-driver", source / "pom.xml", [source / "Mns.java"])


def environment(name: str, requirements: Path) -> Path:
    """The interpreter of an environment with these packages."""
    require("cpp")

    def build(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)], HERE)
        install(str(folder / "bin" / "pip"), requirements)

    return part(name, [requirements], build) / "bin" / "python"


def cpp_2_1_11() -> Path:
    """The interpreter that has `rocketmq-client-python` with the library of `rocketmq-python-cvs` laid into it."""
    require("cpp")
    build_tools, wrapper, library = (HERE / "cpp" / name for name in ("build.txt", "v2111.txt", "library.txt"))

    def build(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)], HERE)
        pip = str(folder / "bin" / "pip")
        install(pip, build_tools)
        install(pip, wrapper, "--no-build-isolation")
        install(pip, library, "--no-build-isolation", "--target", str(folder / "library"))
        (package,) = folder.glob("lib/python*/site-packages/rocketmq")
        shutil.copy(folder / "library" / "rocketmq" / "librocketmq.so", package)

    return part("cpp-2.1.11", [build_tools, wrapper, library], build) / "bin" / "python"


def java_sources(version: str) -> list[Path]:
    """The drivers, and those that only compile against this version."""
    return sorted([*HERE.glob("java/drivers/*.java"), *HERE.glob(f"java/drivers-{version}/*.java")])


def java(version: str) -> str:
    """The class path of Apache's jars and our compiled drivers for one version."""
    pom = HERE / "java" / f"apache-{version}" / "pom.xml"
    return compiled(f"java-{version}", f"drivers-{version}", pom, java_sources(version))


def sdk_java() -> str:
    """The class path of RocketMQ 5's client and our compiled driver."""
    source = HERE / "sdks" / "java"
    return compiled("sdk-java", "sdk-java-driver", source / "pom.xml", [source / "Sdk.java"])


def conformance_java() -> str:
    """The class path of Apache's integration tests, with base classes of ours in front.

    Apache's proxy wants its home as a folder, which the tests' jar is not: there is one beside our sources.
    """
    source = HERE / "java" / "conformance"
    base = compiled("conformance", "conformance-base", source / "pom.xml", sorted(source.rglob("*.java")))
    return f"{source}:{base}"


def compiled(name: str, drivers: str, pom: Path, sources: Sequence[Path]) -> str:
    """The class path of what a pom asks for and of sources compiled against it."""
    require("java")
    jar_path = jars(name, pom)

    def compile_drivers(folder: Path) -> None:
        flags = ["-nowarn", "-proc:none", "-XDignore.symbol.file", "-Xlint:none"]
        run(["javac", *flags, "-cp", jar_path, "-d", str(folder), *map(str, sources)], HERE)

    return f"{part(drivers, [pom, *sources], compile_drivers)}:{jar_path}"


def jars(name: str, pom: Path) -> str:
    """The class path of what a pom asks for, by Maven."""
    folder = part(name, [pom], lambda folder: resolve(pom, folder))
    if not all(Path(jar).exists() for jar in (folder / "classpath").read_text().split(":")):
        (folder / "stamp").unlink()  # somebody emptied Maven's repository
        folder = part(name, [pom], lambda folder: resolve(pom, folder))
    return (folder / "classpath").read_text().strip()


def guarantee_java() -> str:
    """The class path of the guarantee's example in Java: Apache's client, PostgreSQL's driver, the example."""
    example = CHECKOUT / "broker" / "examples" / "orders" / "java" / "Account.java"
    return compiled("guarantee-java", "guarantee-java-driver", HERE / "java" / "guarantee" / "pom.xml", [example])


def oldest_client() -> str:
    """The class path of RocketMQ's client 3.2.6, which only slow tests want: `main` does not fetch it."""
    require("java")
    return jars("java-3.2.6", HERE / "java" / "alibaba-3.2.6" / "pom.xml")


def apache_proxy() -> str:
    """The class path of Apache's proxy, which only those want who check a driver: `main` does not fetch it."""
    require("java")
    return jars("apache-proxy", HERE / "sdks" / "java" / "apache-proxy" / "pom.xml")


def resolve(pom: Path, folder: Path) -> None:
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
    run(["mvn", "-B", "-q", "-f", str(pom), goal, f"-Dmdep.outputFile={folder / 'classpath'}"], folder)


def java_command(
    version: str, main: str, *args: str, heap: str = "256m", flags: Sequence[str] = TEST_FLAGS
) -> list[str]:
    return ["java", f"-Xmx{heap}", *flags, *JAVA_FLAGS, "-cp", java(version), main, *args]


def main() -> None:
    steps: dict[str, Callable[[], object]] = {"ali-ons": ali_ons, "cpp 2.1.8": cpp_2_1_8, "cpp 2.1.11": cpp_2_1_11}
    steps |= {f"java {version}": partial(java, version) for version in JAVA_VERSIONS}
    steps |= {"sdk for Python": sdk_python, "sdk for Node.js": sdk_node, "sdk for Java": sdk_java}
    steps |= {"mns for Python": mns_sdk, "mns for Python, old": mns_old, "mns for Node.js": mns_node}
    steps["mns for Java"] = mns_java
    steps["guarantee's example in Java"] = guarantee_java
    steps["Apache's integration tests"] = conformance_java
    for name, step in steps.items():
        start = time.monotonic()
        try:
            step()
        except MissingToolError as error:
            if os.environ.get("CI") == "true":
                sys.exit(f"interop: {error}")
            print(f"{name}: left out, {error}", flush=True)  # the tests that need it say so too
            continue
        print(f"{name}: ready after {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
