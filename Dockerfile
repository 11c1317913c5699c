# Images of GantryMQ: --target broker (the broker, the name server and every tool of `gantry`), --target operator,
# --target spark (Spark with the data source and its jobs, for driver and executors on Kubernetes).
#
# The base is any Debian with Python 3.11 or later, for `spark` one that has OpenJDK 17 (bookworm); what is built and what
# runs have the same one.  Packages are pinned with hashes by requirements/, and come from wherever pip and apt of the
# base are told to look.
#
# Every image runs with any user id, also one that has no name, and in group 0; nothing in it is written to.
ARG BASE=docker.io/library/python:3.14-slim-bookworm

FROM ${BASE} AS tools
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Debian's own Python needs headers and venv; other Pythons have theirs.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && if [ "$(command -v python3)" = /usr/bin/python3 ]; then apt-get install -y --no-install-recommends python3-dev python3-venv; fi
WORKDIR /src
COPY requirements/build.txt requirements/
RUN python3 -m venv /build \
 && /build/bin/pip install --require-hashes -r requirements/build.txt

FROM tools AS build
COPY requirements/broker.txt requirements/
RUN python3 -m venv --without-pip /opt/broker \
 && /build/bin/pip --python /opt/broker/bin/python install --require-hashes -r requirements/broker.txt
COPY broker/ broker/
# Without its compiled core the broker works, several times slower: an image must not get that by accident.
RUN GANTRY_COMPILED=required /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./broker \
 && /build/bin/pip --python /opt/broker/bin/python install --no-index --no-deps /wheels/gantrymq-*.whl

FROM build AS build-operator
COPY requirements/operator.txt requirements/
RUN python3 -m venv --without-pip /opt/operator \
 && /build/bin/pip --python /opt/operator/bin/python install --require-hashes -r requirements/operator.txt
COPY operator/ operator/
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./operator \
 && /build/bin/pip --python /opt/operator/bin/python install --no-index --no-deps /wheels/*.whl

FROM tools AS build-spark
COPY requirements/sparkrun.txt requirements/
# PySpark comes as sources: its own build needs setuptools, and nothing that runs does.  What neither the data source nor
# a job of ours can reach goes: Spark Connect's shell, Hive, machine learning, graphs, headers; and Spark's archive of its
# own Python, which every process would have to compile anew.
RUN python3 -m venv --without-pip /opt/python \
 && /build/bin/pip --python /opt/python/bin/python install --require-hashes -r requirements/build.txt \
 && /build/bin/pip --python /opt/python/bin/python install --require-hashes --no-build-isolation -r requirements/sparkrun.txt \
 && /build/bin/pip --python /opt/python/bin/python uninstall --yes -r requirements/build.txt \
 && site=$(echo /opt/python/lib/python3*/site-packages) \
 && mv "$site/pyspark" /opt/spark && ln -s /opt/spark "$site/pyspark" \
 && rm -rf "$site/pyarrow/include" "$site/pyarrow/tests" \
 && mkdir -p /opt/spark/conf && cd /opt/spark && rm -rf examples python/lib/*.zip jars/connect-repl jars/spark-hive* \
    jars/hive-[!s]* jars/hive-s[!t]* jars/derby* jars/datanucleus-* jars/spark-mllib* jars/spark-graphx_* jars/breeze* \
    jars/spire* jars/cats-kernel_* jars/algebra_* jars/*arpack* jars/blas-* jars/lapack-*
COPY --from=build /wheels /wheels
COPY spark/ spark/
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./spark \
 && /build/bin/pip --python /opt/python/bin/python install --no-index --no-deps /wheels/*.whl

FROM ${BASE} AS spark
# Java's package links its manual, and slim bases have no folder for that.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini libnss-wrapper \
 && rm -rf /var/lib/apt/lists /var/cache/apt /usr/share/doc \
 && groupadd --gid 185 spark \
 && useradd --uid 185 --gid 185 --no-create-home --home-dir /tmp spark
COPY --from=build-spark /opt/spark /opt/spark
COPY --from=build-spark /opt/python /opt/python
# Where manifests find the jobs, whatever Python it is.
RUN ln -s /opt/python/lib/python3*/site-packages/pyspark_gantrymq /opt/gantrymq
COPY --chmod=0755 spark/docker/entrypoint /opt/entrypoint
ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=/opt/python/bin/python PATH=/opt/python/bin:/opt/spark/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /tmp
USER 185:185
ENTRYPOINT ["/opt/entrypoint"]
CMD ["pyspark"]

FROM ${BASE} AS broker
COPY --from=build /opt/broker /opt/broker
ENV PATH=/opt/broker/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
ENTRYPOINT ["gantry"]
CMD ["broker"]

FROM ${BASE} AS operator
COPY --from=build-operator /opt/operator /opt/operator
# The user has no entry in /etc/passwd, and kopf asks for a name.
ENV PATH=/opt/operator/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LOGNAME=gantry-operator
USER 10001:10001
ENTRYPOINT ["gantry-operator"]
