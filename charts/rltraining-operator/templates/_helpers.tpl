{{- /* Name of the installed objects. */ -}}
{{- define "rltraining-operator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- /* Name of the Secret with the key from which the tokens of jobs are derived. */ -}}
{{- define "rltraining-operator.keyName" -}}
{{ include "rltraining-operator.fullname" . }}-key
{{- end -}}

{{- define "rltraining-operator.samplerPriorityClass" -}}
{{- with .Values.jobs.samplerPriorityClass }}
{{- .name | default (ternary (printf "%s-sampler" (include "rltraining-operator.fullname" $)) "" .create) }}
{{- end }}
{{- end -}}

{{- define "rltraining-operator.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (ternary (include "rltraining-operator.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{- /* Labels that select the operator's pods, also in the NetworkPolicies of jobs. They must never change. */ -}}
{{- define "rltraining-operator.selectorLabels" -}}
app.kubernetes.io/name: rltraining-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "rltraining-operator.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: rltraining
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "rltraining-operator.labels" -}}
{{ include "rltraining-operator.selectorLabels" . }}
{{ include "rltraining-operator.commonLabels" . }}
{{- end -}}

{{- /* Labels of the pod of `helm test`; the operator's Service must not select it. */ -}}
{{- define "rltraining-operator.testLabels" -}}
app.kubernetes.io/name: rltraining-operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: test
{{- end -}}

{{- /* registry/repository:tag or registry/repository@digest, of a list: an image value and the chart's appVersion. */ -}}
{{- define "rltraining-operator.image" -}}
{{- $image := index . 0 -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1) }}{{ end -}}
{{- end -}}

{{- /* Rejects values that would install but not work. */ -}}
{{- define "rltraining-operator.check" -}}
{{- $election := .Values.leaderElection -}}
{{- if ge (float64 $election.renewSeconds) (float64 $election.leaseSeconds) -}}
{{- fail "leaderElection.renewSeconds must be less than leaseSeconds: a leader has to step down before another may take over" -}}
{{- end -}}
{{- if ge (float64 $election.retrySeconds) (float64 $election.renewSeconds) -}}
{{- fail "leaderElection.retrySeconds must be less than renewSeconds: a leader needs more than one attempt" -}}
{{- end -}}
{{- $ports := splitList "-" .Values.jobs.rpcPorts -}}
{{- $first := index $ports 0 | atoi -}}
{{- $last := index $ports 1 | atoi -}}
{{- if or (lt $first 1024) (gt $last 65535) (ge $first $last) -}}
{{- fail (printf "jobs.rpcPorts %q must be first-last, with 1024 <= first < last <= 65535" .Values.jobs.rpcPorts) -}}
{{- end -}}
{{- end -}}
