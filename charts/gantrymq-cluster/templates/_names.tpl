{{- define "gantrymq-cluster.name" -}}
{{- .Values.name | default .Release.Name }}
{{- end }}

{{/* The reference of an image: (dict "root" $ "image" .Values.test.image). A string is taken as it is. */}}
{{- define "gantrymq-cluster.image" -}}
{{- if kindIs "string" .image -}}
{{ .image }}
{{- else -}}
{{- $tag := ternary "" .root.Chart.AppVersion (ne (.image.digest | default "") "") -}}
{{ .image.repository }}{{ with .image.tag | default $tag }}:{{ . }}{{ end }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{- define "gantrymq-cluster.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
