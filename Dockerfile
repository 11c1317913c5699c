# Images of GantryMQ: --target broker (the broker, the name server and every tool of `gantry`), --target operator.
#
# The base is any Debian with Python 3.11 or later; what is built and what runs have the same one.  Packages are pinned
# with hashes by requirements/, and come from wherever pip and apt of the base are told to look.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# Debian's own Python needs headers and venv; other Pythons have theirs.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && if [ "$(command -v python3)" = /usr/bin/python3 ]; then apt-get install -y --no-install-recommends python3-dev python3-venv; fi
WORKDIR /src
COPY requirements/build.txt requirements/broker.txt requirements/
RUN python3 -m venv /build \
 && /build/bin/pip install --require-hashes -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/broker \
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
