# Tasks for developers. Each works on a bare Debian machine with Rust, Go and root.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test requirements check unit e2e generate bench record images cluster-up cluster-down

STEP := e2e/cluster/part.sh
SUMMARY := e2e/cluster/summary.sh
# Example: CARGO_FLAGS=--locked.
export CARGO_FLAGS ?=
# A machine that runs the tests once has no use for the files of incremental compilation, which take more than 10 GB.
ifeq ($(CI),true)
export CARGO_INCREMENTAL ?= 0
endif

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "demo, test and e2e bring up a local one-node Kubernetes (as root; its programs are built once into"
	@echo "~/.cache/remora). To use a cluster of yours instead: set KUBECONFIG, and REMORA_IMAGE_PREFIX (and"
	@echo "REMORA_IMAGE_TAG, default dev) to where that cluster can pull the three images from; helm and kubectl"
	@echo "have to be on PATH. Nothing is then started here, and there nothing outside own namespaces is touched."

demo: ## Show Remora from installation to a flipped flag on a cluster; the cluster keeps running
	@$(STEP) demo e2e/cluster/with.sh e2e/demo.sh

.PHONY: taste
taste: ## Serve a sample document on localhost without a cluster, and print commands to try
	@e2e/taste.sh

test: ## Run all checks: format, lints, tests, and the whole path on a cluster (removed afterwards if it is new)
	@$(SUMMARY) $(MAKE) --no-print-directory requirements check unit e2e

requirements: ## Install what the tests without a cluster need, and print what is missing
	@$(STEP) "requirements" e2e/cluster/requirements.sh

check: requirements ## Check format, lints and workflows
	@$(STEP) "format" cargo fmt --all --check
	@$(STEP) "workflows" e2e/release/lint.sh
	@$(STEP) "lints" cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings

unit: requirements ## Run the tests that need no cluster, and list those that did not run
	@$(SUMMARY) $(STEP) "tests without a cluster" cargo test $(CARGO_FLAGS) --workspace --exclude remora-e2e

e2e: ## Run the tests that need a cluster (KUBERNETES=1.37: on that version)
	@$(STEP) "tests on a cluster" e2e/cluster/with.sh --restore e2e/cluster/previous.sh cargo test $(CARGO_FLAGS) -p remora-e2e --no-fail-fast -- --test-threads 6

bench: ## Measure Remora against bare hyper and Flagsmith's engine, and print a table (PART=population, documents or sizes: only that part)
	@$(STEP) "bench" sidecar/benches/run.sh $(PART)

generate: ## Write all generated texts again: CRDs, policies, expected pods, the chart's version and values, the format's example
	@$(STEP) "generated texts" env REMORA_REWRITE=1 cargo test $(CARGO_FLAGS) -p remora-operator --test crds --test policy --test inject
	@$(STEP) "version and values of the chart" env REMORA_REWRITE=1 cargo test $(CARGO_FLAGS) -p remora-testing --test version --test chart_values
	@$(STEP) "example of the format" env REMORA_REWRITE=1 cargo test $(CARGO_FLAGS) -p remora-snapshot --lib example

record: ## Record again the instruction count of each path, which the tests compare with
	@e2e/cluster/packages.sh --tests
	@$(STEP) "instructions" env REMORA_RECORD=yes cargo test $(CARGO_FLAGS) -p remora-bench --test instructions

.PHONY: profile
profile: ## Record again the sidecar's profile for release builds; takes minutes, on any machine
	@$(STEP) "the sidecar's profile" sidecar/profile/record.sh

.PHONY: fuzz
fuzz: ## Search for inputs that break a property: run each target of e2e/fuzz for MINUTES minutes (default: 1)
	@e2e/cluster/packages.sh --tests g++:c++
	@$(STEP) "fuzz targets" e2e/fuzz/run.sh $(or $(MINUTES),1) $(TARGETS)

.PHONY: fuzz-engine
fuzz-engine: ## Compare answers with those of Flagsmith's own engine for SECONDS seconds (default: 600)
	@operator/compile/tests/differential/python.sh
	@$(STEP) "Flagsmith's engine and ours" env REMORA_DIFFERENTIAL_SECONDS=$(or $(SECONDS),600) \
	  cargo test $(CARGO_FLAGS) --release -p remora-compile --test differential -- --nocapture random

