{{- /*
The operator's rights on jobs and their child objects: rules of one ClusterRole, or of a Role in each namespace of
watchNamespaces. A test on a cluster shows that each verb is used and that none is missing.
*/ -}}
{{- define "rltraining-operator.rules" -}}
- apiGroups: [rltraining.dev]
  resources: [rltrainingjobs]
  verbs: [list, watch, delete] # delete: ttlSecondsAfterFinished
- apiGroups: [rltraining.dev]
  resources: [rltrainingjobs/status]
  verbs: [patch]
- apiGroups: [rltraining.dev]
  resources: [rltrainingjobs/finalizers]
  verbs: [update] # to make jobs owners that block deletion, if OwnerReferencesPermissionEnforcement requires it
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [create] # the job's token; no Secret is read
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, create]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch] # list: events of a pod that does not start name the missing ConfigMap or Secret
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
{{- with .Values.metrics.podMonitor }}
{{- if and .enabled .perJob }}
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch]
{{- end }}
{{- end }}
{{- if .Values.gangScheduling.enabled }}
- apiGroups: [scheduling.volcano.sh, scheduling.x-k8s.io]
  resources: [podgroups]
  verbs: [get, create, patch]
{{- end }}
{{- end -}}

{{- /* Rights in the operator's namespace: hold the leader's Lease, read the key, and write the key once. */ -}}
{{- define "rltraining-operator.ownRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "rltraining-operator.fullname" . | quote }}]
  verbs: [get, update]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "rltraining-operator.keyName" . | quote }}]
  verbs: [get, update]
{{- end -}}
