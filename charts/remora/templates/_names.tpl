{{/* Prefix of all names in the release: remora for a release named remora, else remora-<release>. */}}
{{- define "remora.name" -}}
{{- if eq .Release.Name "remora" }}remora{{ else }}remora-{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* Labels of every object of the chart. */}}
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

{{/* Labels that select the pods of one part: [context, part]. */}}
{{- define "remora.selector" -}}
app.kubernetes.io/name: remora
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Reference of an image: [context, its values]. */}}
{{- define "remora.image" -}}
{{- with index . 1 -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default (index $ 0).Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Name of the Secret with the webhook's certificate. Empty if the webhook creates the certificate. */}}
{{- define "remora.certificate" -}}
{{- with .Values.webhook.certificates -}}
{{- if eq .source "CertManager" }}{{ include "remora.name" $ }}-webhook-certificate
{{- else if eq .source "Secret" }}{{ required "webhook.certificates.secretName: which Secret has the webhook's certificate?" .secretName }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A list as CEL strings, separated by commas. */}}
{{- define "remora.quoted" -}}
{{- $quoted := list -}}
{{- range . }}{{ $quoted = append $quoted (squote .) }}{{ end -}}
{{- join ", " $quoted -}}
{{- end -}}
