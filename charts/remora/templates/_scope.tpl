{{/* Pods that the webhook's registration and the policies select. */}}

{{/* Not empty if a webhook or policies inject, so that the self-check and helm test can succeed. */}}
{{- define "remora.injects" -}}
{{- if or (eq .Values.injection.by "AdmissionPolicy") (gt (int .Values.webhook.replicas) 0) }}true{{ end -}}
{{- end }}

{{/*
Selector of namespaces. It excludes those whose pods the cluster needs for its start. It always selects the release's own namespace,
where the self-check sends its dry runs: the condition not-of-the-operator passes nothing else of that namespace.
*/}}
{{- define "remora.scope.namespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- range without (concat (list "kube-system" "kube-node-lease") (.Values.webhook.excludedNamespaces | default list) | uniq) .Release.Namespace }}
      - {{ . | quote }}
      {{- end }}
  {{- with .Values.controller.namespaces }}
  - key: kubernetes.io/metadata.name
    operator: In
    values:
      {{- append . $.Release.Namespace | uniq | toYaml | nindent 6 }}
  {{- end }}
  - key: remora.dev/admission
    operator: NotIn
    values: [disabled]
{{- end }}

{{- define "remora.scope.resources" -}}
- apiGroups: [""]
  apiVersions: [v1]
  resources: [pods]
  operations: [CREATE]
  scope: Namespaced
{{- end }}

{{- define "remora.scope.conditions" -}}
- name: asks-for-flags
  expression: >-
    has(object.metadata.annotations) && 'remora.dev/inject' in object.metadata.annotations
    && object.metadata.annotations['remora.dev/inject'] != 'false'
# The operator's own pods must start without the webhook. Only the self-check's dry run passes.
- name: not-of-the-operator
  expression: >-
    request.namespace != '{{ .Release.Namespace }}' || (has(request.dryRun) && request.dryRun
    && request.userInfo.username == '{{ include "remora.user" (list . "controller") }}')
{{- end }}
