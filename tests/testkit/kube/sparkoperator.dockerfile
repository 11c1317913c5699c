# The spark-operator in front of our Spark, as its own Dockerfile puts it in front of Apache's: it calls spark-submit.
ARG BASE
FROM docker.io/gantrymq/spark:test
COPY --chmod=0755 spark-operator /usr/bin/spark-operator
ENTRYPOINT ["tini", "-s", "--", "/usr/bin/spark-operator"]
