{{/* Whose pods are asked about: the registration's, and those of the policies. */}}

{{/* What the cluster must be able to start without us. */}}
{{- define "remora.scope.namespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- range concat (list "kube-system" "kube-node-lease") .Values.webhook.excludedNamespaces | uniq }}
      - {{ . }}
      {{- end }}
  {{- with .Values.controller.namespaces }}
  - key: kubernetes.io/metadata.name
    operator: In
    values:
      {{- toYaml . | nindent 6 }}
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
# What the operator itself must be able to start without. Its self-check asks here, by a dry run.
- name: not-of-the-operator
  expression: >-
    request.namespace != '{{ .Release.Namespace }}' || (has(request.dryRun) && request.dryRun
    && request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:{{ include "remora.name" . }}-controller')
{{- end }}
