{{- define "monolock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "monolock" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-monolock" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "monolock.selectorLabels" -}}
app.kubernetes.io/name: monolock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "monolock.labels" -}}
{{ include "monolock.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "monolock.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "monolock.fullname" .)) -}}
{{- end -}}
