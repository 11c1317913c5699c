# Other people's clients, for pods of tests: a Java runtime with Apache's jars, and Python with the wheel of the C++ client.
ARG BASE=docker.io/library/debian:bookworm-slim
FROM ${BASE}
# Unpacked and not installed: its scripts would write a store of certificates, which these clients do without.
RUN apt-get update && cd /tmp && apt-get download openjdk-17-jre-headless \
 && dpkg -x openjdk-17-jre-headless_*.deb / \
 && ln -s /usr/lib/jvm/java-17-openjdk-*/bin/java /usr/local/bin/java \
 && rm -rf /tmp/*.deb /var/lib/apt/lists/*
COPY v218.txt /opt/
RUN python3 -m venv /opt/cpp && /opt/cpp/bin/pip install --no-cache-dir --no-deps --require-hashes -r /opt/v218.txt
COPY java/ /opt/java/
COPY driver.py /opt/cpp/
USER 10001:10001
