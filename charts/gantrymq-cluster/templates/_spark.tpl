{{- /* Account, role and volume of all jobs. */}}
{{- define "gantrymq-cluster.sparkName" -}}
{{ include "gantrymq-cluster.name" . }}-spark
{{- end }}

{{- define "gantrymq-cluster.sparkChecked" -}}
{{- if eq .Values.spark.namespace .Release.Namespace }}
{{- fail "spark.namespace is the namespace of this release: a driver may delete every pod of its namespace, so jobs need another one than the brokers" }}
{{- end }}
{{- end }}

{{- /* Spec of a SparkApplication: of (dict "root" $ "job" JOB). */}}
{{- define "gantrymq-cluster.sparkSpec" -}}
{{- $root := .root }}
{{- $job := .job }}
{{- $spark := $root.Values.spark }}
{{- $arguments := $job.arguments | default list }}
{{- if ne $job.job "audit" }}
{{- $arguments = concat (list (printf "--namesrv=%s-nameserver.%s:9876" (include "gantrymq-cluster.name" $root) $root.Release.Namespace)) $arguments }}
{{- end }}
{{- $ends := regexMatch " --(once|void|show-for-a-person)[ =]" (printf " %s " (join " " $arguments)) }}
{{- $goesOn := and (has $job.job (list "archive" "idempotent" "resend" "triage")) (not $ends) (not $job.schedule) }}
type: Python
mode: cluster
sparkVersion: {{ $spark.version | quote }}
image: {{ include "gantrymq-cluster.image" (dict "root" $root "image" $spark.image) }}
imagePullPolicy: {{ $spark.imagePullPolicy }}
{{- with $spark.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
mainApplicationFile: local:///opt/gantrymq/jobs/{{ $job.job }}.py
arguments: {{- toYaml $arguments | nindent 2 }}
{{- if $goesOn }}
# A stream is started again whatever ended it; its checkpoint says where it goes on.
restartPolicy: {type: Always, onFailureRetryInterval: 10, onSubmissionFailureRetryInterval: 20}
{{- else if $job.schedule }}
# The next one is the retry.
restartPolicy: {type: Never}
{{- else }}
restartPolicy:
  type: OnFailure
  onFailureRetries: 3
  onFailureRetryInterval: 10
  onSubmissionFailureRetries: 3
  onSubmissionFailureRetryInterval: 20
{{- end }}
sparkConf:
  spark.pyspark.python: /opt/python/bin/python
  spark.sql.session.timeZone: UTC
  # A task in Python costs half as much as over TCP.
  spark.python.unix.domain.socket.enabled: "true"
  spark.task.maxFailures: "8"
  # The driver may neither delete volumes nor services: what it leaves goes with its pod.
  spark.kubernetes.driver.ownPersistentVolumeClaim: "false"
  spark.kubernetes.driver.service.deleteOnTermination: "false"
  # The spark-operator's chart gives it no right to make NetworkPolicies.
  spark.kubernetes.driver.pod.excludedFeatureSteps: org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep
  # Prometheus asks the driver: /metrics/prometheus, and /metrics/executors/prometheus for its executors.
  spark.ui.prometheus.enabled: "true"
  spark.sql.streaming.metricsEnabled: "true"
  spark.metrics.namespace: gantrymq
  spark.metrics.conf.*.sink.prometheusServlet.class: org.apache.spark.metrics.sink.PrometheusServlet
  spark.metrics.conf.*.sink.prometheusServlet.path: /metrics/prometheus
{{- with $job.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: work
    persistentVolumeClaim: {claimName: {{ include "gantrymq-cluster.sparkName" $root }}}
driver:
  serviceAccount: {{ include "gantrymq-cluster.sparkName" $root | quote }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: "4040"
    prometheus.io/path: /metrics/prometheus
  {{- if $job.files }}
  configMaps: [{name: {{ $job.name }}-files, path: /etc/gantrymq}]
  {{- end }}
  {{- include "gantrymq-cluster.sparkPod" . | nindent 2 }}
executor:
  instances: {{ $job.executors | default 2 }}
  deleteOnTermination: true
  {{- include "gantrymq-cluster.sparkPod" . | nindent 2 }}
{{- end }}

{{- /* What driver and executors have in common. */}}
{{- define "gantrymq-cluster.sparkPod" -}}
cores: 1
memory: {{ .job.memory | default "1g" }}
# Python's workers: two for each task that reads and writes, and some of the driver's own.
memoryOverhead: 768m
labels:
  # What brokers that are not open to everybody ask of their clients.
  gantrymq.io/client: "yes"
{{- with .job.secrets }}
envSecretKeyRefs: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts: [{name: work, mountPath: /spark}]
{{- if .root.Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints" }}
# OpenShift assigns ids to each namespace, and refuses others.
podSecurityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
{{- else }}
podSecurityContext: {runAsNonRoot: true, runAsUser: 185, runAsGroup: 185, fsGroup: 185, seccompProfile: {type: RuntimeDefault}}
{{- end }}
securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
{{- end }}
