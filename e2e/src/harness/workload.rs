//! The application's manifests: as a bare pod, a Deployment, a Job.

use serde_json::{Value, json};

/// An application that is to be run in a case's namespace.
#[derive(Clone, Debug)]
pub struct App {
    name: String,
    annotations: Vec<(String, String)>,
    flag: String,
    identifier: String,
    linger_millis: u64,
    key_for_ofrep: bool,
    sees_processes: bool,
    restricted: bool,
    user: Option<u64>,
    resources: Value,
}

impl App {
    /// An application that asks for the flag `checkout` and is not injected.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            annotations: Vec::new(),
            flag: "checkout".to_owned(),
            identifier: "someone".to_owned(),
            linger_millis: 0,
            key_for_ofrep: false,
            sees_processes: false,
            restricted: false,
            user: None,
            resources: json!({"requests": {"cpu": "5m", "memory": "8Mi"}}),
        }
    }

    /// Asks for injection with these environments.
    #[must_use]
    pub fn inject(self, environments: &str) -> Self {
        self.annotate("remora.dev/inject", environments)
    }

    /// Adds an annotation to the pod.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Asks for another flag.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        flag.clone_into(&mut self.flag);
        self
    }

    /// Says through OFREP too which environment it means.
    #[must_use]
    pub fn asking_with_key(mut self) -> Self {
        self.key_for_ofrep = true;
        self
    }

    /// Goes on asking for so long after it was told to terminate.
    #[must_use]
    pub fn linger(mut self, millis: u64) -> Self {
        self.linger_millis = millis;
        self
    }

    /// Sees the sidecar's process, and may end it.
    #[must_use]
    pub fn seeing_processes(mut self) -> Self {
        self.sees_processes = true;
        self
    }

    /// Is what a namespace of the `restricted` Pod Security Standard takes.
    #[must_use]
    pub fn restricted(mut self) -> Self {
        self.restricted = true;
        self
    }

    /// Is what such a namespace takes, as a user that the platform assigned to the whole pod.
    #[must_use]
    pub fn as_user(mut self, user: u64) -> Self {
        self.user = Some(user);
        self.restricted()
    }

    /// Has other resources than few requests and no limits.
    #[must_use]
    pub fn resources(mut self, resources: Value) -> Self {
        self.resources = resources;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The metadata and specification of a pod.
    fn template(&self, image: &str, client_key: &str, mode: &str) -> Value {
        let mut container = json!({
            "name": "app", "image": image, "imagePullPolicy": "IfNotPresent",
            "args": ["app", mode, "--flag", self.flag, "--environment-key", client_key, "--identifier", self.identifier],
            "resources": self.resources,
        });
        if self.key_for_ofrep
            && let Some(arguments) = container["args"].as_array_mut()
        {
            arguments.push(json!("--key-for-ofrep"));
        }
        if mode == "serve" {
            if let Some(arguments) = container["args"].as_array_mut() {
                arguments.extend([json!("--linger"), json!(self.linger_millis.to_string())]);
            }
            container["ports"] = json!([{"containerPort": 8080}]);
            container["readinessProbe"] = json!({"httpGet": {"path": "/first", "port": 8080}, "periodSeconds": 1});
        }
        if self.sees_processes {
            // Root of the container, to be allowed to end a process of the sidecar's user.
            container["securityContext"] = json!({"runAsUser": 0});
        }
        if self.restricted {
            container["securityContext"] = json!({
                "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 65532,
                "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            });
        }
        let mut pod_security = json!({});
        if let Some(user) = self.user {
            container["securityContext"]["runAsUser"] = Value::Null;
            pod_security = json!({"runAsUser": user, "fsGroup": user});
        }
        json!({
            "metadata": {
                "labels": {"app": self.name},
                "annotations": self.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
            },
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "shareProcessNamespace": self.sees_processes,
                "securityContext": pod_security,
                "containers": [container],
            },
        })
    }

    /// A pod of its own.
    pub(super) fn pod(&self, image: &str, client_key: &str, mode: &str) -> Value {
        let mut pod = self.template(image, client_key, mode);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(self.name);
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    }

    /// A Deployment.
    pub(super) fn deployment(&self, image: &str, client_key: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": self.name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": self.template(image, client_key, "serve"),
            },
        })
    }

    /// A CronJob whose Job runs every minute, and of which only one is kept.
    pub(super) fn cron_job(&self, image: &str, client_key: &str) -> Value {
        let job = self.job(image, client_key, 1);
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": self.name},
            "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job["spec"]}},
        })
    }

    /// A Job in which nothing is tried twice.
    pub(super) fn job(&self, image: &str, client_key: &str, pods: u32) -> Value {
        let mut template = self.template(image, client_key, "once");
        template["spec"]["restartPolicy"] = json!("Never");
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name},
            "spec": {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": template},
        })
    }
}
