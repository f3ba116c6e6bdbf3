//! Manifests of the application: bare pod, Deployment, Job and CronJob.

use serde_json::{Value, json};

/// Application to run in a case's namespace.
#[derive(Clone, Debug)]
pub struct App {
    name: String,
    image: Option<String>,
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
    /// Returns an application that asks for the flag `checkout` and is not injected.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            image: None,
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

    /// Runs the image of the application from another place.
    #[must_use]
    pub fn image(mut self, image: &str) -> Self {
        self.image = Some(image.to_owned());
        self
    }

    /// Requests injection with these environments.
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

    /// Sets the flag to ask for.
    #[must_use]
    pub fn flag(mut self, flag: &str) -> Self {
        flag.clone_into(&mut self.flag);
        self
    }

    /// Sends the environment's key over OFREP too.
    #[must_use]
    pub fn asking_with_key(mut self) -> Self {
        self.key_for_ofrep = true;
        self
    }

    /// Continues to poll for this many milliseconds after the termination signal.
    #[must_use]
    pub fn linger(mut self, millis: u64) -> Self {
        self.linger_millis = millis;
        self
    }

    /// Shares the pod's process namespace, so that the application can see and kill the sidecar's process.
    #[must_use]
    pub fn seeing_processes(mut self) -> Self {
        self.sees_processes = true;
        self
    }

    /// Meets the `restricted` Pod Security Standard.
    #[must_use]
    pub fn restricted(mut self) -> Self {
        self.restricted = true;
        self
    }

    /// Meets the `restricted` standard, with a user that the platform assigned to the whole pod.
    #[must_use]
    pub fn as_user(mut self, user: u64) -> Self {
        self.user = Some(user);
        self.restricted()
    }

    /// Sets the resources, in place of small requests without limits.
    #[must_use]
    pub fn resources(mut self, resources: Value) -> Self {
        self.resources = resources;
        self
    }

    /// Returns the name of the application.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the metadata and specification of a pod.
    fn template(&self, image: &str, client_key: &str, mode: &str) -> Value {
        let mut container = json!({
            "name": "app", "image": self.image.as_deref().unwrap_or(image), "imagePullPolicy": "IfNotPresent",
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
            // Root in the container may kill a process of the sidecar's user.
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
                "terminationGracePeriodSeconds": if self.linger_millis == 0 { 5 } else { 30 },
                "shareProcessNamespace": self.sees_processes,
                "securityContext": pod_security,
                "containers": [container],
            },
        })
    }

    /// Returns the manifest of a bare pod.
    pub(super) fn pod(&self, image: &str, client_key: &str, mode: &str) -> Value {
        let mut pod = self.template(image, client_key, mode);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(self.name);
        pod["spec"]["restartPolicy"] = json!("Never");
        pod
    }

    /// Returns the manifest of a Deployment.
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

    /// Returns the manifest of a CronJob that runs a Job every minute and keeps only one.
    pub(super) fn cron_job(&self, image: &str, client_key: &str) -> Value {
        let job = self.job(image, client_key, 1);
        json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": self.name},
            "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job["spec"]}},
        })
    }

    /// Returns the manifest of a Job without retries.
    pub(super) fn job(&self, image: &str, client_key: &str, pods: u32) -> Value {
        let mut template = self.template(image, client_key, "once");
        template["spec"]["restartPolicy"] = json!("Never");
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name},
            "spec": {"completions": pods, "parallelism": pods, "backoffLimit": 0, "template": template},
        })
    }
}