.PHONY: test-flagsmith
test-flagsmith: ## Compare with a Flagsmith server: REMORA_FLAGSMITH_URL, REMORA_FLAGSMITH_TOKEN (creates and deletes a project)
	@test -n "$$REMORA_FLAGSMITH_URL" || { echo "set REMORA_FLAGSMITH_URL to the API of the server, such as https://flags.example.org/api/v1/" >&2; exit 2; }
	@test -n "$$REMORA_FLAGSMITH_TOKEN" || { echo "set REMORA_FLAGSMITH_TOKEN to a user's API token, or to an API key of the organisation, that may create projects; REMORA_FLAGSMITH_ORGANISATION selects an organisation by its id (default: the first)" >&2; exit 2; }
	@$(STEP) "a Flagsmith server and a sidecar" cargo test $(CARGO_FLAGS) -p remora-e2e --test flagsmith_server -- --nocapture sidecar_answers

.PHONY: swaps
swaps: ## Swap a snapshot under load SWAPS times (default: 1000000), and check every answer against the published flags
	@$(STEP) "swaps under load" env REMORA_SWAPS=$(or $(SWAPS),1000000) \
	  cargo test $(CARGO_FLAGS) -p remora-sidecar --test follow -- --nocapture swaps_under_load_fail_no_request

.PHONY: scale
scale: ## Measure the operator with ENVIRONMENTS (200) environments and PODS (2000) pods on an API server of its own
	@$(STEP) "scale" e2e/scale/run.sh

.PHONY: cuts
cuts: ## Cut the controller around every write of every scenario, and run PLANS random plans (default: 2000)
	@$(STEP) "plans of cuts" env REMORA_CUTS_PLANS=$(or $(PLANS),2000) \
	  cargo test $(CARGO_FLAGS) --release -p remora-operator --test cuts -- --nocapture --test-threads=1 undisturbed_run
	@$(STEP) "plans of cuts before a real API server" e2e/tests/cuts/run.sh

.PHONY: rotation
rotation: ## Rotate the webhook's certificates during 10,000 pod creations, and print the answer times
	@$(STEP) "certificates under load" env REMORA_E2E_CREATIONS=10000 e2e/cluster/with.sh --restore \
	  cargo test $(CARGO_FLAGS) -p remora-e2e --test exclusive -- --nocapture certificates

.PHONY: arm64
arm64: ## Build the programs for arm64, and test them by emulation; takes long, on Debian for amd64
	@$(STEP) "arm64" e2e/release/arm64.sh

.PHONY: advisories
advisories: ## Check the dependencies for known vulnerabilities (cargo-deny fetches the advisory database)
	@$(STEP) "advisories" e2e/release/advisories.sh

.PHONY: release release-requirements release-check publish release-upload
release-requirements: ## Install the Debian packages that a release needs
	@e2e/release/requirements.sh

release: ## Make everything of a release in target/release (REGISTRY=registry.example.org/remora: where it is published)
	@$(STEP) "release" e2e/release/release.sh

release-check: ## Check that the tag RELEASE_TAG is of this version, and that the changelog has its date
	@e2e/release/check.sh "$(RELEASE_TAG)"

publish: ## Push the images and the chart of the release to REGISTRY, and sign them if cosign is on PATH
	@$(STEP) "publish" e2e/release/publish.sh

release-upload: ## Create the release RELEASE_TAG on GitHub with its files
	@e2e/release/upload.sh "$(RELEASE_TAG)"

.PHONY: give-back
give-back: ## Give what root has made in target and in the caches to the user OWNER
	@chown -R "$(OWNER)" target "$${XDG_CACHE_HOME:-$$HOME/.cache}/remora" "$${CARGO_HOME:-$$HOME/.cargo}/registry"

images: ## Build the programs and load their images into the local cluster
	@$(STEP) images e2e/cluster/images.sh

.PHONY: image-archives
image-archives: ## Build the programs, and pack them into images as archives, for a cluster of yours (REMORA_IMAGE_PREFIX)
	@$(STEP) "archives of images" e2e/cluster/archives.sh

cluster-up: ## Start the local cluster, and print how to use it
	@$(STEP) "local cluster" e2e/cluster/up.sh

cluster-down: ## Stop the local cluster and remove its state; its programs stay in ~/.cache/remora
	@e2e/cluster/down.sh --purge
