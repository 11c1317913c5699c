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

{{- define "gantrymq.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Never changes, since a selector cannot be changed. */}}
{{- define "gantrymq.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of objects that exist from before an upgrade until it has what it needs; those of a smaller weight come first. */}}
{{- define "gantrymq.before-upgrade" -}}
helm.sh/hook: pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
