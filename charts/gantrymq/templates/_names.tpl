{{/* The name of everything that this release makes: two releases never share one. */}}
{{- define "gantrymq.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The namespaces that are watched, separated by commas; empty: all. */}}
{{- define "gantrymq.watched" -}}
{{- if and .Values.watch.namespaces (ne .Values.watch.scope "many") }}{{ fail "watch.namespaces: only with watch.scope=many" }}{{ end -}}
{{- if and (eq .Values.watch.scope "many") (not .Values.watch.namespaces) }}{{ fail "watch.scope=many: watch.namespaces names none" }}{{ end -}}
{{- if eq .Values.watch.scope "one" }}{{ .Release.Namespace }}{{ else }}{{ join "," .Values.watch.namespaces }}{{ end -}}
{{- end }}

{{/* Where pods of this release run and how their images are pulled: of a pod's spec. */}}
{{- define "gantrymq.placement" -}}
{{- with .Values.operator.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
tolerations:
  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 10}
  {{- with .Values.operator.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Of a container. */}}
{{- define "gantrymq.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The group that owns the volumes of brokers; OpenShift assigns one to each namespace and refuses others. */}}
{{- define "gantrymq.volume-group" -}}
{{- if not (kindIs "string" .Values.operator.brokerFsGroup) }}{{ int64 .Values.operator.brokerFsGroup }}
{{- else if ne .Values.operator.brokerFsGroup "auto" }}{{ .Values.operator.brokerFsGroup }}
{{- else if .Capabilities.APIVersions.Has "security.openshift.io/v1/SecurityContextConstraints" }}platform
{{- else }}10001{{ end -}}
{{- end }}

{{- define "gantrymq.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Never changes, since a selector cannot be changed. */}}
{{- define "gantrymq.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/*
The reference of an image: (dict "root" $ "image" .Values.operator.image). A string is taken as it is: values of 0.1.0 were strings.
*/}}
{{- define "gantrymq.image" -}}
{{- if kindIs "string" .image -}}
{{ .image }}
{{- else -}}
{{- $tag := ternary "" .root.Chart.AppVersion (ne (.image.digest | default "") "") -}}
{{ .image.repository }}{{ with .image.tag | default $tag }}:{{ . }}{{ end }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{/* Annotations of objects that exist from before an installation or upgrade until it is done; smaller weights come first. */}}
{{- define "gantrymq.before" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The spec of a Job of a hook that runs one command of the operator's image: (dict "root" $ "name" "account" "command" "env"). */}}
{{- define "gantrymq.job" -}}
backoffLimit: 3
activeDeadlineSeconds: 240
template:
  metadata:
    labels:
      app.kubernetes.io/name: {{ .name | quote }}
      app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
  spec:
    restartPolicy: Never
    serviceAccountName: {{ .account | quote }}
    {{- include "gantrymq.placement" .root | trim | nindent 4 }}
    containers:
      - name: operator
        image: {{ include "gantrymq.image" (dict "root" .root "image" .root.Values.operator.image) }}
        imagePullPolicy: {{ .root.Values.operator.imagePullPolicy }}
        command: [{{ .command }}]
        {{- with .env }}
        env: {{- . | nindent 10 }}
        {{- end }}
        resources: {{- toYaml .root.Values.operator.resources | nindent 10 }}
        securityContext: {{- include "gantrymq.unprivileged" .root | nindent 10 }}
{{- end }}

{{/* What every process of the operator is told: which objects are its own, and which Lease. */}}
{{- define "gantrymq.env" -}}
- {name: GANTRY_OPERATOR_BROKER_IMAGE, value: {{ include "gantrymq.image" (dict "root" . "image" .Values.operator.brokerImage) | quote }}}
- {name: GANTRY_OPERATOR_NAMESPACES, value: {{ include "gantrymq.watched" . | quote }}}
- {name: GANTRY_OPERATOR_LEASE, value: {{ include "gantrymq.name" . }}}
{{- end }}
