{{/* Of everything in the release. A release named remora gives remora, any other remora-<release>. */}}
{{- define "remora.name" -}}
{{- if eq .Release.Name "remora" }}remora{{ else }}remora-{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* What an object belongs to. */}}
{{- define "remora.labels" -}}
app.kubernetes.io/name: remora
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What pods of one part are found by: [context, part]. */}}
{{- define "remora.selector" -}}
app.kubernetes.io/name: remora
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* An image: [context, its values]. */}}
{{- define "remora.image" -}}
{{- with index . 1 -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (index $ 0).Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* The Secret with the webhook's certificate; empty where the webhook makes it. */}}
{{- define "remora.certificate" -}}
{{- with .Values.webhook.certificates -}}
{{- if eq .source "CertManager" }}{{ include "remora.name" $ }}-webhook-certificate
{{- else if eq .source "Secret" }}{{ required "webhook.certificates.secretName: which Secret has the webhook's certificate?" .secretName }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Strings of CEL, separated by commas. */}}
{{- define "remora.quoted" -}}
{{- $quoted := list -}}
{{- range . }}{{ $quoted = append $quoted (squote .) }}{{ end -}}
{{- join ", " $quoted -}}
{{- end -}}
