{{- define "exportd.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "exportd.selector" -}}
app.kubernetes.io/name: exportd
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "exportd.labels" -}}
{{ include "exportd.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "exportd.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "exportd.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "exportd.fullname" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- /* What all pods share. */}}
{{- define "exportd.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "exportd.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* Secrets of a component, as component/file/reference: the file is what a variable with _FILE names. */}}
{{- define "exportd.files" -}}
{{- $s := .root.Values.secrets }}
{{- $files := dict }}
{{- if eq .component "api" }}
{{- $files = dict "database-url" $s.apiDatabaseURL "broker-password" $s.apiBrokerPassword "webhook-secret" $s.webhook "tokens" $s.tokens "broker-ca" $s.brokerCA }}
{{- else if eq .component "consumer" }}
{{- $files = dict "database-url" $s.databaseURL "source-url" $s.sourceURL "broker-password" $s.consumerBrokerPassword "broker-ca" $s.brokerCA }}
{{- else }}
{{- $files = dict "database-url" $s.ownerDatabaseURL }}
{{- end }}
{{- if eq (get .root.Values.settings "EXPORTD_DISPATCH" | default "broker") "database" }}{{ $files = omit $files "broker-password" "broker-ca" }}{{ end }}
{{- range $file, $ref := $files }}
{{- if not $ref.name }}{{ $files = omit $files $file }}{{ end }}
{{- end }}
{{- toJson $files }}
{{- end }}

{{- define "exportd.env" -}}
{{- $component := get .root.Values .component | default dict }}
{{- $settings := merge (dict) (get $component "settings" | default dict) .root.Values.settings }}
{{- if eq .component "migrate" }}{{ $settings = pick $settings "EXPORTD_LOG_FORMAT" "EXPORTD_LOG_LEVEL" }}{{ end }}
{{- range $name := list "EXPORTD_DATABASE_URL" "EXPORTD_SOURCE_URL" "EXPORTD_BROKER_PASSWORD" "EXPORTD_WEBHOOK_SECRET" "AWS_SECRET_ACCESS_KEY" }}
{{- if hasKey $settings $name }}{{ fail (printf "%s is a secret: put it into a Secret and name that in secrets" $name) }}{{ end }}
{{- end }}
{{- $files := fromJson (include "exportd.files" .) }}
{{- range $name, $value := $settings }}
{{- if ne (toString $value) "" }}
- {name: {{ $name }}, value: {{ toString $value | quote }}}
{{- end }}
{{- end }}
{{- range $file, $ref := $files }}
{{- if eq $file "tokens" }}
- {name: EXPORTD_TOKENS_FILE, value: /etc/exportd/tokens}
{{- else if eq $file "broker-ca" }}
- {name: EXPORTD_BROKER_CA_FILE, value: /etc/exportd/broker-ca}
{{- else }}
- {name: EXPORTD_{{ $file | upper | replace "-" "_" }}_FILE, value: /etc/exportd/{{ $file }}}
{{- end }}
{{- end }}
{{- if ne .component "migrate" }}
- {name: EXPORTD_HTTP_ADDR, value: ":8080"}
- {name: EXPORTD_DRAIN_TIMEOUT, value: {{ printf "%ds" (int .root.Values.drainSeconds) | quote }}}
{{- with .root.Values.secrets }}
{{- if .awsAccessKey.name }}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ .awsAccessKey.name }}, key: {{ .awsAccessKey.key }}}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ .awsSecretKey.name }}, key: {{ .awsSecretKey.key }}}}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "exportd.volumes" -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
    {{- range $file, $ref := fromJson (include "exportd.files" .) }}
    - secret: {name: {{ $ref.name }}, items: [{key: {{ $ref.key }}, path: {{ $file }}}]}
    {{- end }}
{{- end }}
